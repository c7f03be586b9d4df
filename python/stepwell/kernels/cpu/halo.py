"""The zeros around a padded image: which terms of a window lie among them, and are left out.

A term that meets zeros alone adds nothing. That is two thirds of a window of three over an axis of
length one, and most of a 3x3 filter whose dilation is near the size of the image.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepwell.kernels.index import Index, Variable, apply_map
from stepwell.kernels.structured import Structured
from stepwell.mlir import ir

if TYPE_CHECKING:
    from stepwell.kernels.cpu.contraction_strategy import ContractionShape

ATTRIBUTE = "kernel.halo"
"""On a convolution, for each dimension of its image: how much of it are zeros in front, and how
much is the image proper, `{low = array<i64>, extent = array<i64>}`."""


def mark(op: ir.Operation, low: list[int], extent: list[int]) -> None:
    """Set the attribute of `op`."""
    op.attributes[ATTRIBUTE] = ir.DictAttr.get(
        {"low": ir.DenseI64ArrayAttr.get(low), "extent": ir.DenseI64ArrayAttr.get(extent)}
    )


@dataclass(frozen=True)
class Window:
    """Term t of row y reads the padded image at y * stride + t * dilation; `reduced` and `row` are
    the positions of the two among the reduced and the row dimensions. The image proper is from
    `low` on, `extent` long."""

    reduced: int
    row: int
    terms: int
    stride: int
    dilation: int
    low: int
    extent: int

    def bounds(self, first: Index, last: Index) -> tuple[Index, Index]:
        """[start, stop) of the terms that any row from `first` to `last` reads the image with;
        before 0 or beyond `terms` there are none."""
        start = last * -self.stride + (self.low + self.dilation - 1)
        stop = first * -self.stride + (self.low + self.extent - 1)
        return start.floordiv(self.dilation), stop.floordiv(self.dilation) + 1

    def used(self, begin: int, end: int, rows: int) -> float:
        """The part of its terms that tiles of `rows` rows need, from row `begin` to row `end`."""
        count = 0
        for first in range(begin, end, rows):
            last = min(first + rows, end) - 1
            start, stop = self.bounds(Index((), first), Index((), last))
            count += max(0, min(stop.constant, self.terms) - max(start.constant, 0))
        return count / max(1, math.ceil((end - begin) / rows) * self.terms)


def windows(op: Structured, shape: ContractionShape) -> list[Window]:
    """Those over the padded dimensions of the image that `op` reads, if it is marked."""
    if ATTRIBUTE not in op.op.attributes or shape.lhs != 0:
        return []
    halo = ir.DictAttr(op.op.attributes[ATTRIBUTE])
    dims = [Variable(f"d{i}", 0, max(n, 1) - 1) for i, n in enumerate(shape.sizes)]
    point = apply_map(op.maps[0], [Index(((d, 1),)) for d in dims])
    found = []
    for index, low, extent in zip(point, halo["low"], halo["extent"], strict=True):
        walks = {dims.index(v): index.coefficient(v) for v in index.variables()}
        reduced = [d for d in walks if d in shape.reduced]
        rows = [d for d in walks if d in shape.rows]
        if len(reduced) == len(rows) == 1 and len(walks) == 2 and not index.constant:
            (term,), (row,) = reduced, rows
            places = (shape.reduced.index(term), shape.rows.index(row))
            found.append(Window(*places, shape.sizes[term], walks[row], walks[term], low, extent))
    return found


def used_parts(
    found: list[Window], shape: ContractionShape, box: tuple[int, int]
) -> tuple[float, float]:
    """The part of all terms that register tiles of `box` rows need, and that those need which the
    end of the last row dimension cuts."""
    tile = [1] * (len(shape.rows) - 2) + list(box)[-len(shape.rows) :]
    whole = cut = 1.0
    for window in found:
        size, rows = shape.sizes[shape.rows[window.row]], tile[window.row]
        if window.row == len(shape.rows) - 1:
            begin = size - size % rows
            whole *= window.used(0, begin, rows)
            cut *= window.used(begin, size, rows)
        else:
            part = window.used(0, size, rows)
            whole, cut = whole * part, cut * part
    return whole, cut
