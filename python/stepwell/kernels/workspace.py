"""Memory that a kernel takes beside its inputs and results."""

from __future__ import annotations

from dataclasses import dataclass

from stepwell.mlir import ir

ZEROED = "stepwell.zeroed"
"""Marks the allocation of a workspace that is `zeroed`."""


@dataclass(frozen=True)
class Workspace:
    """A buffer that a kernel takes after its results, with anything in it; one that is `zeroed` has
    zeros before the first launch, and every launch leaves zeros there."""

    kind: ir.MemRefType
    zeroed: bool = False
