"""Bounded dimensions, whose size a program sets: they become open ones.

    %1 = stablehlo.set_dimension_size %0, %n, dim = 0
      : (tensor<5xf32>, tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<5>>

becomes a `dynamic_pad` by `%n` less the size so far, to `tensor<?xf32>`: elements that there are
none of are zeros. What is open is compiled for the sizes that calls have; bounds say nothing.
"""

from __future__ import annotations

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir, nested_operations

_BOUNDS = "#stablehlo.bounds"
_SET = "stablehlo.set_dimension_size"


def open_bounded(main: ir.Operation) -> bool:
    """Leave bounds out of the types of all values in `main`, and set sizes by padding; returns
    whether it sets any, on which shapes may depend."""
    ops = nested_operations(main)
    changed = False
    for op in ops:
        inner = [v for region in op.regions for block in region.blocks for v in block.arguments]
        for value in (*op.results, *inner):
            plain = _without_bounds(value.type)
            if plain != value.type:
                value.set_type(plain)
                changed = True
    if changed:
        kind = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
        plain = [[_without_bounds(t) for t in types] for types in (kind.inputs, kind.results)]
        main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(*plain))
    sets = [op for op in ops if op.name == _SET]
    for op in sets:
        with op.location, ir.InsertionPoint(op):
            op.results[0].replace_all_uses_with(_padded(op))
        op.erase()
    return bool(sets)


def _without_bounds(kind: ir.Type) -> ir.Type:
    if not isinstance(kind, ir.RankedTensorType) or kind.encoding is None:
        return kind
    if not str(kind.encoding).startswith(_BOUNDS):
        return kind
    return ir.RankedTensorType.get(kind.shape, kind.element_type)


def _padded(op: ir.Operation) -> ir.Value:
    operand, size = op.operands
    kind = ir.RankedTensorType(operand.type)
    dimension = ir.IntegerAttr(op.attributes["dimension"]).value
    number = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
    attributes = {"dimension": op.attributes["dimension"]}
    names = "stablehlo.get_dimension_size", "stablehlo.dynamic_pad"
    had = ir.Operation.create(names[0], [number], [operand], attributes).results[0]
    none = hlo.full(0, (1,), np.int32)
    high = [none] * kind.rank
    high[dimension] = hlo.reshape(hlo.subtract(size, had), (1,))
    zero = hlo.convert(hlo.full(0, (), np.int32), hlo.dtype(operand))
    zeros = hlo.full(0, (kind.rank,), np.int32)
    operands = [operand, zero, zeros, hlo.concatenate(high, 0), zeros]
    return ir.Operation.create(names[1], [op.results[0].type], operands).results[0]
