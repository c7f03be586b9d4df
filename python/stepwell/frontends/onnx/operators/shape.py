"""Operators that move elements without computing: Reshape, Transpose, Concat, Slice, Pad, ...

On constants they return numpy arrays, views where possible: this is how shapes are computed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import Result, operator
from stepwell.frontends.onnx.shaping import broadcast_shape, normalize_axes, normalize_axis
from stepwell.mlir import ir


def _reshape(x: Tensor, shape: Sequence[int]) -> Result:
    return hlo.reshape(x.value, shape) if x.array is None else x.array.reshape(tuple(shape))


@operator("Reshape", folds=True)
def reshape(node: Node, data: Tensor, shape: Tensor | None = None) -> Result:
    """0 keeps the input's dimension (unless `allowzero`), -1 takes what is left."""
    wanted = (
        node.integers("shape", [])
        if shape is None
        else [int(n) for n in node.known(shape, "shape").reshape(-1)]
    )
    if not node.integer("allowzero", 0):
        wanted = [data.shape[d] if n == 0 and d < data.rank else n for d, n in enumerate(wanted)]
    known = int(np.prod([n for n in wanted if n != -1], dtype=np.int64))
    if -1 in wanted and known:
        wanted[wanted.index(-1)] = data.size // known
    if int(np.prod(wanted, dtype=np.int64)) != data.size:
        node.unsupported(f"the shape {list(data.shape)} cannot become {wanted}")
    return _reshape(data, wanted)


@operator("Flatten", folds=True)
def flatten(node: Node, data: Tensor) -> Result:
    axis = node.integer("axis", 1)
    axis = axis + data.rank if axis < 0 else axis
    rows = int(np.prod(data.shape[:axis], dtype=np.int64))
    return _reshape(data, [rows, int(np.prod(data.shape[axis:], dtype=np.int64))])


@operator("Squeeze", folds=True)
def squeeze(node: Node, data: Tensor, axes: Tensor | None = None) -> Result:
    chosen = node.axes(axes, None)
    if chosen is None:
        return _reshape(data, [n for n in data.shape if n != 1])
    dropped = normalize_axes(chosen, data.rank)
    if any(data.shape[d] != 1 for d in dropped):
        node.unsupported(f"axes {dropped} of shape {list(data.shape)} are not all of size 1")
    return _reshape(data, [n for d, n in enumerate(data.shape) if d not in dropped])


@operator("Unsqueeze", folds=True)
def unsqueeze(node: Node, data: Tensor, axes: Tensor | None = None) -> Result:
    chosen = node.axes(axes, []) or []
    rank = data.rank + len(chosen)
    added = normalize_axes(chosen, rank)
    if len(set(added)) < len(added):
        node.unsupported(f"axes {chosen} name a dimension twice")
    rest = iter(data.shape)
    return _reshape(data, [1 if d in added else next(rest) for d in range(rank)])


@operator("Transpose", folds=True)
def transpose(node: Node, data: Tensor) -> Result:
    order = node.integers("perm", list(range(data.rank))[::-1])
    if sorted(order) != list(range(data.rank)):
        node.unsupported(f"perm {order} is no permutation of {data.rank} dimensions")
    if data.array is not None:
        return data.array.transpose(order)
    return hlo.transpose(data.value, order)


@operator("Expand", folds=True)
def expand(node: Node, data: Tensor, shape: Tensor) -> Result:
    wanted = broadcast_shape(data.shape, node.known(shape, "shape").tolist())
    if data.array is not None:
        return np.broadcast_to(data.array, wanted)
    if wanted == data.shape:
        return data
    offset = len(wanted) - data.rank
    return hlo.broadcast_in_dim(data.value, wanted, range(offset, len(wanted)))


@operator("Concat")
def concat(node: Node, *operands: Tensor) -> Result:
    axis = normalize_axis(node.integer("axis", 1), operands[0].rank)
    if len(operands) == 1:
        return operands[0]
    return hlo.concatenate([operand.value for operand in operands], axis)


