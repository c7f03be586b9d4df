"""Gathers of single elements as gathers of what lies together.

    %i = stablehlo.concatenate %batch, %channel, %row, %column, dim = 4 : ... tensor<1x32x8x9x4xi64>
    %y = "stablehlo.gather"(%x, %i) {slice_sizes = [1, 1, 1, 1]} : tensor<1x32x64x64xf32>, ...

is how PyTorch's importer writes x[:, :, rows, columns]. A component that counts along a dimension
of the result takes all of that dimension of %x: it becomes an offset dimension, or a batching
dimension where other components depend on it. Components that depend on different dimensions (rows
of dimension 2, columns of 3) are gathers after each other, each along one dimension of %x.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir
from stepwell.mlir import stablehlo as bindings
from stepwell.passes.stablehlo._values import constant_array, integer, integers, producer
from stepwell.weights import WeightTable


@dataclass(frozen=True)
class _Component:
    """The start indices along dimension `dim` of the operand: `numbers`, whose dimensions, but for
    those of one element, are the dimensions `along` of the result. `counts`: they are the places
    along the one of them."""

    dim: int
    numbers: ir.Value | np.ndarray
    along: tuple[int, ...]
    counts: bool

    def spread(self, along: Sequence[int], sizes: Sequence[int], weights: WeightTable) -> ir.Value:
        """The numbers, repeated for the dimensions `along` of the result; a last one has size 1."""
        if isinstance(self.numbers, np.ndarray):
            value = hlo.constant(self.numbers, weights)
        else:
            several = [n for n in hlo.shape(self.numbers) if n > 1]
            value = hlo.reshape(self.numbers, several)
        return hlo.broadcast_in_dim(value, [*sizes, 1], [along.index(b) for b in self.along])


def by_components(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """A gather of elements, or of all of some dimensions."""
    x, start = op.operands
    shape, result = hlo.shape(x), hlo.shape(op.results[0])
    numbers = bindings.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    dims, offsets = list(numbers.start_index_map), list(numbers.offset_dims)
    sizes = integers(op, "slice_sizes")
    wanted = [1 if d in dims else n for d, n in enumerate(shape)]
    whole = sizes == wanted and sorted(dims) == list(numbers.collapsed_slice_dims)
    last = numbers.index_vector_dim == len(hlo.shape(start)) - 1
    if not whole or not last or numbers.operand_batching_dims or 0 in (*shape, *result):
        return None
    if len(dims) < 2:
        return None
    batch = [b for b in range(len(result)) if b not in offsets]
    found = _components(start, dims, shape, weights)
    if found is None:
        return None
    found = [replace(c, along=tuple(batch[b] for b in c.along)) for c in found]
    counting = {c.along[0]: c.dim for c in found if c.counts}
    places = [c for c in found if shape[c.dim] > 1 and c.dim not in counting.values()]
    clusters = _clusters(places)
    if len(clusters) == 1 and len(places) == len(dims):
        return None
    untouched = [d for d in range(len(shape)) if d not in dims]
    labels = {**dict(zip(offsets, untouched, strict=True)), **counting}
    taken = [labels[b] for b in sorted(labels)]
    if taken != sorted(taken):
        return None
    return _Taken(x, labels, result, weights).all_of(clusters)


def _components(
    start: ir.Value, dims: Sequence[int], shape: Sequence[int], weights: WeightTable
) -> list[_Component] | None:
    """What the start indices are made of, where that can be told apart."""
    array = constant_array(start, weights)
    if array is not None:
        return [_known(array[..., k], dim, shape[dim]) for k, dim in enumerate(dims)]
    joined = producer(start, "concatenate")
    if joined is None or integer(joined, "dimension") != len(hlo.shape(start)) - 1:
        return None
    if len(joined.operands) != len(dims):
        return None
    return [
        _spread(value, dim, shape[dim], weights)
        for value, dim in zip(joined.operands, dims, strict=True)
    ]


def _known(
    array: np.ndarray, dim: int, size: int, along: Sequence[int] | None = None
) -> _Component:
    """Of numbers that are known: those dimensions, of `along`, along which they differ."""
    several = [d for d in range(array.ndim) if (array != array.take([0], d)).any()]
    few = array[tuple(slice(None) if d in several else 0 for d in range(array.ndim))]
    counts = few.shape == (size,) and np.array_equal(few, np.arange(size))
    places = tuple(several if along is None else (along[d] for d in several))
    return _Component(dim, np.ascontiguousarray(few), places, counts)


def _spread(value: ir.Value, dim: int, size: int, weights: WeightTable) -> _Component:
    """Of an operand of the concatenation, whose last dimension has one element."""
    array = constant_array(value, weights)
    if array is not None:
        return _known(array[..., 0], dim, size)
    shape = hlo.shape(value)[:-1]
    along = list(range(len(shape)))
    reshape = producer(value, "reshape")
    if reshape is not None and hlo.shape(reshape.operands[0]) == shape:
        value = reshape.operands[0]
        spread = producer(value, "broadcast_in_dim")
        if spread is not None:
            value, along = spread.operands[0], integers(spread, "broadcast_dimensions")
    own = hlo.shape(value)
    several = [d for d, count in enumerate(own) if count > 1]
    counted = producer(value, "iota", "dynamic_iota")
    if counted is not None:
        axis = integer(counted, "iota_dimension")
        return _known(np.arange(own[axis]).reshape(_only(axis, own)), dim, size, along)
    return _Component(dim, value, tuple(along[d] for d in several), False)


def _only(axis: int, shape: Sequence[int]) -> list[int]:
    """`shape` with one element along all dimensions but `axis`."""
    return [n if d == axis else 1 for d, n in enumerate(shape)]


def _clusters(places: list[_Component]) -> list[list[_Component]]:
    """The components in parts that share no dimension of the result."""
    parts: list[list[_Component]] = []
    for component in places:
        near = [p for p in parts if any({*c.along} & {*component.along} for c in p)]
        parts = [p for p in parts if p not in near]
        parts.append([*(c for part in near for c in part), component])
    return parts


class _Taken:
    """What is gathered so far: dimension d of `value` is dimension `labels[d]` of the result or,
    where that is None, dimension `dims[d]` of the operand, not looked up yet."""

    def __init__(
        self, x: ir.Value, known: dict[int, int], result: Sequence[int], weights: WeightTable
    ) -> None:
        self.value = x
        self.result = result
        self.weights = weights
        self.dims: list[int | None] = list(range(len(hlo.shape(x))))
        places = {dim: b for b, dim in known.items()}
        self.labels = [places.get(d) for d in range(len(self.dims))]

    def all_of(self, clusters: list[list[_Component]]) -> ir.Value:
        """Gather by each part, then bring the dimensions into their places."""
        targets = {c.dim: min(c.along, default=-1) for part in clusters for c in part}
        for part in sorted(clusters, key=self._growth):
            self._gather(part, targets)
        shape = hlo.shape(self.value)
        kept = [d for d, label in enumerate(self.labels) if label is not None]
        labels = [label for label in self.labels if label is not None]
        value = hlo.reshape(self.value, [shape[d] for d in kept])
        order = sorted(range(len(labels)), key=labels.__getitem__)
        return hlo.broadcast_in_dim(hlo.transpose(value, order), self.result, sorted(labels))

    def _growth(self, part: list[_Component]) -> float:
        """Elements after the gather by `part` over those before."""
        shape = hlo.shape(self.value)
        reached = {b for c in part for b in c.along if b not in self.labels}
        after = math.prod(self.result[b] for b in reached)
        return after / math.prod(shape[c.dim] for c in part)

    def _gather(self, part: list[_Component], targets: dict[int, int]) -> None:
        shape = hlo.shape(self.value)
        along = sorted({b for c in part for b in c.along})
        looked_up = [self.dims.index(c.dim) for c in part]
        batching = {
            d: along.index(b) for d, b in enumerate(self.labels) if b is not None and b in along
        }
        rest = [d for d in range(len(shape)) if d not in (*looked_up, *batching)]
        order = self._merged(along, rest, targets)
        sizes = [self.result[b] for b in along]
        starts = [component.spread(along, sizes, self.weights) for component in part]
        numbers = hlo.GatherDimensions(
            offset_dims=[n for n, (_, d) in enumerate(order) if d is not None],
            collapsed_slice_dims=sorted(looked_up),
            start_index_map=looked_up,
            index_vector_dim=len(along),
            operand_batching_dims=list(batching),
            start_indices_batching_dims=list(batching.values()),
        )
        start = starts[0] if len(starts) == 1 else hlo.concatenate(starts, len(along))
        slices = [shape[d] if d in rest else 1 for d in range(len(shape))]
        self.value = hlo.gather(self.value, start, numbers, slices)
        self.dims = [None if d is None else self.dims[d] for _, d in order]
        self.labels = [label for label, _ in order]

    def _merged(
        self, along: list[int], rest: list[int], targets: dict[int, int]
    ) -> list[tuple[int | None, int | None]]:
        """(label, None) of the dimensions `along` and (label, d) of those that are left, which keep
        their order, as they stand in the result, as far as that goes."""
        entries: list[tuple[int, int, int | None, int | None]] = [(b, 0, b, None) for b in along]
        key = -1
        for d in rest:
            label, dim = self.labels[d], self.dims[d]
            key = max(
                key, targets.get(dim, -1) if label is None and dim is not None else label or 0
            )
            entries.append((key, 1, label, d))
        return [(label, d) for _, _, label, d in sorted(entries, key=lambda entry: entry[:2])]
