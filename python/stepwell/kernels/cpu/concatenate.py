"""Concatenation: each part is computed, or copied, where it lies in the result, inside the constant
halo when the result is padded.

A task is one index of the dimensions before the concatenated one; where there is one only, a chunk
of each part. Up to four parts whose elements alternate are interleaved in registers. Where other
kernels have written some of the parts in place, the rest is inserted beside them."""

from __future__ import annotations

import math

from stepwell.kernels.builder import Lanes
from stepwell.kernels.cpu.elementwise import FLAT_TASK_ELEMENTS, Body, walk, walk_flat
from stepwell.kernels.evaluate import to_storage
from stepwell.kernels.flat import part_flat_from
from stepwell.kernels.group import KernelGroup, Output, widths
from stepwell.kernels.index import Index, delinearize, linearize
from stepwell.kernels.structured import alternates, defining_op, element_type, shape_of
from stepwell.mlir import dialect, ir

vector_ops = dialect("vector")


def emit(group: KernelGroup, lanes: int) -> None:
    """Write the parts of one `tensor.concat`, or those that are inserted into its destination."""
    op = defining_op(group.outputs[0].value)
    if op is None or op.name != "tensor.concat":
        _emit_inserted(group, lanes)
        return
    axis = ir.IntegerAttr(op.attributes["dim"]).value
    parts = list(op.operands)
    if alternates(op):
        _emit_alternating(group, parts, axis, lanes)
        return
    rank, offset, placed = len(shape_of(parts[0])), 0, []
    for part in parts:
        placed.append((part, [offset if d == axis else 0 for d in range(rank)]))
        offset += shape_of(part)[axis]
    _emit_runs(group, placed, axis, lanes)


def _emit_inserted(group: KernelGroup, lanes: int) -> None:
    value, placed = group.outputs[0].value, []
    while (op := defining_op(value)) is not None and op.name == "tensor.insert_slice":
        placed.append((op.operands[0], list(op.attributes["static_offsets"])))
        value = op.operands[1]
    if not placed:
        with group.nest.parallel("task", 1) as task:
            group.fill_halos(Index.of(task), lanes)
        return
    sizes = shape_of(value)
    differs = [d for part, _ in placed for d, n in enumerate(shape_of(part)) if n != sizes[d]]
    _emit_runs(group, placed, min(differs, default=0), lanes)


def _emit_runs(
    group: KernelGroup, placed: list[tuple[ir.Value, list[int]]], axis: int, lanes: int
) -> None:
    """Write parts, each from its place on, that are alike in the dimensions before `axis`."""
    nest = group.nest
    parts = [part for part, _ in placed]
    splits = [part_flat_from(group, part, axis) for part in parts]
    outer = math.prod(shape_of(parts[0])[:axis])
    longest = max(math.prod(shape_of(part)[axis:]) for part in parts)
    writers = [_writer(group, part, place) for part, place in placed]
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


def _writer(group: KernelGroup, part: ir.Value, start: list[int]) -> Body:
    """Writes elements of `part`, which begins at `start`."""

    def write(flat: Index, vector: Lanes) -> None:
        point = delinearize(flat, shape_of(part))
        value = to_storage(group.evaluator.at(part, point, vector), element_type(part))
        for output in group.outputs:
            begin = (low + first for low, first in zip(output.low, start, strict=True))
            place = [index + low for index, low in zip(point, begin, strict=True)]
            group.nest.store(value, output.buffer, place, vector)

    return write


def _emit_alternating(group: KernelGroup, parts: list[ir.Value], axis: int, lanes: int) -> None:
    """Write a few parts of one element each along `axis` and behind it."""
    shape = shape_of(parts[0])
    split = max(part_flat_from(group, part, 0, strided=True) for part in parts)

    def write(flat: Index, vector: Lanes) -> None:
        point = delinearize(flat, shape)
        values = [
            to_storage(group.evaluator.at(part, point, vector), element_type(part))
            for part in parts
        ]
        for output in group.outputs:
            _store_alternating(group, values, output, point, axis, vector)

    walk(group, shape, split, lanes, write)


def _store_alternating(
    group: KernelGroup,
    values: list[ir.Value],
    output: Output,
    point: list[Index],
    axis: int,
    vector: Lanes,
) -> None:
    """Write the elements at `point` of parts that alternate: as whole vectors where they lie
    together."""
    nest = group.nest
    place = [index + low for index, low in zip(point, output.low, strict=True)]
    flat = linearize(place, output.buffer.type.shape)
    if vector.count > 1 and vector.stride(flat) == len(values):
        buffer, start = nest.flattened(output.buffer), vector.at(flat, 0)
        vectors = [nest.as_vector(value, vector) for value in values]
        for number, joined in enumerate(_interleaved(vectors, vector.count)):
            nest.store(joined, buffer, [start + number * vector.count + vector.index], vector)
        return
    for value in values:
        nest.store(value, output.buffer, place, vector)
        place[axis] = place[axis] + 1


def _interleaved(vectors: list[ir.Value], count: int) -> list[ir.Value]:
    """As many vectors with an element of each of `vectors` in turn, each a shuffle of the first
    two and then of what that gives with one more."""
    parts, joined = len(vectors), []
    for number in range(parts):
        places = [divmod(number * count + lane, parts) for lane in range(count)]
        result = vectors[0]
        for part in range(1, parts):
            mask = [
                count + row if column == part else row if part == 1 else lane
                for lane, (row, column) in enumerate(places)
            ]
            result = vector_ops.ShuffleOp(result, vectors[part], mask).result
        joined.append(result)
    return joined
