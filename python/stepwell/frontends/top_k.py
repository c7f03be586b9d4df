"""Custom calls of JAX that find the largest elements.

    %v, %i = stablehlo.custom_call @ApproxTopK(%x, %iota, %low, %none)
        {called_computations = [@greater], mhlo.backend_config = {reduction_dim = 1, top_k = 3, ..}}

may find them approximately; it becomes a sort of %x and %iota by `@greater`, of which the first
three are taken. So does `@stablehlo.dynamic_approx_top_k`, whose last operand is k. And
`@mhlo.topk` of {mhlo.attributes = {k = 3, largest = true}} is `chlo.top_k`.
"""

from __future__ import annotations

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir, nested_operations

_TOLD = {
    "ApproxTopK": "mhlo.backend_config",
    "stablehlo.dynamic_approx_top_k": "mhlo.backend_config",
    "mhlo.topk": "mhlo.attributes",
}
"""The attribute that says what is wanted, by the target of the call."""


def legalize_top_k(module: ir.Module) -> None:
    """Rewrite every such custom call of known shape; a context and a location are current."""
    found: list[tuple[str, ir.Operation]] = []
    for op in nested_operations(module.operation):
        if op.name == "stablehlo.custom_call" and _is_static(op):
            target = ir.StringAttr(op.attributes["call_target_name"]).value
            if target in _TOLD and _TOLD[target] in op.attributes:
                found.append((target, op))
    symbols = ir.SymbolTable(module.operation)
    for target, op in found:
        told = ir.DictAttr(op.attributes[_TOLD[target]])
        with ir.InsertionPoint(op), op.location:
            results = _largest(op, told) if target == "mhlo.topk" else _sorted(op, told, symbols)
        if results is not None:
            for result, value in zip(op.results, results, strict=True):
                result.replace_all_uses_with(value)
            op.erase()


def _largest(op: ir.Operation, told: ir.DictAttr) -> list[ir.Value] | None:
    if "largest" in told and not ir.BoolAttr(told["largest"]).value:
        return None
    kinds = [result.type for result in op.results]
    return list(
        ir.Operation.create("chlo.top_k", kinds, list(op.operands), {"k": told["k"]}).results
    )


def _is_static(op: ir.Operation) -> bool:
    kinds = [value.type for value in (*op.operands, *op.results)]
    return all(isinstance(kind, ir.RankedTensorType) and kind.has_static_shape for kind in kinds)


def _sorted(op: ir.Operation, told: ir.DictAttr, symbols: ir.SymbolTable) -> list[ir.Value]:
    """The operands are those to sort, then as many initial values, which nothing needs."""
    name = ir.FlatSymbolRefAttr(ir.ArrayAttr(op.attributes["called_computations"])[0]).value
    operands = list(op.operands)[: len(op.results)]
    order = ir.Operation.create(
        "stablehlo.sort",
        [value.type for value in operands],
        operands,
        {"dimension": told["reduction_dim"], "is_stable": ir.BoolAttr.get(True)},
        regions=1,
    )
    copy_body(symbols[name].operation.regions[0].blocks[0], order.regions[0])
    return [
        hlo.slice(value, [0] * len(hlo.shape(result)), hlo.shape(result))
        for result, value in zip(op.results, order.results, strict=True)
    ]


def copy_body(source: ir.Block, region: ir.Region) -> None:
    """A function's body as that of an operation."""
    block = region.blocks.append(*[argument.type for argument in source.arguments])
    values = dict(zip(source.arguments, block.arguments, strict=True))
    with ir.InsertionPoint(block):
        for child in source.operations:
            op = child.operation
            operands = [values[operand] for operand in op.operands]
            if op.name == "func.return":
                ir.Operation.create("stablehlo.return", operands=operands)
                continue
            copy = op.clone()
            for number, operand in enumerate(operands):
                copy.operands[number] = operand
            values |= dict(zip(op.results, copy.results, strict=True))
