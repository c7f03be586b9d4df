"""Reading and writing at computed positions: Gather and Scatter in their forms, sequences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import Result, operator
from stepwell.frontends.onnx.shaping import normalize_axis
from stepwell.mlir import ir

_COMBINE = {"none": None, "add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}


def _wrapped(indices: Tensor, size: int, role: str) -> ir.Value:
    """Indices with negative ones counted from the end, which StableHLO does not do."""
    if indices.array is not None:
        array = np.where(indices.array < 0, indices.array + size, indices.array)
        if np.array_equal(array, indices.array):
            return indices.value
        return indices.scope.constant(array.astype(indices.dtype), f"{indices.name}.{role}").value
    index = indices.value
    if indices.dtype.kind == "u":
        return index
    negative = hlo.compare(index, hlo.full_like(index, 0), "LT")
    return hlo.select(negative, hlo.add(index, hlo.full_like(index, size)), index)


@operator("Gather")
def gather(node: Node, data: Tensor, indices: Tensor) -> Result:
    """Slices of `data` along `axis` at `indices`; their dimensions take the axis's place."""
    return taken_slices(data, indices, normalize_axis(node.integer("axis", 0), data.rank))


def taken_slices(data: Tensor, indices: Tensor, axis: int) -> Result:
    """What Gather makes of `data` at `indices`."""
    shape = [*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]]
    if 0 in shape:
        return _nothing(shape, data)
    if indices.array is not None and indices.size == 1:
        return _gather_one(data, axis, int(indices.array.item()), indices.rank)
    index = _wrapped(indices, data.shape[axis], "wrapped")
    sizes = [1 if d == axis else n for d, n in enumerate(data.shape)]
    offsets = [*range(axis), *range(axis + indices.rank, data.rank - 1 + indices.rank)]
    dimensions = hlo.GatherDimensions(offsets, [axis], [axis], indices.rank)
    return hlo.gather(data.value, index, dimensions, sizes)


def _nothing(shape: Sequence[int], data: Tensor) -> ir.Value:
    """What is read at no index: `data` may have no element either, of which a slice has one."""
    return hlo.full(0, shape, data.dtype)


def _gather_one(data: Tensor, axis: int, index: int, rank: int) -> Result:
    """One constant index is a slice."""
    index = index + data.shape[axis] if index < 0 else index
    start = [index if d == axis else 0 for d in range(data.rank)]
    limit = [index + 1 if d == axis else n for d, n in enumerate(data.shape)]
    shape = [*data.shape[:axis], *[1] * rank, *data.shape[axis + 1 :]]
    return hlo.reshape(hlo.slice(data.value, start, limit), shape)


def _grid(indices: ir.Value, axis: int) -> ir.Value:
    """Full positions [..., rank] whose coordinate along `axis` is `indices`, others their own."""
    shape, kind = hlo.shape(indices), hlo.dtype(indices)
    column = [*shape, 1]
    parts = [
        hlo.reshape(indices, column) if d == axis else hlo.iota(column, d, kind)
        for d in range(len(shape))
    ]
    return parts[0] if len(parts) == 1 else hlo.concatenate(parts, len(shape))


@operator("GatherElements", folds=True)
def gather_elements(node: Node, data: Tensor, indices: Tensor) -> Result:
    """`out[i][j] = data[index[i][j]][j]` for axis 0.

    Folded here: onnx's evaluator fails on axes longer than 64 elements.
    """
    axis = normalize_axis(node.integer("axis", 0), data.rank)
    if data.array is not None and indices.array is not None:
        covered = [slice(None) if d == axis else slice(n) for d, n in enumerate(indices.shape)]
        return np.take_along_axis(data.array[tuple(covered)], indices.array, axis)
    if 0 in indices.shape:
        return _nothing(indices.shape, data)
    others = [d for d in range(data.rank) if d != axis]
    covered = [data.shape[d] if d == axis else n for d, n in enumerate(indices.shape)]
    source = data.value
    if tuple(covered) != data.shape:
        source = hlo.slice(source, [0] * data.rank, covered)
    dimensions = hlo.GatherDimensions([], [axis], [axis], data.rank, others, others)
    positions = _wrapped(indices, data.shape[axis], "wrapped")
    return hlo.gather(source, positions, dimensions, [1] * data.rank)


@operator("GatherND")
def gather_nd(node: Node, data: Tensor, indices: Tensor) -> Result:
    """The last dimension of `indices` is a position in `data`, after `batch_dims` shared ones."""
    batch, depth = node.integer("batch_dims", 0), indices.shape[-1]
    indexed = range(batch, batch + depth)
    rest = data.rank - batch - depth
    shape = [*indices.shape[:-1], *data.shape[batch + depth :]]
    if 0 in shape:
        return _nothing(shape, data)
    dimensions = hlo.GatherDimensions(
        offset_dims=range(indices.rank - 1, indices.rank - 1 + rest),
        collapsed_slice_dims=indexed,
        start_index_map=indexed,
        index_vector_dim=indices.rank - 1,
        operand_batching_dims=range(batch),
        start_indices_batching_dims=range(batch),
    )
    sizes = [1 if d < batch + depth else n for d, n in enumerate(data.shape)]
    return hlo.gather(data.value, _wrapped_vectors(data, indices, batch), dimensions, sizes)


