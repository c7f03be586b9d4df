"""`legalize-suppression`: non-maximum suppression is one operation on CPUs, and its loop elsewhere.

    %c = stablehlo.composite "stepwell.non_max_suppression" %corners, %scores, %overlap, %least
      ->  %c = stablehlo.custom_call @stepwell.non_max_suppression(%corners, %scores, ..)

of which `call-suppression` makes a kernel (`stepwell/kernels/suppression.py`). The kernel takes
float32 and so many boxes as fit the stack; others, and those for GPUs, become what the composite
means.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stepwell.dialects import stablehlo as hlo
from stepwell.dialects.composites import composites, decompose
from stepwell.kernels.suppression import COMPOSITE, MOST_BOXES
from stepwell.mlir import ir, run_upstream
from stepwell.passes.base import Pass, State
from stepwell.targets.nvidia import NvidiaTarget


@dataclass(frozen=True)
class LegalizeSuppression(Pass):
    """Rewrite every such composite of the module."""

    name: ClassVar[str] = "legalize-suppression"

    def run(self, op: ir.Operation, state: State) -> None:
        """Leave no composite of this name."""
        found = composites(op, COMPOSITE)
        if not found:
            return
        if not isinstance(state.target, NvidiaTarget):
            for inner in filter(_fits_kernel, found):
                _make_call(inner)
        if composites(op, COMPOSITE):
            decompose(op)
        else:
            run_upstream(op, "symbol-dce")


def _fits_kernel(op: ir.Operation) -> bool:
    is_single = all(str(hlo.element_type(operand)) == "f32" for operand in op.operands)
    return is_single and hlo.shape(op.operands[1])[-1] <= MOST_BOXES


def _make_call(op: ir.Operation) -> None:
    with ir.InsertionPoint(op), op.location:
        call = ir.Operation.create(
            "stablehlo.custom_call",
            [op.results[0].type],
            list(op.operands),
            {"call_target_name": ir.StringAttr.get(COMPOSITE)},
        )
    op.results[0].replace_all_uses_with(call.results[0])
    op.erase()
