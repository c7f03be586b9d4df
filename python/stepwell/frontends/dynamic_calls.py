"""Custom calls of JAX that an operand tells a shape, and their plain form once it is a constant.

    %k = stablehlo.constant dense<3>
    %v, %i = stablehlo.custom_call @stablehlo.dynamic_top_k(%x, %k)     ->     chlo.top_k(%x, k = 3)

Upstream's refinement leaves them as they are.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stepwell.frontends.top_k import copy_body
from stepwell.mlir import ir, nested_operations

_Rule = Callable[[ir.Operation, ir.SymbolTable], list[ir.Value] | None]


def fix_shapes(module: ir.Module, main: ir.Operation) -> bool:
    """Rewrite the calls in `main` whose shapes are constants; returns whether there were any, whose
    shapes others may depend on."""
    symbols = ir.SymbolTable(module.operation)
    found = [(op, rule) for op in nested_operations(main) if (rule := _rule_of(op)) is not None]
    changed = False
    for op, rule in found:
        with ir.InsertionPoint(op), op.location:
            results = rule(op, symbols)
        if results is None:
            continue
        for old, new in zip(op.results, results, strict=True):
            old.replace_all_uses_with(new)
        op.erase()
        changed = True
    if changed:
        block = main.regions[0].blocks[0]
        end = list(block.operations)[-1]
        kinds = [argument.type for argument in block.arguments], [v.type for v in end.operands]
        main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(*kinds))
    return changed


def _rule_of(op: ir.Operation) -> _Rule | None:
    if op.name != "stablehlo.custom_call":
        return None
    return _RULES.get(ir.StringAttr(op.attributes["call_target_name"]).value)


def _known(value: ir.Value) -> np.ndarray | None:
    """The integers that `value` is, if it is a constant."""
    if not isinstance(value, ir.OpResult) or value.owner.operation.name != "stablehlo.constant":
        return None
    return np.array(ir.DenseElementsAttr(value.owner.operation.attributes["value"]))


def _rng_bit_generator(op: ir.Operation, _: ir.SymbolTable) -> list[ir.Value] | None:
    """(state, shape of the bits)"""
    shape = _known(op.operands[1])
    if shape is None:
        return None
    state, bits = op.results
    sizes = [int(size) for size in shape.reshape(-1)]
    element = ir.RankedTensorType(bits.type).element_type
    return list(
        ir.Operation.create(
            "stablehlo.rng_bit_generator",
            [state.type, ir.RankedTensorType.get(sizes, element)],
            [op.operands[0]],
            {"rng_algorithm": op.attributes["rng_algorithm"]},
        ).results
    )


def _top_k(op: ir.Operation, _: ir.SymbolTable) -> list[ir.Value] | None:
    """(elements, k)"""
    k = _known(op.operands[1])
    if k is None:
        return None
    *lead, _last = ir.RankedTensorType(op.operands[0].type).shape
    shape = [*lead, int(k.item())]
    elements = [ir.RankedTensorType(result.type).element_type for result in op.results]
    kinds = [ir.RankedTensorType.get(shape, element) for element in elements]
    count = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), shape[-1])
    return list(ir.Operation.create("chlo.top_k", kinds, [op.operands[0]], {"k": count}).results)


def _reduce_window(op: ir.Operation, symbols: ir.SymbolTable) -> list[ir.Value] | None:
    """(operands, initial values, window, strides, base dilations, window dilations, padding)"""
    count = len(op.results)
    operands, inits = list(op.operands)[:count], list(op.operands)[count : 2 * count]
    told = [_known(value) for value in list(op.operands)[2 * count :]]
    image = ir.RankedTensorType(operands[0].type)
    if any(numbers is None for numbers in told) or not image.has_static_shape:
        return None
    window, strides, base, dilations, padding = (np.array(numbers, np.int64) for numbers in told)
    padding = padding.reshape(-1, 2)
    sizes = np.array(image.shape, np.int64)
    padded = np.where(sizes == 0, 0, (sizes - 1) * base + 1) + padding.sum(1)
    reach = np.where(window == 0, 0, (window - 1) * dilations + 1)
    counts = np.where(padded < reach, 0, (padded - reach) // strides + 1)
    shape = [int(n) for n in np.where(padded == 0, 0, counts)]
    elements = [ir.RankedTensorType(result.type).element_type for result in op.results]
    i64 = ir.IntegerType.get_signless(64)
    attributes: dict[str, ir.Attribute] = {
        name: ir.DenseI64ArrayAttr.get([int(n) for n in numbers])
        for name, numbers in (
            ("window_dimensions", window),
            ("window_strides", strides),
            ("base_dilations", base),
            ("window_dilations", dilations),
        )
    }
    attributes["padding"] = ir.DenseElementsAttr.get(np.ascontiguousarray(padding), type=i64)
    reduced = ir.Operation.create(
        "stablehlo.reduce_window",
        [ir.RankedTensorType.get(shape, element) for element in elements],
        [*operands, *inits],
        attributes,
        regions=1,
    )
    name = ir.FlatSymbolRefAttr(ir.ArrayAttr(op.attributes["called_computations"])[0]).value
    copy_body(symbols[name].operation.regions[0].blocks[0], reduced.regions[0])
    return list(reduced.results)


_RULES: dict[str, _Rule] = {
    "stablehlo.dynamic_rng_bit_generator": _rng_bit_generator,
    "stablehlo.dynamic_top_k": _top_k,
    "stablehlo.dynamic_reduce_window": _reduce_window,
}
