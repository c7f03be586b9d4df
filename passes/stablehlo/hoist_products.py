"""hoist-products: what a loop multiplies slice by slice is multiplied at once before it.

    while .. do {
      %row = stablehlo.dynamic_slice %xs, %i, %0, sizes = [1, 256] : (tensor<128x256xf32>, ..)
      %y = stablehlo.dot_general %row, %w : (tensor<1x256xf32>, tensor<256x1024xf32>)
    }
      ->
    %ys = stablehlo.dot_general %xs, %w : (tensor<128x256xf32>, tensor<256x1024xf32>)
    while .. do {
      %y = stablehlo.dynamic_slice %ys, %i, %0, sizes = [1, 1024]
    }

So a recurrent network reads the weights of its inputs once, not at each step. Both operands have to
be the same at each step, and the loop has to go through as many steps as there are slices.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir, nested_operations
from stepwell.mlir import stablehlo as bindings
from stepwell.passes.base import Pass, State
from stepwell.passes.stablehlo._values import constant_array, integers, producer, rebuild
from stepwell.weights import WeightTable

_MOST_ROWS = 32
"""Rows of a step: with more of them, its product uses the weights often enough."""

_MOST_ELEMENTS = 1 << 24
"""Elements of all products together."""


@dataclass(frozen=True)
class HoistProducts(Pass):
    """Look at every loop of the module, the inner ones first."""

    name: ClassVar[str] = "hoist-products"

    def run(self, op: ir.Operation, state: State) -> None:
        loops = [inner for inner in nested_operations(op) if inner.name == "stablehlo.while"]
        for loop in reversed(loops):
            steps = _steps(loop, state.weights)
            if steps is None:
                continue
            for child in list(loop.regions[1].blocks[0].operations):
                if child.operation.name == "stablehlo.dot_general":
                    _hoist(loop, child.operation, steps)


def _steps(loop: ir.Operation, weights: WeightTable) -> int | None:
    """How many steps a loop has that counts from 0 to a constant."""
    *_, compare, last = [None, *loop.regions[0].blocks[0].operations]
    if compare is None or compare.operation.name != "stablehlo.compare":
        return None
    compare = compare.operation
    counter, bound = compare.operands
    if last.operation.operands[0] != compare.results[0] or not _is_argument(
        counter, loop.regions[0].blocks[0]
    ):
        return None
    body = loop.regions[1].blocks[0]
    number = ir.BlockArgument(counter).arg_number
    after = producer(list(body.operations)[-1].operation.operands[number], "add")
    if after is None or after.operands[0] != body.arguments[number]:
        return None
    known = [
        constant_array(value, weights)
        for value in (bound, loop.operands[number], after.operands[1])
    ]
    if any(array is None or array.shape for array in known):
        return None
    end, start, step = (int(array) for array in known if array is not None)
    direction = str(compare.attributes["comparison_direction"])
    return end if "LT" in direction and start == 0 and step == 1 else None


def _is_argument(value: ir.Value, block: ir.Block) -> bool:
    return isinstance(value.owner, ir.Block) and value.owner == block


def _before(loop: ir.Operation, value: ir.Value) -> ir.Value | None:
    """The value outside of `loop` that `value` is at each step; None where it changes."""
    body = loop.regions[1].blocks[0]
    if not _is_argument(value, body):
        return None
    number = ir.BlockArgument(value).arg_number
    kept = list(body.operations)[-1].operation.operands[number] == value
    return loop.operands[number] if kept else None


def _hoist(loop: ir.Operation, dot: ir.Operation, steps: int) -> None:
    """Replace `dot` where it multiplies slice after slice of one tensor by another."""
    rows, matrix = dot.operands
    numbers = bindings.DotDimensionNumbers(dot.attributes["dot_dimension_numbers"])
    summed = list(numbers.lhs_contracting_dimensions)
    shape = hlo.shape(rows)
    if len(numbers.lhs_batching_dimensions) or summed != [len(shape) - 1]:
        return
    cut = producer(rows, "reshape")
    cut = (
        producer(rows, "dynamic_slice")
        if cut is None
        else producer(cut.operands[0], "dynamic_slice")
    )
    if cut is None or "stepwell.extents" in cut.attributes:
        return
    sequence, weights = _before(loop, cut.operands[0]), _before(loop, matrix)
    if sequence is None or weights is None:
        return
    sizes, whole = integers(cut, "slice_sizes"), hlo.shape(sequence)
    if sizes[0] != 1 or sizes[1:] != list(whole[1:]) or whole[0] != steps or len(whole) < 2:
        return
    rest = list(hlo.shape(dot.results[0]))[len(shape) - 1 :]
    count = prod(shape[:-1])
    if shape[-1] != whole[-1] or count > _MOST_ROWS or steps * count * prod(rest) > _MOST_ELEMENTS:
        return
    with ir.InsertionPoint(loop), dot.location:
        lhs = hlo.reshape(sequence, [steps * count, shape[-1]])
        attribute = bindings.DotDimensionNumbers.get(
            [], [], [1], list(numbers.rhs_contracting_dimensions)
        )
        found = rebuild(
            dot, [lhs, weights], [steps * count, *rest], {"dot_dimension_numbers": attribute}
        )
        found = hlo.reshape(found, [steps, count, *rest])
    with ir.InsertionPoint(dot), dot.location:
        start = list(cut.operands)[1]
        zero = hlo.full(0, [], hlo.dtype(start))
        found = hlo.dynamic_slice(found, [start, *[zero] * (1 + len(rest))], [1, count, *rest])
        dot.results[0].replace_all_uses_with(hlo.reshape(found, hlo.shape(dot.results[0])))
    dot.erase()
