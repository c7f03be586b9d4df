"""Finding the diagonal of an attention beyond which nothing is seen.

In causal attention query r sees the keys up to r + c. The tiles of keys beyond are left out by
kernels that know c, for which the mask, constant or computed from constants, is evaluated here: any
mask has such a c, and any c that holds of all queries is right.
"""

from __future__ import annotations

import numpy as np

from stepwell.kernels.gpu.attention import AttentionParts
from stepwell.kernels.index import Index, Variable, apply_map
from stepwell.kernels.rows import loop_point
from stepwell.passes.linalg._known_values import LEAST, KnownValues
from stepwell.weights import WeightTable

_MOST_ELEMENTS = 1 << 27
"""Larger masks would take seconds."""

_AT_ONCE = 1 << 20


def diagonal_of(parts: AttentionParts, weights: WeightTable) -> tuple[int, int] | None:
    """(c, p): of each p queries, query r sees no key beyond r + c, whatever the queries and keys
    are, as long as their products are finite; None where all see the last key."""
    shape = parts.scores_shape
    period = shape.sizes[shape.rows[-1]]
    masks = parts.batch * parts.queries // period
    first = _seen(parts, weights, period, range(1))
    if first is None or first.max() >= parts.keys:
        return None
    if first.size * period * parts.keys > _MOST_ELEMENTS:
        return None
    step = max(1, _AT_ONCE // (parts.keys * masks))
    offset = -parts.keys
    for start in range(0, period, step):
        rows = range(start, min(start + step, period))
        seen = _seen(parts, weights, period, rows)
        if seen is None:
            return None
        offset = max(offset, int((seen - 1 - np.arange(rows.start, rows.stop)).max()))
    return (offset, period) if offset + 1 < parts.keys else None


def _seen(
    parts: AttentionParts, weights: WeightTable, period: int, rows: range
) -> np.ndarray | None:
    """How many keys, counted from the first, each of `rows` may see: by mask (one, where all are
    the same) and row. A row must see a key for certain where others only have the least number,
    else it sees all."""
    keys, masks = parts.keys, parts.batch * parts.queries // period
    mask, row = Variable("mask", 0, masks - 1), Variable("row", 0, period - 1)
    key = Variable("key", 0, keys - 1)
    places = {
        mask: np.arange(masks).reshape(-1, 1, 1),
        row: np.arange(rows.start, rows.stop).reshape(1, -1, 1),
        key: np.arange(keys).reshape(1, 1, -1),
    }
    known = KnownValues(weights, {parts.scores.op.results[0]}, places)
    reduction = parts.softmax.maximum
    flat = (Index.of(mask) * period + Index.of(row)) * keys + Index.of(key)
    scores = known.at(
        reduction.inputs[0], apply_map(reduction.maps[0], loop_point(reduction, flat))
    )
    if not np.any(scores.known):
        return None
    shape = np.broadcast_shapes(scores.what.shape, scores.data.shape, (1, len(rows), keys))
    data, what = (np.broadcast_to(a, shape) for a in (scores.data.astype(np.float64), scores.what))
    hidden = scores.known & (data < LEAST)
    seen = np.where(hidden.all(-1), 0, keys - np.argmin(hidden[..., ::-1], -1))
    uncertain = (hidden & np.isfinite(data)).any(-1)
    moderate = np.broadcast_to(scores.moderate, what.shape).any(-1)
    return np.where(uncertain & ~moderate, keys, seen)
