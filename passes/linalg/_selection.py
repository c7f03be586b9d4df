"""Sorts of which the first few elements are read, as kernels that find these alone.

    %v, %p = "stablehlo.sort"(%x, %iota) ({greater}) : (tensor<4x1000xf32>, tensor<4x1000xi32>)
    slices [0:4, 0:5] of both

become slices of what a kernel (`stepwell/kernels/selection.py`) gives:

    %v, %p = call @kernel_selection_0(%x, ..) : (tensor<4x1000x1xf32>, ..)
        -> (tensor<4x5x1xf32>, tensor<4x5x1xi32>)
"""

from __future__ import annotations

import math

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.kernels.selection import (
    ATTRIBUTE,
    KIND,
    NUMBER,
    SIGNED,
    TOTAL,
    UNSIGNED,
    Selection,
    is_by_columns,
    is_selected,
    lanes_of_keys,
)
from stepwell.mlir import dialect, ir
from stepwell.passes.linalg._kernel_calls import call_kernel
from stepwell.passes.linalg._radix_sort import Key
from stepwell.passes.stablehlo._values import constant_array, integer, integers, producer, splat
from stepwell.targets import Target
from stepwell.weights import WeightTable

tensor = dialect("tensor")


def select_in_kernel(
    op: ir.Operation, dimension: int, few: int, target: Target, weights: WeightTable
) -> list[ir.Value] | None:
    """What stands for the results of a sort in the host: their first `few` elements along
    `dimension`. None for comparators of more than one operand's elements, for orders that kernels
    do not know and for operands that are neither compared nor positions."""
    less = op.regions[0].blocks[0]
    key = Key.of(less)
    selection = None if key is None else selection_of(key)
    operands = list(op.operands)
    shape = hlo.shape(operands[0])
    if key is None or selection is None or 0 in shape or not is_selected(few, shape[dimension]):
        return None
    others = [operand for n, operand in enumerate(operands) if n != key.operand]
    if not all(is_positions(other, dimension, weights) for other in others):
        return None
    position = hlo.element_type(others[0]) if others else ir.IntegerType.get_signless(32)
    source = operands[key.operand]
    values, positions = _select(selection, source, dimension, few, position, target)
    return [
        values if n == key.operand else hlo.convert(positions, hlo.dtype(operand))
        for n, operand in enumerate(operands)
    ]


def selection_of(key: Key) -> Selection | None:
    """The order of a sort's key as one that kernels know; None for others."""
    kind = hlo.element_type(key.value)
    if isinstance(key.value, ir.BlockArgument):
        if isinstance(kind, ir.IntegerType):
            return Selection(UNSIGNED if kind.is_unsigned else SIGNED, key.descends)
        return Selection(TOTAL, key.descends)
    return Selection(NUMBER, key.descends) if _is_number(key.value) else None


def _is_number(value: ir.Value) -> bool:
    """Whether an element of a comparator is ordered as `hlo.compare_in_order` does it:
    x != x ? nan : (x == 0 ? 0 : x)."""
    outer = producer(value, "select")
    inner = None if outer is None else producer(outer.operands[2], "select")
    if outer is None or inner is None:
        return False
    x = inner.operands[2]
    is_nan, is_zero = (producer(choice.operands[0], "compare") for choice in (outer, inner))
    if not isinstance(x, ir.BlockArgument) or is_nan is None or is_zero is None:
        return False
    nan, zero = splat(outer.operands[1]), splat(inner.operands[1])
    return (
        nan is not None
        and zero is not None
        and math.isnan(nan)
        and zero == 0
        and "NE" in str(is_nan.attributes["comparison_direction"])
        and "EQ" in str(is_zero.attributes["comparison_direction"])
        and list(is_nan.operands) == [x, x]
        and is_zero.operands[0] == x
        and splat(is_zero.operands[1]) == 0
    )


def is_positions(value: ir.Value, dimension: int, weights: WeightTable) -> bool:
    """Whether each element of `value` is its position along `dimension`."""
    iota = producer(value, "iota")
    if iota is not None:
        return integer(iota, "iota_dimension") == dimension
    array = constant_array(value, weights)
    widened = producer(value, "broadcast_in_dim")
    if array is None and widened is not None:
        kept = integers(widened, "broadcast_dimensions")
        source = widened.operands[0]
        return dimension in kept and (
            hlo.shape(source)[kept.index(dimension)] == hlo.shape(value)[dimension]
            and is_positions(source, kept.index(dimension), weights)
        )
    if array is None:
        return False
    shape = [n if d == dimension else 1 for d, n in enumerate(array.shape)]
    return bool(np.all(array == np.arange(array.shape[dimension]).reshape(shape)))


def _select(
    selection: Selection,
    source: ir.Value,
    dimension: int,
    few: int,
    position: ir.Type,
    target: Target,
) -> list[ir.Value]:
    shape = hlo.shape(source)
    outer, inner = math.prod(shape[:dimension]), math.prod(shape[dimension + 1 :])
    length = shape[dimension]
    x = hlo.reshape(source, (outer, length, inner))
    lanes = lanes_of_keys(hlo.element_type(source), target)
    apart = inner > 1 and not is_by_columns((outer, length, inner), few, lanes)
    if apart:
        x = hlo.reshape(hlo.transpose(x, (0, 2, 1)), (outer * inner, length, 1))
    found = (hlo.shape(x)[0], few, hlo.shape(x)[2])
    results = call_kernel(
        KIND,
        ATTRIBUTE,
        selection.to_attribute(),
        [x],
        [tensor.EmptyOp(found, kind).result for kind in (hlo.element_type(source), position)],
    )
    if apart:
        results = [
            hlo.transpose(hlo.reshape(result, (outer, inner, few)), (0, 2, 1)) for result in results
        ]
    wanted = [few if d == dimension else n for d, n in enumerate(shape)]
    return [hlo.reshape(result, wanted) for result in results]
