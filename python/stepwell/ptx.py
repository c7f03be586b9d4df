"""From a `gpu.module` with NVVM to PTX: LLVM IR text through llvmlite's NVPTX back end.

LLVM takes a call of an intrinsic that it does not know as one of an external function, without a
word; PTX that would leave anything undefined is an error here.
"""

from __future__ import annotations

import re

import llvmlite.binding as llvm

from stepwell import codegen
from stepwell.errors import LoweringError
from stepwell.kernels.gpu.hopper import WAIT_FOR_KERNEL
from stepwell.mlir import ir
from stepwell.targets.nvidia import NvidiaTarget

_NAME = re.compile(r"^\s*\.extern\s+\.func\s+(?:\([^)]*\)\s*)?([\w.$]+)", re.MULTILINE)

_BEGINNING = re.compile(r"\.entry [^{]*\{\n(?:\t\.[^\n]*\n|\n)*")
"""A kernel as far as its declarations go."""

_LET_NEXT_BEGIN = "griddepcontrol.launch_dependents;"

_ACCESS = re.compile(r"^\s*(?:@\S+\s+)?(?:ld\.global|ldu|st\.global|red\.|atom)", re.MULTILINE)
"""Accesses of global memory other than asynchronous copies."""

_MULTIPLY = re.compile(r"call [^\n]*(?:@llvm\.nvvm\.mma\.|asm sideeffect )[^\n]*\)")


def kernel_llvm(module: ir.Operation, target: NvidiaTarget, opt_level: int = 3) -> llvm.ModuleRef:
    """The optimised LLVM IR of a `gpu.module`; this very IR becomes PTX. Raises LoweringError when
    LLVM rejects it."""
    return codegen.optimized_llvm(
        module, target, opt_level, externals=True, unroll=True, prepare=mark_convergent
    )


def mark_convergent(text: str) -> str:
    """LLVM IR text whose matrix instructions and inline assembly stay where they are: a whole warp
    has to come there, which LLVM's own declarations do not say, so that it may move one into a
    branch."""
    return _MULTIPLY.sub(r"\g<0> convergent", text)


def ptx(module: llvm.ModuleRef, target: NvidiaTarget, opt_level: int = 3) -> str:
    """The PTX of optimised LLVM IR. Raises LoweringError when it calls what nothing defines."""
    text = codegen.assembly(module, target, opt_level)
    if target.overlaps_kernels:
        text = _wait_for_others(text)
    unknown = undefined_functions(text)
    if unknown:
        raise LoweringError(f"generated code would call {unknown[0]}, which nothing defines")
    return text


def _wait_for_others(text: str) -> str:
    """PTX text whose kernel first waits until the one before it has ended; then the next one may
    begin, which waits in its turn. In PTX, since LLVM may move loads of what it takes for constant
    to before such an instruction. Where a kernel waits by itself, behind copies of weights, that
    stays if no such load stands before it."""
    begin = _BEGINNING.search(text)
    if begin is None:
        return text
    waits = f"{WAIT_FOR_KERNEL}\n\t{_LET_NEXT_BEGIN}"
    before, *others = text[begin.end() :].split(WAIT_FOR_KERNEL)
    blocks = [before, *(part[part.rfind("\n$") :] for part in others[:-1] if "\n$" in part)]
    if others and not any(map(_ACCESS.search, blocks)):
        return text[: begin.end()] + waits.join([before, *others])
    return f"{text[: begin.end()]}\t{waits}\n{before}{''.join(others)}"


def undefined_functions(text: str) -> list[str]:
    """Functions that PTX text declares and leaves to others."""
    return sorted(set(_NAME.findall(text)))
