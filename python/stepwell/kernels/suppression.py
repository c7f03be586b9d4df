"""Non-maximum suppression, described as data: which boxes are chosen of each group.

The kernel takes corners float32[batch, 4, boxes] (least along both axes, then greatest), scores
float32[batch, classes, boxes], and two numbers float32[1]: by how much boxes may overlap, and what
scores have to exceed. It gives the numbers of the boxes chosen, int64[batch * classes, most], in
the order of their scores; -1 fills what is left.
"""

from __future__ import annotations

from stepwell.mlir import ir

KIND = "suppression"
"""The kind of a kernel that chooses boxes."""

ATTRIBUTE = "kernel.suppression"
"""The attribute by which such kernels are known; it says nothing more."""

COMPOSITE = "stepwell.non_max_suppression"
"""The composite that frontends make, and the target of the custom call that it becomes for CPUs."""

MOST_BOXES = 1 << 16
"""Scores of a group lie on the stack of a thread."""


def is_suppression(op: ir.Operation) -> bool:
    """Whether `op` is a custom call that becomes such a kernel."""
    if op.name != "stablehlo.custom_call":
        return False
    return ir.StringAttr(op.attributes["call_target_name"]).value == COMPOSITE
