"""The order in which blocks take the tiles of a contraction.

Tiles in a column follow one another, a panel of them, so that they find their operands in L2. Where
a batch takes slices of an array, so do the tiles of neighbours in the batch: rows of one group,
which are multiplied by one matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepwell.kernels.gpu.grid import GridBuilder
from stepwell.kernels.gpu.tile_space import TileSpace
from stepwell.kernels.index import Index, delinearize

PANEL = 8
"""Tiles of a panel at most."""


@dataclass(frozen=True)
class TileOrder:
    """`batch` x `down` x `across` tiles, in panels of `panel`; these go on from one element of the
    batch to the next where it `continues`."""

    batch: int
    down: int
    across: int
    panel: int
    continues: bool

    @staticmethod
    def of(space: TileSpace, down: int, across: int, together: int = 1) -> TileOrder:
        """The order of so many tiles down and across, `together` of which in a column are taken at
        once."""
        batch = space.shape.extent(space.shape.batch)
        continues = space.takes_slices()
        panel = PANEL if down % PANEL == 0 else together
        if continues:
            whole = (n for n in range(PANEL, together, -1) if batch * down % n == 0)
            panel = next((n for n in whole if n % together == 0), together)
        return TileOrder(batch, down, across, panel, continues)

    @property
    def count(self) -> int:
        """All tiles."""
        return self.batch * self.down * self.across

    def at(self, nest: GridBuilder, place: Index) -> tuple[Index, Index, Index]:
        """Tile number `place`: its number in the batch, and its place down and across."""
        if self.continues:
            sizes = [self.batch * self.down // self.panel, self.across, self.panel]
            outer, column, inner = delinearize(place, sizes)
            tile = nest.named("tile", outer * self.panel + inner)
            which, row = delinearize(tile, [self.batch, self.down])
            return which, row, column
        sizes = [self.batch, self.down // self.panel, self.across, self.panel]
        which, outer, column, inner = delinearize(place, sizes)
        return which, nest.named("row", outer * self.panel + inner), column
