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

_MAX_BATCH_DIMS = 3
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
    memory tell. With a `window` the array is an image, and the box is channels and pixels."""

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
    space: TileSpace, kind: MatrixType, operand: int, lines: int, shares: int = 1
) -> TensorMap | None:
    """The map of an operand whose tiles are `lines` rows or columns by 128 bytes of k, copied in so
    many `shares`; None where it is no such array."""
    shape = space.shape
    dims = _variables(shape)
    found = space.view(operand, apply_map(space.op.maps[operand], [Index.of(d) for d in dims]))
    if found is None:
        return None
    array = _Elements(
        space.evaluator.buffers[found[0]],
        linearize(found[1], shape_of(found[0])),
        dims,
        "tf32" if kind.ptx == "tf32" else kind.element,
        kind.bytes,
    )
    outer = shape.rows if operand == shape.lhs else (shape.column,)
    described = _describe(array, shape, outer, shape.reduced, lines, shares)
    if described is not None or operand != shape.lhs:
        return described
    sizes = list(shape_of(found[0]))
    window = image_window.find(shape, kind, dims, found[1], sizes)
    return None if window is None else _image(array, window, sizes, lines)


def _image(array: _Elements, window: ImageWindow, sizes: list[int], lines: int) -> TensorMap | None:
    """The map of an image of extents `sizes`, [n, pixels.., channels]."""
    strides = [math.prod(sizes[i:]) * array.bytes for i in range(len(sizes) - 1, 0, -1)]
    if not isinstance(array.buffer, ir.BlockArgument) or strides[0] % CHUNK_BYTES:
        return None
    return TensorMap(
        array.buffer.arg_number,
        array.element,
        0,
        tuple(reversed(sizes)),
        tuple(strides),
        (LINE_BYTES // array.bytes, lines),
        True,
        (),
        window,
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
    flat = linearize(place, outputs[0].shape)
    array = _Elements(outputs[0].buffer, flat, dims, kind, _OUTPUT_BYTES[kind])
    found = _describe(array, shape, shape.rows, (shape.column,), ROWS)
    return found if found is not None and found.along_k else None


@dataclass(frozen=True)
class _Elements:
    """Where elements lie in a buffer: a form over `dims`, the operation's dimensions."""

    buffer: ir.Value
    flat: Index
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
) -> TensorMap | None:
    """The map of an array whose lines run along the dimensions `inner`, or along `outer`; a box is
    one of `shares` of a tile's lines."""
    flat, dims = array.flat, array.dims
    if not isinstance(array.buffer, ir.BlockArgument) or not flat.is_linear:
        return None
    slices = [variable for variable in flat.variables() if variable not in dims]
    if len(slices) > 1 or not all(variable.computed for variable in slices):
        return None
    steps = [flat.coefficient(d) for d in dims]
    place_step, k_step = (_merged(some, steps, shape.sizes) for some in (outer, inner))
    if place_step is None or k_step is None:
        return None
    along_k = k_step == 1
    if not along_k and (place_step != 1 or array.bytes != 2):
        return None
    batch = tuple(d for d in shape.batch if shape.sizes[d] > 1 and steps[d])
    outermost = [*(steps[d] for d in batch), *(flat.coefficient(v) for v in slices)]
    strides = [place_step if along_k else k_step, *outermost]
    places = [flat.constant, *strides]
    if any(n * array.bytes % CHUNK_BYTES or n < 0 for n in places) or not all(strides):
        return None
    if len(outermost) > _MAX_BATCH_DIMS:
        return None
    line = LINE_BYTES // array.bytes
    sizes = [shape.extent(inner), shape.extent(outer)]
    return TensorMap(
        array.buffer.arg_number,
        array.element,
        flat.constant * array.bytes,
        (
            *(sizes if along_k else reversed(sizes)),
            *(shape.sizes[d] for d in batch),
            *(v.high + 1 for v in slices),
        ),
        tuple(n * array.bytes for n in strides),
        (line, (lines if along_k else line) // shares, *(1 for _ in outermost)),
        along_k,
        batch,
        slices=bool(slices),
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
