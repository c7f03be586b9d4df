"""The register tile of a contraction: a box of rows by some vectors of columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stepwell.kernels.group import widths
from stepwell.kernels.index import Index
from stepwell.mlir import ir

Place = Callable[[tuple[Index | int, Index | int], Index, list[Index]], list[Index]]
"""The point of the iteration space for a point of the register tile, a column, and k."""


@dataclass(frozen=True)
class RegisterVector:
    """One vector of a tile: first column, lanes computed, lanes that exist in the output."""

    offset: int
    width: int
    valid: int


@dataclass(frozen=True)
class RegisterTile:
    """A register tile: where it is, and a step of its sums at a point of the reduced space."""

    dims: list[Index]
    box: tuple[int, int]
    panel: Index
    start: Index
    vectors: list[RegisterVector]
    place: Place
    step: Callable[[list[Index], list[ir.Value]], list[ir.Value]]

    @property
    def points(self) -> list[tuple[int, int]]:
        """Its rows, as points of the box."""
        return [(r, c) for r in range(self.box[0]) for c in range(self.box[1])]

    @property
    def rows(self) -> int:
        return self.box[0] * self.box[1]


def pieces(columns: int, lanes: int) -> list[tuple[int, int]]:
    """(begin, width) pieces of `columns`, full vectors first, then halving ones."""
    return [
        (start, width)
        for begin, end, width in widths(columns, lanes)
        for start in range(begin, end, width)
    ]
