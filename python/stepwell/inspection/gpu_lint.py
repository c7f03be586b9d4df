"""What is wrong with a GPU kernel that neither LLVM nor ptxas rejects.

Looks at the PTX, at what `ptxas -v` wrote, and at the SASS; every finding is a sentence. Limits are
the target's: a kernel that asks for more shared memory or registers than there are assembles, and
fails only at its launch; one whose warps raise their registers beyond the block's never ends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from stepwell.ptx import undefined_functions
from stepwell.ptxas import Usage, read_usage
from stepwell.targets.nvidia import STATIC_SHARED_BYTES, WARP, NvidiaTarget

WARPGROUP = 4 * WARP
_REGISTER_GRAIN = 256
"""Registers are given to warps in pieces of this many."""

_SERIALISED = re.compile(r"\((C75\d\d)\)[ :]*([^\n]*)")
_SET_REGISTERS = re.compile(r"setmaxnreg\.(inc|dec)\S*\s+(\d+)")
_BARRIER_COUNT = re.compile(
    r"\b(?:bar|barrier)(?:\.cta)?\.(?:sync|arrive|red\.\S+)(?:\.aligned)?\s+[^,;]+,\s*(\d+)\s*;"
)
"""A barrier of some of a block's threads, and how many."""

_LOCAL_ACCESS = re.compile(r"\b(LDL|STL)\b")


@dataclass(frozen=True)
class Kernel:
    """What is known of one kernel; `expected` are SASS instructions with the least count of each.
    `log` and `sass` are empty when there was no ptxas or nvdisasm."""

    name: str
    ptx: str
    threads: int
    log: str = ""
    sass: str = ""
    dynamic_shared_bytes: int = 0
    expected: Mapping[str, int] = field(default_factory=dict)


def lint(kernel: Kernel, target: NvidiaTarget) -> list[str]:
    """All that is wrong with `kernel` on `target`."""
    found = [
        f"{kernel.name} calls {name}, which nothing defines"
        for name in undefined_functions(kernel.ptx)
    ]
    usage = read_usage(kernel.log).get(kernel.name)
    if usage is not None:
        found += _resources(kernel, usage, target)
    found += _serialised(kernel)
    found += _barriers(kernel)
    found += _register_pool(kernel, usage)
    found += _instructions(kernel)
    return found


def _resources(kernel: Kernel, usage: Usage, target: NvidiaTarget) -> list[str]:
    found = []
    if usage.spill_stores or usage.spill_loads:
        found.append(
            f"{kernel.name} spills registers: {usage.spill_stores} bytes stored and "
            f"{usage.spill_loads} loaded by each thread"
        )
    elif usage.stack:
        found.append(f"{kernel.name} has a stack of {usage.stack} bytes a thread, in local memory")
    shared = usage.shared + kernel.dynamic_shared_bytes
    if usage.shared > STATIC_SHARED_BYTES:
        found.append(
            f"{kernel.name} declares {usage.shared} bytes of shared memory; what exceeds "
            f"{STATIC_SHARED_BYTES} has to be asked for at the launch"
        )
    if shared > target.block_shared_bytes:
        found.append(
            f"{kernel.name} needs {shared} bytes of shared memory, and a block of {target.cpu} has "
            f"at most {target.block_shared_bytes}"
        )
    if block_registers(usage.registers, kernel.threads) > target.sm_registers:
        found.append(
            f"{kernel.name} needs {usage.registers} registers for each of {kernel.threads} threads,"
            f" and {target.cpu} has {target.sm_registers}"
        )
    return found


def block_registers(registers: int, threads: int) -> int:
    """Registers that a block takes: whole warps, in pieces."""
    warp = -(-registers * WARP // _REGISTER_GRAIN) * _REGISTER_GRAIN
    return warp * -(-threads // WARP)


def _serialised(kernel: Kernel) -> list[str]:
    """Warnings C75xx: ptxas makes asynchronous matrix instructions wait for each other."""
    return [
        f"{kernel.name}: ptxas reordered its matrix instructions ({code}: {text.strip()})"
        for code, text in _SERIALISED.findall(kernel.log)
    ]


def _barriers(kernel: Kernel) -> list[str]:
    """Barriers count whole warps of the block; one that counts others never opens."""
    counts = sorted(set(map(int, _BARRIER_COUNT.findall(kernel.ptx))))
    return [
        f"{kernel.name} waits at a barrier for {count} threads, and its block has {kernel.threads} "
        f"in warps of {WARP}"
        for count in counts
        if count % WARP or count > kernel.threads
    ]


def _register_pool(kernel: Kernel, usage: Usage | None) -> list[str]:
    """`setmaxnreg.inc` waits until the block's other warps have given enough registers back: with
    one warpgroup that lowers its count and all others that raise it, it has to add up."""
    changes = _SET_REGISTERS.findall(kernel.ptx)
    raised = [int(count) for kind, count in changes if kind == "inc"]
    lowered = [int(count) for kind, count in changes if kind == "dec"]
    if not raised or usage is None:
        return []
    groups = kernel.threads // WARPGROUP
    low = max(lowered) if lowered else usage.registers
    needed = WARPGROUP * (max(raised) * (groups - 1) + low)
    pool = usage.registers * kernel.threads
    if needed <= pool:
        return []
    return [
        f"{kernel.name} raises its warps' registers to {needed} in all, and its block has {pool}: "
        "it would wait for ever"
    ]


def _instructions(kernel: Kernel) -> list[str]:
    if not kernel.sass:
        return []
    found = []
    if _LOCAL_ACCESS.search(kernel.sass):
        found.append(f"{kernel.name} reads or writes local memory (LDL, STL)")
    for name, least in kernel.expected.items():
        count = len(re.findall(rf"\b{re.escape(name)}\b", kernel.sass))
        if count < least:
            found.append(f"{kernel.name} has {count} {name} in its SASS; expected {least} or more")
    return found
