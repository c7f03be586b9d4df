"""Attention of domain com.microsoft: Attention, MultiHeadAttention, GroupQueryAttention. Heads
are [batch, heads, length, size] inside."""

from __future__ import annotations

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.operators.rotary_embedding import rotate, rows_at
from stepwell.frontends.onnx.registry import Result, operator
from stepwell.frontends.onnx.shaping import broadcast, reduce
from stepwell.mlir import ir

_DOMAIN = "com.microsoft"


def _split_heads(x: ir.Value, heads: int) -> ir.Value:
    """[B, S, heads * D] as [B, heads, S, D]."""
    batch, length, hidden = hlo.shape(x)
    split = hlo.reshape(x, [batch, length, heads, hidden // heads])
    return hlo.transpose(split, [0, 2, 1, 3])


def _merge_heads(x: ir.Value) -> ir.Value:
    batch, heads, length, size = hlo.shape(x)
    return hlo.reshape(hlo.transpose(x, [0, 2, 1, 3]), [batch, length, heads * size])


def _attend(q: ir.Value, k: ir.Value, v: ir.Value, scale: float, terms: list[ir.Value]) -> ir.Value:
    """`softmax(scale * q k' + terms) v`; the terms broadcast to [B, N, S, L]."""
    batching = ([0, 1], [0, 1])
    scores = hlo.dot_general(q, k, ([3], [3]), batching)
    scores = hlo.multiply(scores, hlo.full_like(scores, scale or hlo.shape(q)[3] ** -0.5))
    for term in terms:
        scores = hlo.add(scores, broadcast(term, hlo.shape(scores)))
    shape = hlo.shape(scores)
    centred = hlo.subtract(scores, broadcast(reduce(scores, [3], "maximum"), shape))
    powers = hlo.exponential(centred)
    shares = hlo.divide(powers, broadcast(reduce(powers, [3], "add"), shape))
    return hlo.dot_general(shares, v, ([3], [2]), batching)


def _penalty(allowed: ir.Value, kind: np.dtype, filtered: float) -> ir.Value:
    """0 where `allowed`, else `filtered`."""
    shape = hlo.shape(allowed)
    return hlo.select(allowed, hlo.full(0, shape, kind), hlo.full(filtered, shape, kind))


def _causal(length: int, total: int) -> ir.Value:
    """[1, 1, length, total]: a query sees the keys up to its own, the last query all."""
    shape = [1, 1, length, total]
    query = hlo.add(hlo.iota(shape, 2, np.int32), hlo.full(total - length, shape, np.int32))
    return hlo.compare(hlo.iota(shape, 3, np.int32), query, "LE")


def _key_mask(node: Node, mask: Tensor, batch: int, total: int) -> ir.Value:
    """What `mask` allows, by its shape: [B] lengths, [B, L] keys, [B, S, L] pairs."""
    if mask.shape == (batch,):
        shape = [batch, 1, 1, total]
        position = hlo.iota(shape, 3, np.int32)
        lengths = hlo.broadcast_in_dim(hlo.convert(mask.value, np.int32), shape, [0])
        return hlo.compare(position, lengths, "LT")
    present = hlo.compare(mask.value, hlo.full_like(mask.value, 0), "NE")
    if mask.shape == (batch, total):
        return hlo.reshape(present, [batch, 1, 1, total])
    if mask.rank == 3 and mask.shape[2] == total:
        return hlo.reshape(present, [mask.shape[0], 1, *mask.shape[1:]])
    node.unsupported(f"a mask of shape {list(mask.shape)} is not supported")


@operator("Attention", domain=_DOMAIN)
def attention(
    node: Node,
    x: Tensor,
    weights: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    past: Tensor | None = None,
    attention_bias: Tensor | None = None,
    past_length: Tensor | None = None,
) -> list[Result]:
    """Self-attention of x [B, S, C], q, k and v being one product with the weights; past and
    present are [2, B, N, L, D]."""
    if past_length is not None or node.integer("do_rotary", 0):
        node.unsupported("past_sequence_length and do_rotary are not supported")
    batch, length, _ = x.shape
    heads = node.integer("num_heads", 1)
    width = weights.shape[1]
    sizes = node.integers("qkv_hidden_sizes", None) or [width // 3] * 3
    packed = hlo.dot_general(x.value, weights.value, ([2], [0]))
    if bias is not None:
        packed = hlo.add(packed, broadcast(bias, hlo.shape(packed)))
    ends = np.cumsum(sizes).tolist()
    q, k, v = (
        _split_heads(hlo.slice(packed, [0, 0, end - size], [batch, length, end]), heads)
        for size, end in zip(sizes, ends, strict=True)
    )
    if past is not None:
        k, v = (_append(past, i, new) for i, new in enumerate((k, v)))
    total = hlo.shape(k)[2]
    filtered = node.number("mask_filter_value", -10000.0)
    terms: list[ir.Value] = []
    if mask is not None:
        terms.append(_penalty(_key_mask(node, mask, batch, total), x.dtype, filtered))
    if node.integer("unidirectional", 0):
        terms.append(_penalty(_causal(length, total), x.dtype, float(np.finfo(np.float32).min)))
    if attention_bias is not None:
        terms.append(attention_bias.value)
    result = _merge_heads(_attend(q, k, v, node.number("scale", 0.0), terms))
    if node.used_outputs() < 2:
        return [result]
    present = [hlo.reshape(part, [1, *hlo.shape(part)]) for part in (k, v)]
    return [result, hlo.concatenate(present, 0)]


def _append(past: Tensor, index: int, new: ir.Value) -> ir.Value:
    """Keys (0) or values (1) of `past`, followed by `new`."""
    part = hlo.slice(past.value, [index, 0, 0, 0, 0], [index + 1, *past.shape[1:]])
    return hlo.concatenate([hlo.reshape(part, past.shape[1:]), new], 2)


@operator("MultiHeadAttention", domain=_DOMAIN)
def multi_head_attention(
    node: Node,
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    attention_bias: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
) -> list[Result]:
    """Query, key and value are [B, S, N * D]; key and value may be [B, N, L, D] already."""
    if key is None or value is None or query.rank != 3:
        node.unsupported("packed queries, keys and values are not supported")
    heads, batch = node.integer("num_heads", 1), query.shape[0]
    parts = [query.value, key.value, value.value]
    if bias is not None:
        begin = 0
        for i, part in enumerate(parts):
            hidden = hlo.shape(part)[-1]
            row = hlo.slice(bias.value, [begin], [begin + hidden])
            begin += hidden
            if len(hlo.shape(part)) == 3:
                parts[i] = hlo.add(part, broadcast(row, hlo.shape(part)))
    q, k, v = (p if len(hlo.shape(p)) == 4 else _split_heads(p, heads) for p in parts)
    if past_key is not None and past_value is not None:
        k = hlo.concatenate([past_key.value, k], 2)
        v = hlo.concatenate([past_value.value, v], 2)
    length, total = hlo.shape(q)[2], hlo.shape(k)[2]
    filtered = node.number("mask_filter_value", -10000.0)
    terms: list[ir.Value] = []
    if mask is not None:
        terms.append(_penalty(_key_mask(node, mask, batch, total), query.dtype, filtered))
    if node.integer("unidirectional", 0):
        lowest = float(np.finfo(np.float32).min)
        terms.append(_penalty(_causal(length, total), query.dtype, lowest))
    if attention_bias is not None:
        terms.append(attention_bias.value)
    result = _merge_heads(_attend(q, k, v, node.number("scale", 0.0), terms))
    return [result, k, v][: max(node.used_outputs(), 1)]


@operator("GroupQueryAttention", domain=_DOMAIN)
def group_query_attention(
    node: Node,
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    past_key: Tensor | None,
    past_value: Tensor | None,
    last: Tensor,
    total_length: Tensor,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    *more: Tensor | None,
) -> list[Result]:
    """Causal attention with fewer heads of keys than of queries. `last` [B] is the index of
    the last token of each row; new ones are written behind the past [B, M, P, D] of their row."""
    if key is None or value is None or any(t is not None for t in more):
        node.unsupported("packed inputs, position_ids, attention_bias and sinks are not supported")
    for name, default in (("softcap", 0.0), ("smooth_softmax", 0)):
        if (node.number if isinstance(default, float) else node.integer)(name, default):
            node.unsupported(f"{name} is not supported")
    heads, key_heads = node.integer("num_heads", 1), node.integer("kv_num_heads", 1)
    batch, length, _ = query.shape
    q, k, v = (
        _split_heads(t.value, n) for t, n in ((query, heads), (key, key_heads), (value, key_heads))
    )
    before = hlo.subtract(
        hlo.reshape(hlo.convert(last.value, np.int32), [batch]),
        hlo.full(length - 1, [batch], np.int32),
    )
    before = hlo.maximum(before, hlo.full(0, [batch], np.int32))
    if node.integer("do_rotary", 0) and cos is not None and sin is not None:
        shape = [batch, length]
        positions = hlo.add(hlo.broadcast_in_dim(before, shape, [0]), hlo.iota(shape, 1, np.int32))
        angles = rows_at(positions, cos, sin)
        interleaved = bool(node.integer("rotary_interleaved", 0))
        q, k = (rotate(t, *angles, sequence=2, interleaved=interleaved) for t in (q, k))
    total = int(node.known(total_length, "total_sequence_length").reshape(-1)[0])
    k, v = (
        _write_behind(past, new, before, total) for past, new in ((past_key, k), (past_value, v))
    )
    allowed = _window(node, before, length, hlo.shape(k)[2])
    penalty = _penalty(allowed, query.dtype, float("-inf"))
    groups = heads // key_heads
    wide = [batch, key_heads, groups, *hlo.shape(k)[2:]]
    keys, values = (
        hlo.reshape(hlo.broadcast_in_dim(t, wide, [0, 1, 3, 4]), [batch, heads, *hlo.shape(k)[2:]])
        for t in (k, v)
    )
    result = _merge_heads(_attend(q, keys, values, node.number("scale", 0.0), [penalty]))
    return [result, k, v][: max(node.used_outputs(), 1)]


def _write_behind(past: Tensor | None, new: ir.Value, before: ir.Value, total: int) -> ir.Value:
    """[B, M, T, D]: the first `before` [B] of `past`, then `new`."""
    batch, heads, length, size = hlo.shape(new)
    kept = past.shape[2] if past is not None else 0
    shape = [batch, heads, max(kept, total), size]
    zero = hlo.full(0, [], hlo.dtype(new))
    old = hlo.full(0, shape, hlo.dtype(new))
    if past is not None and kept:
        old = hlo.pad(past.value, zero, [0] * 4, [0, 0, shape[2] - kept, 0])
    grid = [batch, shape[2]]
    place = hlo.subtract(hlo.iota(grid, 1, np.int32), hlo.broadcast_in_dim(before, grid, [0]))
    inside = hlo.and_(
        hlo.compare(place, hlo.full(0, grid, np.int32), "GE"),
        hlo.compare(place, hlo.full(length, grid, np.int32), "LT"),
    )
    dimensions = hlo.GatherDimensions((1, 3), (2,), (2,), 2, (0,), (0,))
    index = hlo.reshape(place, [*grid, 1])
    moved = hlo.gather(new, index, dimensions, [1, heads, 1, size])
    return hlo.select(hlo.broadcast_in_dim(inside, shape, [0, 2]), moved, old)


def _window(node: Node, before: ir.Value, length: int, total: int) -> ir.Value:
    """[B, 1, S, T]: keys up to the query's own position, `local_window_size` of them at most."""
    batch = hlo.shape(before)[0]
    shape = [batch, 1, length, total]
    query = hlo.add(hlo.broadcast_in_dim(before, shape, [0]), hlo.iota(shape, 2, np.int32))
    key = hlo.iota(shape, 3, np.int32)
    allowed = hlo.compare(key, query, "LE")
    size = node.integer("local_window_size", -1)
    if size > 0:
        first = hlo.subtract(query, hlo.full(size, shape, np.int32))
        allowed = hlo.and_(allowed, hlo.compare(key, first, "GT"))
    return allowed
