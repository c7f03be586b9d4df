"""`place-control-flow`: decide which loops and branches the host program runs itself.

The body of such a loop becomes calls of fast kernels; others become one scalar kernel as a whole,
which is better where an iteration does less work than a few calls cost.

    stablehlo.while(..) cond {..} do { dot_general on 512x2048 }
      ->  stablehlo.while(..) cond {..} do { dot_general on 512x2048 } {stepwell.host}
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from stepwell.kernels.library_call import is_library_call
from stepwell.kernels.suppression import is_suppression
from stepwell.mlir import ir
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg._fusion_graph import HOST, is_host_block

_CONTROL = ("stablehlo.while", "stablehlo.if", "stablehlo.case")
_FREE = ("stablehlo.constant", "stablehlo.return", "stablehlo.reshape", *_CONTROL)
LEAST_ELEMENTS = 1024
"""What an iteration touches at least of a loop that the host runs."""

_PARTIAL = {
    "stablehlo.dynamic_slice": "result",
    "stablehlo.slice": "result",
    "stablehlo.gather": "result",
    "stablehlo.broadcast_in_dim": "operand",
    "stablehlo.dynamic_update_slice": "update",
}
"""Operations that look at a part of their largest operand or result alone."""


@dataclass(frozen=True)
class PlaceControlFlow(Pass):
    """Mark loops and branches whose body touches at least `least_elements` elements or calls a
    library, and that stand in no other but marked ones."""

    name: ClassVar[str] = "place-control-flow"
    anchor: ClassVar[str] = "func.func"
    least_elements: int = LEAST_ELEMENTS

    def run(self, op: ir.Operation, state: State) -> None:
        for region in op.regions:
            for block in region.blocks:
                self._look(block)

    def _look(self, block: ir.Block) -> None:
        for child in block.operations:
            op = child.operation
            if op.name not in _CONTROL or not _is_static(op) or not is_host_block(block):
                continue
            if iteration_work(op) >= self.least_elements or _calls_library(op):
                op.attributes[HOST] = ir.UnitAttr.get()
                for region in op.regions:
                    self._look(region.blocks[0])


def _is_static(op: ir.Operation) -> bool:
    return bool(op.results) and all(
        _elements(value) is not None and "complex" not in str(value.type)
        for value in (*op.operands, *op.results)
    )


def iteration_work(op: ir.Operation) -> int:
    """Elements that one iteration, or all branches together, reads or writes."""
    total = 0
    for region in op.regions:
        for block in region.blocks:
            for child in block.operations:
                inner = child.operation
                if inner.name not in _FREE:
                    total += _touched(inner)
                if inner.name in _CONTROL:
                    total += iteration_work(inner)
    return total


def _calls_library(op: ir.Operation) -> bool:
    """Whether a region of `op` calls a library function, which no kernel can."""
    return (
        is_library_call(op)
        or is_suppression(op)
        or any(
            _calls_library(child.operation)
            for region in op.regions
            for block in region.blocks
            for child in block.operations
        )
    )


def _touched(op: ir.Operation) -> int:
    part = _PARTIAL.get(op.name)
    if part == "update":
        return _elements(op.operands[1]) or 0
    values = [
        *(op.operands if part != "result" else ()),
        *(op.results if part != "operand" else ()),
    ]
    sizes = [_elements(value) or 0 for value in values]
    if op.name == "stablehlo.dot_general":
        return math.isqrt(math.prod(max(size, 1) for size in sizes))
    return max(sizes, default=0)


def _elements(value: ir.Value) -> int | None:
    """Number of elements of a tensor of known shape."""
    kind = value.type
    if not isinstance(kind, ir.RankedTensorType) or not kind.has_static_shape:
        return None
    return math.prod(kind.shape)
