"""RotaryEmbedding of the standard and of com.microsoft: positions as angles by which pairs of
elements are turned (Su et al. 2021, arXiv:2104.09864)."""

from __future__ import annotations

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import operator
from stepwell.mlir import ir


@operator("RotaryEmbedding")
def rotary_embedding(
    node: Node, x: Tensor, cos: Tensor, sin: Tensor, position_ids: Tensor | None = None
) -> ir.Value:
    """x [B, N, S, D] or [B, S, N * D]. The tables are [P, H] with positions [B, S], or [B, S, H]
    without; the first 2 H elements of each head are turned."""
    heads = node.integer("num_heads", 0)
    if x.rank not in (3, 4) or (x.rank == 3 and (heads <= 0 or x.shape[2] % heads)):
        node.unsupported(f"an input of shape {list(x.shape)} with num_heads {heads}")
    size = x.shape[3] if x.rank == 4 else x.shape[2] // heads
    places = (x.shape[0], x.shape[-2] if x.rank == 4 else x.shape[1])
    _check(node, size, cos, sin)
    if position_ids is None:
        angles = (cos.value, sin.value)
    elif cos.rank == 2 and position_ids.shape == places:
        angles = rows_at(position_ids.value, cos, sin)
    else:
        node.unsupported(
            f"tables of rank {cos.rank} with positions of shape {list(position_ids.shape)}"
        )
    if hlo.shape(angles[0])[:2] != places:
        node.unsupported(
            f"tables of shape {list(cos.shape)} for {places[0]} sequences of length {places[1]}"
        )
    return _rotate_heads(node, x, size, *angles)


@operator("RotaryEmbedding", domain="com.microsoft")
def microsoft_rotary_embedding(
    node: Node, x: Tensor, position_ids: Tensor, cos: Tensor, sin: Tensor
) -> ir.Value:
    """As the standard's; positions are [B, S], or [1] for the first of each sequence. Without
    `rotary_embedding_dim`, heads are twice as wide as the tables."""
    batch, length = x.shape[0], x.shape[2] if x.rank == 4 else x.shape[1]
    size = x.shape[3] if x.rank == 4 else 2 * cos.shape[1]
    if x.rank == 3 and node.integer("rotary_embedding_dim", 0):
        size = x.shape[2] // node.integer("num_heads", 1)
    _check(node, size, cos, sin)
    positions = hlo.convert(position_ids.value, np.int32)
    if position_ids.size == 1 and position_ids.rank <= 1:
        start = hlo.broadcast_in_dim(hlo.reshape(positions, []), [batch, length], [])
        positions = hlo.add(start, hlo.iota([batch, length], 1, np.int32))
    return _rotate_heads(node, x, size, *rows_at(positions, cos, sin))


def _check(node: Node, size: int, cos: Tensor, sin: Tensor) -> None:
    turned = node.integer("rotary_embedding_dim", 0) or 2 * cos.shape[-1]
    if cos.shape != sin.shape or turned != 2 * cos.shape[-1] or turned > size:
        node.unsupported(
            f"cosines of shape {list(cos.shape)} and sines of shape {list(sin.shape)} do not turn "
            f"{turned} elements of heads of {size}"
        )


def _rotate_heads(node: Node, x: Tensor, size: int, cos: ir.Value, sin: ir.Value) -> ir.Value:
    interleaved = bool(node.integer("interleaved", 0))
    if x.rank == 4:
        return rotate(x.value, cos, sin, sequence=2, interleaved=interleaved)
    heads = hlo.reshape(x.value, [*x.shape[:2], x.shape[2] // size, size])
    return hlo.reshape(rotate(heads, cos, sin, sequence=1, interleaved=interleaved), x.shape)


def rows_at(positions: ir.Value, *tables: Tensor) -> tuple[ir.Value, ...]:
    """The rows of `tables` [P, H] at `positions` [B, S], as [B, S, H]."""
    index = hlo.reshape(positions, [*hlo.shape(positions), 1])
    dimensions = hlo.GatherDimensions((2,), (0,), (0,), 2)
    return tuple(hlo.gather(t.value, index, dimensions, [1, t.shape[1]]) for t in tables)


def rotate(
    x: ir.Value, cos: ir.Value, sin: ir.Value, *, sequence: int, interleaved: bool
) -> ir.Value:
    """The first 2 H elements of each head turned in pairs by angles given by `cos` and `sin`
    [B, S, H]. x is [B, N, S, D] (`sequence` is 2) or [B, S, N, D] (`sequence` is 1); pairs are
    neighbours (`interleaved`) or H elements apart."""
    shape = hlo.shape(x)
    *outer, size = shape
    half = hlo.shape(cos)[2]
    c, s = (hlo.broadcast_in_dim(t, [*outer, half], [0, sequence, 3]) for t in (cos, sin))
    if interleaved:
        starts, stride = (0, 1), 2
    else:
        starts, stride = (0, half), 1
    first, second = (
        hlo.slice(x, [0, 0, 0, i], [*outer, i + (half - 1) * stride + 1], [1, 1, 1, stride])
        for i in starts
    )
    real = hlo.subtract(hlo.multiply(first, c), hlo.multiply(second, s))
    imaginary = hlo.add(hlo.multiply(first, s), hlo.multiply(second, c))
    parts = [real, imaginary]
    if interleaved:
        columns = [hlo.reshape(part, [*outer, half, 1]) for part in parts]
        parts = [hlo.reshape(hlo.concatenate(columns, 4), [*outer, 2 * half])]
    if 2 * half < size:
        parts.append(hlo.slice(x, [0, 0, 0, 2 * half], shape))
    return parts[0] if len(parts) == 1 else hlo.concatenate(parts, 3)
