"""Loops in which `mma.sync` multiplies stay loops.

    llvm.br ^header
      ->  llvm.br ^header {loop_annotation = #llvm.loop_annotation<unroll = <disable = true>>}

A step of such a loop waits for its copies and has a dozen products, so that nothing is gained by
several at once. ptxas unrolls a loop of a few dozen steps wholly, and begins the loads of many
steps at its start: that takes all registers, and spills some. LLVM would unroll the shortest ones.
"""

from __future__ import annotations

from stepwell.mlir import ir

_BRANCHES = ("llvm.br", "llvm.cond_br")
_ROLLED = "#llvm.loop_annotation<unroll = <disable = true>>"


def keep_rolled(function: ir.Operation) -> None:
    """Mark the loops with products of a kernel in the LLVM dialect."""
    blocks = list(function.regions[0].blocks)
    multiplies = [any(_multiplies(child.operation) for child in block) for block in blocks]
    for number, block in enumerate(blocks):
        branch = block.operations[len(block.operations) - 1].operation
        if branch.name not in _BRANCHES:
            continue
        for target in branch.successors:
            start = blocks.index(target)
            if any(multiplies[start : number + 1]):
                branch.attributes["loop_annotation"] = ir.Attribute.parse(_ROLLED)


def _multiplies(op: ir.Operation) -> bool:
    if op.name == "llvm.inline_asm":
        return "mma.sync" in ir.StringAttr(op.attributes["asm_string"]).value
    return op.name == "nvvm.mma.sync"