@operator("Split")
def split(node: Node, data: Tensor, sizes: Tensor | None = None) -> list[Result]:
    """Sizes are an input since opset 13, an attribute before; by default the parts are equal."""
    axis = normalize_axis(node.integer("axis", 0), data.rank)
    count, length = node.used_outputs(), data.shape[axis]
    count = node.integer("num_outputs", count)
    part = -(-length // count)
    equal = [min(part, max(length - i * part, 0)) for i in range(count)]
    parts = node.integers("split", equal)
    if sizes is not None:
        parts = [int(n) for n in node.known(sizes, "split")]
    if sum(parts) != length:
        node.unsupported(f"the parts {parts} do not add up to {length}")
    results: list[Result] = []
    start = [0] * data.rank
    for size in parts:
        limit = list(data.shape)
        limit[axis] = start[axis] + size
        results.append(hlo.slice(data.value, start, limit))
        start[axis] += size
    return results


@operator("Slice", folds=True)
def slice_(
    node: Node,
    data: Tensor,
    starts: Tensor | None = None,
    ends: Tensor | None = None,
    axes: Tensor | None = None,
    steps: Tensor | None = None,
) -> Result:
    """Bounds are inputs since opset 10, attributes before."""

    def bounds(operand: Tensor | None, attribute: str, default: list[int]) -> list[int]:
        if operand is None:
            return node.integers(attribute, default)
        return [int(v) for v in node.known(operand, attribute).reshape(-1)]

    first = bounds(starts, "starts", [])
    last = bounds(ends, "ends", [])
    chosen = bounds(axes, "axes", list(range(len(first))))
    strides = bounds(steps, "steps", [1] * len(first))
    if len({len(numbers) for numbers in (first, last, chosen, strides)}) > 1:
        node.unsupported("starts, ends, axes and steps should be as many")
    slices = [slice(None)] * data.rank
    for axis, begin, end, step in zip(chosen, first, last, strides, strict=True):
        slices[normalize_axis(axis, data.rank)] = slice(begin, end, step)
    if data.array is not None:
        return data.array[_numpy_slices(slices, data.shape)]
    return _strided(data.value, slices)


def _numpy_slices(slices: list[slice], shape: tuple[int, ...]) -> tuple[slice, ...]:
    """Ends far below zero mean "to the first element" for a negative step, in ONNX as in numpy."""
    return tuple(
        slice(s.start, None, s.step) if _reaches_front(s, n) else s
        for s, n in zip(slices, shape, strict=True)
    )


def _reaches_front(s: slice, size: int) -> bool:
    return s.step is not None and s.step < 0 and s.stop is not None and s.stop < -size


def _strided(value: ir.Value, slices: list[slice]) -> ir.Value:
    """Python slices of every dimension; negative steps reverse first."""
    shape = hlo.shape(value)
    ranges = [range(n)[s] for s, n in zip(_numpy_slices(slices, shape), shape, strict=True)]
    backward = [d for d, r in enumerate(ranges) if r.step < 0]
    if backward:
        value = hlo.reverse(value, backward)
    start, limit, steps = [], [], []
    for r, n in zip(ranges, shape, strict=True):
        begin = n - 1 - r.start if r.step < 0 else r.start
        stride = abs(r.step)
        start.append(begin if len(r) else 0)
        limit.append(begin + (len(r) - 1) * stride + 1 if len(r) else 0)
        steps.append(stride)
    return hlo.slice(value, start, limit, steps)


@operator("Pad")
def pad(
    node: Node,
    data: Tensor,
    pads: Tensor | None = None,
    value: Tensor | None = None,
    axes: Tensor | None = None,
) -> ir.Value:
    """Modes constant, reflect, edge and wrap; pads are an input since opset 11."""
    amounts = (
        node.integers("pads", node.integers("paddings", []))
        if pads is None
        else [int(n) for n in node.known(pads, "pads").reshape(-1)]
    )
    chosen = list(range(data.rank))
    if axes is not None:
        chosen = [normalize_axis(int(a), data.rank) for a in node.known(axes, "axes").flat]
    if len(amounts) != 2 * len(chosen):
        node.unsupported(f"pads {amounts} should be {2 * len(chosen)} numbers")
    low, high = [0] * data.rank, [0] * data.rank
    for i, axis in enumerate(chosen):
        low[axis], high[axis] = amounts[i], amounts[i + len(chosen)]
    mode = node.text("mode", "constant")
    if mode == "constant":
        if value is None:
            fill = hlo.full(node.number("value", 0.0), [], data.dtype)
        else:
            fill = hlo.reshape(value.value, [])
        return hlo.pad(data.value, fill, low, high)
    if mode not in _PAD_INDICES:
        node.unsupported(f'the mode "{mode}" is not supported')
    result = data.value
    for axis in chosen:
        if not low[axis] and not high[axis]:
            continue
        if not data.shape[axis]:
            node.unsupported(f"the input {list(data.shape)} has no elements to pad with")
        result = _pad_by_copy(result, axis, low[axis], high[axis], mode)
    return result


_PAD_INDICES = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}
"""Names of modes in ONNX and in `numpy.pad`, which says where each element comes from."""


