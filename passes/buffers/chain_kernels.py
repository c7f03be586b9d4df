"""`chain-kernels`: run kernels that follow each other band by band, where what one writes would not
be in the cache any more when the next one reads it.

    func.call @expand(%x, %y)       ->  func.call @expand(..) {stepwell.chain = array<i64: 0, ..>}
    func.call @depthwise(%y, %z)        func.call @depthwise(..) {stepwell.chain = ..}

The kernels stay as they are; their tasks take turns. A band is a range of the last kernel's tasks,
and of each other's those that it needs (`_bands.py`). Of a kernel that goes over an image more than
once, as for columns that its tiles leave, each run is apart. The attribute has the number of the
chain, that of the kernel's runs, then for each band and run [begin, end) of the tasks that the band
needs, so that a thread can begin with any band. Where it goes on to the next one, it leaves out
what it has done. The threads share the bands, so that none waits between the kernels; what both
sides of a border need, both compute.

A chain ends where a kernel needs most of what came before it, where a buffer would be written
twice, and where nothing is gained: what is read again has to be more than a thread's cache holds,
and a band with all weights so little that it does hold it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from stepwell.attributes import CHAIN, i64_array
from stepwell.frontends.open_sizes import EXTENTS
from stepwell.mlir import ir
from stepwell.passes.affine._moved_bytes import MOVED_BYTES
from stepwell.passes.affine._task_regions import TaskRegions
from stepwell.passes.base import Pass, State
from stepwell.passes.buffers._bands import Bands, Link, buffer_bytes, in_bands
from stepwell.passes.buffers.plan_arena import VIEWS
from stepwell.targets import Target

_BETWEEN = ("memref.alloc", "memref.dealloc", "arith.constant", *VIEWS)
"""What may stand between two kernels of a chain: it neither reads nor writes."""

_BANDS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""How many bands there may be for each part of a chain that one thread does at a time."""

_SHARES = 2
"""Such parts for each thread: what one is late with, another can do."""

_MOST_KERNELS = 8
"""Of a chain."""

_HELD = 0.6
"""The part of a cache that a band may fill."""

_LOST = 0.75
"""A kernel that moves more than this part of the cache leaves little there of what it wrote."""

_FROM_L2 = 0.25
"""How long reading from L2 takes, beside reading from L3."""

_MULTIPLYING = ("contraction", "attention", "sparse-product")
"""Kinds of kernels that hide what they read behind what they multiply."""

_WAITING = 0.3
"""The part of the shorter of computing and reading that the longer does not hide, of others."""

LEAST_GAIN = 2000.0
"""Multiply-adds of vectors whose time each kernel of a chain has to gain, on each thread."""


@dataclass(frozen=True)
class ChainKernels(Pass):
    """Look at the calls of every host function."""

    name: ClassVar[str] = "chain-kernels"
    cache_bytes: int | None = None
    """What stays in a thread's cache from one kernel to the next; by default L2 of the target."""

    threads: int | None = None
    """How many there are; by default those that the model is compiled for."""

    least_gain: int | None = None
    """What each kernel has to gain; by default `LEAST_GAIN`."""

    def run(self, op: ir.Operation, state: State) -> None:
        functions = [child.operation for child in op.regions[0].blocks[0].operations]
        kernels = {
            ir.StringAttr(function.attributes["sym_name"]).value: function
            for function in functions
            if "kernel.kind" in function.attributes and len(function.regions[0].blocks)
        }
        rules = _Rules(
            kernels,
            state.target,
            self.cache_bytes or state.target.l2_bytes,
            self.threads or state.threads,
            LEAST_GAIN if self.least_gain is None else self.least_gain,
        )
        number = 0
        for host in functions:
            if "kernel.kind" in host.attributes or EXTENTS in host.attributes:
                continue  # of open sizes, tasks may be left out
            for calls in _sequences(host):
                for chain in rules.chains(calls):
                    chain.mark(number)
                    number += 1


def _sequences(op: ir.Operation) -> Iterator[list[ir.Operation]]:
    """The calls, at any depth, that follow each other with nothing done between them."""
    for region in op.regions:
        for block in region.blocks:
            calls: list[ir.Operation] = []
            for child in block.operations:
                if child.operation.name == "func.call":
                    calls.append(child.operation)
                elif child.operation.name not in _BETWEEN:
                    yield calls
                    calls = []
                    yield from _sequences(child.operation)
            yield calls


@dataclass(frozen=True, eq=False)
class _Kernel:
    """A call, and how long its kernel takes, in multiply-adds of vectors."""

    call: ir.Operation
    link: Link
    moved: int
    """Bytes that it reads and writes."""

    computing: float
    """With all that it reads in L1."""

    waiting: float
    """The part of the shorter of computing and reading that the longer does not hide."""

    def time(self, reading: float) -> float:
        """How long it takes where reading takes so long."""
        return max(self.computing, reading) + self.waiting * min(self.computing, reading)


