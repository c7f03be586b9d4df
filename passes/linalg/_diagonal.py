"""Finding the diagonals of an attention between which keys are seen.

In causal attention query r sees the keys up to r + c, and with a sliding window those from r + w
on. The tiles of keys beyond are left out by kernels that know c and w, for which the mask, constant
or computed from constants, is evaluated here: any mask has such c and w, and any that hold of all
queries are right.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepwell.kernels.gpu.attention import AttentionParts
from stepwell.kernels.index import Index, Variable, apply_map
from stepwell.kernels.rows import loop_point
from stepwell.passes.linalg._known_values import LEAST, KnownValues
from stepwell.weights import WeightTable

_MOST_ELEMENTS = 1 << 27
"""Larger masks would take seconds."""

_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Band:
    """(c, p) and (w, p): of each p queries, query r sees no key beyond r + c, and none before
    r + w, whatever the queries and keys are, as long as their products are finite. None where all
    see the last key, or the first. Where every query is said to have keys (`attention.WINDOW`), w
    is as small as makes that true."""

    diagonal: tuple[int, int] | None
    window: tuple[int, int] | None


def band_of(parts: AttentionParts, weights: WeightTable) -> Band:
    """The band of the keys that queries see."""
    shape = parts.scores_shape
    period = shape.sizes[shape.rows[-1]]
    masks = parts.batch * parts.queries // period
    ends = [_seen(parts, weights, period, range(row, row + 1)) for row in (0, period - 1)]
    (_, first_end), (last_begin, _) = ends
    unbounded = first_end.max() >= parts.keys and last_begin.min() <= 0
    if unbounded or first_end.size * period * parts.keys > _MOST_ELEMENTS:
        return Band(None, None)
    step = max(1, _AT_ONCE // (parts.keys * masks))
    offset, window = -parts.keys, parts.keys - period
    for start in range(0, period, step):
        rows = range(start, min(start + step, period))
        begin, end = _seen(parts, weights, period, rows)
        numbers = np.arange(rows.start, rows.stop)
        offset = max(offset, int((end - 1 - numbers).max()))
        window = min(window, int((begin - numbers).min()))
    window = min(window, offset)
    return Band(
        (offset, period) if offset + 1 < parts.keys else None,
        (window, period) if window + period > 1 else None,
    )


def _seen(
    parts: AttentionParts, weights: WeightTable, period: int, rows: range
) -> tuple[np.ndarray, np.ndarray]:
    """The first key that each of `rows` may see, and the first of those behind the last: by mask
    (one, where all are the same) and row. A row must see a key for certain where others only have
    the least number, else it sees all."""
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
        return np.zeros((1, len(rows)), int), np.full((1, len(rows)), keys)
    shape = np.broadcast_shapes(scores.what.shape, scores.data.shape, (1, len(rows), keys))
    data, what = (np.broadcast_to(a, shape) for a in (scores.data.astype(np.float64), scores.what))
    hidden = scores.known & (data < LEAST)
    begin = np.where(hidden.all(-1), keys, np.argmin(hidden, -1))
    end = np.where(hidden.all(-1), 0, keys - np.argmin(hidden[..., ::-1], -1))
    uncertain = (hidden & np.isfinite(data)).any(-1)
    moderate = np.broadcast_to(scores.moderate, what.shape).any(-1)
    sees_all = uncertain & ~moderate
    return np.where(sees_all, 0, begin), np.where(sees_all, keys, end)
