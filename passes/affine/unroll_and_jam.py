"""`unroll-and-jam`: unroll an affine loop and run the copies of its inner loops as one.

    affine.for %i = 0 to 64 {                   affine.for %i = 0 to 64 step 2 {
      affine.for %j = 0 to 64 {                   affine.for %j = 0 to 64 {
        body(%i, %j)                     ->         body(%i, %j)
      } }                                           body(%i + 1, %j)
                                                  } }

A loop whose length `factor` does not divide is followed by one for what is left. Upstream does not
look at dependences: whoever names a loop knows that its iterations may be interleaved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stepwell.errors import LoweringError
from stepwell.mlir import ir, nested_operations, run_upstream
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg._transform import apply_script


@dataclass(frozen=True)
class UnrollAndJam(Pass):
    """Unroll and jam every `affine.for` that stands inside `depth` others."""

    name: ClassVar[str] = "unroll-and-jam"
    anchor: ClassVar[str] = "func.func"

    factor: int = 4
    """Iterations that become one."""

    depth: int = 0
    """Which loop of a nest, counted from the outermost, 0."""

    def run(self, op: ir.Operation, state: State) -> None:
        if self.factor < 1 or self.depth < 0:
            raise LoweringError("unroll-and-jam: factor is below 1 or depth below 0")
        if self.factor == 1:
            return
        loops = [
            inner
            for inner in nested_operations(op)
            if inner.name == "affine.for" and _depth(inner) == self.depth
        ]
        script = f"transform.loop.unroll_and_jam %chosen {{factor = {self.factor}}} : !op"
        apply_script(op, loops, script)
        run_upstream(op, "canonicalize,cse")


def _depth(loop: ir.Operation) -> int:
    """How many affine loops stand around `loop`."""
    count, parent = 0, loop.parent
    while parent is not None and parent.operation.name != "func.func":
        count += parent.operation.name in ("affine.for", "affine.parallel")
        parent = parent.operation.parent
    return count
