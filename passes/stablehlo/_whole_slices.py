"""Gathers and scatters of single elements as those of slices, where neighbours have one position.

    %i = stablehlo.broadcast_in_dim %rows, dims = [0] : (tensor<5xi64>) -> tensor<5x16xi64>
    %y = "stablehlo.gather"(%x, %i) {operand_batching_dims = [1], start_indices_batching_dims = [1],
           slice_sizes = [1, 1]} : (tensor<10x16xf32>, tensor<5x16xi64>) -> tensor<5x16xf32>

is how ONNX's GatherElements and PyTorch's gather take rows. All of dimension 1 is read at each of
%rows: it becomes an offset dimension, and %i loses it. So it is with a scatter, a component of
whose positions counts along a dimension of the updates (ScatterElements), while the others stay
the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir
from stepwell.mlir import stablehlo as bindings
from stepwell.passes.stablehlo._values import (
    ELEMENTWISE,
    constant_array,
    integer,
    integers,
    producer,
    rebuild,
    splat,
)
from stepwell.weights import WeightTable

_DEPTH = 8
"""So far up from the positions it is looked where they come from."""


def gather_slices(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """A gather along batching dimensions, at positions that are the same along one of them."""
    x, positions = op.operands
    numbers = bindings.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    vector = numbers.index_vector_dim
    shape, result = hlo.shape(x), hlo.shape(op.results[0])
    offsets, collapsed = list(numbers.offset_dims), list(numbers.collapsed_slice_dims)
    batching = dict(
        zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)
    )
    outer = [d for d in range(len(result)) if d not in offsets]
    kept = [d for d in range(len(shape)) if d not in (*collapsed, *batching)]
    sizes = integers(op, "slice_sizes")
    for dim, along in batching.items():
        place = outer[along - (along > vector)]
        more = _in_order([*zip(offsets, kept, strict=True), (place, dim)])
        if shape[dim] < 2 or more is None or not _is_repeated(positions, along, weights):
            continue
        rest = {d: b - (b > along) for d, b in batching.items() if d != dim}
        dimensions = hlo.GatherDimensions(
            offset_dims=more,
            collapsed_slice_dims=collapsed,
            start_index_map=list(numbers.start_index_map),
            index_vector_dim=vector - (vector > along),
            operand_batching_dims=list(rest),
            start_indices_batching_dims=list(rest.values()),
        )
        slices = [shape[d] if d == dim else n for d, n in enumerate(sizes)]
        return hlo.gather(x, _First().of(positions, along), dimensions, slices)
    return None


def scatter_slices(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """A scatter at positions, a component of which counts while the others stay the same."""
    if len(op.operands) != 3:
        return None
    x, positions, updates = op.operands
    numbers = bindings.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    vector, targets = numbers.index_vector_dim, list(numbers.scattered_dims_to_operand_dims)
    joined = producer(positions, "concatenate")
    if (
        joined is None
        or vector != len(hlo.shape(positions)) - 1
        or integer(joined, "dimension") != vector
        or len(joined.operands) != len(targets)
        or numbers.input_batching_dims
    ):
        return None
    shape, source = hlo.shape(x), hlo.shape(updates)
    window, inserted = list(numbers.update_window_dims), list(numbers.inserted_window_dims)
    outer = [d for d in range(len(source)) if d not in window]
    kept = [d for d in range(len(shape)) if d not in inserted]
    columns = list(joined.operands)
    for number, (column, dim) in enumerate(zip(columns, targets, strict=True)):
        others = [value for n, value in enumerate(columns) if n != number]
        masked = _masked(column)
        masks = [mask for mask, _ in filter(None, map(_masked, others))]
        if masked is not None and masked[0] in masks:
            column = masked[1]  # what another component puts outside is not written anyway
        along = _counted(column, weights)
        if along is None or along == vector or dim not in inserted or not others:
            continue
        more = _in_order([*zip(window, kept, strict=True), (outer[along], dim)])
        if more is None or not all(_is_repeated(value, along, weights) for value in others):
            continue
        first = _First()
        parts = [first.of(value, along) for value in others]
        dimensions = bindings.ScatterDimensionNumbers.get(
            more,
            [d for d in inserted if d != dim],
            [],
            [],
            [d for d in targets if d != dim],
            vector - 1,
        )
        rows = parts[0] if len(parts) == 1 else hlo.concatenate(parts, vector - 1)
        attributes = {"scatter_dimension_numbers": dimensions}
        return rebuild(op, [x, rows, updates], shape, attributes)
    return None


def _in_order(pairs: Sequence[tuple[int, int]]) -> list[int] | None:
    """The first of `pairs` in order, where that is the order of the second, too."""
    ordered = sorted(pairs)
    seconds = [second for _, second in ordered]
    return [first for first, _ in ordered] if seconds == sorted(seconds) else None


class _First:
    """The first of values along a dimension, which is left out, made of the first of what they are
    made of, where that is repeated. What several share stays shared."""

    def __init__(self) -> None:
        self._known: dict[tuple[ir.Value, int], ir.Value] = {}

    def of(self, value: ir.Value, along: int) -> ir.Value:
        """The first of `value` along dimension `along`."""
        if (value, along) not in self._known:
            self._known[value, along] = self._made(value, along)
        return self._known[value, along]

    def _made(self, value: ir.Value, along: int) -> ir.Value:
        shape = hlo.shape(value)
        if not shape:
            return value
        rest = [n for d, n in enumerate(shape) if d != along]
        number = splat(value)
        if number is not None:
            return hlo.full(number, rest, hlo.dtype(value))
        spread = producer(value, "broadcast_in_dim")
        if spread is not None:
            source, dims = spread.operands[0], integers(spread, "broadcast_dimensions")
            source = self.of(source, dims.index(along)) if along in dims else source
            return hlo.broadcast_in_dim(source, rest, [d - (d > along) for d in dims if d != along])
        counted = producer(value, "iota")
        if counted is not None and integer(counted, "iota_dimension") != along:
            dim = integer(counted, "iota_dimension")
            return hlo.iota(rest, dim - (dim > along), hlo.dtype(value))
        reshape = producer(value, "reshape")
        places = reshape and _same_places(shape, hlo.shape(reshape.operands[0]))
        if reshape is not None and places and along in places:
            return hlo.reshape(self.of(reshape.operands[0], places[along]), rest)
        op = producer(value, *ELEMENTWISE)
        if op is not None:
            return rebuild(op, [self.of(operand, along) for operand in op.operands], rest)
        one = [1 if d == along else n for d, n in enumerate(shape)]
        return hlo.reshape(hlo.slice(value, [0] * len(shape), one), rest)


def _masked(value: ir.Value) -> tuple[ir.Value, ir.Value] | None:
    """The mask and `x` of `select(mask, x, -1)`, as unused positions of open sizes are written."""
    op = producer(value, "select")
    outside = splat(op.operands[2]) if op is not None else None
    if op is None or outside is None or outside >= 0:
        return None
    return op.operands[0], op.operands[1]


def _counted(value: ir.Value, weights: WeightTable) -> int | None:
    """The dimension along which `value` is 0, 1, 2, .., the same along all others."""
    op = producer(value, "iota", "dynamic_iota", "reshape", "broadcast_in_dim")
    if op is None:
        array = constant_array(value, weights)
        if array is None or not array.size or array.flat[0] != 0:
            return None
        several = [d for d, n in enumerate(array.shape) if n > 1]
        counting = [d for d in several if (np.diff(array, axis=d) == 1).all()]
        same = [d for d in several if not (array != array.take([0], d)).any()]
        return counting[0] if len(counting) == 1 and len(same) == len(several) - 1 else None
    if op.name.endswith("iota"):
        along = integer(op, "iota_dimension")
        return along if hlo.shape(value)[along] > 1 else None
    along = _counted(op.operands[0], weights)
    if along is None:
        return None
    if op.name == "stablehlo.reshape":
        places = _same_places(hlo.shape(op.operands[0]), hlo.shape(value))
        return None if places is None else places[along]
    return integers(op, "broadcast_dimensions")[along]


def _is_repeated(value: ir.Value, along: int, weights: WeightTable, depth: int = _DEPTH) -> bool:
    """Whether `value` is the same everywhere along a dimension, as far as that is seen."""
    shape = hlo.shape(value)
    if not shape or shape[along] == 1 or splat(value) is not None:
        return True
    if not depth or not isinstance(value, ir.OpResult):
        return False
    op = value.owner.operation
    name = op.name.removeprefix("stablehlo.")
    if name == "constant":
        array = constant_array(value, weights)
        return array is not None and not (array != array.take([0], along)).any()
    if name in ("iota", "dynamic_iota"):
        return integer(op, "iota_dimension") != along
    if name == "broadcast_in_dim":
        dims = integers(op, "broadcast_dimensions")
        if along not in dims:
            return True
        along = dims.index(along)
    elif name == "reshape":
        places = _same_places(shape, hlo.shape(op.operands[0]))
        if places is None:
            return False
        along = places[along]
    elif name == "transpose":
        along = integers(op, "permutation")[along]
    elif name == "concatenate":
        if integer(op, "dimension") == along:
            return False
    elif name not in (*ELEMENTWISE, "slice"):
        return False
    operands = dict.fromkeys(op.operands)
    return all(_is_repeated(operand, along, weights, depth - 1) for operand in operands)


def _same_places(source: Sequence[int], target: Sequence[int]) -> dict[int, int] | None:
    """Which dimension of `target` each of `source` is that has several elements, where a reshape
    only adds and drops dimensions of one."""
    several, others = ([d for d, n in enumerate(shape) if n > 1] for shape in (source, target))
    if [source[d] for d in several] != [target[d] for d in others]:
        return None
    return dict(zip(several, others, strict=True))
