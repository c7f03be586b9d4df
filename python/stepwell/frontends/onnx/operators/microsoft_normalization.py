"""Normalizations of domain com.microsoft: of skipped connections, embeddings, and groups."""

from __future__ import annotations

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import Result, operator
from stepwell.frontends.onnx.shaping import broadcast, mean, normalize_axis
from stepwell.mlir import ir

_DOMAIN = "com.microsoft"


def _normalize(
    node: Node, value: ir.Value, gamma: Tensor, beta: Tensor | None, *, centre: bool, epsilon: float
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """`value` normalized along its last dimension; also its mean and the inverse deviation."""
    shape, kind = hlo.shape(value), hlo.dtype(value)
    last = [len(shape) - 1]
    wide = hlo.convert(value, np.float32 if kind.itemsize < 4 else kind)
    average = mean(wide, last)
    if centre:
        wide = hlo.subtract(wide, broadcast(average, shape))
    square = mean(hlo.multiply(wide, wide), last)
    epsilon = node.number("epsilon", epsilon)
    inverse = hlo.rsqrt(hlo.add(square, hlo.full_like(square, epsilon)))
    result = hlo.convert(hlo.multiply(wide, broadcast(inverse, shape)), kind)
    result = hlo.multiply(result, broadcast(gamma, shape))
    if beta is not None:
        result = hlo.add(result, broadcast(beta, shape))
    return result, average, inverse


@operator("SkipLayerNormalization", domain=_DOMAIN)
def skip_layer_normalization(
    node: Node,
    x: Tensor,
    skip: Tensor,
    gamma: Tensor,
    beta: Tensor | None = None,
    bias: Tensor | None = None,
) -> list[Result]:
    """LayerNormalization of `x + skip + bias`; also mean, inverse deviation, and the sum."""
    return _skip(node, x, skip, gamma, beta, bias, centre=True)


@operator("SkipSimplifiedLayerNormalization", domain=_DOMAIN)
def skip_simplified_layer_normalization(
    node: Node, x: Tensor, skip: Tensor, gamma: Tensor, bias: Tensor | None = None
) -> list[Result]:
    """RMSNormalization of `x + skip + bias`; also mean, inverse deviation, and the sum."""
    return _skip(node, x, skip, gamma, None, bias, centre=False)


def _skip(
    node: Node,
    x: Tensor,
    skip: Tensor,
    gamma: Tensor,
    beta: Tensor | None,
    bias: Tensor | None,
    *,
    centre: bool,
) -> list[Result]:
    total = hlo.add(x.value, broadcast(skip, x.shape))
    if bias is not None:
        total = hlo.add(total, broadcast(bias, x.shape))
    parts = _normalize(node, total, gamma, beta, centre=centre, epsilon=1e-12)
    return [*parts, total][: max(node.used_outputs(), 1)]


@operator("SimplifiedLayerNormalization")
@operator("SimplifiedLayerNormalization", domain=_DOMAIN)
def simplified_layer_normalization(node: Node, x: Tensor, scale: Tensor) -> list[Result]:
    """RMSNormalization along the last dimension; also the inverse deviation. onnxruntime writes it
    into the standard's domain as well."""
    if normalize_axis(node.integer("axis", -1), x.rank) != x.rank - 1:
        node.unsupported("only the last axis is supported")
    result, _, inverse = _normalize(node, x.value, scale, None, centre=False, epsilon=1e-5)
    return [result, inverse][: max(node.used_outputs(), 1)]


@operator("GroupNorm", domain=_DOMAIN)
def group_norm(node: Node, x: Tensor, gamma: Tensor, beta: Tensor) -> ir.Value:
    """x [N, H, W, C], or [N, C, H, W] unless `channels_last`, normalized in groups of channels,
    scaled and shifted by channel; `activation` 1 is `y * sigmoid(y)`. Computed in float32."""
    groups = node.integer("groups", 0)
    axis = x.rank - 1 if node.integer("channels_last", 1) else 1
    if x.rank < 3 or groups < 1 or x.shape[axis] % groups:
        node.unsupported(f"{groups} groups do not fit the channels of {list(x.shape)}")
    activation = node.integer("activation", 0)
    if activation not in (0, 1):
        node.unsupported(f"activation {activation} is not known; 0 and 1 are")
    split = [*x.shape[:axis], groups, x.shape[axis] // groups, *x.shape[axis + 1 :]]
    value = hlo.reshape(hlo.convert(x.value, np.float32), split)
    axes = [d for d in range(len(split)) if d not in (0, axis)]
    centred = hlo.subtract(value, broadcast(mean(value, axes), split))
    square = mean(hlo.multiply(centred, centred), axes)
    epsilon = hlo.full_like(square, node.number("epsilon", 1e-5))
    scaled = hlo.multiply(centred, broadcast(hlo.rsqrt(hlo.add(square, epsilon)), split))
    weight, shift = (
        hlo.broadcast_in_dim(hlo.convert(t.value, np.float32), x.shape, [axis])
        for t in (gamma, beta)
    )
    result = hlo.add(hlo.multiply(hlo.reshape(scaled, x.shape), weight), shift)
    if activation:
        result = hlo.multiply(result, hlo.logistic(result))
    return hlo.convert(result, x.dtype)


@operator("EmbedLayerNormalization", domain=_DOMAIN)
def embed_layer_normalization(
    node: Node,
    ids: Tensor,
    segments: Tensor | None,
    words: Tensor,
    positions: Tensor,
    segment_table: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    mask: Tensor | None = None,
    position_ids: Tensor | None = None,
) -> list[Result]:
    """LayerNormalization of the sum of the embeddings of words, positions and segments; also how
    many tokens the mask [batch, length] leaves in each row, and the sum."""
    batch, length = ids.shape
    total = _rows(words, ids.value)
    shape = hlo.shape(total)
    if position_ids is None:
        place = hlo.slice(positions.value, [0, 0], [length, shape[-1]])
        total = hlo.add(total, hlo.broadcast_in_dim(place, shape, [1, 2]))
    else:
        where = broadcast(position_ids, [batch, length])
        total = hlo.add(total, _rows(positions, where))
    if segments is not None and segment_table is not None:
        total = hlo.add(total, _rows(segment_table, segments.value))
    result, _, _ = _normalize(node, total, gamma, beta, centre=True, epsilon=1e-12)
    if mask is None:
        count = hlo.full(0, [batch], np.int32)
    else:
        present = hlo.convert(hlo.compare(mask.value, hlo.full_like(mask.value, 1), "EQ"), np.int32)
        count = hlo.reduce(present, hlo.full(0, [], np.int32), [1], "add")
    return [result, count, total][: max(node.used_outputs(), 1)]


def _rows(table: Tensor, index: ir.Value) -> ir.Value:
    """`table[index]` along the first dimension."""
    shape = hlo.shape(index)
    dimensions = hlo.GatherDimensions((len(shape),), (0,), (0,), len(shape))
    return hlo.gather(table.value, hlo.reshape(index, [*shape, 1]), dimensions, [1, table.shape[1]])
