"""Normalizations, as plain arithmetic: later passes fold and fuse them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import Result, operator
from stepwell.frontends.onnx.shaping import (
    along,
    broadcast,
    mean,
    normalize_axis,
    reduce,
    require_vector,
)
from stepwell.mlir import ir


@operator("BatchNormalization")
def batch_normalization(
    node: Node, x: Tensor, scale: Tensor, bias: Tensor, running_mean: Tensor, variance: Tensor
) -> list[Result]:
    """`(x - mean) / sqrt(variance + epsilon) * scale + bias`, all but x a vector of channels.

    In training mean and variance are those of the batch; the running ones follow them.
    """
    for vector in (scale, bias, running_mean, variance):
        require_vector(vector, 1, x.shape)
    training = node.integer("training_mode", 0) or (node.opset < 14 and node.used_outputs() > 1)
    if training:
        return _train(node, x, scale, bias, running_mean, variance)
    factor = hlo.multiply(scale.value, _inverse_deviation(node, variance.value))
    centred = hlo.subtract(x.value, along(running_mean, 1, x.shape))
    return [hlo.add(hlo.multiply(centred, along(factor, 1, x.shape)), along(bias, 1, x.shape))]


def _inverse_deviation(node: Node, variance: ir.Value) -> ir.Value:
    return hlo.rsqrt(hlo.add(variance, hlo.full_like(variance, node.number("epsilon", 1e-5))))


def _train(
    node: Node, x: Tensor, scale: Tensor, bias: Tensor, running_mean: Tensor, variance: Tensor
) -> list[Result]:
    """Also the updated running mean and variance, and before opset 14 those of the batch."""
    wide = np.dtype(np.float32 if x.dtype.itemsize < 4 else x.dtype)
    axes = [d for d in range(x.rank) if d != 1]
    value = hlo.convert(x.value, wide)
    average = mean(value, axes, keep=False)
    centred = hlo.subtract(value, along(average, 1, x.shape))
    spread = mean(hlo.multiply(centred, centred), axes, keep=False)
    factor = hlo.multiply(hlo.convert(scale.value, wide), _inverse_deviation(node, spread))
    offset = hlo.convert(along(bias, 1, x.shape), wide)
    result = hlo.add(hlo.multiply(centred, along(factor, 1, x.shape)), offset)
    momentum = node.number("momentum", 0.9)

    def follow(running: Tensor, batch: ir.Value) -> ir.Value:
        old = hlo.convert(running.value, wide)
        kept = hlo.multiply(old, hlo.full_like(old, momentum))
        new = hlo.multiply(batch, hlo.full_like(batch, 1 - momentum))
        return hlo.convert(hlo.add(kept, new), running.dtype)

    outputs: list[Result] = [
        hlo.convert(result, x.dtype),
        follow(running_mean, average),
        follow(variance, spread),
        hlo.convert(average, running_mean.dtype),
        hlo.convert(spread, variance.dtype),
    ]
    return outputs[: max(node.used_outputs(), 1)]


def _standardize(
    x: ir.Value, axes: Sequence[int], epsilon: float
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """`(x - mean) / sqrt(variance + epsilon)` over `axes`; also the mean and the inverse."""
    shape = hlo.shape(x)
    average = mean(x, axes)
    centred = hlo.subtract(x, broadcast(average, shape))
    variance = mean(hlo.multiply(centred, centred), axes)
    inverse = hlo.rsqrt(hlo.add(variance, hlo.full_like(variance, epsilon)))
    return hlo.multiply(centred, broadcast(inverse, shape)), average, inverse


@operator("LayerNormalization")
def layer_normalization(
    node: Node, x: Tensor, scale: Tensor, bias: Tensor | None = None
) -> list[Result]:
    """Outputs: the normalized tensor, and on request the mean and the inverse deviation."""
    axes = range(normalize_axis(node.integer("axis", -1), x.rank), x.rank)
    wide = np.float32 if x.dtype.itemsize < 4 else x.dtype
    value = hlo.convert(x.value, wide)
    normalized, average, inverse = _standardize(value, axes, node.number("epsilon", 1e-5))
    result = hlo.multiply(hlo.convert(normalized, x.dtype), broadcast(scale, x.shape))
    if bias is not None:
        result = hlo.add(result, broadcast(bias, x.shape))
    return [result, average, inverse][: max(node.used_outputs(), 1)]


@operator("InstanceNormalization")
def instance_normalization(node: Node, x: Tensor, scale: Tensor, bias: Tensor) -> ir.Value:
    epsilon = node.number("epsilon", 1e-5)
    normalized, _, _ = _standardize(x.value, range(2, x.rank), epsilon)
    scaled = hlo.multiply(normalized, along(scale, 1, x.shape))
    return hlo.add(scaled, along(bias, 1, x.shape))


@operator("GroupNormalization")
def group_normalization(node: Node, x: Tensor, scale: Tensor, bias: Tensor) -> ir.Value:
    """Channels in groups are normalized together; scale and bias are per group until opset 20."""
    groups = node.integer("num_groups", 1)
    if x.rank < 2 or groups < 1 or x.shape[1] % groups:
        node.unsupported(f"{groups} groups do not divide the channels of {list(x.shape)}")
    batch, channels, *spatial = x.shape
    split = [batch, groups, channels // groups, *spatial]
    value = hlo.reshape(x.value, split)
    epsilon = node.number("epsilon", 1e-5)
    normalized, _, _ = _standardize(value, range(2, len(split)), epsilon)
    if node.opset < 21:
        scaled = hlo.multiply(normalized, along(scale, 1, split))
        return hlo.reshape(hlo.add(scaled, along(bias, 1, split)), x.shape)
    flat = hlo.reshape(normalized, x.shape)
    return hlo.add(hlo.multiply(flat, along(scale, 1, x.shape)), along(bias, 1, x.shape))


@operator("RMSNormalization")
def rms_normalization(node: Node, x: Tensor, scale: Tensor) -> ir.Value:
    """`x / sqrt(mean(x^2) + epsilon) * scale` over the axes from `axis` on."""
    axes = range(normalize_axis(node.integer("axis", -1), x.rank), x.rank)
    value = hlo.convert(x.value, np.float32 if x.dtype.itemsize < 4 else x.dtype)
    square = mean(hlo.multiply(value, value), axes)
    inverse = hlo.rsqrt(hlo.add(square, hlo.full_like(square, node.number("epsilon", 1e-5))))
    normalized = hlo.convert(hlo.multiply(value, broadcast(inverse, x.shape)), x.dtype)
    return hlo.multiply(normalized, broadcast(scale, x.shape))


@operator("LRN")
def local_response_normalization(node: Node, x: Tensor) -> ir.Value:
    """`x / (bias + alpha / size * sum of squares over size neighbouring channels) ^ beta`."""
    size = node.integer("size", 1)
    if x.rank < 2 or size < 1:
        node.unsupported(f"size {size} is no number of channels of {list(x.shape)}")
    low = (size - 1) // 2
    total = hlo.reduce_window(
        hlo.multiply(x.value, x.value),
        hlo.full(0, [], x.dtype),
        "add",
        window=[1, size, *[1] * (x.rank - 2)],
        strides=[1] * x.rank,
        padding=[(0, 0), (low, size - 1 - low), *[(0, 0)] * (x.rank - 2)],
    )
    scaled = hlo.multiply(total, hlo.full_like(total, node.number("alpha", 1e-4) / size))
    base = hlo.add(scaled, hlo.full_like(total, node.number("bias", 1.0)))
    return hlo.divide(x.value, hlo.power(base, hlo.full_like(base, node.number("beta", 0.75))))


@operator("LpNormalization")
def lp_normalization(node: Node, x: Tensor) -> ir.Value:
    """`x` divided by its L1 or L2 norm along `axis`; zero where the norm is zero."""
    axis = [normalize_axis(node.integer("axis", -1), x.rank)]
    p = node.integer("p", 2)
    if p not in (1, 2):
        node.unsupported(f"p {p} should be 1 or 2")
    if p == 1:
        norm = reduce(hlo.abs(x.value), axis, "add")
    else:
        norm = hlo.sqrt(reduce(hlo.multiply(x.value, x.value), axis, "add"))
    zero = hlo.full_like(norm, 0)
    safe = hlo.select(hlo.compare(norm, zero, "EQ"), hlo.full_like(norm, 1), norm)
    return hlo.divide(x.value, broadcast(safe, x.shape))


@operator("MeanVarianceNormalization")
def mean_variance_normalization(node: Node, x: Tensor) -> ir.Value:
    axes = [normalize_axis(axis, x.rank) for axis in node.integers("axes", [0, 2, 3])]
    average = mean(x.value, axes)
    centred = hlo.subtract(x.value, broadcast(average, x.shape))
    deviation = hlo.sqrt(mean(hlo.multiply(centred, centred), axes))
    safe = hlo.add(deviation, hlo.full_like(deviation, 1e-9))
    return hlo.divide(centred, broadcast(safe, x.shape))
