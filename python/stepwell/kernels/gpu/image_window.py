"""Images of convolutions as arrays of which the GPU copies what a window sees (im2col maps).

An image is [n, w, channels], [n, h, w, channels] or [n, d, h, w, channels]. Row (n, oh, ow) of the
product has its first pixel at (n, oh * step + first, ow * step + first), and the place (kh, kw, c)
of k is seen so many pixels further. A copy takes 128 bytes of channels of one place of the window
for as many rows as a tile has, which go on in the next line and in the next image.

Of a grouped convolution, the channels of its group. Where those are no whole lines of 128 bytes,
the last line of each place of the window goes on with the next group's, or with zeros behind the
image's last: the filters' copies have zeros there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from stepwell.kernels.cpu.contraction_strategy import ContractionShape
from stepwell.kernels.gpu.hopper import LINE_BYTES
from stepwell.kernels.gpu.tensor_core import MatrixType
from stepwell.kernels.index import Index, Variable, delinearize

_LEAST_CORNER, _MOST_OFFSET = {1: -(1 << 15), 2: -128, 3: -16}, {1: (1 << 16) - 1, 2: 255, 3: 31}
"""By how many dimensions pixels have: limits of cuTensorMapEncodeIm2col, and of the copies' offsets
(PTX ISA, "Im2col mode")."""

_MOST_STEP = 8


@dataclass(frozen=True)
class ImageWindow:
    """How rows and places of k lie in an image: the rows' extents (n, oh, ow); the first pixel, the
    steps of rows and those of the window, each down and across; the window's extents (kh, kw,
    channels); and the image's (h, w). Pixels may have one dimension less, or one more. A `line` is
    128 bytes of channels. `group` is the operation's dimension that the groups are, with so many
    channels from one to the next."""

    rows: tuple[int, ...]
    first: tuple[int, ...]
    steps: tuple[int, ...]
    dilation: tuple[int, ...]
    window: tuple[int, ...]
    image: tuple[int, ...]
    line: int
    group: tuple[int, int] | None = None

    @property
    def lines(self) -> int:
        """Lines of a place of the window."""
        return -(-self.window[-1] // self.line)

    @property
    def is_whole(self) -> bool:
        """Whether channels are whole lines: places of k then follow one another in lines."""
        return self.window[-1] % self.line == 0

    @property
    def reads_others(self) -> bool:
        """Whether a line has channels of another group."""
        return self.group is not None and not self.is_whole

    @property
    def count(self) -> int:
        """Lines of all places of the window: the steps of k."""
        return math.prod(self.window[:-1]) * self.lines

    @property
    def corners(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The least first pixel of a row, and how far the greatest lies from the image's last;
        down and across."""
        ends = tuple(
            first + (count - 1) * step + 1 - size
            for first, count, step, size in zip(
                self.first, self.rows[1:], self.steps, self.image, strict=True
            )
        )
        return self.first, ends

    def first_pixel(self, row: Index) -> list[Index]:
        """The first pixel of a row: n, then down and across."""
        image, *place = delinearize(row, self.rows)
        moved = zip(place, self.steps, self.first, strict=True)
        return [image, *(p * step + first for p, step, first in moved)]

    def place(self, step: Index) -> tuple[Index, Index]:
        """The number of the window's place of a step of k, and its first channel in the group."""
        tap, part = delinearize(step, [math.prod(self.window[:-1]), self.lines])
        return tap, part * self.line

    def offsets(self, tap: Index) -> list[Index]:
        """How far place number `tap` of the window lies from the first pixel, down and across."""
        taps = delinearize(tap, self.window[:-1])
        return [t * d for t, d in zip(taps, self.dilation, strict=True)]

    def first_channel(self, dims: list[Index]) -> Index:
        """Where the channels of the group begin at a point of the operation."""
        if self.group is None:
            return Index()
        dimension, step = self.group
        return dims[dimension] * step


def find(
    shape: ContractionShape,
    kind: MatrixType,
    dims: list[Variable],
    indices: list[Index],
    sizes: list[int],
) -> ImageWindow | None:
    """The window of a lhs with extents `sizes` that is read at `indices`, forms over `dims`, the
    operation's dimensions; None where it is none."""
    pixels = len(sizes) - 2
    if pixels not in _MOST_OFFSET:
        return None
    axes = [_axis(index, dims, shape) for index in indices]
    if any(axis is None for axis in axes):
        return None
    image, *inner, channel = (axis for axis in axes if axis is not None)
    rows = [axis.row for axis in (image, *inner)]
    places = [axis.place for axis in (*inner, channel)]
    if not _are_all(rows, shape.rows, shape.sizes):
        return None
    if not _are_all(places, shape.reduced, shape.sizes):
        return None
    if image.place is not None or channel.row is not None or image.first or channel.first:
        return None
    if image.step != 1 or channel.dilation != 1 or channel.place is None:
        return None
    if any(axis.group is not None for axis in (image, *inner)):
        return None
    counts = [1 if d is None else shape.sizes[d] for d in (*rows, *places)]
    found = ImageWindow(
        tuple(counts[: pixels + 1]),
        tuple(axis.first for axis in inner),
        tuple(axis.step for axis in inner),
        tuple(axis.dilation for axis in inner),
        tuple(counts[pixels + 1 :]),
        tuple(sizes[1:-1]),
        LINE_BYTES // kind.bytes,
        channel.group,
    )
    return found if _is_possible(found) else None


@dataclass(frozen=True)
class _Axis:
    """Of one dimension of the image, the dimensions of rows and of k that move it, and how far; the
    dimension of groups that does, and its step."""

    row: int | None
    step: int
    place: int | None
    dilation: int
    first: int
    group: tuple[int, int] | None


def _axis(index: Index, dims: list[Variable], shape: ContractionShape) -> _Axis | None:
    roles: dict[str, list[tuple[int, int]]] = {"row": [], "place": [], "group": []}
    for atom, factor in index.terms:
        if not isinstance(atom, Variable) or atom not in dims or factor <= 0:
            return None
        number = dims.index(atom)
        named = (("row", shape.rows), ("place", shape.reduced), ("group", shape.batch))
        role = next((name for name, some in named if number in some), None)
        if role is None or roles[role]:
            return None
        roles[role].append((number, factor))
    row, step = next(iter(roles["row"]), (None, 1))
    place, dilation = next(iter(roles["place"]), (None, 1))
    return _Axis(row, step, place, dilation, index.constant, next(iter(roles["group"]), None))


def _are_all(found: list[int | None], dims: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    """Whether `found` are all of `dims` that have more than one place, in their order."""
    return [d for d in found if d is not None] == [d for d in dims if sizes[d] > 1]


def _is_possible(window: ImageWindow) -> bool:
    far = [d * (n - 1) for d, n in zip(window.dilation, window.window[:-1], strict=True)]
    least = _LEAST_CORNER[len(far)]
    return (
        all(corner >= 0 for corner in window.first)
        and all(least <= corner <= 0 for corner in window.corners[1])
        and all(corner < -least for corner in window.first)
        and max(far) <= _MOST_OFFSET[len(far)]
        and max(window.steps) <= _MOST_STEP
    )
