"""Convolutions: Conv, ConvTranspose, ConvInteger."""

from __future__ import annotations

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import operator
from stepwell.frontends.onnx.shaping import along, require_vector
from stepwell.frontends.onnx.windows import padding_mode, read_kernel, read_pads, read_window
from stepwell.mlir import ir


@operator("Conv")
def conv(node: Node, x: Tensor, w: Tensor, b: Tensor | None = None) -> ir.Value:
    """x [N, C, spatial...] with w [M, C/group, spatial...], plus b [M]."""
    return _with_bias(_conv(node, x, x.value, w, w.value, x.dtype), b)


@operator("ConvInteger")
def conv_integer(
    node: Node,
    x: Tensor,
    w: Tensor,
    x_zero_point: Tensor | None = None,
    w_zero_point: Tensor | None = None,
) -> ir.Value:
    """Convolution of `x - x_zero_point` with `w - w_zero_point` in int32."""
    data = hlo.convert(x.value, np.int32)
    kernel = hlo.convert(w.value, np.int32)
    if x_zero_point is not None:
        if x_zero_point.size != 1:
            node.unsupported(f"x_zero_point {list(x_zero_point.shape)} should be one number")
        zero = hlo.reshape(hlo.convert(x_zero_point.value, np.int32), [])
        data = hlo.subtract(data, hlo.broadcast_in_dim(zero, x.shape, []))
    if w_zero_point is not None:
        zero = hlo.convert(w_zero_point.value, np.int32)
        dims = [0] if w_zero_point.size != 1 else []
        if dims:
            require_vector(w_zero_point, 0, w.shape)
        else:
            zero = hlo.reshape(zero, [])
        kernel = hlo.subtract(kernel, hlo.broadcast_in_dim(zero, w.shape, dims))
    return _conv(node, x, data, w, kernel, np.dtype(np.int32))


def _conv(
    node: Node, x: Tensor, data: ir.Value, w: Tensor, kernel: ir.Value, kind: np.dtype
) -> ir.Value:
    groups = _groups(node)
    if x.rank < 3 or w.rank != x.rank or x.shape[1] != w.shape[1] * groups:
        node.unsupported(
            f"the kernel {list(w.shape)} in {groups} groups does not fit the input {list(x.shape)}"
        )
    if w.shape[0] % groups:
        node.unsupported(f"{groups} groups do not divide the {w.shape[0]} channels of the result")
    window = read_window(node, list(w.shape[2:]), x.shape[2:])
    window.require_room(node, x.shape[2:])
    return hlo.convolution(
        data,
        kernel,
        hlo.ConvolutionDimensions.nchw(x.rank - 2),
        strides=window.strides,
        padding=window.padding,
        rhs_dilation=window.dilations,
        feature_groups=groups,
        kind=kind,
    )


def _groups(node: Node) -> int:
    groups = node.integer("group", 1)
    if groups < 1:
        node.unsupported(f"group {groups} should be positive")
    return groups


def _with_bias(result: ir.Value, b: Tensor | None) -> ir.Value:
    return result if b is None else hlo.add(result, along(b, 1, hlo.shape(result)))


@operator("ConvTranspose")
def conv_transpose(node: Node, x: Tensor, w: Tensor, b: Tensor | None = None) -> ir.Value:
    """The gradient of Conv with respect to its input; w is [C, M/group, spatial...].

    As a convolution: the input dilated by the strides, the kernel flipped, its feature dimensions
    swapped, padded by what the kernel spans less the pads.
    """
    groups, rank = _groups(node), x.rank - 2
    if rank < 1 or w.rank != x.rank or x.shape[1] != w.shape[0]:
        node.unsupported(f"the kernel {list(w.shape)} does not fit the input {list(x.shape)}")
    if w.shape[0] % groups:
        node.unsupported(f"{groups} groups do not divide the {w.shape[0]} channels of the input")
    window = read_kernel(node, list(w.shape[2:]), rank)
    strides, dilations = window.strides, window.dilations
    extents = [window.extent(d) for d in range(rank)]
    cuts = _transpose_pads(node, x, strides, extents)
    for d, (low, high) in enumerate(cuts):
        size = strides[d] * (x.shape[2 + d] - 1) + extents[d]
        if x.shape[2 + d] and size <= low + high:
            node.unsupported(
                f"nothing is left of spatial dimension {d} of the result, {size} elements that "
                f"are cut by {low} and {high}"
            )
    padding = [
        (extent - 1 - low, extent - 1 - high)
        for extent, (low, high) in zip(extents, cuts, strict=True)
    ]
    result = hlo.convolution(
        x.value,
        _flipped_kernel(w, groups),
        hlo.ConvolutionDimensions.nchw(rank),
        strides=[1] * rank,
        padding=padding,
        lhs_dilation=strides,
        rhs_dilation=dilations,
        feature_groups=groups,
    )
    return _with_bias(result, b)


def _flipped_kernel(w: Tensor, groups: int) -> ir.Value:
    """[C, M/group, spatial...] to [M, C/group, spatial...], reversed in space.

    Moved at compile time when the kernel is a constant.
    """
    features, outputs, *spatial = w.shape
    split = [groups, features // groups, outputs, *spatial]
    order = [0, 2, 1, *range(3, 3 + len(spatial))]
    merged = [groups * outputs, features // groups, *spatial]
    axes = tuple(range(2, 2 + len(spatial)))
    if w.array is not None:
        moved = w.array.reshape(split).transpose(order).reshape(merged)
        return w.scope.constant(np.flip(moved, axes), w.name).value
    moved = hlo.transpose(hlo.reshape(w.value, split), order)
    return hlo.reverse(hlo.reshape(moved, merged), axes)


def _transpose_pads(
    node: Node, x: Tensor, strides: list[int], extents: list[int]
) -> list[tuple[int, int]]:
    """How much of the full result is cut at both ends; negative at the high end extends it."""
    rank = len(strides)
    extra = node.integers("output_padding", [0] * rank)
    if len(extra) != rank or any(n < 0 for n in extra):
        node.unsupported(f"output_padding {extra} should be {rank} numbers that are not negative")
    wanted = node.integers("output_shape", None)
    if wanted is not None and len(wanted) not in (rank, rank + 2):
        node.unsupported(f"output_shape {wanted} should have {rank} entries")
    mode = padding_mode(node)
    if wanted is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [n * s for n, s in zip(x.shape[2:], strides, strict=True)]
    if wanted is None:
        pads = read_pads(node, rank) if mode == "NOTSET" else [(0, 0)] * rank
        return [(low, high - more) for (low, high), more in zip(pads, extra, strict=True)]
    result: list[tuple[int, int]] = []
    for d, size in enumerate(wanted[-rank:]):
        total = strides[d] * (x.shape[2 + d] - 1) + extra[d] + extents[d] - size
        half = total // 2
        low = half if mode == "SAME_UPPER" else total - half
        result.append((low, total - low - extra[d]))
    return result
