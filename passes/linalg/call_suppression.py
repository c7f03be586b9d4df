"""`call-suppression`: a custom call of non-maximum suppression becomes a kernel and its call.

%c = stablehlo.custom_call @stepwell.non_max_suppression(%corners, %scores, %overlap, %least)
  ->  %c = call @kernel_suppression_0(%corners, %scores, %overlap, %least, %empty)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stepwell.dialects import stablehlo as hlo
from stepwell.errors import LoweringError
from stepwell.kernels.structured import source_name
from stepwell.kernels.suppression import ATTRIBUTE, KIND, is_suppression
from stepwell.mlir import dialect, ir
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg import _loops as loops
from stepwell.passes.linalg._fusion_graph import is_host_block
from stepwell.passes.linalg._kernel_calls import call_kernel
from stepwell.passes.linalg._loops import Values

tensor = dialect("tensor")


@dataclass(frozen=True)
class CallSuppression(Pass):
    """Rewrite every such call inside a function."""

    name: ClassVar[str] = "call-suppression"
    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation, state: State) -> None:
        """Raises LoweringError for a call that does not stand in the host program."""
        loops.rewrite_operations(op, {"stablehlo.custom_call": _call}, wrap=False)


def _call(op: ir.Operation) -> Values | None:
    if not is_suppression(op):
        return None
    if not is_host_block(op.block):
        raise LoweringError(
            f"{source_name(op)}: non-maximum suppression cannot stand inside a kernel; it can "
            "stand in a function, or in a loop or branch of it"
        )
    (result,) = op.results
    destination = tensor.EmptyOp(list(hlo.shape(result)), hlo.element_type(result)).result
    return call_kernel(KIND, ATTRIBUTE, ir.UnitAttr.get(), list(op.operands), [destination])
