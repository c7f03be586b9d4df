"""Concatenation: each part is computed, or copied, where it lies in the result, inside the constant
halo when the result is padded.

A task is one index of the dimensions before the concatenated one; where there is one only, a chunk
of each part. Two parts whose elements alternate are interleaved in registers."""

from __future__ import annotations

import math

from stepwell.kernels.builder import Lanes
from stepwell.kernels.cpu.elementwise import FLAT_TASK_ELEMENTS, Body, walk, walk_flat
from stepwell.kernels.evaluate import to_storage
from stepwell.kernels.flat import part_flat_from
from stepwell.kernels.group import KernelGroup, Output, widths
from stepwell.kernels.index import Index, delinearize, linearize
from stepwell.kernels.structured import defining_op, element_type, shape_of
from stepwell.mlir import dialect, ir

vector_ops = dialect("vector")


def emit(group: KernelGroup, lanes: int) -> None:
    """Write the parts of one `tensor.concat`."""
    op = defining_op(group.outputs[0].value)
    assert op is not None
    assert op.name == "tensor.concat"
    axis = ir.IntegerAttr(op.attributes["dim"]).value
    parts = list(op.operands)
    if len(parts) == 2 and all(math.prod(shape_of(part)[axis:]) == 1 for part in parts):
        _emit_alternating(group, parts, axis, lanes)
    else:
        _emit_runs(group, parts, axis, lanes)


def _emit_runs(group: KernelGroup, parts: list[ir.Value], axis: int, lanes: int) -> None:
    nest = group.nest
    offsets = [sum(shape_of(p)[axis] for p in parts[:i]) for i in range(len(parts))]
    splits = [part_flat_from(group, part, axis) for part in parts]
    outer = math.prod(group.outputs[0].shape[:axis])
    longest = max(math.prod(shape_of(part)[axis:]) for part in parts)
    writers = [_writer(group, p, axis, o) for p, o in zip(parts, offsets, strict=True)]
    if outer == 1 and longest > FLAT_TASK_ELEMENTS and all(split == axis for split in splits):
        runs = zip((math.prod(shape_of(part)) for part in parts), writers, strict=True)
        walk_flat(group, list(runs), lanes)
        return
    with nest.parallel("task", outer) as task:
        group.fill_halos(Index.of(task), lanes)
        for part, split, write in zip(parts, splits, writers, strict=True):
            shape = shape_of(part)
            rows, inner = math.prod(shape[axis:split]), math.prod(shape[split:])
            with nest.loop("row", 0, rows) as row, group.evaluator.scope():
                base = (Index.of(task) * rows + Index.of(row)) * inner
                for begin, end, width in widths(inner, lanes):
                    vector = Lanes.of(width)
                    with nest.loop("i", begin, end, width) as i, group.evaluator.scope():
                        write(base + Index.of(i) + vector.index, vector)


def _writer(group: KernelGroup, part: ir.Value, axis: int, offset: int) -> Body:
    """Writes elements of `part`, which begins at `offset`."""

    def write(flat: Index, vector: Lanes) -> None:
        point = delinearize(flat, shape_of(part))
        value = to_storage(group.evaluator.at(part, point, vector), element_type(part))
        for output in group.outputs:
            place = [index + low for index, low in zip(point, output.low, strict=True)]
            place[axis] = place[axis] + offset
            group.nest.store(value, output.buffer, place, vector)

    return write


def _emit_alternating(group: KernelGroup, parts: list[ir.Value], axis: int, lanes: int) -> None:
    """Write two parts of one element each along `axis` and behind it."""
    shape = shape_of(parts[0])
    split = max(part_flat_from(group, part, 0, strided=True) for part in parts)

    def write(flat: Index, vector: Lanes) -> None:
        point = delinearize(flat, shape)
        values = [
            to_storage(group.evaluator.at(part, point, vector), element_type(part))
            for part in parts
        ]
        for output in group.outputs:
            _store_pair(group, values, output, point, axis, vector)

    walk(group, shape, split, lanes, write)


def _store_pair(
    group: KernelGroup,
    values: list[ir.Value],
    output: Output,
    point: list[Index],
    axis: int,
    vector: Lanes,
) -> None:
    """Write the elements at `point` of two parts that alternate: as one vector where they lie
    together."""
    nest = group.nest
    place = [index + low for index, low in zip(point, output.low, strict=True)]
    flat = linearize(place, output.buffer.type.shape)
    if vector.count > 1 and vector.stride(flat) == 2:
        first, second = (nest.as_vector(value, vector) for value in values)
        pair = Lanes.of(2 * vector.count)
        start = vector.at(flat, 0) + pair.index
        joined = vector_ops.InterleaveOp(first, second).result
        nest.store(joined, nest.flattened(output.buffer), [start], pair)
        return
    for offset, value in enumerate(values):
        place[axis] = place[axis] + offset
        nest.store(value, output.buffer, place, vector)
