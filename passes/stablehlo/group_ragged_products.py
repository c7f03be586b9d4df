"""group-ragged-products: rows multiplied by the matrix of their group, instead of by all.

`jax.lax.ragged_dot` is exported as a product with all groups, of rows that are zero in all but one:

    %0 = compare LE %starts, %row;  %1 = compare LT %row, %ends;  %mask = and %0, %1
    %2 = select %mask, broadcast %x, 0                              : tensor<8x4096x512xf32>
    %y = dot_general %2, %w, contracting_dims = [2, 0] x [1, 0]     : tensor<4096x512xf32>

where %ends are the cumulative sums of %sizes, and %starts those before. Where it pays, it becomes a
batch of products of tiles of rows (`stepwell.dialects.ragged`). Sizes are not negative.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stepwell.dialects import ragged
from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir, nested_operations
from stepwell.mlir import stablehlo as bindings
from stepwell.passes.base import Pass, State
from stepwell.passes.stablehlo._values import integers, padding, producer, splat


@dataclass(frozen=True)
class GroupRaggedProducts(Pass):
    """Look at every dot_general of the module."""

    name: ClassVar[str] = "group-ragged-products"

    def run(self, op: ir.Operation, state: State) -> None:
        found = [inner for inner in nested_operations(op) if inner.name == "stablehlo.dot_general"]
        for product in found:
            match = _match(product)
            if match is None:
                continue
            x, sizes, contracted = match
            w = product.operands[1]
            tile = ragged.tile_of(hlo.shape(x)[0], hlo.shape(w)[0])
            if tile is None:
                continue
            with ir.InsertionPoint(product), product.location:
                kind = hlo.dtype(product.results[0])
                made = ragged.ragged_dot(x, w, sizes, contracted, tile, kind)
            product.results[0].replace_all_uses_with(made)
            product.erase()


def _match(product: ir.Operation) -> tuple[ir.Value, ir.Value, int] | None:
    """The rows, the sizes of groups, and the dimension of the matrices that is summed over."""
    numbers = bindings.DotDimensionNumbers(product.attributes["dot_dimension_numbers"])
    left, right = product.operands
    contracting = list(numbers.lhs_contracting_dimensions), list(numbers.rhs_contracting_dimensions)
    if list(numbers.lhs_batching_dimensions) or len(hlo.shape(right)) != 3:
        return None
    if contracting not in (([2, 0], [1, 0]), ([2, 0], [2, 0])):
        return None
    chosen = producer(left, "select")
    if chosen is None or len(hlo.shape(left)) != 3 or splat(chosen.operands[2]) != 0:
        return None
    rows = _spread(chosen.operands[1], [1, 2])
    mask = producer(chosen.operands[0], "and")
    if rows is None or mask is None:
        return None
    bounds = [_bound(mask.operands[0], "LE", 0), _bound(mask.operands[1], "LT", 1)]
    if bounds[0] is None or bounds[1] is None:
        return None
    sizes = _summed(bounds[1])
    if sizes is None or not _is_before(bounds[0], bounds[1]):
        return None
    return rows, sizes, contracting[1][0]


def _spread(value: ir.Value, dimensions: list[int]) -> ir.Value | None:
    """What `value` repeats, with its own dimensions at `dimensions`."""
    op = producer(value, "broadcast_in_dim")
    if op is None or integers(op, "broadcast_dimensions") != dimensions:
        return None
    kept = [hlo.shape(value)[d] for d in dimensions]
    return op.operands[0] if list(hlo.shape(op.operands[0])) == kept else None


def _bound(condition: ir.Value, direction: str, number: int) -> ir.Value | None:
    """The groups' bounds, operand `number`, that rows are compared with."""
    op = producer(condition, "compare")
    if op is None or direction not in str(op.attributes["comparison_direction"]):
        return None
    counted = producer(op.operands[1 - number], "iota")
    if counted is None or ir.IntegerAttr(counted.attributes["iota_dimension"]).value != 1:
        return None
    return _spread(op.operands[number], [0])


def _summed(ends: ir.Value) -> ir.Value | None:
    """What `ends` are the cumulative sums of."""
    op = producer(ends, "reduce_window")
    if op is None or len(op.operands) != 2 or splat(op.operands[1]) != 0:
        return None
    (count,) = hlo.shape(ends)
    body = [child.operation.name for child in op.regions[0].blocks[0].operations]
    sums = body == ["stablehlo.add", "stablehlo.return"]
    window = integers(op, "window_dimensions") == [count]
    return op.operands[0] if sums and window and padding(op, 1) == [(count - 1, 0)] else None


def _is_before(starts: ir.Value, ends: ir.Value) -> bool:
    """Whether `starts` are 0 and all but the last of `ends`."""
    op = producer(starts, "concatenate")
    if op is None or len(op.operands) != 2:
        return False
    zero, others = op.operands
    first = producer(zero, "slice")
    cut = producer(others, "slice")
    start = splat(zero if first is None else first.operands[0])
    (count,) = hlo.shape(ends)
    return (
        start == 0
        and hlo.shape(zero) == (1,)
        and cut is not None
        and cut.operands[0] == ends
        and integers(cut, "start_indices") == [0]
        and integers(cut, "limit_indices") == [count - 1]
    )
