"""Operands and outputs of contractions as arrays of which the GPU copies boxes by itself (tensor
maps).

A tile of an operand is a box of at most 256 lines of 128 bytes, or several, if the operand is
contiguous along k or along its rows, and all else in it are strides that are multiples of 16 bytes.
So is a tile of an output that is contiguous along its columns. Images of convolutions have maps of
their own (`image_window`).
The driver makes the 128 bytes that describe the array, once its address is known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from stepwell.kernels.cpu.contraction_strategy import ContractionShape
from stepwell.kernels.gpu import image_window
from stepwell.kernels.gpu.hopper import LINE_BYTES, ROWS
from stepwell.kernels.gpu.image_window import ImageWindow
from stepwell.kernels.gpu.tensor_core import CHUNK_BYTES, FLOAT8_TYPES, MatrixType
from stepwell.kernels.gpu.tile_space import TileSpace
from stepwell.kernels.index import Index, Variable, apply_map, linearize
from stepwell.kernels.structured import element_type, shape_of
from stepwell.launch import IM2COL, TILED
from stepwell.mlir import ir

_MAX_OUTER_DIMS = 3
TYPES = {
    "f16": 6,
    "bf16": 9,
    "f32": 7,
    "tf32": 11,
    "i32": 3,
    "i8": 0,
    **dict.fromkeys(FLOAT8_TYPES, 0),
}
"""CUtensorMapDataType. Copies of tf32 are of f32, which they round."""

_OUTPUT_BYTES = {"f16": 2, "bf16": 2, "f32": 4, "i32": 4}
"""The types of outputs that are copied."""


@dataclass(frozen=True)
class TensorMap:
    """An array: the number of the kernel's argument that it lies in, and where (bytes); the extents
    and the steps (bytes) of its dimensions, innermost first; and the box that is copied. Dimension
    0 or 1 is k (0 with `along_k`), the other one rows or columns; `batch` are the operation's
    dimensions that the others are; behind them, with `slices`, is the one whose slices numbers in
    memory tell. With a `window` the array is an image, and the box is channels and pixels; with
    `taps`, k is the channels of one place of a window, and dimension 2 that place."""

    argument: int
    element: str
    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    along_k: bool
    batch: tuple[int, ...]
    window: ImageWindow | None = None
    slices: bool = False
    taps: bool = False

    def to_attribute(self) -> ir.Attribute:
        """Argument, offset, type, rank and kind, then sizes, strides, what is to be known of a
        window, and the box (stepwell.launch)."""
        fields = [self.argument, self.offset, TYPES[self.element], len(self.sizes)]
        window: list[int] = []
        if self.window is not None:
            pairs = (*self.window.corners, self.window.steps)
            window = [n for pair in pairs for n in reversed(pair)]
        fields += [TILED if self.window is None else IM2COL, *self.sizes, *self.strides]
        return ir.DenseI64ArrayAttr.get([*fields, *window, *self.box])


def find(
    space: TileSpace,
    kind: MatrixType,
    operand: int,
    lines: int,
    shares: int = 1,
    window: ImageWindow | None = None,
) -> TensorMap | None:
    """The map of an operand whose tiles are `lines` rows or columns by 128 bytes of k, copied in so
    many `shares`; None where it is no such array. The rhs of an image with a `window` is walked as
    that is."""
    shape = space.shape
    array = _elements(space, kind, operand)
    if array is None:
        return None
    outer = shape.rows if operand == shape.lhs else (shape.column,)
    if window is None or window.is_whole:
        described = _describe(array, shape, outer, shape.reduced, lines, shares)
        if window is None or described is not None:
            return described
    *taps, channel = (d for d in shape.reduced if shape.sizes[d] > 1)
    return _describe(array, shape, outer, (channel,), lines, shares, tuple(taps))


def find_image(space: TileSpace, kind: MatrixType, lines: int) -> TensorMap | None:
    """The map of a lhs that is an image, whose tiles are `lines` rows by 128 bytes of channels of
    one place of the window; None where it is no such image."""
    shape = space.shape
    array = _elements(space, kind, shape.lhs)
    if array is None or not isinstance(array.buffer, ir.BlockArgument):
        return None
    window = image_window.find(shape, kind, array.dims, array.indices, array.sizes)
    sizes = array.sizes
    strides = [math.prod(sizes[i:]) * array.bytes for i in range(len(sizes) - 1, 0, -1)]
    if window is None or strides[0] % CHUNK_BYTES:
        return None
    return TensorMap(
        array.buffer.arg_number,
        array.element,
        0,
        tuple(reversed(sizes)),
        tuple(strides),
        (window.line, lines),
        True,
        (),
        window,
    )


def _elements(space: TileSpace, kind: MatrixType, operand: int) -> _Elements | None:
    """Where the elements of an operand lie, if they are those of a buffer."""
    shape = space.shape
    dims = _variables(shape)
    found = space.view(operand, apply_map(space.op.maps[operand], [Index.of(d) for d in dims]))
    if found is None:
        return None
    return _Elements(
        space.evaluator.buffers[found[0]],
        list(found[1]),
        list(shape_of(found[0])),
        dims,
        "tf32" if kind.ptx == "tf32" and not kind.split else kind.element,
        kind.bytes,
    )


def find_output(space: TileSpace) -> TensorMap | None:
    """The map of the group's one output, whose tiles are the rows of a warpgroup by 128 bytes of
    columns ("k" of the map); None where it is no such array, or has a halo."""
    shape, outputs = space.shape, space.group.outputs
    kind = str(element_type(outputs[0].value))
    if len(outputs) > 1 or outputs[0].halo is not None or kind not in _OUTPUT_BYTES:
        return None
    if shape.n % 2:  # registers have pairs
        return None
    dims = _variables(shape)
    at = apply_map(space.op.output_map, [Index.of(d) for d in dims])
    place = space.group.point_of(outputs[0], space.op.op.results[0], at)
    sizes = list(outputs[0].shape)
    array = _Elements(outputs[0].buffer, place, sizes, dims, kind, _OUTPUT_BYTES[kind])
    found = _describe(array, shape, shape.rows, (shape.column,), ROWS)
    return found if found is not None and found.along_k else None


@dataclass(frozen=True)
class _Elements:
    """Where elements lie in a buffer of extents `sizes`: forms over `dims`, the operation's
    dimensions."""

    buffer: ir.Value
    indices: list[Index]
    sizes: list[int]
    dims: list[Variable]
    element: str
    bytes: int


def _variables(shape: ContractionShape) -> list[Variable]:
    return [Variable(f"d{i}", 0, max(n, 1) - 1) for i, n in enumerate(shape.sizes)]


def _describe(
    array: _Elements,
    shape: ContractionShape,
    outer: tuple[int, ...],
    inner: tuple[int, ...],
    lines: int,
    shares: int = 1,
    taps: tuple[int, ...] = (),
) -> TensorMap | None:
    """The map of an array whose lines run along the dimensions `inner`, or along `outer`; a box is
    one of `shares` of a tile's lines, at one place of `taps`."""
    flat, dims = linearize(array.indices, array.sizes), array.dims
    if not isinstance(array.buffer, ir.BlockArgument) or not flat.is_linear:
        return None
    slices = [variable for variable in flat.variables() if variable not in dims]
    if len(slices) > 1 or not all(variable.computed for variable in slices):
        return None
    steps = [flat.coefficient(d) for d in dims]
    place_step, k_step, tap_step = (
        _merged(some, steps, shape.sizes) for some in (outer, inner, taps)
    )
    if place_step is None or k_step is None or tap_step is None:
        return None
    along_k = k_step == 1
    if not along_k and (place_step != 1 or array.bytes != 2):
        return None
    batch = tuple(d for d in shape.batch if shape.sizes[d] > 1 and steps[d])
    outermost = [*([tap_step] if taps else []), *(steps[d] for d in batch)]
    outermost += [flat.coefficient(v) for v in slices]
    strides = [place_step if along_k else k_step, *outermost]
    places = [flat.constant, *strides]
    if any(n * array.bytes % CHUNK_BYTES or n < 0 for n in places) or not all(strides):
        return None
    if len(outermost) > _MAX_OUTER_DIMS:
        return None
    line = LINE_BYTES // array.bytes
    sizes = [shape.extent(inner), shape.extent(outer)]
    return TensorMap(
        array.buffer.arg_number,
        array.element,
        flat.constant * array.bytes,
        (
            *(sizes if along_k else reversed(sizes)),
            *([shape.extent(taps)] if taps else []),
            *(shape.sizes[d] for d in batch),
            *(v.high + 1 for v in slices),
        ),
        tuple(n * array.bytes for n in strides),
        (line, (lines if along_k else line) // shares, *(1 for _ in outermost)),
        along_k,
        batch,
        slices=bool(slices),
        taps=bool(taps),
    )


def _merged(dims: tuple[int, ...], steps: list[int], sizes: tuple[int, ...]) -> int | None:
    """The step of the innermost of dimensions that can be walked as one; None when they cannot."""
    inner = whole = 0
    for d in reversed(dims):
        if sizes[d] == 1:
            continue
        if not whole:
            inner = steps[d]
        elif steps[d] != whole:
            return None
        whole = steps[d] * sizes[d]
    return inner
