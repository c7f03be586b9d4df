"""`fuse-producers`: tile the last operation of a chain and compute its producers tile by tile.

    %0 = linalg.fill outs(%out)                     scf.for %i ... iter_args(%o = %out) {
    %1 = linalg.generic (x @ w) outs(%0)       ->     %0 = linalg.fill outs(slice of %o)
    %2 = linalg.generic (%1 + b) outs(%e)             %1 = linalg.generic (x[i] @ w) outs(%0)
                                                      %2 = linalg.generic (%1 + b) ... }

A consumer is last when no other linalg operation reads its result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stepwell.errors import LoweringError
from stepwell.mlir import ir, run_upstream
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg._transform import (
    apply_script,
    handles,
    linalg_operations,
    loop_count,
    sizes_text,
)


@dataclass(frozen=True)
class FuseProducers(Pass):
    """Tile the last structured operations of a function with `tile_sizes` and fuse what they read.

    Operations with fewer loops than tile sizes are left alone.
    """

    name: ClassVar[str] = "fuse-producers"
    anchor: ClassVar[str] = "func.func"

    tile_sizes: tuple[int, ...] = (8,)
    """One size a loop of the consumer; 0, or none given, leaves the loop whole."""

    interchange: tuple[int, ...] = ()
    """The order of the loops over tiles, outermost first; empty keeps it."""

    def run(self, op: ir.Operation, state: State) -> None:
        if any(size < 0 for size in self.tile_sizes):
            raise LoweringError("fuse-producers: a tile size is negative")
        tiled = sum(size > 0 for size in self.tile_sizes)
        if not tiled:
            return
        order = f" interchange {sizes_text(self.interchange)}" if self.interchange else ""
        script = (
            f"%t, %l:{tiled} = transform.structured.fuse %chosen "
            f"tile_sizes {sizes_text(self.tile_sizes)}{order} {{apply_cleanup}} "
            f": (!op) -> ({handles(1 + tiled)})"
        )
        apply_script(op, linalg_operations(op, self._is_last), script)
        run_upstream(op, "canonicalize,cse")

    def _is_last(self, op: ir.Operation) -> bool:
        users = [use.owner.operation.name for use in op.results[0].uses]
        return loop_count(op) >= len(self.tile_sizes) and not any(
            name.startswith("linalg.") for name in users
        )
