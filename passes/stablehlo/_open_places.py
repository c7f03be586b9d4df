"""Rules for operations that take or put elements at places: gathers, slices at computed places, and
those that move elements along a dimension. See `_open_rules`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.errors import LoweringError
from stepwell.extents import Extent
from stepwell.kernels.selection import NUMBER, TOTAL
from stepwell.kernels.suppression import COMPOSITE
from stepwell.mlir import ir
from stepwell.mlir import stablehlo as bindings
from stepwell.open_dimensions import Dimension, Layout, as_prefix, closed, is_open, prefix, unified
from stepwell.passes.linalg._radix_sort import Key
from stepwell.passes.linalg._selection import selection_of
from stepwell.passes.stablehlo._moved_elements import taken
from stepwell.passes.stablehlo._open_program import Number, OpenProgram
from stepwell.passes.stablehlo._open_rules import Extents, Rule, bounds, entering, replaced
from stepwell.passes.stablehlo._values import constant_attribute, integers, producer

RULES: dict[str, Rule] = {}

on = entering(RULES)


@on("gather")
def gather(program: OpenProgram, op: ir.Operation, extents: Extents) -> list[Layout] | None:
    """Slices at indices; those into an open dimension are kept within the part in use."""
    numbers = bindings.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    operand, indices = op.operands
    sizes, shape = integers(op, "slice_sizes"), hlo.shape(operand)
    layout = program.settled(operand, numbers.start_index_map)
    starts = _known_starts(op, layout)
    if starts is not None:
        return _sliced(program, op, layout, starts)
    _refuse_open_parts(op, shape, sizes)
    if any(is_open(layout[d]) for d in numbers.start_index_map):
        op.operands[1] = _within(program, op, layout, sizes)
    dropped = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    window = [d for d in range(len(shape)) if d not in dropped]
    vector = numbers.index_vector_dim
    where = [dim for d, dim in enumerate(program.layout(indices)) if d != vector]
    batching = zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)
    for source, place in batching:
        position = place - (place > vector)
        where[position] = unified(where[position], layout[source])
    result: list[Dimension] = []
    for number, size in enumerate(hlo.shape(op.results[0])):
        if number in numbers.offset_dims:
            source = window[list(numbers.offset_dims).index(number)]
            result.append(layout[source] if sizes[source] == shape[source] else closed(size))
        else:
            result.append(where.pop(0))
    return [tuple(result)]


def _known_starts(op: ir.Operation, layout: Layout) -> list[int] | None:
    """Where the one part that a gather takes begins, which has an open size; None where that is
    computed, or where the part may reach beyond its operand, so that it begins earlier."""
    numbers = bindings.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    extents = bounds(op, "slice_sizes")
    places = constant_attribute(op.operands[1])
    one = hlo.shape(op.operands[1]) == (len(numbers.start_index_map),)
    if not one or not isinstance(places, ir.DenseIntElementsAttr):
        return None
    if all(extent.is_constant for extent in extents):
        return None
    starts = [0] * len(layout)
    for number, place in zip(numbers.start_index_map, np.array(places), strict=True):
        starts[number] = int(place)
        factor = as_prefix(layout[number])
        if factor is None:
            return None
        rest = factor.extent.plus(extents[number], -1)
        if not rest.is_constant or not 0 <= starts[number] <= rest.at(()):
            return None
    return starts


def _sliced(program: OpenProgram, op: ir.Operation, layout: Layout, starts: Sequence[int]) -> None:
    """A slice in the place of a gather that takes one part."""
    numbers = bindings.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    operand, sizes = op.operands[0], integers(op, "slice_sizes")
    limits = [start + size for start, size in zip(starts, sizes, strict=True)]
    part = hlo.slice(operand, starts, limits)
    kept = tuple(
        layout[d] if sizes[d] == hlo.shape(operand)[d] else prefix(sizes[d], extent)
        for d, extent in enumerate(bounds(op, "slice_sizes"))
        if d not in numbers.collapsed_slice_dims
    )
    return replaced(program, op, hlo.reshape(part, hlo.shape(op.results[0])), kept)


@on("dynamic_slice")
def dynamic_slice(program: OpenProgram, op: ir.Operation, extents: Extents) -> list[Layout]:
    """Whole open dimensions, and parts of closed size, which end with the part in use at most."""
    operand, sizes = op.operands[0], hlo.shape(op.results[0])
    layout = program.layout(operand)
    parts = [d for d, n in enumerate(sizes) if is_open(layout[d]) and n != hlo.shape(operand)[d]]
    _refuse_open_parts(op, hlo.shape(operand), sizes)
    _keep_within(program, op, parts, 1, extents[0])
    return [
        tuple(
            dimension if n == m else closed(n)
            for dimension, n, m in zip(layout, sizes, hlo.shape(operand), strict=True)
        )
    ]


def _within(
    program: OpenProgram, op: ir.Operation, layout: Layout, sizes: Sequence[int]
) -> ir.Value:
    """The indices of a gather, at most such that slices end with the part in use."""
    numbers = bindings.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    indices = op.operands[1]
    limits = []
    for number in numbers.start_index_map:
        factor = as_prefix(layout[number])
        if factor is None:
            raise LoweringError("indices go into a dimension that is a product")
        last = program.scalar(factor.extent.plus(Extent.of(sizes[number]), -1))
        limits.append(hlo.reshape(hlo.convert(last, hlo.dtype(indices)), [1]))
    shape, vector = hlo.shape(indices), numbers.index_vector_dim
    if vector == len(shape):
        limit = hlo.broadcast_in_dim(hlo.reshape(limits[0], []), shape, [])
    else:
        limit = hlo.broadcast_in_dim(hlo.concatenate(limits, 0), shape, [vector])
    kept = hlo.minimum(indices, limit)
    program.layouts[kept] = program.layout(indices)
    return kept


def _refuse_open_parts(op: ir.Operation, shape: Sequence[int], sizes: Sequence[int]) -> None:
    """Parts of open size end where the dimension does at the latest: that depends on the size."""
    for extent, size, part in zip(bounds(op, "slice_sizes"), shape, sizes, strict=True):
        if size != part and not extent.is_constant:
            raise LoweringError("a part of open size is taken at a place that is computed")


def _keep_within(
    program: OpenProgram,
    op: ir.Operation,
    parts: Sequence[int],
    first: int,
    sizes: Sequence[Extent],
) -> None:
    """Let starts, operands from `first` on, of `sizes` elements be as the part in use allows."""
    for number in parts:
        factor = as_prefix(program.layout(op.operands[0])[number])
        if factor is None or not sizes[number].is_constant:
            raise LoweringError("a part of an open dimension is taken at a place that is computed")
        start = op.operands[first + number]
        last = program.scalar(factor.extent.plus(sizes[number], -1))
        last = hlo.convert(last, hlo.dtype(start))
        op.operands[first + number] = hlo.minimum(start, last)


@on("dynamic_update_slice")
def dynamic_update_slice(program: OpenProgram, op: ir.Operation, extents: Extents) -> list[Layout]:
    """Whole open dimensions, and parts of closed size, which end with the part in use at most."""
    operand, update = op.operands[0], op.operands[1]
    sizes = hlo.shape(update)
    parts = [d for d, n in enumerate(hlo.shape(operand)) if n != sizes[d]]
    settled = program.settled(operand, parts)
    layout = list(settled)
    for number, dimension in enumerate(program.layout(update)):
        if number not in parts:
            layout[number] = unified(layout[number], dimension)
        elif is_open(dimension):
            raise LoweringError("a part of open size is written")
    opened = [d for d in parts if is_open(layout[d])]
    _keep_within(program, op, opened, 2, [Extent.of(n) for n in sizes])
    return [tuple(layout)]


@on("scatter")
def scatter(program: OpenProgram, op: ir.Operation, extents: Extents) -> list[Layout]:
    """Updates at indices, as many as are in use: others get a place outside of the operand. What is
    put behind the part of an operand in use, or into others of a batch, does not matter."""
    numbers = bindings.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    count = len(op.results)
    indices = op.operands[count]
    layouts = [program.settled(operand) for operand in list(op.operands)[:count]]
    joint = layouts[0]
    for other in layouts[1:]:
        joint = tuple(map(unified, joint, other))
    places = list(program.settled(indices))
    batching = dict(
        zip(numbers.scatter_indices_batching_dims, numbers.input_batching_dims, strict=True)
    )
    for place, dimension in batching.items():
        places[place] = unified(places[place], joint[dimension])
    dropped = (*numbers.inserted_window_dims, *numbers.input_batching_dims)
    window = [d for d in range(len(joint)) if d not in dropped]
    if any(is_open(joint[d]) for d in window if d in numbers.scattered_dims_to_operand_dims):
        raise LoweringError("parts of an open dimension are updated")
    for update in list(op.operands)[count + 1 :]:
        spread = iter([d for d in range(len(places)) if d != numbers.index_vector_dim])
        inside = iter(window)
        for number, dimension in enumerate(program.layout(update)):
            if number not in numbers.update_window_dims:
                unified(dimension, places[next(spread)])
                continue
            target = next(inside)
            if hlo.shape(update)[number] == hlo.shape(op.operands[0])[target]:
                unified(dimension, joint[target])
            elif is_open(dimension):
                raise LoweringError("a part of open size is updated")
    spread = [d for d, place in enumerate(places) if is_open(place) and d not in batching]
    if spread:
        if hlo.dtype(indices).kind != "i":
            raise LoweringError("any number of updates have unsigned indices")
        op.operands[count] = program.masked(indices, spread, -1)
    return [joint] * count


@on("sort")
def sort(program: OpenProgram, op: ir.Operation, extents: Extents) -> list[Layout] | None:
    """Along an open dimension, what comes last is put behind the part in use."""
    along = ir.IntegerAttr(op.attributes["dimension"]).value
    layouts = [program.settled(operand, [along]) for operand in op.operands]
    if not any(is_open(layout[along]) for layout in layouts):
        return _joint(program, op)
    key = Key.of(op.regions[0].blocks[0])
    last = None if key is None else _last(key)
    factor = as_prefix(layouts[0][along])
    if key is None or last is None or factor is None:
        raise LoweringError("an open dimension is sorted by a comparator that is not known")
    if (mask := _mask_of(program, op, factor.extent)) is not None:
        return _positions(program, op, program.masked(mask, [0], fill=False), factor.extent)
    op.operands[key.operand] = program.masked(op.operands[key.operand], [along], last)
    return _joint(program, op)


def _last(key: Key) -> Number | None:
    """A number of which there is none behind in the order of a comparator; None where there is
    no such, or none is known. Equal ones stay in order."""
    selection = selection_of(key)
    if selection is None or selection.order == TOTAL:
        return None
    if selection.order == NUMBER:
        return -math.inf if key.descends else math.nan
    info = np.iinfo(hlo.dtype(key.value))
    return int(info.min if key.descends else info.max)


def _mask_of(program: OpenProgram, op: ir.Operation, count: Extent) -> ir.Value | None:
    """The booleans whose positions a sort of one vector gives, and `count` for the others:
    `sort(select(mask, iota, count))`."""
    keys = op.operands[0]
    chosen = producer(keys, "select") if len(op.operands) == len(hlo.shape(keys)) == 1 else None
    if chosen is None or producer(chosen.operands[1], "iota") is None:
        return None
    others = producer(chosen.operands[2], "broadcast_in_dim")
    is_count = others is not None and others.operands[0] == program.scalar(count)
    return chosen.operands[0] if is_count else None


def _positions(program: OpenProgram, op: ir.Operation, mask: ir.Value, count: Extent) -> None:
    """Such a sort, as one of the capacity, of which there are faster ones."""
    (size,) = hlo.shape(mask)
    kind = hlo.dtype(op.operands[0])
    keys = hlo.select(mask, hlo.iota([size], 0, kind), hlo.full(size, [size], kind))
    most = hlo.broadcast_in_dim(hlo.convert(program.scalar(count), kind), [size], [])
    value = hlo.minimum(hlo.sort([keys], 0, "LT")[0], most)
    return replaced(program, op, value, (prefix(size, count),))


@on("reverse")
def reverse(program: OpenProgram, op: ir.Operation, extents: Extents) -> list[Layout] | None:
    """Along open dimensions the last element in use comes first."""
    operand, along = op.operands[0], integers(op, "dimensions")
    layout = program.layout(operand)
    opened = [d for d in along if is_open(layout[d])]
    if not opened:
        return [layout]
    rest = [d for d in along if d not in opened]
    value = hlo.reverse(operand, rest) if rest else operand
    for dim in opened:
        factor = as_prefix(layout[dim])
        if factor is None:
            raise LoweringError("a dimension that is a product is reversed")
        size = hlo.shape(value)[dim]
        last = program.scalar(factor.extent.plus(Extent.of(1), -1))
        place = hlo.subtract(hlo.broadcast_in_dim(last, [size], []), hlo.iota([size], 0, np.int64))
        value = taken(value, dim, hlo.maximum(place, hlo.full_like(place, 0)))
    return replaced(program, op, value, layout)


@on("composite")
def suppression(program: OpenProgram, op: ir.Operation, extents: Extents) -> list[Layout]:
    """Of non-maximum suppression: boxes that are not in use have the least score, and are never
    chosen. Others are no composites before sizes are legalized."""
    if ir.StringAttr(op.attributes["name"]).value != COMPOSITE:
        raise LoweringError("there is no rule for this composite")
    corners, scores = list(op.operands)[:2]
    layout = program.settled(scores)
    both = (*program.layout(corners)[:2], *layout[:2])
    if any(map(is_open, both)):
        raise LoweringError("boxes of an open number of images or classes are chosen")
    unified(program.settled(corners)[2], layout[2])
    op.operands[1] = program.masked(scores, [2], -math.inf)
    groups, most = hlo.shape(op.results[0])
    return [(closed(groups), prefix(most, extents[0][1]))]


def _joint(program: OpenProgram, op: ir.Operation) -> list[Layout]:
    layouts = [program.layout(operand) for operand in op.operands]
    joint = layouts[0]
    for layout in layouts[1:]:
        joint = tuple(unified(a, b) for a, b in zip(joint, layout, strict=True))
    return [joint] * len(op.results)
