"""The largest or smallest elements that JAX finds approximately, exactly.

    %v, %i = stablehlo.custom_call @ApproxTopK(%x, %iota, %low, %none)
        {called_computations = [@greater], mhlo.backend_config = {reduction_dim = 1, top_k = 3, ..}}

is a sort of %x and %iota by `@greater`, of which the first three are taken.
"""

from __future__ import annotations

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir

TARGET = "ApproxTopK"


def legalize_approximate_top_k(module: ir.Module) -> None:
    """Rewrite every such custom call of known shape; a context and a location are current."""
    found: list[ir.Operation] = []

    def look(op: ir.Operation) -> ir.WalkResult:
        if op.name == "stablehlo.custom_call" and _is_static(op):
            target = ir.StringAttr(op.attributes["call_target_name"]).value
            if target == TARGET and "mhlo.backend_config" in op.attributes:
                found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(look)
    symbols = ir.SymbolTable(module.operation)
    for op in found:
        name = ir.FlatSymbolRefAttr(ir.ArrayAttr(op.attributes["called_computations"])[0]).value
        with ir.InsertionPoint(op), op.location:
            _rewrite(op, symbols[name].operation)


def _is_static(op: ir.Operation) -> bool:
    return all(ir.RankedTensorType(v.type).has_static_shape for v in (*op.operands, *op.results))


def _rewrite(op: ir.Operation, comparator: ir.Operation) -> None:
    """The operands are those to sort, then as many initial values, which nothing needs."""
    entries = ir.DictAttr(op.attributes["mhlo.backend_config"])
    operands = list(op.operands)[: len(op.results)]
    order = ir.Operation.create(
        "stablehlo.sort",
        [value.type for value in operands],
        operands,
        {"dimension": entries["reduction_dim"], "is_stable": ir.BoolAttr.get(True)},
        regions=1,
    )
    _copy_body(comparator.regions[0].blocks[0], order.regions[0])
    for result, value in zip(op.results, order.results, strict=True):
        shape = hlo.shape(result)
        result.replace_all_uses_with(hlo.slice(value, [0] * len(shape), shape))
    op.erase()


def _copy_body(source: ir.Block, region: ir.Region) -> None:
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
