"""Flags in global memory, by which a block waits for what another one has written there.

    one block:    write sums; barrier; one thread: raise the flag        (release)
    another:      one thread: wait until it is up (acquire), lower it; barrier; read sums

PTX ISA, "Memory Consistency Model": what threads wrote before a barrier is released by the thread
that raises the flag behind it, and is seen by all that meet the waiting thread at a barrier. A flag
is down before a launch and after it, so that the launch can be repeated as it is.
"""

from __future__ import annotations

from stepwell.kernels.gpu.hopper import is_equal
from stepwell.mlir import dialect, ir

llvm = dialect("llvm")
scf = dialect("scf")


def raise_flag(pointer: ir.Value) -> None:
    """Raise the flag at `pointer`, an address in global memory: what this thread has written, or
    met at a barrier, is seen by whom waits for it."""
    _do("st.release.gpu.global.b32 [$0], 1;", pointer)


def lower_flag(pointer: ir.Value) -> None:
    """Lower a flag that this thread has waited for."""
    _do("st.relaxed.gpu.global.b32 [$0], 0;", pointer)


def wait_for_flag(pointer: ir.Value) -> None:
    """Wait until the flag is up."""
    loop = scf.WhileOp([], [])
    before = ir.Block.create_at_start(loop.before, [])
    after = ir.Block.create_at_start(loop.after, [])
    with ir.InsertionPoint(before):
        found = llvm.inline_asm(
            ir.IntegerType.get_signless(32),
            [pointer],
            "ld.acquire.gpu.global.b32 $0, [$1];",
            "=r,l,~{memory}",
            has_side_effects=True,
            asm_dialect=0,
        )
        scf.ConditionOp(is_equal(found, 0), [])
    with ir.InsertionPoint(after):
        scf.YieldOp([])


def _do(assembly: str, pointer: ir.Value) -> None:
    llvm.inline_asm(None, [pointer], assembly, "l,~{memory}", has_side_effects=True, asm_dialect=0)
