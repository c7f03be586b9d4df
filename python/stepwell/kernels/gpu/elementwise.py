"""Elementwise kernels on a grid: chains of pointwise operations, broadcasts, slices, pads, copies.

Neighbouring threads compute neighbouring elements of the output, each a vector of up to 16 bytes
where every operand is contiguous that far; what the vectors leave is done element by element.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from stepwell.kernels.builder import Lanes
from stepwell.kernels.evaluate import slice_offsets, slice_source, to_storage
from stepwell.kernels.flat import flat_from, part_flat_from
from stepwell.kernels.gpu.grid import GridBuilder
from stepwell.kernels.group import KernelGroup, Output
from stepwell.kernels.index import Index, delinearize
from stepwell.kernels.structured import defining_op, element_type, elements, shape_of
from stepwell.mlir import ir

THREADS = 256
ACCESS_BITS = 128
MAX_BLOCKS = 8192
"""More blocks than any GPU runs at a time: each then takes several rounds."""

_BITS = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16}

Body = Callable[[Index, Lanes], None]


def emit(group: KernelGroup, nest: GridBuilder) -> None:
    """Write an elementwise group."""
    shape = group.outputs[0].shape
    inner = math.prod(shape[flat_from(group, shape) :])
    count = math.prod(shape)
    lanes = vector_lanes(group)
    if inner != count:
        lanes = math.gcd(lanes, inner)

    def write(flat: Index, vector: Lanes) -> None:
        for output in group.outputs:
            group.write(output, delinearize(flat, output.shape), vector)

    _run(group, nest, [(count, lanes, write)])


def emit_concatenate(group: KernelGroup, nest: GridBuilder) -> None:
    """Write one `tensor.concat`: each operand is computed, or copied, where it lies."""
    op = defining_op(group.outputs[0].value)
    assert op is not None
    assert op.name == "tensor.concat"
    axis = ir.IntegerAttr(op.attributes["dim"]).value
    lanes = vector_lanes(group)
    passes = []
    offset = 0
    for part in op.operands:
        shape = shape_of(part)

        def copy(flat: Index, vector: Lanes, part=part, shape=shape, offset=offset) -> None:
            point = delinearize(flat, shape)
            value = to_storage(group.evaluator.at(part, point, vector), element_type(part))
            for output in group.outputs:
                place = [index + low for index, low in zip(point, output.low, strict=True)]
                place[axis] = place[axis] + offset
                nest.store(value, output.buffer, place, vector)

        inner = math.prod(shape[part_flat_from(group, part, axis) :])
        passes.append((math.prod(shape), math.gcd(lanes, inner), copy))
        offset += shape[axis]
    _run(group, nest, passes)


def emit_update(group: KernelGroup, nest: GridBuilder) -> None:
    """Write one `tensor.insert_slice` over the old contents of its destination."""
    (output,) = group.outputs
    op = defining_op(output.value)
    assert op is not None
    assert op.name == "tensor.insert_slice"
    source = op.operands[0]
    shape = shape_of(source)
    offsets = slice_offsets(op, group.evaluator.offset)

    def write(flat: Index, vector: Lanes) -> None:
        point = delinearize(flat, shape)
        value = to_storage(group.evaluator.at(source, point, vector), element_type(source))
        nest.store(value, output.buffer, slice_source(op, point, offsets), vector)

    _run(group, nest, [(math.prod(shape), 1, write)])


def vector_lanes(group: KernelGroup, size: int = 0) -> int:
    """Elements of one access: 16 bytes of the widest element that the group reads or writes; of
    arrays of `size` elements, where there are some."""
    values = [*group.inputs, *(output.value for output in group.outputs)]
    values = [v for v in values if elements(v) == size] or values
    return max(1, ACCESS_BITS // max(element_bits(element_type(v)) for v in values))


def element_bits(kind: ir.Type) -> int:
    """Bits that one element takes in memory."""
    if isinstance(kind, ir.IntegerType):
        return max(8, kind.width)
    return _BITS.get(str(kind), 64)


def fill_halos(group: KernelGroup, nest: GridBuilder, worker: Index, workers: int) -> None:
    """Write the constant halo of every padded output, an element a worker."""
    one = Lanes.of(1)
    for output in group.outputs:
        for box in _halo_boxes(output):
            sizes = [stop - start for start, stop in box]
            value = to_storage(group.evaluator.at_scalar(output.halo), element_type(output.value))
            with nest.each("h", worker, math.prod(sizes), workers) as h:
                point = delinearize(Index.of(h), sizes)
                place = [i + start for i, (start, _) in zip(point, box, strict=True)]
                nest.store(value, output.buffer, place, one)


def _halo_boxes(output: Output) -> list[list[tuple[int, int]]]:
    """The margins of each dimension: interior in earlier dimensions, everything in later ones."""
    outer = tuple(output.buffer.type.shape)
    boxes: list[list[tuple[int, int]]] = []
    if output.halo is None:
        return boxes
    inside = [(low, low + n) for low, n in zip(output.low, output.shape, strict=True)]
    for axis, (low, high) in enumerate(inside):
        for margin in ((0, low), (high, outer[axis])):
            if margin[1] > margin[0]:
                boxes.append([*inside[:axis], margin, *((0, n) for n in outer[axis + 1 :])])
    return boxes


def _run(group: KernelGroup, nest: GridBuilder, passes: list[tuple[int, int, Body]]) -> None:
    """Give the elements of each pass, (count, lanes, body), to the threads of one grid."""
    most = max(-(-count // lanes) for count, lanes, _ in passes)
    blocks = min(max(1, -(-most // THREADS)), MAX_BLOCKS)
    workers = blocks * THREADS
    with nest.grid(blocks, THREADS) as (block, thread), group.evaluator.scope():
        worker = block * THREADS + thread
        fill_halos(group, nest, worker, workers)
        for count, lanes, body in passes:
            whole = count // lanes
            for start, number, width in ((0, whole, lanes), (whole * lanes, count % lanes, 1)):
                if not number:
                    continue
                vector = Lanes.of(width)
                with nest.each("i", worker, number, workers) as i, group.evaluator.scope():
                    body(Index.of(i) * width + vector.index + start, vector)
