"""Packed forms of weights: how an array is laid out anew for the kernel that reads it.

The compiler applies a packing to constants, unless the packed form is larger by far, as transformed
filters are: those the runtime makes when it loads the model. For a weight that is an argument of
the model the runtime applies it, when the argument's content is new. So packings are plain data and
numpy alone.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

WORD_CODES, CODE_BITS = 8, 4
"""Numbers of 4 bits to a word, and their bits."""

_CHUNK = 16
"""Terms of filters that are transformed at a time: what comes of them stays in L2, and the products
are too small for BLAS to wake its threads, which costs more than they save."""


@dataclass(frozen=True)
class PanelPacking:
    """Panels of columns: axes reordered to [batch..., k..., column], the columns cut into panels
    that come before k, zeros filling the last: [batch..., panels, k..., panel]. Of the last k,
    `terms` at a time lie side by side: [batch..., panels, k / terms, panel * terms]."""

    source: tuple[int, ...]
    axes: tuple[int, ...]
    batch: int
    panel: int
    terms: int = 1

    @property
    def shape(self) -> tuple[int, ...]:
        """The packed shape."""
        *lead, columns = (self.source[axis] for axis in self.axes)
        panels = -(-columns // self.panel)
        if self.terms > 1:
            lead[-1] //= self.terms
        return (*lead[: self.batch], panels, *lead[self.batch :], self.panel * self.terms)

    def apply(self, array: np.ndarray) -> np.ndarray:
        """The packed copy of `array`."""
        moved = array.reshape(self.source).transpose(self.axes)
        *outer, words, width = self.shape
        result = np.zeros((*outer, words * self.terms, self.panel), array.dtype)
        whole = moved.shape[-1] // self.panel
        lead = (slice(None),) * self.batch
        if whole:
            main = moved[..., : whole * self.panel]
            split = main.reshape(*main.shape[:-1], whole, self.panel)
            packed = result[(*lead, slice(0, whole))]
            if split.strides[-1] == split.itemsize:  # a row of a panel is one element to copy
                row = np.dtype((np.void, self.panel * split.itemsize))
                split, packed = split.view(row), packed.view(row)
            packed[...] = np.moveaxis(split, -2, self.batch)
        if whole < result.shape[self.batch]:
            rest = moved[..., whole * self.panel :]
            result[(*lead, whole, Ellipsis, slice(0, rest.shape[-1]))] = rest
        if self.terms == 1:
            return result
        split = result.reshape(*outer, words, self.terms, self.panel)
        return np.ascontiguousarray(np.swapaxes(split, -1, -2)).reshape(*outer, words, width)


@dataclass(frozen=True)
class WordPacking:
    """Bytes that hold numbers of 4 bits, `least` and more, in the `panels` of a matrix [k, column];
    eight neighbours of k, less `least`, are a word of 32 bits, the first in its lowest bits:
    int32[panels, k / 8, panel]."""

    panels: PanelPacking
    least: int

    @property
    def source(self) -> tuple[int, ...]:
        """The shape of what is packed."""
        return self.panels.source

    @property
    def shape(self) -> tuple[int, ...]:
        """The packed shape."""
        count, rows, width = self.panels.shape
        return (count, rows // WORD_CODES, width)

    def apply(self, array: np.ndarray) -> np.ndarray:
        """The packed copy of `array`, which has no number outside of [least, least + 15]."""
        panels = self.panels.apply(array - np.int8(self.least)).view(np.uint8)
        count, rows, width = self.shape
        split = panels.reshape(count, rows, WORD_CODES, width)
        words = np.zeros(self.shape, np.uint32)
        for number in range(WORD_CODES):
            words |= split[:, :, number].astype(np.uint32) << np.uint32(CODE_BITS * number)
        return words.view(np.int32)


@dataclass(frozen=True)
class WinogradRegion:
    """Positions of a transformed tile, and the phases [first, first + phases) whose products they
    sum."""

    positions: tuple[tuple[int, int], ...]
    first: int
    phases: int


def winograd_phases(strides: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    """Rows and columns of the image by their remainders: each pair is an image of its own. They are
    in such an order that those of each region are neighbours."""
    if strides == (2, 2):
        return ((1, 0), (0, 0), (0, 1), (1, 1))
    down, across = strides
    return tuple(itertools.product(range(down), range(across)))


@functools.lru_cache
def winograd_regions(
    windows: tuple[int, int], strides: tuple[int, int], filters: tuple[int, int]
) -> tuple[WinogradRegion, ...]:
    """All positions of a tile, in the order that they are stored in. With a stride of 2, the odd
    rows of an odd filter are one less, and have nothing at infinity, and so the odd columns."""
    uneven = [filter % stride > 0 for filter, stride in zip(filters, strides, strict=True)]
    parts = [
        [range(window - 1), range(window - 1, window)] if apart else [range(window)]
        for window, apart in zip(windows, uneven, strict=True)
    ]
    regions = []
    for rows, columns in itertools.product(*parts):
        at_infinity = [
            apart and len(part) == 1 for part, apart in zip((rows, columns), uneven, strict=True)
        ]
        met = [
            number
            for number, phase in enumerate(winograd_phases(strides))
            if not any(odd and last for odd, last in zip(phase, at_infinity, strict=True))
        ]
        positions = tuple(itertools.product(rows, columns))
        regions.append(WinogradRegion(positions, met[0], len(met)))
    return tuple(regions)


@dataclass(frozen=True)
class WinogradPacking:
    """Transformed filters: float32[tap.., rows, columns, in, out] to G w H^T as [panels, position,
    phase and tap.. and in, panel], zeros filling the last panel. `matrices` are G and H, by
    rows."""

    source: tuple[int, ...]
    matrices: tuple[tuple[tuple[float, ...], ...], tuple[tuple[float, ...], ...]]
    panel: int
    strides: tuple[int, int] = (1, 1)

    @property
    def shape(self) -> tuple[int, ...]:
        """The packed shape."""
        *taps, _, _, inputs, outputs = self.source
        terms = math.prod(taps) * inputs * len(winograd_phases(self.strides))
        positions = math.prod(map(len, self.matrices))
        return (-(-outputs // self.panel), positions, terms, self.panel)

    def apply(self, array: np.ndarray) -> np.ndarray:
        """The transformed copy of `array`."""
        result = np.zeros(self.shape, np.float32)
        self.fill(array, result)
        return result

    def fill(self, array: np.ndarray, result: np.ndarray) -> None:
        """Write what `array` becomes, computed in float64, into `result`, zeros or what another
        array became."""
        g, h = map(np.array, self.matrices)
        *taps, rows, columns, inputs, outputs = self.source
        by_tap = array.reshape(math.prod(taps), rows, columns, inputs, outputs)
        filters = np.moveaxis(by_tap, 0, 2).reshape(rows, columns, -1, outputs)
        count = filters.shape[2]
        regions = winograd_regions((len(g), len(h)), self.strides, (rows, columns))
        positions = [at for region in regions for at in region.positions]
        for phase, (down, across) in enumerate(winograd_phases(self.strides)):
            taken = filters[down :: self.strides[0], across :: self.strides[1]]
            height, width = taken.shape[:2]
            factors = np.stack(
                [np.outer(g[i, :height], h[j, :width]).ravel() for i, j in positions]
            )
            for number, start in itertools.product(range(len(result)), range(0, count, _CHUNK)):
                panel = slice(number * self.panel, (number + 1) * self.panel)
                part = taken[:, :, start : start + _CHUNK, panel].astype(np.float64)
                terms = slice(phase * count + start, phase * count + start + part.shape[2])
                transformed = (factors @ part.reshape(height * width, -1)).reshape(
                    len(factors), *part.shape[2:]
                )
                result[number, :, terms, : part.shape[3]] = transformed


Packing = PanelPacking | WordPacking | WinogradPacking

_KINDS: dict[str, type[Packing]] = {
    "panels": PanelPacking,
    "words": WordPacking,
    "winograd": WinogradPacking,
}


@dataclass(frozen=True)
class DerivedWeight:
    """A packed form that the runtime makes: of input `input` of the model, or of the array that
    lies at `constant` of the file's weights. It lies at `offset` of those in memory, behind all of
    the file's."""

    offset: int
    packing: Packing
    input: int | None = None
    constant: int | None = None

    @property
    def bytes(self) -> int:
        """Its size; packings keep float32."""
        return 4 * math.prod(self.packing.shape)


