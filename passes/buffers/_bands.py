"""Kernels band by band: which tasks of each a band needs of those before it (`chain-kernels`)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from stepwell.kernels.structured import defining_op
from stepwell.mlir import ir
from stepwell.passes.affine._task_regions import Region, TaskRegions, has_plain_layout
from stepwell.passes.buffers.plan_arena import VIEWS, element_bytes

_MOST_RUNS = 3
"""Of the tasks of one kernel."""

_FIRST_NEED = 0.5
"""The most of a kernel that the first of many bands may need; of few, more."""

Tasks = tuple[int, int]
"""[begin, end)."""

Need = tuple[tuple[Tasks, ...], ...]
"""Of a band: the tasks of each run of each link."""


@dataclass(frozen=True, eq=False)
class Link:
    """A call of a kernel, and which parts of the host's buffers its tasks read and write."""

    tasks: int
    reads: dict[ir.Value, Region]
    writes: dict[ir.Value, Region]
    runs: tuple[Tasks, ...] = field(init=False)
    """Parts of the tasks, in each of which what later ones write lies further on."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "runs", _runs(self.tasks, self.writes))

    @staticmethod
    def of(call: ir.Operation, regions: TaskRegions) -> Link | None:
        """That of a call of a kernel with these regions; None where it sees a buffer in another
        order than that in which it lies in memory, or reads what it writes."""
        reads, writes = (
            _by_buffer(call, some, regions.tasks) for some in (regions.reads, regions.writes)
        )
        if reads is None or writes is None or reads.keys() & writes.keys():
            return None
        return Link(regions.tasks, reads, writes)

    def collides(self, before: Link) -> bool:
        """Whether this writes what a link before it reads or writes: then the order counts."""
        return bool(self.writes.keys() & (before.reads.keys() | before.writes.keys()))


@dataclass(frozen=True)
class Bands:
    """What each band needs of each link, and what the largest one touches."""

    needs: tuple[Need, ...]
    bytes: int


def in_bands(links: Sequence[Link], bands: int) -> Bands | None:
    """About so many bands of the last link; None where the first one needs too much of another."""
    borders = _borders(links[-1], links[:-1], bands)
    bands = len(borders) - 1
    done = [[begin for begin, _ in link.runs] for link in links]
    needs: list[Need] = []
    largest = 0
    for band in range(bands):
        need: list[tuple[Tasks, ...]] = []
        for number in range(len(links) - 1, -1, -1):
            link = links[number]
            wanted = _needed(link, links[number + 1 :], need, (band / bands, (band + 1) / bands))
            if number == len(links) - 1:
                wanted[0] = (borders[band], borders[band + 1])
            for run, (begin, end) in enumerate(link.runs):
                # No task is left out, and none begins before those of the band in front.
                start, stop = wanted[run]
                stop = end if band == bands - 1 else max(stop, done[number][run])
                wanted[run] = (min(start, done[number][run]), stop)
                share = (stop - begin) / (end - begin)
                if not band and share > _FIRST_NEED + _FIRST_NEED / bands:
                    return None
            need.insert(0, tuple(wanted))
        done = [[end for _, end in runs] for runs in need]
        needs.append(tuple(need))
        largest = max(largest, _touched(links, needs[-1]))
    return Bands(tuple(needs), largest)


def allocation(buffer: ir.Value) -> ir.Value:
    """The allocation or argument of the host that `buffer` is a view of."""
    while (op := defining_op(buffer)) is not None and op.name in VIEWS:
        buffer = op.operands[0]
    return buffer


def buffer_bytes(buffer: ir.Value) -> int:
    """Bytes of a buffer of the host."""
    kind = ir.MemRefType(buffer.type)
    return math.prod(kind.shape) * element_bytes(kind.element_type)


def _by_buffer(
    call: ir.Operation, regions: dict[int, Region], tasks: int
) -> dict[ir.Value, Region] | None:
    """What a kernel accesses by the allocations and arguments of the host; None where it sees one
    in another order."""
    found: dict[ir.Value, Region] = {}
    for number, region in regions.items():
        buffer = call.operands[number]
        while has_plain_layout(buffer):
            op = defining_op(buffer)
            if op is None or op.name not in VIEWS:
                break
            buffer = op.operands[0]
        else:
            return None
        found[buffer] = found.get(buffer, Region.nothing(tasks)).joined(region)
    return found


def _runs(tasks: int, writes: dict[ir.Value, Region]) -> tuple[Tasks, ...]:
    """[0, tasks) cut where a task writes in front of all that the one before it has written."""
    if not writes:
        return ((0, tasks),)
    largest = max(writes.values(), key=lambda region: int(region.last.max()))
    cuts = 1 + np.flatnonzero(largest.last[1:] < largest.first[:-1])
    places = [0, *map(int, cuts), tasks] if len(cuts) < _MOST_RUNS else [0, tasks]
    return tuple(itertools.pairwise(places))


def _borders(last: Link, before: Sequence[Link], bands: int) -> list[int]:
    """Where to cut the first run of the last link into bands, about as long as each other: where
    both sides read the least of the same."""
    tasks = last.runs[0][1]
    shared = np.zeros(tasks, np.int64)
    for buffer in {value for link in before for value in link.writes} & last.reads.keys():
        region = last.reads[buffer]
        above = np.maximum.accumulate(region.last[:tasks])[:-1]
        below = np.minimum.accumulate(region.first[:tasks][::-1])[::-1][1:]
        shared[1:] += np.maximum(0, above - below + 1)
    length = tasks / bands
    borders = [0]
    for band in range(1, bands):
        low = max(borders[-1] + 1, math.ceil((band - 0.5) * length))
        places = np.arange(low, max(low, math.floor((band + 0.5) * length)) + 1)
        places = places[places < tasks]
        if len(places):
            distance = np.abs(places - band * length)
            borders.append(int(places[np.lexsort((distance, shared[places]))[0]]))
    return [*borders, tasks]


def _needed(
    link: Link, after: Sequence[Link], need: Sequence[tuple[Tasks, ...]], part: tuple[float, float]
) -> list[Tasks]:
    """The tasks of `link`, run by run, that write what the tasks `need` of the links behind it
    read; where none of them reads anything of a run, this part of it."""
    found: list[list[Tasks]] = [[] for _ in link.runs]
    for reader, runs in zip(after, need, strict=True):
        for buffer, region in link.writes.items():
            if buffer not in reader.reads:
                continue
            for begin, end in runs:
                first, last = reader.reads[buffer].bounds(begin, end)
                for tasks, run in zip(found, link.runs, strict=True):
                    tasks += region.tasks_between(first, last, run)
    return [
        (min(begin for begin, _ in tasks), max(end for _, end in tasks))
        if tasks
        else (low + round((high - low) * part[0]), low + round((high - low) * part[1]))
        for tasks, (low, high) in zip(found, link.runs, strict=True)
    ]


def _touched(links: Sequence[Link], need: Need) -> int:
    """Bytes that a band reads and writes, each counted once."""
    ranges: dict[ir.Value, tuple[int, int]] = {}
    for link, runs in zip(links, need, strict=True):
        for buffer, region in (*link.reads.items(), *link.writes.items()):
            for begin, end in runs:
                first, last = region.bounds(begin, end)
                low, high = ranges.get(buffer, (first, last))
                ranges[buffer] = (min(low, first), max(high, last))
    return sum(
        max(0, high - low + 1) * element_bytes(ir.MemRefType(buffer.type).element_type)
        for buffer, (low, high) in ranges.items()
    )
