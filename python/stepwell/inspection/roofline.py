"""What the cores of this machine can do, measured, and how near to it a kernel comes.

The roofline model (S. Williams, A. Waterman, D. Patterson, 2009): a kernel takes at least as long
as its arithmetic at the peak rate and as its bytes at the bandwidth of memory; the longer of the
two bounds it.
"""

from __future__ import annotations

import concurrent.futures
import ctypes
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stepwell.artifact import KernelInfo
from stepwell.runtime.buffers import address, allocate_arena
from stepwell.runtime.loading import load_code
from stepwell.targets import Target, host

_SYMBOL = "stepwell_peak"
_STEPS = 1 << 19
_READ_BYTES = 128 << 20
"""A thread's part, beyond what caches hold."""

_STREAMS = 8
"""Vectors read before the loop goes on."""

_PLACES = 4
"""Where they are read: a core has more from memory in several places than in one."""

_REPEATS = 5


@dataclass(frozen=True)
class Roofline:
    """`flops`: float32 operations a second, and `bandwidth`: bytes a second read from memory, both
    of all cores in use."""

    flops: float
    bandwidth: float

    def bound(self, kernel: KernelInfo) -> str:
        """Which of "compute" and "memory" takes longer at the machine's best."""
        return "compute" if self._arithmetic(kernel) >= self._traffic(kernel) else "memory"

    def share(self, kernel: KernelInfo, seconds: float) -> float:
        """The least time over `seconds`. Above 1 where the kernel needs fewer operations than are
        counted (Winograd's algorithm) or finds its operands in a cache."""
        return max(self._arithmetic(kernel), self._traffic(kernel)) / max(seconds, 1e-12)

    def _arithmetic(self, kernel: KernelInfo) -> float:
        return kernel.flops / self.flops

    def _traffic(self, kernel: KernelInfo) -> float:
        return kernel.bytes / self.bandwidth


@functools.cache
def measured(threads: int) -> Roofline:
    """The roofline of this machine for `threads` threads; takes a fraction of a second."""
    target = host()
    return Roofline(threads * _peak_flops(target), _read_bandwidth(target, threads))


def _peak_flops(target: Target) -> float:
    """Float32 operations a second of independent fused multiply-adds in registers."""
    chains = target.vector_registers - 4
    call = _compiled(_peak_text(target.vector_lanes, chains), target)
    data = np.zeros(2 * target.vector_lanes, np.float32)
    operations = 2 * target.vector_lanes * chains * _STEPS
    return operations / _least_seconds(lambda: call(_STEPS, data.ctypes.data))


def _compiled(text: str, target: Target) -> Callable[[int, int], None]:
    """The function `_SYMBOL` of LLVM IR, of a count and a pointer."""
    import llvmlite.binding as llvm

    from stepwell.codegen import target_machine

    module = llvm.parse_assembly(text)
    module.triple = target.triple
    code = target_machine(target, 3).emit_object(module)
    loaded = load_code("objects", [code], _SYMBOL, "a measurement")
    function = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(loaded.entry)

    def call(count: int, pointer: int) -> None:
        assert loaded.entry, "the code lives as long as its caller"
        function(count, pointer)

    return call


def _peak_text(lanes: int, chains: int) -> str:
    """A loop of `chains` fused multiply-adds that do not depend on one another."""
    kind = f"<{lanes} x float>"
    loads = f"""  %x = load {kind}, ptr %data, align 4
  %after = getelementptr float, ptr %data, i64 {lanes}
  %y = load {kind}, ptr %after, align 4"""
    steps = [
        f"  %b{i} = call {kind} @llvm.fma.v{lanes}f32({kind} %a{i}, {kind} %x, {kind} %y)"
        for i in range(chains)
    ]
    declared = f"declare {kind} @llvm.fma.v{lanes}f32({kind}, {kind}, {kind})"
    return f"{declared}\n{_loop_text(kind, '%x', steps, 'fadd', entry=loads)}"


def _read_bandwidth(target: Target, threads: int) -> float:
    """Bytes a second that `threads` threads together read from memory, each a part of its own."""
    call = _compiled(_read_text(target.vector_lanes), target)
    block = 4 * target.vector_lanes * _STREAMS
    data = allocate_arena(threads * _READ_BYTES)
    data[::4096] = 1  # a page that was never written need not be read
    begins = [address(data) + i * _READ_BYTES for i in range(threads)]
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        seconds = _least_seconds(
            lambda: list(pool.map(lambda begin: call(_READ_BYTES // block, begin), begins))
        )
    return threads * _READ_BYTES / seconds


def _read_text(lanes: int) -> str:
    """A loop that reads `_STREAMS` vectors a step, in `_PLACES`."""
    kind = f"<{lanes} x i32>"
    together = _STREAMS // _PLACES
    apart = _READ_BYTES // (4 * lanes) // _PLACES
    steps = [
        f"""  %p{i} = getelementptr {kind}, ptr %at, i64 {i // together * apart + i % together}
  %x{i} = load {kind}, ptr %p{i}, align 4
  %b{i} = or {kind} %a{i}, %x{i}"""
        for i in range(_STREAMS)
    ]
    return _loop_text(kind, "zeroinitializer", steps, "or", together)


def _loop_text(
    kind: str, first: str, steps: list[str], join: str, stride: int = 0, entry: str = ""
) -> str:
    """A function of a count and a pointer: so many rounds of `steps`, of which number i makes %b<i>
    of %a<i>, what it was before, at first `first`. `join` makes one of all, which is stored; `%at`
    walks from the pointer on by `stride` vectors a round."""
    count = len(steps)
    carried = "\n".join(
        f"  %a{i} = phi {kind} [ {first}, %entry ], [ %b{i}, %loop ]" for i in range(count)
    )
    joined = "\n".join(
        f"  %s{i} = {join} {kind} {f'%s{i - 1}' if i > 1 else '%b0'}, %b{i}"
        for i in range(1, count)
    )
    body = "\n".join(steps)
    return f"""
define void @{_SYMBOL}(i64 %n, ptr %data) {{
entry:
{entry}
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %j, %loop ]
  %at = phi ptr [ %data, %entry ], [ %next, %loop ]
{carried}
{body}
  %next = getelementptr {kind}, ptr %at, i64 {stride}
  %j = add i64 %i, 1
  %more = icmp ult i64 %j, %n
  br i1 %more, label %loop, label %done
done:
{joined}
  store {kind} %s{count - 1}, ptr %data, align 4
  ret void
}}
"""


def _least_seconds(call: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(_REPEATS):
        begin = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begin)
    return best