def _wrapped_vectors(data: Tensor, indices: Tensor, batch: int) -> ir.Value:
    """Position vectors with each negative coordinate counted from the end of its dimension."""
    sizes = np.array(data.shape[batch : batch + indices.shape[-1]], indices.dtype)
    if indices.array is not None:
        array = np.where(indices.array < 0, indices.array + sizes, indices.array)
        return indices.scope.constant(array.astype(indices.dtype), indices.name).value
    index = indices.value
    extent = indices.scope.constant(sizes, f"{indices.name}.sizes").value
    wide = hlo.broadcast_in_dim(extent, indices.shape, [indices.rank - 1])
    negative = hlo.compare(index, hlo.full_like(index, 0), "LT")
    return hlo.select(negative, hlo.add(index, wide), index)


def _combine(node: Node) -> str | None:
    reduction = node.text("reduction", "none")
    if reduction not in _COMBINE:
        node.unsupported(f'the reduction "{reduction}" is not supported')
    return _COMBINE[reduction]


@operator("ScatterElements")
@operator("Scatter")
def scatter_elements(node: Node, data: Tensor, indices: Tensor, updates: Tensor) -> Result:
    """`data` with `updates[i][j]` written to `[index[i][j]][j]` for axis 0."""
    axis = normalize_axis(node.integer("axis", 0), data.rank)
    positions = _grid(_wrapped(indices, data.shape[axis], "wrapped"), axis)
    every = range(data.rank)
    dimensions = hlo.ScatterDimensions([], every, every, data.rank)
    return hlo.scatter(data.value, positions, updates.value, dimensions, _combine(node))


@operator("ScatterND")
def scatter_nd(node: Node, data: Tensor, indices: Tensor, updates: Tensor) -> Result:
    """`data` with slices written at the positions in the last dimension of `indices`."""
    depth = indices.shape[-1]
    window = range(indices.rank - 1, updates.rank)
    dimensions = hlo.ScatterDimensions(window, range(depth), range(depth), indices.rank - 1)
    positions = _wrapped_vectors(data, indices, 0)
    return hlo.scatter(data.value, positions, updates.value, dimensions, _combine(node))


@operator("ReverseSequence")
def reverse_sequence(node: Node, x: Tensor, sequence_lens: Tensor) -> Result:
    """The first `sequence_lens[b]` steps of every batch entry b backwards, the others in place."""
    batch, time = node.integer("batch_axis", 1), node.integer("time_axis", 0)
    if sorted((batch, time)) != [0, 1] or x.rank < 2:
        node.unsupported(
            f"batch_axis {batch} and time_axis {time} of rank {x.rank} are not the first two axes"
        )
    count, steps = x.shape[batch], x.shape[time]
    lengths = hlo.broadcast_in_dim(hlo.convert(sequence_lens.value, np.int64), [count, steps], [0])
    step = hlo.iota([count, steps], 1, np.int64)
    backwards = hlo.subtract(hlo.subtract(lengths, hlo.full_like(step, 1)), step)
    source = hlo.select(hlo.compare(step, lengths, "LT"), backwards, step)
    order = [batch, time, *range(2, x.rank)]
    dimensions = hlo.GatherDimensions(range(2, x.rank), [1], [1], 2, [0], [0])
    read = hlo.gather(
        hlo.transpose(x.value, order),
        hlo.reshape(source, [count, steps, 1]),
        dimensions,
        [1, 1, *x.shape[2:]],
    )
    return hlo.transpose(read, order)


@operator("TensorScatter")
def tensor_scatter(
    node: Node, past_cache: Tensor, update: Tensor, write_indices: Tensor | None = None
) -> Result:
    """A key or value cache with `update` written from `write_indices[batch]` on along the axis."""
    axis = normalize_axis(node.integer("axis", -2), past_cache.rank)
    mode = node.text("mode", "linear")
    if axis == 0 or mode not in ("linear", "circular"):
        node.unsupported(f'the axis {axis} with the mode "{mode}" is not supported')
    batch, steps, size = update.shape[0], update.shape[axis], past_cache.shape[axis]
    if write_indices is None:
        first = hlo.full(0, [batch], np.int64)
    else:
        first = hlo.convert(write_indices.value, np.int64)
    if mode == "linear" and batch == 1:
        zero = hlo.full(0, [], np.int64)
        start = [hlo.reshape(first, []) if d == axis else zero for d in range(update.rank)]
        return hlo.dynamic_update_slice(past_cache.value, update.value, start)
    position = hlo.add(
        hlo.broadcast_in_dim(first, [batch, steps], [0]), hlo.iota([batch, steps], 1, np.int64)
    )
    if mode == "circular":
        position = hlo.remainder(position, hlo.full_like(position, size))
    dimensions = hlo.ScatterDimensions(
        update_window_dims=[d for d in range(1, update.rank) if d != axis],
        inserted_window_dims=[axis],
        scattered_dims_to_operand_dims=[axis],
        index_vector_dim=2,
        input_batching_dims=[0],
        scatter_indices_batching_dims=[0],
    )
    indices = hlo.reshape(position, [batch, steps, 1])
    return hlo.scatter(past_cache.value, indices, update.value, dimensions)
