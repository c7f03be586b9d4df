"""What one core of this machine can do, measured, and how near to it a kernel comes.

The roofline model (S. Williams, A. Waterman, D. Patterson, 2009): a kernel takes at least as long
as its arithmetic at the peak rate and as its bytes at the bandwidth of memory; the longer of the
two bounds it.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stepwell.artifact import KernelInfo
from stepwell.runtime import library
from stepwell.runtime.loading import load_code
from stepwell.targets import Target, host

_SYMBOL = "stepwell_peak"
_STEPS = 1 << 19
_READ_BYTES = 64 << 20
_REPEATS = 5


@dataclass(frozen=True)
class Roofline:
    """`flops`: float32 operations a second of all cores in use; `bandwidth`: bytes a second that
    one core reads from memory."""

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
    return Roofline(threads * _peak_flops(host()), _read_bandwidth())


def _peak_flops(target: Target) -> float:
    """Float32 operations a second of independent fused multiply-adds in registers."""
    import llvmlite.binding as llvm

    from stepwell.codegen import target_machine

    chains = target.vector_registers - 4
    module = llvm.parse_assembly(_peak_text(target.vector_lanes, chains))
    module.triple = target.triple
    code = target_machine(target, 3).emit_object(module)
    loaded = load_code("objects", [code], _SYMBOL, "the peak measurement")
    call = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(loaded.entry)
    data = np.zeros(2 * target.vector_lanes, np.float32)
    operations = 2 * target.vector_lanes * chains * _STEPS
    return operations / _least_seconds(lambda: call(_STEPS, data.ctypes.data))


def _peak_text(lanes: int, chains: int) -> str:
    """A loop of `chains` fused multiply-adds that do not depend on one another."""
    kind = f"<{lanes} x float>"
    carried = "\n".join(
        f"  %a{i} = phi {kind} [ %x, %entry ], [ %b{i}, %loop ]" for i in range(chains)
    )
    steps = "\n".join(
        f"  %b{i} = call {kind} @llvm.fma.v{lanes}f32({kind} %a{i}, {kind} %x, {kind} %y)"
        for i in range(chains)
    )
    sums = "\n".join(
        f"  %s{i} = fadd {kind} {f'%s{i - 1}' if i > 1 else '%b0'}, %b{i}" for i in range(1, chains)
    )
    return f"""
declare {kind} @llvm.fma.v{lanes}f32({kind}, {kind}, {kind})
define void @{_SYMBOL}(i64 %n, ptr %data) {{
entry:
  %x = load {kind}, ptr %data, align 4
  %next = getelementptr float, ptr %data, i64 {lanes}
  %y = load {kind}, ptr %next, align 4
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %j, %loop ]
{carried}
{steps}
  %j = add i64 %i, 1
  %more = icmp ult i64 %j, %n
  br i1 %more, label %loop, label %done
done:
{sums}
  store {kind} %s{chains - 1}, ptr %data, align 4
  ret void
}}
"""


def _read_bandwidth() -> float:
    data = np.ones(_READ_BYTES, np.uint8)
    digest = library.library().stepwell_digest
    return _READ_BYTES / _least_seconds(lambda: digest(data.ctypes.data, _READ_BYTES))


def _least_seconds(call: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(_REPEATS):
        begin = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begin)
    return best
