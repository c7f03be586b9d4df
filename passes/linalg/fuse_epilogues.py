"""`fuse-epilogues`: elementwise operations that follow one another become one.

    %1 = linalg.generic (%0 + b) outs(%e)
    %2 = linalg.generic (max(%1, 0)) outs(%out)   ->   linalg.generic (max(%0 + b, 0)) outs(%out)

Upstream's elementwise fusion drops the destination of an operation that does not read it, and with
it the buffer that a caller has passed; here a result is still written where it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stepwell.kernels.structured import Structured, defining_op
from stepwell.mlir import ir, run_upstream
from stepwell.passes.base import Pass, State


@dataclass(frozen=True)
class FuseEpilogues(Pass):
    """Fuse elementwise operations into their elementwise producers, destinations kept."""

    name: ClassVar[str] = "fuse-epilogues"
    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation, state: State) -> None:
        if not len(op.regions[0].blocks):
            return
        run_upstream(op, "linalg-generalize-named-ops")
        kept = _destinations(op)
        run_upstream(op, "linalg-fuse-elementwise-ops,canonicalize,cse")
        terminator = list(op.regions[0].blocks[0].operations)[-1].operation
        for number, destination in kept.items():
            _restore(terminator.operands[number], destination)


def _destinations(function: ir.Operation) -> dict[int, ir.Value]:
    """By result number: the argument that the result is written into."""
    terminator = list(function.regions[0].blocks[0].operations)[-1].operation
    found = {}
    for number, value in enumerate(terminator.operands):
        producer = defining_op(value)
        structured = Structured.of(producer) if producer is not None else None
        if structured is not None and len(structured.outputs) == 1:
            destination = structured.outputs[0]
            if isinstance(destination.owner, ir.Block):
                found[number] = destination
    return found


def _restore(value: ir.Value, destination: ir.Value) -> None:
    producer = defining_op(value)
    structured = Structured.of(producer) if producer is not None else None
    if structured is None or len(structured.outputs) != 1:
        return
    empty = defining_op(structured.outputs[0])
    if empty is None or empty.name != "tensor.empty" or value.type != destination.type:
        return
    structured.op.operands[len(structured.op.operands) - 1] = destination
    if not any(True for _ in empty.results[0].uses):
        empty.erase()
