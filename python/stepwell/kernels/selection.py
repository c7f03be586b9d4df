"""Selections, described as data: the first few elements of each row in order, and their positions.

The kernel takes `x` of [outer, length, inner] and gives, for each row along `length`, what comes
first: elements and positions, both [outer, count, inner]. Of equal elements the one with the lower
position comes first.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepwell.mlir import ir
from stepwell.targets import Target

KIND = "selection"
"""The kind of a kernel that selects."""

ATTRIBUTE = "kernel.selection"
"""The attribute that describes it."""

SIGNED, UNSIGNED = "signed", "unsigned"
TOTAL = "total"
"""Floats in their total order: zeros have signs, NaNs signs and payloads."""
NUMBER = "number"
"""Floats as numbers: one zero, and one NaN, the greatest."""

_MOST, _SHORT = 1024, 128
"""So many elements are selected at most, half of a row at the most where it is not short: each one
found late moves the others."""

_MOST_IN_COLUMNS = 16
"""So many at most where they are vectors of columns, all of them in registers."""

_LONGEST_GATHERED = 256
"""Longest row of which elements are gathered, one a lane."""


@dataclass(frozen=True)
class Selection:
    """What comes first: in the order `order`, the greatest if it `descends`, or the least."""

    order: str
    descends: bool

    def to_attribute(self) -> ir.Attribute:
        """The description as a dictionary."""
        return ir.DictAttr.get(
            {
                "order": ir.StringAttr.get(self.order),
                "descends": ir.BoolAttr.get(self.descends),
            }
        )

    @staticmethod
    def from_attribute(attribute: ir.Attribute) -> Selection:
        """The inverse of `to_attribute`."""
        entries = ir.DictAttr(attribute)
        return Selection(
            ir.StringAttr(entries["order"]).value, ir.BoolAttr(entries["descends"]).value
        )


def lanes_of_keys(element: ir.Type, target: Target) -> int:
    """Lanes of a vector of keys and positions: words, or double words where elements are."""
    return target.vector_bits // max(32, element.width)


def is_selected(count: int, length: int) -> bool:
    """Whether so many first elements of rows are selected; others are found by sorting all."""
    return 0 < count <= min(_MOST, max(length // 2, _SHORT))


def is_by_columns(shape: tuple[int, int, int], count: int, lanes: int) -> bool:
    """Whether lanes are rows: where many rows lie side by side, or are so short that it is worth
    gathering one element of each."""
    outer, length, inner = shape
    if count > _MOST_IN_COLUMNS:
        return False
    return inner >= lanes or (outer * inner >= lanes and length <= _LONGEST_GATHERED)
