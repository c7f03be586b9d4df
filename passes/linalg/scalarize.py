"""`scalarize`: operations on tensors of rank 0 inside loops and branches become scalar operations.

    %s = tensor.from_elements %a : tensor<f32>                %y = arith.addf %a, %b : f32
    %r = linalg.generic {addf} ins(%s, %t : tensor<f32>..) ->
    %y = tensor.extract %r[] : tensor<f32>

Counters of loops, conditions and the bodies of sort and scatter arrive so from StableHLO, where
every scalar is a tensor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stepwell.kernels.structured import Structured
from stepwell.mlir import ir, nested_operations, run_upstream
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg._fusion_graph import is_host_block
from stepwell.passes.linalg._loops import as_tensor, extract


@dataclass(frozen=True)
class Scalarize(Pass):
    """Rewrite operations of rank 0 that do not stand in the host program."""

    name: ClassVar[str] = "scalarize"
    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation, state: State) -> None:
        if not len(op.regions[0].blocks):
            return
        found = [
            inner
            for inner in nested_operations(op)
            if inner.name == "linalg.generic"
            and _is_scalar(inner)
            and not is_host_block(inner.block)
        ]
        for inner in found:
            _rewrite(inner)
        if found:
            run_upstream(op, "canonicalize,cse")


def _is_scalar(op: ir.Operation) -> bool:
    structured = Structured.of(op)
    return structured is not None and not structured.iterators


def _rewrite(op: ir.Operation) -> None:
    structured = Structured.of(op)
    assert structured is not None
    with ir.InsertionPoint(op), op.location:
        mapping: dict[ir.Value, ir.Value] = {}
        values = (*structured.inputs, *structured.outputs)
        for argument, value in zip(structured.body.arguments, values, strict=True):
            if any(True for _ in argument.uses):
                tensor = isinstance(value.type, ir.RankedTensorType)
                mapping[argument] = extract(value) if tensor else value
        for argument, value in mapping.items():
            argument.replace_all_uses_with(value)
        *body, end = [child.operation for child in structured.body.operations]
        for child in body:
            child.move_before(op)
        results = [as_tensor(value) for value in end.operands]
    for result, value in zip(op.results, results, strict=True):
        result.replace_all_uses_with(value)
    op.erase()
