"""legalize-chlo: CHLO ops in terms of StableHLO, except those that have a kernel of their own.

    %y = chlo.erf %x : tensor<4xf32> -> tensor<4xf32>          // stays
    %z = chlo.sinh %x : tensor<4xf32> -> tensor<4xf32>         // becomes exponentials

Kernels compute these in f32: those of f64 are expanded too. The expansion is upstream's
`chlo-legalize-to-stablehlo`, which knows no exceptions: the ops that stay are custom calls while it
runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stepwell.mlir import ir, nested_operations, run_upstream
from stepwell.passes.base import Pass, State


@dataclass(frozen=True)
class LegalizeChlo(Pass):
    """Write CHLO ops in terms of StableHLO, except those that have a kernel of their own."""

    name: ClassVar[str] = "legalize-chlo"

    kept: tuple[str, ...] = ("chlo.erf",)
    """Full names of the ops that stay."""

    def run(self, op: ir.Operation, state: State) -> None:
        """Expand everything inside `op`."""
        found = _found(op, "chlo.")
        if all(self._stays(child) for child in found):
            return
        for child in found:
            if self._stays(child):
                target = ir.StringAttr.get(child.name)
                _replace(child, "stablehlo.custom_call", {"call_target_name": target})
        nested = "chlo-legalize-to-stablehlo"
        run_upstream(op, nested if op.name == "func.func" else f"func.func({nested})")
        for child in _found(op, "stablehlo.custom_call"):
            target = ir.StringAttr(child.attributes["call_target_name"]).value
            if target in self.kept:
                _replace(child, target, {})

    def _stays(self, op: ir.Operation) -> bool:
        kind = ir.RankedTensorType(op.results[0].type).element_type
        return op.name in self.kept and not isinstance(kind, ir.F64Type)


def _found(op: ir.Operation, prefix: str) -> list[ir.Operation]:
    return [child for child in nested_operations(op) if child.name.startswith(prefix)]


def _replace(op: ir.Operation, name: str, attributes: dict[str, ir.Attribute]) -> None:
    with ir.InsertionPoint(op), op.location:
        types = [result.type for result in op.results]
        other = ir.Operation.create(name, types, list(op.operands), attributes)
    for old, new in zip(op.results, other.results, strict=True):
        old.replace_all_uses_with(new)
    op.erase()
