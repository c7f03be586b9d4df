"""Rules for operations that add up elements along open dimensions: reductions, windows, products.

What stands beyond the part in use is replaced by what changes nothing. See `_open_rules`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.errors import LoweringError
from stepwell.extents import Extent
from stepwell.frontends.open_sizes import BOUNDS
from stepwell.mlir import ir
from stepwell.mlir import stablehlo as bindings
from stepwell.open_dimensions import Dimension, Layout, as_prefix, closed, is_open, prefix, unified
from stepwell.passes.stablehlo._cumulative import cumulative
from stepwell.passes.stablehlo._open_program import Number, OpenProgram
from stepwell.passes.stablehlo._open_rules import Extents, Rule, bounds, entering, varies
from stepwell.passes.stablehlo._values import i64_pairs, integers, optional_integers, padding, splat

RULES: dict[str, Rule] = {}

on = entering(RULES)


@on("reduce")
def reduce(program: OpenProgram, op: ir.Operation, extents: Extents) -> list[Layout]:
    """What is beyond the part in use must not count."""
    count = len(op.results)
    reduced = integers(op, "dimensions")
    layouts = []
    combiner = _combiner(op)
    for number in range(count):
        operand, init = op.operands[number], op.operands[count + number]
        layout = program.settled(operand, reduced)
        mixed = [d for d in reduced if is_open(layout[d])]
        if mixed:
            fill = _identity(combiner, hlo.dtype(operand)) if count == 1 else splat(init)
            if fill is None:
                raise LoweringError("a reduction over an open dimension has an unknown identity")
            op.operands[number] = program.masked(operand, mixed, fill)
        layouts.append(tuple(dim for d, dim in enumerate(layout) if d not in reduced))
    return layouts


def _combiner(op: ir.Operation) -> str:
    """The name of the one operation in the body, or ""."""
    body = [child.operation for child in op.regions[0].blocks[0].operations]
    return body[0].name.removeprefix("stablehlo.") if len(body) == 2 else ""


def _identity(combiner: str, kind: np.dtype) -> Number | None:
    """What changes nothing when it is combined with others, where that is known."""
    return hlo.identity(combiner, kind) if combiner in hlo.COMBINERS else None


@on("dot_general")
def dot_general(program: OpenProgram, op: ir.Operation, extents: Extents) -> list[Layout]:
    """Both operands are zero beyond the part of a contracted dimension in use."""
    numbers = bindings.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    sides = [
        (numbers.lhs_batching_dimensions, numbers.lhs_contracting_dimensions),
        (numbers.rhs_batching_dimensions, numbers.rhs_contracting_dimensions),
    ]
    layouts = [program.layout(operand) for operand in op.operands]
    for left, right in zip(sides[0][1], sides[1][1], strict=True):
        joint = unified(layouts[0][left], layouts[1][right])
        if joint is None:
            joint = program.settled(op.operands[0], [left])[left]
        layouts[0] = _with(layouts[0], left, joint)
        layouts[1] = _with(layouts[1], right, joint)
    for number, (_, contracted) in enumerate(sides):
        program.layouts[op.operands[number]] = layouts[number]
        op.operands[number] = program.masked(
            op.operands[number], [d for d in contracted if is_open(layouts[number][d])], 0
        )
    batch = [
        unified(layouts[0][a], layouts[1][b]) for a, b in zip(sides[0][0], sides[1][0], strict=True)
    ]
    free = [
        dimension
        for layout, (batching, contracted) in zip(layouts, sides, strict=True)
        for d, dimension in enumerate(layout)
        if d not in (*batching, *contracted)
    ]
    return [(*batch, *free)]


def _with(layout: Layout, number: int, dimension: Dimension) -> Layout:
    return (*layout[:number], dimension, *layout[number + 1 :])


@on("convolution")
def convolution(program: OpenProgram, op: ir.Operation, extents: Extents) -> list[Layout]:
    """Beyond the part in use stands what the padding is: zeros; windows of one element that are not
    padded meet nothing beyond it."""
    numbers = bindings.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    image, kernel = op.operands
    layout = program.settled(image)
    if any(map(is_open, program.layout(kernel))) or is_open(
        layout[numbers.input_feature_dimension]
    ):
        raise LoweringError("a convolution's weights or channels are open")
    groups = ir.IntegerAttr(op.attributes["batch_group_count"]).value
    batch = layout[numbers.input_batch_dimension]
    if groups != 1 and is_open(batch):
        raise LoweringError("the groups of a convolution are open")
    sizes = [hlo.shape(kernel)[d] for d in numbers.kernel_spatial_dimensions]
    places = (numbers.input_spatial_dimensions, numbers.output_spatial_dimensions)
    _pad_in_front(program, op, _Windows(sizes, *places, "lhs_dilation", "rhs_dilation"), 0)
    if varies(op, "padding"):
        raise LoweringError("the padding of a convolution depends on the sizes")
    image = op.operands[0]
    layout = program.layout(image)
    spatial = [d for d in numbers.input_spatial_dimensions if is_open(layout[d])]
    if any(as_prefix(layout[d]) is None for d in spatial):
        raise LoweringError("a convolution goes along a dimension that is a product")
    pairs, inside = padding(op, len(sizes)), optional_integers(op, "lhs_dilation", len(sizes), 1)
    alone = [
        d
        for n, d in enumerate(numbers.input_spatial_dimensions)
        if (sizes[n], pairs[n], inside[n]) == (1, (0, 0), 1)
    ]
    op.operands[0] = program.masked(image, [d for d in spatial if d not in alone], 0)
    shape = hlo.shape(op.results[0])
    result = [prefix(size, extent) for size, extent in zip(shape, extents[0], strict=True)]
    result[numbers.output_batch_dimension] = batch
    result[numbers.output_feature_dimension] = closed(shape[numbers.output_feature_dimension])
    return [tuple(result)]


@dataclass(frozen=True)
class _Windows:
    """The windows of an operation: their sizes, the dimensions of operand and result along which
    they move, and the attributes that say how elements are apart."""

    sizes: Sequence[int]
    operand: Sequence[int]
    result: Sequence[int]
    inside: str
    apart: str


def _pad_in_front(
    program: OpenProgram, op: ir.Operation, windows: _Windows, fill: Number | None
) -> None:
    """Pad the operand by what the sizes ask for, where strided windows have such a padding in
    front: it is put at a place of a larger one that is all `fill`."""
    count = len(windows.sizes)
    edges = bounds(op, "padding") if varies(op, "padding") else []
    strides, inside, apart = (
        optional_integers(op, name, count, 1)
        for name in ("window_strides", windows.inside, windows.apart)
    )
    moved = [n for n in range(count) if edges and not edges[2 * n].is_constant and strides[n] > 1]
    if not moved:
        return
    if fill is None or any(inside[n] != 1 for n in moved):
        raise LoweringError("how much is padded in front depends on the sizes")
    x = program.masked(op.operands[0], [windows.operand[n] for n in moved], fill)
    kept, starts = list(hlo.shape(x)), [Extent.of(0)] * len(hlo.shape(x))
    room, layout = list(kept), list(program.layout(x))
    pairs = padding(op, count)
    for n in moved:
        dim, reach = windows.operand[n], (windows.sizes[n] - 1) * apart[n]
        kept[dim] = (hlo.shape(op.results[0])[windows.result[n]] - 1) * strides[n] + reach + 1
        room[dim] = max(kept[dim], room[dim] + (reach + 1) // 2)
        layout[dim], starts[dim], pairs[n] = closed(kept[dim]), edges[2 * n], (0, 0)
    whole = hlo.full(fill, room, hlo.dtype(x))
    whole = hlo.dynamic_update_slice(whole, x, list(map(program.scalar, starts)))
    op.operands[0] = hlo.slice(whole, [0] * len(kept), kept)
    program.layouts[op.operands[0]] = tuple(layout)
    op.attributes["padding"] = i64_pairs(pairs)
    del op.attributes[f"{BOUNDS}padding"]


def _are_constant_or_running(op: ir.Operation, layout: Layout) -> bool:
    """Whether windows are the same for all sizes, or of a whole open dimension: those of running
    sums, from its beginning or up to its end, which are right for smaller sizes, too."""
    sizes = bounds(op, "window_dimensions")
    edges = bounds(op, "padding") if "padding" in op.attributes else [Extent.of(0)] * 2 * len(sizes)
    for number, size in enumerate(sizes):
        pair = edges[2 * number : 2 * number + 2]
        if all(extent.is_constant for extent in (size, *pair)):
            continue
        reach = [size.plus(Extent.of(1), -1), Extent.of(0)]
        steps = [
            optional_integers(op, name, len(sizes), 1)[number]
            for name in ("window_strides", "base_dilations", "window_dilations")
        ]
        factor = as_prefix(layout[number])
        whole = factor is not None and size == factor.extent
        if not whole or pair not in (reach, reach[::-1]) or steps != [1, 1, 1]:
            return False
    return True


def _running(
    program: OpenProgram, op: ir.Operation, dimension: int, backward: bool
) -> list[Layout]:
    """Running reductions: those from the end begin with what is beyond the part in use, and others
    never come to it."""
    count = len(op.results)
    layouts = [program.settled(operand) for operand in list(op.operands)[:count]]
    layout = layouts[0]
    if any(other != layout for other in layouts):
        raise LoweringError("the operands of a running reduction are in use in different parts")
    if as_prefix(layout[dimension]) is None:
        raise LoweringError("a running reduction goes along a dimension that is a product")
    if backward and is_open(layout[dimension]):
        fill = _identity(_combiner(op), hlo.dtype(op.operands[0]))
        if fill is None:
            raise LoweringError("a reduction over an open dimension has an unknown identity")
        op.operands[0] = program.masked(op.operands[0], [dimension], fill)
    return layouts


@on("reduce_window")
def reduce_window(program: OpenProgram, op: ir.Operation, extents: Extents) -> list[Layout]:
    """Windows that reach beyond the part in use find there what changes nothing."""
    operand, shape = op.operands[0], hlo.shape(op.results[0])
    layout = program.settled(operand)
    found = cumulative(op)
    if found is not None and _are_constant_or_running(op, layout):
        return _running(program, op, *found)
    if len(op.results) == 1 and not varies(op, "window_dimensions"):
        places = range(len(shape))
        windows = _Windows(
            integers(op, "window_dimensions"), places, places, "base_dilations", "window_dilations"
        )
        _pad_in_front(program, op, windows, _identity(_combiner(op), hlo.dtype(operand)))
        operand = op.operands[0]
        layout = program.layout(operand)
    if len(op.results) != 1 or not _are_constant_or_running(op, layout):
        raise LoweringError("the windows of a reduction depend on the sizes")
    window = integers(op, "window_dimensions")
    moved = [
        d for d, size in enumerate(window) if size != 1 or padding(op, len(window))[d] != (0, 0)
    ]
    moved += [d for d, size in enumerate(shape) if size != hlo.shape(operand)[d] and d not in moved]
    mixed = [d for d in moved if is_open(layout[d])]
    if any(as_prefix(layout[d]) is None for d in mixed):
        raise LoweringError("windows go along a dimension that is a product")
    if mixed:
        fill = _identity(_combiner(op), hlo.dtype(operand))
        if fill is None:
            raise LoweringError("a reduction over an open dimension has an unknown identity")
        op.operands[0] = program.masked(operand, mixed, fill)
    return [
        tuple(
            prefix(shape[d], extents[0][d]) if d in moved else dimension
            for d, dimension in enumerate(layout)
        )
    ]
