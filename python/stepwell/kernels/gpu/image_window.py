"""Images of convolutions as arrays of which the GPU copies what a window sees (im2col maps).

An image is [n, h, w, channels]. Row (n, oh, ow) of the product has its first pixel at
(n, oh * step + first, ow * step + first), and the place (kh, kw, c) of k is seen so many pixels
further. A copy takes 128 bytes of channels of one place of the window for as many rows as a tile
has, which go on in the next line and in the next image.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepwell.kernels.cpu.contraction_strategy import ContractionShape
from stepwell.kernels.gpu.hopper import LINE_BYTES
from stepwell.kernels.gpu.tensor_core import MatrixType
from stepwell.kernels.index import Index, Variable, delinearize

_LEAST_CORNER, _MOST_OFFSET, _MOST_STEP, MOST_PIXELS = -128, 255, 8, 1024
"""Limits of cuTensorMapEncodeIm2col for arrays of four dimensions."""


@dataclass(frozen=True)
class ImageWindow:
    """How rows and places of k lie in an image: the rows' extents (n, oh, ow); the first pixel, the
    steps of rows and those of the window, each down and across; the window's extents (kh, kw,
    channels); and the image's (h, w)."""

    rows: tuple[int, int, int]
    first: tuple[int, int]
    steps: tuple[int, int]
    dilation: tuple[int, int]
    window: tuple[int, int, int]
    image: tuple[int, int]

    @property
    def corners(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The least first pixel of a row, and how far the greatest lies from the image's last;
        down and across."""
        ends = tuple(
            first + (count - 1) * step + 1 - size
            for first, count, step, size in zip(
                self.first, self.rows[1:], self.steps, self.image, strict=True
            )
        )
        return self.first, (ends[0], ends[1])

    def first_pixel(self, row: Index) -> list[Index]:
        """The first pixel of a row: n, then down and across."""
        image, *place = delinearize(row, self.rows)
        moved = zip(place, self.steps, self.first, strict=True)
        return [image, *(p * step + first for p, step, first in moved)]

    def seen(self, k: Index) -> tuple[list[Index], Index]:
        """How far the window's place of k lies from the first pixel, down and across; and its
        channel."""
        *taps, channel = delinearize(k, self.window)
        return [t * d for t, d in zip(taps, self.dilation, strict=True)], channel


def find(
    shape: ContractionShape,
    kind: MatrixType,
    dims: list[Variable],
    indices: list[Index],
    sizes: list[int],
) -> ImageWindow | None:
    """The window of a lhs with extents `sizes` that is read at `indices`, forms over `dims`, the
    operation's dimensions; None where it is none, or channels are not whole lines of 128 bytes."""
    if len(sizes) != 4:
        return None
    axes = [_axis(index, dims, shape) for index in indices]
    if any(axis is None for axis in axes):
        return None
    image, down, across, channel = (axis for axis in axes if axis is not None)
    rows = [axis.row for axis in (image, down, across)]
    places = [axis.place for axis in (down, across, channel)]
    if not _are_all(rows, shape.rows, shape.sizes):
        return None
    if not _are_all(places, shape.reduced, shape.sizes):
        return None
    if image.place is not None or channel.row is not None or image.first or channel.first:
        return None
    if image.step != 1 or channel.dilation != 1 or channel.place is None:
        return None
    counts = [1 if d is None else shape.sizes[d] for d in (*rows, *places)]
    found = ImageWindow(
        (counts[0], counts[1], counts[2]),
        (down.first, across.first),
        (down.step, across.step),
        (down.dilation, across.dilation),
        (counts[3], counts[4], counts[5]),
        (sizes[1], sizes[2]),
    )
    return found if _is_possible(found, kind) else None


@dataclass(frozen=True)
class _Axis:
    """Of one dimension of the image, the dimensions of rows and of k that move it, and how far."""

    row: int | None
    step: int
    place: int | None
    dilation: int
    first: int


def _axis(index: Index, dims: list[Variable], shape: ContractionShape) -> _Axis | None:
    rows, places = [], []
    for atom, factor in index.terms:
        if not isinstance(atom, Variable) or atom not in dims or factor <= 0:
            return None
        number = dims.index(atom)
        (rows if number in shape.rows else places).append((number, factor))
    if len(rows) > 1 or len(places) > 1 or any(d not in shape.reduced for d, _ in places):
        return None
    row, step = rows[0] if rows else (None, 1)
    place, dilation = places[0] if places else (None, 1)
    return _Axis(row, step, place, dilation, index.constant)


def _are_all(found: list[int | None], dims: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    """Whether `found` are all of `dims` that have more than one place, in their order."""
    return [d for d in found if d is not None] == [d for d in dims if sizes[d] > 1]


def _is_possible(window: ImageWindow, kind: MatrixType) -> bool:
    far = [d * (n - 1) for d, n in zip(window.dilation, window.window[:2], strict=True)]
    return (
        window.window[2] * kind.bytes % LINE_BYTES == 0
        and all(corner >= 0 for corner in window.first)
        and all(_LEAST_CORNER <= corner <= 0 for corner in window.corners[1])
        and all(corner < -_LEAST_CORNER for corner in window.first)
        and max(far) <= _MOST_OFFSET
        and max(window.steps) <= _MOST_STEP
    )
