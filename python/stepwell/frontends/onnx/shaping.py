"""Shapes and broadcasting as ONNX defines them, shared by the operators."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import NotSupportedError, Tensor
from stepwell.mlir import ir
from stepwell.weights import is_splat


def broadcast_shape(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape that `shapes` broadcast to (numpy's rule, which is ONNX's)."""
    try:
        return np.broadcast_shapes(*[tuple(shape) for shape in shapes])
    except ValueError:
        text = " and ".join(str(list(shape)) for shape in shapes)
        raise NotSupportedError(f"the shapes {text} do not broadcast") from None


def broadcast(operand: Tensor | ir.Value, shape: Sequence[int]) -> ir.Value:
    """`operand` broadcast to `shape`; a constant splat becomes a splat of that shape. Raises
    NotSupportedError where the shapes do not fit."""
    if isinstance(operand, Tensor):
        fits = len(operand.shape) <= len(shape) and all(
            own in (1, n) for own, n in zip(operand.shape[::-1], shape[::-1], strict=False)
        )
        if operand.size != 1 and not fits:
            raise NotSupportedError(
                f'the input "{operand.name}" {list(operand.shape)} does not broadcast to '
                f"{list(shape)}"
            )
        if operand.shape == tuple(shape):
            return operand.value
        if operand.array is not None and operand.size and is_splat(operand.array):
            return hlo.full(operand.array.reshape(-1)[0].item(), shape, operand.dtype)
        operand = operand.value
    own = hlo.shape(operand)
    if own == tuple(shape):
        return operand
    offset = len(shape) - len(own)
    return hlo.broadcast_in_dim(operand, shape, range(offset, len(shape)))


def broadcast_together(*operands: Tensor) -> list[ir.Value]:
    """`operands` broadcast to one shape."""
    shape = broadcast_shape(*(operand.shape for operand in operands))
    return [broadcast(operand, shape) for operand in operands]


def along(operand: Tensor | ir.Value, axis: int, shape: Sequence[int]) -> ir.Value:
    """A vector broadcast to `shape` so that it runs along `axis`. Raises NotSupportedError for a
    tensor that is no vector of that length."""
    if isinstance(operand, Tensor):
        require_vector(operand, axis, shape)
        if operand.array is not None and operand.size and is_splat(operand.array):
            return hlo.full(operand.array.reshape(-1)[0].item(), shape, operand.dtype)
        operand = operand.value
    return hlo.broadcast_in_dim(operand, shape, [axis])


def require_vector(operand: Tensor, axis: int, shape: Sequence[int]) -> None:
    """Raise NotSupportedError unless `operand` is a vector as long as `shape` along `axis`."""
    if axis >= len(shape):
        raise NotSupportedError(f"{list(shape)} should have more than {axis} dimensions")
    if operand.shape != (shape[axis],):
        raise NotSupportedError(
            f'the input "{operand.name}" {list(operand.shape)} should be a vector of '
            f"{shape[axis]} numbers, as many as {list(shape)} has along dimension {axis}"
        )


def normalize_axis(axis: int, rank: int) -> int:
    """`axis` counted from the front; raises NotSupportedError when it is out of range."""
    if not -rank <= axis < max(rank, 1):
        raise NotSupportedError(f"axis {axis} is out of range for rank {rank}")
    return axis + rank if axis < 0 else axis


def normalize_axes(axes: Sequence[int], rank: int) -> list[int]:
    """`axes` counted from the front, in ascending order."""
    return sorted(normalize_axis(axis, rank) for axis in axes)


def reduce(operand: ir.Value, axes: Sequence[int], combine: str, keep: bool = True) -> ir.Value:
    """`operand` reduced over `axes` by `combine`; `keep` leaves them in place with size 1."""
    shape, kind = hlo.shape(operand), hlo.dtype(operand)
    if axes:
        init = hlo.full(hlo.identity(combine, kind), [], kind)
        reduced = hlo.reduce(operand, init, axes, combine)
    else:
        reduced = operand
    if not keep:
        return reduced
    return hlo.reshape(reduced, [1 if d in axes else n for d, n in enumerate(shape)])


def mean(operand: ir.Value, axes: Sequence[int], keep: bool = True) -> ir.Value:
    """The arithmetic mean of `operand` over `axes`."""
    count = int(np.prod([hlo.shape(operand)[axis] for axis in axes], dtype=np.int64))
    total = reduce(operand, axes, "add", keep)
    return hlo.divide(total, hlo.full_like(total, count))


def selected_positions(mask: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Where a vector of booleans is true: positions in order, then its length; and their count."""
    (length,) = hlo.shape(mask)
    number = hlo.iota([length], 0, np.int64)
    keys = hlo.select(mask, number, hlo.full(length, [length], np.int64))
    count = hlo.reduce(hlo.convert(mask, np.int64), hlo.full(0, [], np.int64), [0], "add")
    return (hlo.sort([keys], 0, "LT")[0] if length else keys), count


def rows_at(value: ir.Value, positions: ir.Value, axis: int) -> ir.Value:
    """Slices of `value` along `axis` at a vector of positions; the last one for those beyond."""
    shape = hlo.shape(value)
    sizes = [1 if d == axis else n for d, n in enumerate(shape)]
    offsets = [d for d in range(len(shape)) if d != axis]
    return hlo.gather(value, positions, hlo.GatherDimensions(offsets, [axis], [axis], 1), sizes)


def running_sum(vector: ir.Value) -> ir.Value:
    """Sums of the elements up to each, in log2(length) vector additions (Hillis and Steele)."""
    (length,) = hlo.shape(vector)
    zero = hlo.full(0, [], hlo.dtype(vector))
    step = 1
    while step < length:
        vector = hlo.add(vector, hlo.pad(vector, zero, [step], [-step]))
        step *= 2
    return vector
