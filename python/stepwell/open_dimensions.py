"""Dimensions of which a part is in use: what the part is, and how shapes carry it along.

A dimension is a product of factors, each of a capacity and an extent: those of its elements are in
use whose index in every factor is below its extent. `tensor<512x768>` of s0 rows that becomes
`tensor<2048x192>` has 4*s0 of 2048 rows in use; `tensor<8x512>` of s0 and s1 elements that becomes
`tensor<4096>` has two factors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stepwell.errors import LoweringError
from stepwell.extents import Extent


@dataclass(frozen=True)
class Factor:
    """`capacity` indices, of which those below `extent` are in use."""

    capacity: int
    extent: Extent

    @property
    def is_open(self) -> bool:
        return not self.extent.is_constant


Dimension = tuple[Factor, ...] | None
"""The factors of a dimension, the slowest first; None where all elements along it are the same, so
that any part may count as in use."""

Layout = tuple[Dimension, ...]


def closed(size: int) -> Dimension:
    """A dimension that is always in use as a whole."""
    return (Factor(size, Extent.of(size)),)


def prefix(capacity: int, extent: Extent) -> Dimension:
    """A dimension whose first elements are in use."""
    return (Factor(capacity, extent),)


def is_open(dimension: Dimension) -> bool:
    """Whether only a part of `dimension` may be in use."""
    return dimension is not None and any(factor.is_open for factor in dimension)


def as_prefix(dimension: Dimension) -> Factor | None:
    """The one factor of a dimension; None when it has several, or its elements are all the same."""
    return dimension[0] if dimension is not None and len(dimension) == 1 else None


def unified(first: Dimension, second: Dimension) -> Dimension:
    """A dimension that is both. Raises LoweringError when different parts are in use."""
    if first is None or second is None:
        return first if second is None else second
    if first != second:
        raise LoweringError("different parts of a dimension are in use in its operands")
    return first


def joint(first: Dimension, second: Dimension) -> Dimension:
    """The least part that holds both."""
    if first == second:
        return first
    one, other = as_prefix(first), as_prefix(second)
    if one is not None and other is not None and one.is_open and other.is_open:
        beyond = other.extent.plus(one.extent, -1)
        if beyond.is_constant:
            return second if beyond.at(()) > 0 else first
    return closed(capacity(first))


def regrouped(layout: Sequence[Dimension], shape: Sequence[int], sizes: Sequence[int]) -> Layout:
    """What a reshape from `shape` to `sizes` makes of the layout of its operand. Raises
    LoweringError when a part in use would not be one of the result's dimensions."""
    factors = [
        factor
        for dimension, size in zip(layout, shape, strict=True)
        for factor in (dimension or (Factor(size, Extent.of(size)),))
        if factor.capacity != 1
    ]
    found: list[Dimension] = []
    for size in sizes:
        taken: list[Factor] = []
        rest = size
        while rest > 1:
            if not factors:
                raise LoweringError("a reshape mixes dimensions that are open")
            factor = factors.pop(0)
            if rest % factor.capacity == 0:
                taken.append(factor)
                rest //= factor.capacity
                continue
            outer, inner = _split(factor, rest)
            taken.append(outer)
            factors.insert(0, inner)
            rest = 1
        found.append(_joined(taken))
    return tuple(found)


def _split(factor: Factor, outer: int) -> tuple[Factor, Factor]:
    """A factor as two, the first of capacity `outer`."""
    inner, left = divmod(factor.capacity, outer)
    extent = factor.extent.divided(inner) if not left else None
    if extent is None:
        raise LoweringError("a reshape divides a dimension that is open")
    return Factor(outer, extent), Factor(inner, Extent.of(inner))


def _joined(factors: Sequence[Factor]) -> Dimension:
    """Factors as a dimension; what follows an open one and is in use as a whole is joined to it."""
    found: list[Factor] = []
    for factor in factors:
        whole = factor.extent == Extent.of(factor.capacity)
        if found and whole:
            last = found.pop()
            extent = last.extent.times(factor.extent)
            factor = Factor(last.capacity * factor.capacity, extent)
        found.append(factor)
    return tuple(found) or closed(1)


def capacity(dimension: Dimension) -> int:
    """The size of a dimension with factors."""
    return math.prod(factor.capacity for factor in dimension or ())


def layout_text(layout: Layout) -> str:
    """A layout as text: `8/s0 512/s1, 768/768` has a dimension of two factors, and one of one."""
    return ", ".join(
        " ".join(f"{factor.capacity}/{factor.extent}" for factor in dimension or ())
        for dimension in layout
    )


def parse_layout(text: str) -> Layout:
    """The inverse of `layout_text`."""
    found: list[Dimension] = []
    for dimension in text.split(", "):
        words: list[str] = []
        for word in dimension.split():
            if "/" in word:
                words.append(word)
            else:  # of a sum
                words[-1] += f" {word}"
        parts = [word.partition("/") for word in words]
        found.append(tuple(Factor(int(n), Extent.parse(extent)) for n, _, extent in parts))
    return tuple(found)