def packing_to_dict(packing: Packing) -> dict[str, object]:
    """A packing as JSON data."""
    kind = next(name for name, cls in _KINDS.items() if isinstance(packing, cls))
    return {"kind": kind, **asdict(packing)}


def packing_from_dict(data: Mapping[str, object]) -> Packing:
    """The inverse of `packing_to_dict`."""
    fields = {name: _tuples(value) for name, value in data.items() if name != "kind"}
    if "matrix" in fields:  # up to format 11, rows and columns are transformed alike
        fields["matrices"] = (fields.pop("matrix"),) * 2
        fields["strides"] = (fields.pop("stride"),) * 2
    return _KINDS[str(data["kind"])](**fields)  # pyright: ignore[reportArgumentType]


def derived_to_dict(weight: DerivedWeight) -> dict[str, object]:
    """A derived weight as JSON data."""
    packing = packing_to_dict(weight.packing)
    places = {"input": weight.input, "constant": weight.constant}
    known = {name: place for name, place in places.items() if place is not None}
    return {**known, "offset": weight.offset, "packing": packing}


def derived_from_dict(data: Mapping[str, Any]) -> DerivedWeight:
    """The inverse of `derived_to_dict`."""
    packing = packing_from_dict(data["packing"])
    return DerivedWeight(data["offset"], packing, data.get("input"), data.get("constant"))


def _tuples(value: object) -> object:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value
