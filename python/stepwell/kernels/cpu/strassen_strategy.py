"""When a product is summed by Strassen's algorithm, and how: by a cost model of the target."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from stepwell.kernels.cpu.contraction_strategy import (
    ContractionShape,
    adding_time,
    estimated_time,
    fits_registers,
    flat_lhs,
    has_unneeded_rows,
    rows_merge,
    step_time,
)
from stepwell.kernels.strategy import Candidate, Choice, IntegerStrategy
from stepwell.kernels.structured import Structured, element_type
from stepwell.targets import Target
from stepwell.tuning_record import ALGORITHM, STRATEGY

ATTRIBUTE = "kernel.strassen"
"""Marks a product that is summed so."""

PRODUCTS, PLAIN = 7, 3
"""Products of halves, and how many of them are by weights as they are."""

LINE = 16
"""Numbers that keep rows and products apart: without them, they would lie a power of two apart, in
few sets of the cache."""

_SCRATCH_BYTES = 7 << 19
"""The largest scratch of a task: a thread's stack has 8 MiB, or what its creator gave it."""

_MOST_ROWS, _MOST_BLOCKS = 14, 16

_LEAST_ROWS = 32
"""Of a product that it is considered for. With fewer rows, the time is that of reading the weights
and of summing them, which the cost model is too coarse for."""

_THERE, _BACK = 10, 10
"""Times that a multiply-add takes, from its begin to its end, in which a vector of each block of
the lhs becomes the sums, and one of each product results."""

_SUMMED = 0.5
"""Of the time that a vector from L2 takes, what one of weights takes to be summed with another as
it is multiplied."""

_TILE = 1.5
"""Multiply-adds that a vector of a register tile takes beside those of its terms."""

_GAIN = 0.97
"""The part of the time of direct sums, by both estimates, that it has to take at most."""


@dataclass(frozen=True)
class Algorithm:
    """How a product is summed: by so many products of halves, 8 being direct sums."""

    products: int

    @property
    def is_halved(self) -> bool:
        return self.products == PRODUCTS

    def __str__(self) -> str:
        return "Strassen-Winograd" if self.is_halved else "direct"


_DIRECT, _STRASSEN = Algorithm(8), Algorithm(PRODUCTS)


@dataclass(frozen=True)
class StrassenStrategy(IntegerStrategy):
    """`half` rows of each half of the lhs and `pairs` pairs of panels, of `vectors` vectors, make a
    task; `rows` rows a register tile."""

    half: int
    rows: int
    vectors: int
    pairs: int

    def columns(self, lanes: int) -> int:
        """Columns of a panel."""
        return self.vectors * lanes

    def blocks(self, m: int) -> int:
        """Blocks of rows of one of `m` rows' halves."""
        return math.ceil(math.ceil(m / 2) / self.half)


def applies(op: Structured, shape: ContractionShape, target: Target, threads: int) -> bool:
    """Whether halves of a product of f32 are whole vectors and panels, the lhs is read along its
    terms, and there is a strategy."""
    lanes = target.vector_lanes
    kinds = {str(element_type(value)) for value in (*op.inputs, op.op.results[0])}
    if kinds != {"f32"} or shape.terms > 1 or shape.widened or shape.extent(shape.batch) > 1:
        return False
    *taps, last = shape.reduced
    if shape.extent(tuple(taps)) > 1 or shape.k % (2 * lanes) or shape.n % (2 * lanes):
        return False
    if not rows_merge(op, shape) or has_unneeded_rows(op, shape):
        return False
    flat, dims = flat_lhs(op, shape)
    in_order = flat.coefficient(dims[last]) == 1
    return in_order and blocking(shape, target, threads) is not None


def algorithm(
    op: Structured, shape: ContractionShape, target: Target, threads: int
) -> Choice[Algorithm]:
    """Whether to take this algorithm, for a product that it applies to."""
    best = choice(shape, target, threads).default
    direct = estimated_time(op, shape, target) / threads
    costs = {_DIRECT: direct, _STRASSEN: _time(best, shape, target, threads)}
    considered = costs if shape.m >= _LEAST_ROWS else {_DIRECT: direct}

    def candidates(chosen: Algorithm) -> list[Candidate]:
        found = sorted({chosen, *considered}, key=lambda item: (item != chosen, costs[item]))
        return [Candidate(str(algorithm), costs[algorithm]) for algorithm in found]

    return Choice(
        ALGORITHM,
        min(considered, key=lambda item: costs[item] / (1 if item == _DIRECT else _GAIN)),
        lambda chosen: "" if chosen in costs else f"products is {chosen.products}, not 7 or 8",
        candidates,
        lambda _: considered,
    )


def choice(shape: ContractionShape, target: Target, threads: int) -> Choice[StrassenStrategy]:
    """The choice that `blocking` makes for a product that it finds a strategy for."""
    best = blocking(shape, target, threads)
    assert best is not None
    return Choice(
        STRATEGY,
        best,
        lambda strategy: problem(strategy, shape, target),
        variants=lambda _: _variants(shape, target, threads),
    )


@functools.lru_cache(256)
def blocking(shape: ContractionShape, target: Target, threads: int) -> StrassenStrategy | None:
    """The strategy with the least estimated time; None where scratch would be too large."""
    found = _strategies(shape, target, threads)
    return min(found, key=lambda s: _time(s, shape, target, threads), default=None)


