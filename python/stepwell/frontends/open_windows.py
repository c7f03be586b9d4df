"""Sizes that strides divide: how much is in use of what a convolution, windows or a slice give.

    %y = stablehlo.convolution(%x, %w) window = {stride = [2], pad = [[1, 1]]}

of `s0` elements and a filter of 3 gives `(s0 - 1) floordiv 2 + 1`. What is computed here is not
looked for among functions that have the sizes of a few programs: many would.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.extents import Extent, Points, has
from stepwell.mlir import ir, nested_operations
from stepwell.mlir import stablehlo as bindings


@dataclass(frozen=True)
class _Axis:
    """A dimension along which windows move: of `size` elements, with `dilation - 1` between each
    two, there are `(last + rest) floordiv stride + 1` windows, `last` being the place of the last
    element. `rests` has one number for each program, which differ where padding does."""

    operand: int
    result: int
    stride: int
    dilation: int
    rests: tuple[int, ...]


def strided(
    ops: Sequence[ir.Operation], operand: Sequence[Extent], points: Points
) -> dict[int, Extent]:
    """The extents of the dimensions of the result along which `ops`, one operation in programs for
    the sizes `points`, take steps of more than one, or between whose elements are others; `operand`
    has those of the operand. Dimensions of which nothing can be told are left out."""
    found = {}
    for axis in _axes(ops):
        extent = operand[axis.operand]
        if axis.stride == axis.dilation == 1 or extent.is_constant:
            continue
        last = extent.plus(Extent.of(1), -1).times(Extent.of(axis.dilation))
        values = [hlo.shape(op.results[0])[axis.result] for op in ops]
        fitting = {
            windows
            for rest in _possible(axis)
            if has(points, values, windows := _windows(last, rest, axis.stride))
        }
        if len(fitting) == 1:
            found[axis.result] = fitting.pop()
    return found


def _windows(last: Extent, rest: int, stride: int) -> Extent:
    return last.plus(Extent.of(rest)).floordiv(stride).plus(Extent.of(1))


def _possible(axis: _Axis) -> range:
    """What may stand for `rests` for all sizes: where a last window that elements do not fill is
    padded, or a slice ends with the last element it takes, they differ by less than a stride."""
    least, most = min(axis.rests), max(axis.rests)
    return range(least, most + axis.stride if most > least else most + 1)


def takes_steps(program: ir.Operation) -> bool:
    """Whether an operation of `program` has strides of more than one."""
    names = ("window_strides", "strides")
    found = (op.attributes.get(name) for op in nested_operations(program) for name in names)
    return any(max(numbers(strides) or [1]) > 1 for strides in found)


def has_unlike_ends(ops: Sequence[ir.Operation]) -> bool:
    """Whether `ops` are strided windows that differ by the padding behind the elements alone.
    That of the largest size is right for all, since it stands beyond what is in use."""
    if ops[0].name not in ("stablehlo.convolution", "stablehlo.reduce_window"):
        return False
    strides = numbers(ops[0].attributes.get("window_strides")) or []
    edges = [numbers(op.attributes.get("padding")) or [0] * 2 * len(strides) for op in ops]
    columns = [set(column) for column in zip(*edges, strict=True)]
    unlike = [place for place, column in enumerate(columns) if len(column) > 1]
    return all(place % 2 == 1 and strides[place // 2 :][:1] > [1] for place in unlike)


def numbers(attribute: ir.Attribute | None) -> list[int] | None:
    """The elements of an array attribute in order; None for other attributes."""
    if attribute is not None and isinstance(attribute, ir.DenseI64ArrayAttr):
        return list(ir.DenseI64ArrayAttr(attribute))
    if isinstance(attribute, ir.DenseIntElementsAttr):
        return np.array(attribute).reshape(-1).tolist()
    return None


def _axes(ops: Sequence[ir.Operation]) -> Iterator[_Axis]:
    name = ops[0].name.removeprefix("stablehlo.")
    if name == "slice":
        yield from _slice(ops)
    elif name == "convolution":
        yield from _convolution(ops)
    elif name == "reduce_window" and len(ops[0].results) == 1:
        rank = len(hlo.shape(ops[0].results[0]))
        sizes = numbers(ops[0].attributes["window_dimensions"]) or []
        places = [(d, d) for d in range(rank)]
        yield from _moved(ops, places, sizes, ("base_dilations", "window_dilations"))


def _slice(ops: Sequence[ir.Operation]) -> Iterator[_Axis]:
    steps = numbers(ops[0].attributes["strides"]) or []
    for dimension, stride in enumerate(steps):
        rests = []
        for op in ops:
            start, limit = (
                ir.DenseI64ArrayAttr(op.attributes[f"{name}_indices"])[dimension]
                for name in ("start", "limit")
            )
            rests.append(limit - hlo.shape(op.operands[0])[dimension] - start)
        yield _Axis(dimension, dimension, stride, 1, tuple(rests))


def _convolution(ops: Sequence[ir.Operation]) -> Iterator[_Axis]:
    layout = bindings.ConvDimensionNumbers(ops[0].attributes["dimension_numbers"])
    spatial = zip(layout.input_spatial_dimensions, layout.output_spatial_dimensions, strict=True)
    filters = hlo.shape(ops[0].operands[1])
    sizes = [filters[d] for d in layout.kernel_spatial_dimensions]
    yield from _moved(ops, list(spatial), sizes, ("lhs_dilation", "rhs_dilation"))


def _moved(
    ops: Sequence[ir.Operation],
    places: Sequence[tuple[int, int]],
    sizes: Sequence[int],
    dilations: tuple[str, str],
) -> Iterator[_Axis]:
    """Windows of `sizes` along `places`: dimensions of the operand and of the result."""
    count = len(places)
    first = ops[0].attributes
    strides = numbers(first.get("window_strides")) or [1] * count
    inside, apart = (numbers(first.get(name)) or [1] * count for name in dilations)
    edges = [numbers(op.attributes.get("padding")) or [0] * 2 * count for op in ops]
    for d, (operand, result) in enumerate(places):
        reach = (sizes[d] - 1) * apart[d]
        rests = tuple(pads[2 * d] + pads[2 * d + 1] - reach for pads in edges)
        yield _Axis(operand, result, strides[d], inside[d], rests)
