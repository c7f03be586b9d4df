"""`tile`: split the loops of structured operations into loops over tiles.

    %r = linalg.generic (m, n, k) ins(%a, %b) outs(%c : tensor<64x64xf32>)

with `tile{tile-sizes=8,32,0}` becomes two loops around the same operation on slices:

    %r = scf.for %i = %c0 to %c64 step %c8 iter_args(%x = %c) {
      scf.for %j = %c0 to %c64 step %c32 iter_args(%y = %x) {
        %s = tensor.extract_slice %y[%i, %j] [8, 32] [1, 1]
        %t = linalg.generic (m, n, k) ... outs(%s : tensor<8x32xf32>)
        scf.yield (tensor.insert_slice %t into %y[%i, %j] [8, 32] [1, 1])
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
class Tile(Pass):
    """Tile every operation called `target_op` that has at least as many loops as tile sizes."""

    name: ClassVar[str] = "tile"
    anchor: ClassVar[str] = "func.func"

    tile_sizes: tuple[int, ...] = ()
    """One size a loop; 0, or none given, leaves the loop whole."""

    interchange: tuple[int, ...] = ()
    """The order of the loops over tiles, outermost first; empty keeps it."""

    target_op: str = "linalg.generic"
    """The operation's full name."""

    parallel: bool = False
    """One `scf.forall` over all tiles instead of nested `scf.for`."""

    def run(self, op: ir.Operation, state: State) -> None:
        self._check()
        chosen = linalg_operations(
            op, lambda o: o.name == self.target_op and loop_count(o) >= len(self.tile_sizes)
        )
        tiled = sum(size > 0 for size in self.tile_sizes)
        if not chosen or not tiled:
            return
        sizes = sizes_text(self.tile_sizes)
        order = f" interchange = {sizes_text(self.interchange)}" if self.interchange else ""
        if self.parallel:
            script = (
                f"%t, %l = transform.structured.tile_using_forall %chosen tile_sizes {sizes}"
                " : (!op) -> (!op, !op)"
            )
        else:
            script = (
                f"%t, %l:{tiled} = transform.structured.tile_using_for %chosen tile_sizes {sizes}"
                f"{order} : (!op) -> ({handles(1 + tiled)})"
            )
        apply_script(op, chosen, script)
        run_upstream(op, "canonicalize,cse")

    def _check(self) -> None:
        if any(size < 0 for size in self.tile_sizes):
            raise LoweringError("tile: a tile size is negative")
        order = sorted(self.interchange)
        if order and order != list(range(len(self.tile_sizes))):
            raise LoweringError("tile: interchange is no permutation of the loops tile-sizes names")
        if self.parallel and self.interchange:
            raise LoweringError("tile: the loops of scf.forall have no order to interchange")
