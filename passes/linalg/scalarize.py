"""`scalarize`: operations on tensors of rank 0 inside loops and branches become scalar operations.

    %s = tensor.from_elements %a : tensor<f32>                %y = arith.addf %a, %b : f32
    %r = linalg.generic {addf} ins(%s, %t : tensor<f32>..) ->
    %y = tensor.extract %r[] : tensor<f32>

Counters of loops, conditions and the bodies of sort and scatter arrive so from StableHLO, where
every scalar is a tensor. There and in the bodies of reductions, a product may be fused with a sum,
as vector code does it, but for those that are marked as `ROUNDED`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from stepwell.kernels.arithmetic import CONTRACT, EXACT
from stepwell.kernels.evaluate import FUSABLE, ROUNDED
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
        for inner in nested_operations(op):
            if inner.name == "linalg.generic" and _is_reduction_of_products(inner):
                _let_fuse([child.operation for child in inner.regions[0].blocks[0].operations])


def _is_reduction_of_products(op: ir.Operation) -> bool:
    structured = Structured.of(op)
    if structured is None or structured.is_elementwise:
        return False
    names = {child.operation.name for child in structured.body.operations}
    return "arith.mulf" in names and len(names & FUSABLE) > 1


def _let_fuse(operations: Sequence[ir.Operation]) -> None:
    """Let products among `operations` be fused with sums; of the two in one sum, the second is
    rounded by itself, so that it is no chance which one that is."""
    for op in operations:
        if op.name in FUSABLE:
            op.attributes["fastmath"] = ir.Attribute.parse(CONTRACT)
    products = {op.results[0]: op for op in operations if op.name == "arith.mulf"}
    for op in operations:
        if op.name in FUSABLE and all(value in products for value in op.operands):
            products[op.operands[1]].attributes["fastmath"] = ir.Attribute.parse(EXACT)


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
        if ROUNDED not in op.attributes:
            _let_fuse(body)
        for child in body:
            child.move_before(op)
        results = [as_tensor(value) for value in end.operands]
    for result, value in zip(op.results, results, strict=True):
        result.replace_all_uses_with(value)
    op.erase()
