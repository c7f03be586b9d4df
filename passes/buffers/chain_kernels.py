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
from dataclasses import dataclass, field, replace
from typing import ClassVar

from stepwell.attributes import CHAIN, i64_array
from stepwell.frontends.open_sizes import EXTENTS
from stepwell.mlir import ir
from stepwell.passes.affine._moved_bytes import MOVED_BYTES
from stepwell.passes.affine._task_regions import TaskRegions, has_plain_layout
from stepwell.passes.base import Pass, State
from stepwell.passes.buffers._bands import Bands, Link, allocation, buffer_bytes, in_bands
from stepwell.passes.buffers.plan_arena import VIEWS
from stepwell.targets import Target

_FLOPS = "kernel.flops"
"""Of a kernel: its operations, where they are known."""

_BETWEEN = ("memref.alloc", "memref.dealloc", "arith.constant", *VIEWS)
"""What may stand between two kernels of a chain: it neither reads nor writes."""

_BANDS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""How many bands there may be for each thread."""

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
    function: ir.Operation
    buffers: frozenset[ir.Value]
    """Of the host, that it reads or writes."""

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
    """Kernels that take turns, and their links."""

    links: tuple[Link, ...]
    kernels: tuple[_Kernel, ...]
    bands: Bands
    gain: float

    def mark(self, number: int) -> None:
        """Set the attributes of the calls."""
        of_kernels = zip(*self.bands.needs, strict=True)
        for kernel, link, needs in zip(self.kernels, self.links, of_kernels, strict=True):
            tasks = [task for runs in needs for need in runs for task in need]
            kernel.call.attributes[CHAIN] = i64_array([number, len(link.runs), *tasks])


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
        links: list[Link] = []
        gain = 0.0
        for kernel in kernels:
            if kernel is None:
                return
            taken.append(kernel)
            if len(taken) == 1:
                continue
            # What tasks read and write is worth finding out where there may be something to gain.
            if self._gain(taken, [other.buffers for other in taken]) <= self.least_gain:
                return
            for other in taken[len(links) :]:
                link = self._link(other)
                if link is None or any(link.collides(before) for before in links):
                    return
                links.append(link)
            passed = [frozenset(link.writes) for link in links[:-1]]
            more = self._gain(taken, [*passed, frozenset(links[-1].reads)])
            chain = self._chain(taken, links, gain + more) if more > self.least_gain else None
            if chain is None:
                return
            gain += more
            yield chain

    def _kernel(self, call: ir.Operation) -> _Kernel | None:
        """What is known of a call; None where its kernel cannot be in a chain."""
        function = self.functions.get(ir.FlatSymbolRefAttr(call.attributes["callee"]).value)
        if function is None or not all(
            name in function.attributes for name in (_FLOPS, MOVED_BYTES)
        ):
            return None
        flops = ir.IntegerAttr(function.attributes[_FLOPS]).value
        kind = ir.StringAttr(function.attributes["kernel.kind"]).value
        return _Kernel(
            call,
            function,
            frozenset(allocation(value) for value in call.operands if has_plain_layout(value)),
            ir.IntegerAttr(function.attributes[MOVED_BYTES]).value,
            flops / 2 / self.target.vector_lanes,
            0.0 if kind in _MULTIPLYING else _WAITING,
        )

    def _link(self, kernel: _Kernel) -> Link | None:
        """What the tasks of a kernel read and write; None where it cannot be in a chain."""
        name = ir.StringAttr(kernel.function.attributes["sym_name"]).value
        if name not in self.regions:
            self.regions[name] = TaskRegions.of(kernel.function)
        link = Link.of(kernel.call, self.regions[name])
        return link if link is not None and link.tasks > 1 else None

    def _gain(self, kernels: Sequence[_Kernel], buffers: Sequence[frozenset[ir.Value]]) -> float:
        """The time that is won, on each thread, as the last kernel reads from L2, not L3, what
        little would be left of in L2: of its `buffers` those that are among those of the others."""
        *before, last = kernels
        written: set[ir.Value] = set()
        for kernel, some in zip(before, buffers, strict=False):
            if kernel.moved / self.threads > _LOST * self.cache:
                written |= some
        read = sum(buffer_bytes(buffer) for buffer in buffers[-1] & written)
        reading = read / self.target.l3_rate
        return (last.time(reading) - last.time(_FROM_L2 * reading)) / self.threads

    def _chain(
        self, kernels: Sequence[_Kernel], links: Sequence[Link], gain: float
    ) -> _Chain | None:
        """With the fewest bands that the cache holds; None where no number does, or more is lost
        than `gain`."""
        for count in _BANDS:
            if self.threads * count > links[-1].tasks:
                return None
            bands = in_bands(links, self.threads * count)
            if bands is not None and bands.bytes <= _HELD * self.cache:
                chain = _Chain(tuple(links), tuple(kernels), bands, gain)
                gain -= 2 * self._again(chain) / self.threads
                return replace(chain, gain=gain) if gain > 0 else None
        return None

    def _again(self, chain: _Chain) -> float:
        """The time of what is computed twice, at the borders of what threads do at a time."""
        needs = chain.bands.needs
        total = 0.0
        for border in _begins(len(needs), self.threads)[1:]:
            for number, (kernel, link) in enumerate(zip(chain.kernels, chain.links, strict=True)):
                front, back = needs[border - 1][number], needs[border][number]
                twice = sum(
                    max(0, done - begin) for (_, done), (begin, _) in zip(front, back, strict=True)
                )
                time = kernel.time(kernel.moved / self.target.l3_rate)
                total += time * twice / link.tasks
        return total


def _begins(bands: int, threads: int) -> list[int]:
    """The bands that threads begin with: each has a part of them, of which it takes half of what is
    left at a time (runtime/thread_pool.c), but all at once where it is alone."""
    if threads == 1:
        return [0]
    found = []
    for thread in range(threads):
        begin, end = (bands * n // threads for n in (thread, thread + 1))
        while begin < end:
            found.append(begin)
            begin += (end - begin + 1) // 2
    return found