def problem(strategy: StrassenStrategy, shape: ContractionShape, target: Target) -> str:
    """Why `strategy` cannot be; "" where it can."""
    half, rows, vectors = strategy.half, strategy.rows, strategy.vectors
    for field in ("half", "rows", "vectors", "pairs"):
        number = getattr(strategy, field)
        if number < 1:
            return f"{field} is {number}, which should be positive"
    if half % rows:
        return f"half is {half}, no whole register tiles of {rows} rows"
    first = half * strategy.blocks(shape.m)
    if first > shape.m or shape.m - first < first - half:
        return f"{shape.m} rows are no two halves of blocks of {half}"
    columns = shape.n // target.vector_lanes
    if columns % (2 * vectors):
        return f"{columns} vectors of columns are no pairs of panels of {vectors}"
    if strategy.pairs > columns // (2 * vectors):
        return f"pairs is {strategy.pairs}, of {columns // (2 * vectors)}"
    if not fits_registers(rows, vectors, target):
        return f"register tiles of {rows} by {vectors} do not fit {target.name}"
    if _scratch_bytes(strategy, shape, target) > _SCRATCH_BYTES:
        return f"blocks of {half} rows need more than {_SCRATCH_BYTES} bytes"
    return ""


_VARIANTS = 5
"""Strategies that tuning looks at."""


def _variants(shape: ContractionShape, target: Target, threads: int) -> list[StrassenStrategy]:
    """Of each register tile the fastest blocking by the cost model, of those the fastest."""
    found = sorted(
        _strategies(shape, target, threads), key=lambda s: _time(s, shape, target, threads)
    )
    tiles = {(s.rows, s.vectors): s for s in reversed(found)}
    return [s for s in found if tiles[s.rows, s.vectors] == s][:_VARIANTS]


def _strategies(
    shape: ContractionShape, target: Target, threads: int
) -> Iterator[StrassenStrategy]:
    """What can be: blocks of rows of about the same size, and groups of pairs for the threads."""
    columns = shape.n // target.vector_lanes
    for vectors in (v for v in (4, 3, 2, 1) if columns % (2 * v) == 0):
        pairs = columns // (2 * vectors)
        groups = sorted({min(pairs, g) for g in (1, threads, 2 * threads, 4 * threads)})
        for rows in range(1, _MOST_ROWS + 1):
            if not fits_registers(rows, vectors, target):
                continue
            parts = (math.ceil(shape.m / 2 / blocks) for blocks in range(1, _MOST_BLOCKS + 1))
            for half in dict.fromkeys(math.ceil(part / rows) * rows for part in parts):
                for group in groups:
                    taken = StrassenStrategy(half, rows, vectors, math.ceil(pairs / group))
                    if not problem(taken, shape, target):
                        yield taken


def _scratch_bytes(strategy: StrassenStrategy, shape: ContractionShape, target: Target) -> int:
    """What a task has on its stack: sums of the lhs, one of the weights, and products."""
    terms, panel = shape.k // 2, strategy.vectors * target.vector_lanes
    left = PRODUCTS * strategy.half * (terms + LINE)
    return 4 * (left + terms * panel + PRODUCTS * (strategy.half * panel + LINE))


def _time(
    strategy: StrassenStrategy, shape: ContractionShape, target: Target, threads: int
) -> float:
    """Estimated time in vector multiply-adds of the thread that has most: the products, the weights
    that they wait for, the sums of the lhs and the results.

    The constants are those of Zen 4, over products of 50 to 784 rows; that weights which L3 keeps
    are not waited for again was measured on Emerald Rapids, over 512 to 2048 (2026)."""
    half, rows, vectors = strategy.half, strategy.rows, strategy.vectors
    lanes, terms = target.vector_lanes, shape.k // 2
    blocks, pairs = strategy.blocks(shape.m), shape.n // (2 * vectors * lanes)
    groups = math.ceil(pairs / strategy.pairs)
    panel_bytes = terms * vectors * lanes * 4
    load = target.l2_load if panel_bytes > target.l1_bytes // 2 else 1.0
    step = step_time(rows, vectors, target, load) + 0.02 * rows + 0.35
    sums = rows * vectors
    tile = terms * step + adding_time(sums, [terms], target) + _TILE * sums
    summed = (PRODUCTS - PLAIN) * terms * vectors * target.l2_load * _SUMMED
    products = blocks * pairs * (PRODUCTS * half // rows * tile + summed)
    left_bytes = PRODUCTS * half * terms * 4
    far = left_bytes + 4 * panel_bytes > target.l2_kept * target.l2_bytes
    if far:
        products += blocks * pairs * left_bytes / target.l3_rate / 4
    weights_bytes = 4 * shape.n * shape.k
    weights = weights_bytes * blocks / target.asked_rate
    # Those that L3 keeps are there in time after the first block.
    stay = weights_bytes <= max(target.l3_bytes, target.resident_bytes)
    waited = weights / blocks if stay else weights
    there = groups * blocks * half * terms / lanes * _THERE * target.in_flight
    back = blocks * half * pairs * vectors * _BACK * target.in_flight
    time = max(products, weights) + target.waiting * min(products, waited)
    time += (there * (1.5 if far else 1)) + back
    tasks = groups * blocks
    return time * math.ceil(tasks / threads) / tasks