def _pad_by_copy(value: ir.Value, axis: int, low: int, high: int, mode: str) -> ir.Value:
    """Concatenate runs of elements: rising or falling slices of `value`, one after another."""
    shape = hlo.shape(value)
    source = np.arange(shape[axis])[max(-low, 0) : shape[axis] - max(-high, 0)]
    padding = (max(low, 0), max(high, 0))
    index = np.pad(source, padding, mode=_PAD_INDICES[mode])  # pyright: ignore[reportCallIssue, reportArgumentType]
    parts: list[ir.Value] = []
    for begin, end, step in _runs(index.tolist()):
        slices = [slice(None)] * len(shape)
        stop = end + step
        slices[axis] = slice(begin, None if stop < 0 else stop, step)
        parts.append(_strided(value, slices))
    return parts[0] if len(parts) == 1 else hlo.concatenate(parts, axis)


def _runs(index: list[int]) -> list[tuple[int, int, int]]:
    """Split positions into runs (first, last, step) of step 1 or -1."""
    runs: list[tuple[int, int, int]] = []
    for position in index:
        if runs:
            first, last, step = runs[-1]
            delta = position - last
            if delta in (1, -1) and (first == last or delta == step):
                runs[-1] = (first, position, delta)
                continue
        runs.append((position, position, 1))
    return runs


@operator("Tile")
def tile(node: Node, data: Tensor, repeats: Tensor) -> Result:
    """Each dimension gains a dimension of repeats before it, and is merged with it."""
    counts = [int(n) for n in node.known(repeats, "repeats").flat]
    if len(counts) != data.rank or any(count < 0 for count in counts):
        node.unsupported(f"repeats {counts} should be {data.rank} numbers that are not negative")
    split = [n for pair in zip(counts, data.shape, strict=True) for n in pair]
    wide = hlo.broadcast_in_dim(data.value, split, range(1, 2 * data.rank, 2))
    return hlo.reshape(wide, [c * n for c, n in zip(counts, data.shape, strict=True)])


@operator("Trilu")
def triangle(node: Node, data: Tensor, k: Tensor | None = None) -> ir.Value:
    """The upper (or lower) triangle from diagonal k on; zero elsewhere."""
    diagonal = 0 if k is None else int(node.known_number(k, "k"))
    upper = node.integer("upper", 1)
    keep = np.triu if upper else np.tril
    mask = keep(np.ones(data.shape[-2:], np.bool_), diagonal)
    kept = hlo.broadcast_in_dim(
        node.constant(mask, "mask"), data.shape, [data.rank - 2, data.rank - 1]
    )
    return hlo.select(kept, data.value, hlo.full_like(data.value, 0))


@operator("DepthToSpace")
def depth_to_space(node: Node, x: Tensor) -> Result:
    """Mode DCR: depth varies slowest in the channels; CRD: the block does."""
    batch, channels, height, width = x.shape
    block = node.integer("blocksize", 1)
    depth = channels // (block * block)
    if node.text("mode", "DCR") == "DCR":
        split, order = [batch, block, block, depth, height, width], [0, 3, 4, 1, 5, 2]
    else:
        split, order = [batch, depth, block, block, height, width], [0, 1, 4, 2, 5, 3]
    moved = hlo.transpose(hlo.reshape(x.value, split), order)
    return hlo.reshape(moved, [batch, depth, height * block, width * block])


@operator("SpaceToDepth")
def space_to_depth(node: Node, x: Tensor) -> Result:
    batch, channels, height, width = x.shape
    block = node.integer("blocksize", 1)
    if height % block or width % block:
        node.unsupported(f"blocks of {block} do not divide the input {list(x.shape)}")
    split = [batch, channels, height // block, block, width // block, block]
    order = [0, 3, 5, 1, 2, 4] if node.text("mode", "DCR") == "DCR" else [0, 1, 3, 5, 2, 4]
    moved = hlo.transpose(hlo.reshape(x.value, split), order)
    return hlo.reshape(moved, [batch, channels * block**2, height // block, width // block])