@dataclass(frozen=True)
class _Chain:
    kernels: tuple[_Kernel, ...]
    bands: Bands
    gain: float

    def mark(self, number: int) -> None:
        """Set the attributes of the calls."""
        for kernel, needs in zip(self.kernels, zip(*self.bands.needs, strict=True), strict=True):
            tasks = [task for runs in needs for need in runs for task in need]
            runs = len(kernel.link.runs)
            kernel.call.attributes[CHAIN] = i64_array([number, runs, *tasks])


@dataclass
class _Rules:
    """Which calls become a chain."""

    functions: dict[str, ir.Operation]
    target: Target
    cache: int
    threads: int
    least_gain: float
    regions: dict[str, TaskRegions] = field(default_factory=dict)

    def chains(self, calls: list[ir.Operation]) -> list[_Chain]:
        """Those among `calls`, one after the other, that gain the most together."""
        kernels = list(map(self._kernel, calls))
        best: list[tuple[float, list[_Chain]]] = [(0.0, [])] + [(-1.0, [])] * len(calls)
        for begin in range(len(calls)):
            gain, chains = best[begin]
            best[begin + 1] = max(best[begin + 1], best[begin], key=lambda found: found[0])
            for chain in self._chains_from(kernels[begin : begin + _MOST_KERNELS]):
                end = begin + len(chain.kernels)
                if gain + chain.gain > best[end][0]:
                    best[end] = gain + chain.gain, [*chains, chain]
        return best[-1][1]

    def _chains_from(self, kernels: Sequence[_Kernel | None]) -> Iterator[_Chain]:
        """The chains that begin with the first of `kernels`, the shortest first."""
        taken: list[_Kernel] = []
        gain = 0.0
        for kernel in kernels:
            if kernel is None or any(kernel.link.collides(other.link) for other in taken):
                return
            taken.append(kernel)
            if len(taken) == 1:
                continue
            more = self._gain(taken)
            chain = self._chain(taken, gain + more) if more > self.least_gain else None
            if chain is None:
                return
            gain += more
            yield chain

    def _kernel(self, call: ir.Operation) -> _Kernel | None:
        """What is known of a call; None where its kernel cannot be in a chain."""
        name = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
        function = self.functions.get(name)
        if function is None or MOVED_BYTES not in function.attributes:
            return None
        if name not in self.regions:
            self.regions[name] = TaskRegions.of(function)
        link = Link.of(call, self.regions[name])
        if link is None or link.tasks == 1:
            return None
        flops = ir.IntegerAttr(function.attributes["kernel.flops"]).value
        kind = ir.StringAttr(function.attributes["kernel.kind"]).value
        return _Kernel(
            call,
            link,
            ir.IntegerAttr(function.attributes[MOVED_BYTES]).value,
            flops / 2 / self.target.vector_lanes,
            0.0 if kind in _MULTIPLYING else _WAITING,
        )

    def _gain(self, kernels: Sequence[_Kernel]) -> float:
        """The time that is won, on each thread, as the last kernel reads from L2, not L3, what
        little would be left of in L2."""
        *before, last = kernels
        lost = [kernel for kernel in before if kernel.moved / self.threads > _LOST * self.cache]
        written = {buffer for kernel in lost for buffer in kernel.link.writes}
        read = sum(buffer_bytes(buffer) for buffer in last.link.reads if buffer in written)
        reading = read / self.target.l3_rate
        return (last.time(reading) - last.time(_FROM_L2 * reading)) / self.threads

    def _chain(self, kernels: Sequence[_Kernel], gain: float) -> _Chain | None:
        """With the fewest bands that the cache holds; None where no number does, or more is lost
        than `gain`."""
        links = [kernel.link for kernel in kernels]
        shares = _SHARES * self.threads if self.threads > 1 else 1
        for count in _BANDS:
            if shares * count > links[-1].tasks:
                return None
            bands = in_bands(links, shares * count)
            if bands is not None and bands.bytes <= _HELD * self.cache:
                gain -= 2 * self._again(kernels, bands, shares) / self.threads
                return _Chain(tuple(kernels), bands, gain) if gain > 0 else None
        return None

    def _again(self, kernels: Sequence[_Kernel], bands: Bands, shares: int) -> float:
        """The time of what is computed twice, at the borders of the parts of a chain."""
        count = len(bands.needs)
        total = 0.0
        for share in range(1, shares):
            border = count * share // shares
            for kernel, front, back in zip(
                kernels, bands.needs[border - 1], bands.needs[border], strict=True
            ):
                twice = sum(
                    max(0, done - begin) for (_, done), (begin, _) in zip(front, back, strict=True)
                )
                time = kernel.time(kernel.moved / self.target.l3_rate)
                total += time * twice / kernel.link.tasks
        return total
