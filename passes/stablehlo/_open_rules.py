"""How each StableHLO operation carries along the parts of dimensions in use: a rule an operation.

A rule gets the program and an operation, may mask operands or build another operation in its place,
and returns the layout of each result. It raises LoweringError where the program for all sizes
cannot be told from that of the capacities. `result_extents` are those that were found by looking at
several sizes: rules that make new dimensions take them from there.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from stepwell.dense import is_complex, read_complex
from stepwell.dialects import stablehlo as hlo
from stepwell.errors import LoweringError
from stepwell.extents import Extent
from stepwell.frontends.open_sizes import BOUNDS
from stepwell.mlir import ir
from stepwell.open_dimensions import (
    Dimension,
    Layout,
    as_prefix,
    is_open,
    prefix,
    regrouped,
    unified,
)
from stepwell.passes.stablehlo._moved_elements import reshaped
from stepwell.passes.stablehlo._open_program import Number, OpenProgram
from stepwell.passes.stablehlo._values import ELEMENTWISE, full_name, integers, splat
from stepwell.weights import WeightTable

Extents = Sequence[Sequence[Extent]]
Rule = Callable[[OpenProgram, ir.Operation, Extents], list[Layout] | None]
"""Returns None where it has built other operations in the place of the one given."""

RULES: dict[str, Rule] = {}

BOUNDED = {
    "stablehlo.slice": ("start_indices", "limit_indices", "strides"),
    "stablehlo.pad": ("edge_padding_low", "edge_padding_high", "interior_padding"),
    "stablehlo.dynamic_slice": ("slice_sizes",),
    "stablehlo.gather": ("slice_sizes",),
    "stablehlo.convolution": ("padding",),
    "stablehlo.reduce_window": ("window_dimensions", "padding"),
}
"""The array attributes that may depend on sizes, of which the operation's rule decides."""

_MORE_ELEMENTWISE = ("complex", "real", "imag", "map")


def entering(table: dict[str, Rule]) -> Callable[..., Callable[[Rule], Rule]]:
    """The decorator `on(name, ...)`: the rule is for ops so called, and enters `table`."""

    def on(*names: str) -> Callable[[Rule], Rule]:
        def enter(rule: Rule) -> Rule:
            table.update({full_name(name): rule for name in names})
            return rule

        return enter

    return on


on = entering(RULES)


def bounds(op: ir.Operation, attribute: str) -> list[Extent]:
    """The elements of an array attribute, those that depend on sizes among them."""
    name = BOUNDS + attribute
    if name not in op.attributes:
        known = op.attributes[attribute]
        if isinstance(known, ir.DenseElementsAttr):
            return [Extent.of(int(number)) for number in np.array(known).reshape(-1)]
        return [Extent.of(number) for number in integers(op, attribute)]
    return [Extent.parse(ir.StringAttr(text).value) for text in op.attributes[name]]


def varies(op: ir.Operation, *attributes: str) -> bool:
    return any(BOUNDS + attribute in op.attributes for attribute in attributes)


# --- Element by element --------------------------------------------------------------------------


@on(*ELEMENTWISE, *_MORE_ELEMENTWISE)
def elementwise(program: OpenProgram, op: ir.Operation, extents: Extents) -> list[Layout]:
    """Operands and results have the same parts in use; scalars have none."""
    rank = hlo.tensor_type(op.results[0]).rank
    layout: Layout = (None,) * rank
    for operand in op.operands:
        if hlo.tensor_type(operand).rank not in (0, rank):
            raise LoweringError("its operands have other dimensions")
        if hlo.tensor_type(operand).rank == rank:
            layout = tuple(
                unified(a, b) for a, b in zip(layout, program.layout(operand), strict=True)
            )
    fills = {
        number: fill
        for number in range(rank)
        if (fill := _fill_of(program, op, number)) is not None
    }
    if len(op.results) == 1:
        program.fills[op.results[0]] = fills
    return [layout] * len(op.results)


def _fill_of(program: OpenProgram, op: ir.Operation, number: int) -> Number | None:
    """What stands in an elementwise result beyond the part of dimension `number` in use.

    That of a row which is not a number throughout is not said: neither is the row's rest.
    """
    name = op.name.removeprefix("stablehlo.")
    known = [program.fill(operand, number) for operand in op.operands]
    first = known[0] if known else None
    if first is None:
        return None
    if name == "convert":
        return first if _keeps(op, first) else None
    if name == "exponential":
        return 0.0 if first == -math.inf else None
    uniform = len(known) == 2 and program.layout(op.operands[1])[number] is None
    if name in ("subtract", "add") and first == -math.inf and uniform:
        return first
    if name in ("multiply", "divide") and first == 0 and uniform:
        return first
    return None


def _keeps(op: ir.Operation, fill: Number) -> bool:
    """Whether a conversion gives 0 for 0 and infinity for infinity."""
    target = hlo.dtype(op.results[0])
    return fill == 0 or (isinstance(fill, float) and target.kind in "fV")


@on("optimization_barrier")
def barrier(program: OpenProgram, op: ir.Operation, extents: Extents) -> list[Layout]:
    """Each result is the operand of its number."""
    return [program.layout(operand) for operand in op.operands]


@on("constant")
def constant(program: OpenProgram, op: ir.Operation, extents: Extents) -> list[Layout]:
    """The beginning of a constant in each dimension is that of other sizes."""
    result = op.results[0]
    if _is_splat(op):
        return [(None,) * len(extents[0])]
    return [tuple(map(prefix, hlo.shape(result), extents[0]))]


def _is_splat(op: ir.Operation) -> bool:
    if is_complex(op):
        return read_complex(op, WeightTable()).ndim == 0
    return splat(op.results[0]) is not None


@on("iota")
def iota(program: OpenProgram, op: ir.Operation, extents: Extents) -> list[Layout]:
    """Along the one dimension, numbers; along the others, the same."""
    return [_iota_layout(op, extents)]


def _iota_layout(op: ir.Operation, extents: Extents) -> Layout:
    along = ir.IntegerAttr(op.attributes["iota_dimension"]).value
    shape = hlo.shape(op.results[0])
    return tuple(
        prefix(size, extent) if number == along else None
        for number, (size, extent) in enumerate(zip(shape, extents[0], strict=True))
    )


@on("dynamic_iota")
def dynamic_iota(program: OpenProgram, op: ir.Operation, extents: Extents) -> None:
    """Of a shape that is known by now: that of the capacities, not the one it is told."""
    result = op.results[0]
    along = ir.IntegerAttr(op.attributes["iota_dimension"]).value
    value = hlo.iota(hlo.shape(result), along, hlo.dtype(result))
    replaced(program, op, value, _iota_layout(op, extents))


# --- Shapes --------------------------------------------------------------------------------------


@on("broadcast_in_dim")
def broadcast_in_dim(program: OpenProgram, op: ir.Operation, extents: Extents) -> list[Layout]:
    """New dimensions have equal elements, and so have repeated ones."""
    operand = op.operands[0]
    layout: list[Dimension] = [None] * len(extents[0])
    shape, sizes = hlo.shape(operand), hlo.shape(op.results[0])
    fills = {}
    for source, target in enumerate(integers(op, "broadcast_dimensions")):
        if shape[source] == sizes[target]:
            layout[target] = program.layout(operand)[source]
            fill = program.fill(operand, source)
            if fill is not None:
                fills[target] = fill
    program.fills[op.results[0]] = fills
    return [tuple(layout)]


@on("transpose")
def transpose(program: OpenProgram, op: ir.Operation, extents: Extents) -> list[Layout]:
    """Dimensions in another order."""
    operand, order = op.operands[0], integers(op, "permutation")
    layout = program.layout(operand)
    known = program.fills.get(operand, {})
    program.fills[op.results[0]] = {i: known[d] for i, d in enumerate(order) if d in known}
    return [tuple(layout[d] for d in order)]


@on("reshape")
def reshape(program: OpenProgram, op: ir.Operation, extents: Extents) -> list[Layout] | None:
    """Factors of dimensions are grouped in another way, or elements are moved where those in use
    are not."""
    try:
        return _grouped(program, op, extents)
    except LoweringError:
        value = reshaped(program, op.operands[0], hlo.shape(op.results[0]), extents[0])
        return replaced(program, op, value, program.layout(value))


def _grouped(program: OpenProgram, op: ir.Operation, extents: Extents) -> list[Layout]:
    operand = op.operands[0]
    layout, shape = program.layout(operand), hlo.shape(operand)
    sizes = hlo.shape(op.results[0])
    if all(dimension is None for dimension in layout):
        return [(None,) * len(sizes)]
    if 0 in shape:
        return [tuple(map(prefix, sizes, extents[0]))]
    kept = _kept_dimensions(shape, sizes)
    layout = program.settled(operand, [d for d in range(len(shape)) if d not in kept])
    equal = {target for source, target in kept.items() if layout[source] is None}
    known = program.fills.get(operand, {})
    program.fills[op.results[0]] = {kept[d]: fill for d, fill in known.items() if d in kept}
    grouped = regrouped(layout, shape, sizes)
    sources = {target: source for source, target in kept.items()}
    declared = program.extents.get(operand)
    for number, (dimension, extent) in enumerate(zip(grouped, extents[0], strict=True)):
        in_use = functools.reduce(Extent.times, (f.extent for f in dimension or ()), Extent.of(1))
        source = sources.get(number)
        is_kept = source is not None and declared is not None and declared[source] == extent
        if dimension is not None and in_use != extent and (is_open(dimension) or not is_kept):
            raise LoweringError("a reshape mixes dimensions that are open")
    return [tuple(None if i in equal else dim for i, dim in enumerate(grouped))]


def _kept_dimensions(shape: Sequence[int], sizes: Sequence[int]) -> dict[int, int]:
    """The dimensions of a reshape's operand, not of size 1, that are dimensions of its result."""
    kept = {}
    before = {math.prod(sizes[:i]): i for i, n in enumerate(sizes) if n != 1}
    for number, size in enumerate(shape):
        target = before.get(math.prod(shape[:number]))
        if size != 1 and target is not None and sizes[target] == size:
            kept[number] = target
    return kept


@on("slice")
def slice_(program: OpenProgram, op: ir.Operation, extents: Extents) -> list[Layout] | None:
    """A part of each dimension; where it begins may depend on the sizes."""
    operand, result = op.operands[0], op.results[0]
    starts = bounds(op, "start_indices")
    strides, shape, sizes = integers(op, "strides"), hlo.shape(operand), hlo.shape(result)
    layout = []
    for number, dimension in enumerate(program.layout(operand)):
        if dimension is not None and as_prefix(dimension) is not None:
            layout.append(prefix(sizes[number], extents[0][number]))
        elif dimension is None or sizes[number] == shape[number]:
            layout.append(dimension)
        else:
            raise LoweringError("a slice takes a part of a dimension that is a product")
    if not varies(op, "start_indices", "strides"):
        return [tuple(layout)]
    moves = [start for start in starts if not start.is_constant]
    grows = all(factor > 0 for start in moves for monomial, factor in start.terms if monomial)
    if not grows or any(stride != 1 for stride in strides):
        raise LoweringError("a slice begins at a number that falls as sizes grow")
    places = [program.scalar(start) for start in starts]
    return replaced(program, op, hlo.dynamic_slice(operand, places, sizes), tuple(layout))


def replaced(program: OpenProgram, op: ir.Operation, value: ir.Value, layout: Layout) -> None:
    """Put `value` in the place of the result of `op`."""
    program.layouts[value] = layout
    op.results[0].replace_all_uses_with(value)
    op.erase()


@on("pad")
def pad(program: OpenProgram, op: ir.Operation, extents: Extents) -> list[Layout] | None:
    """What is beyond the part in use is filled with the padding's value first."""
    if varies(op, "interior_padding"):
        raise LoweringError("how much is padded between elements depends on the sizes")
    operand = op.operands[0]
    low, high, inner = (
        integers(op, f"{name}_padding{end}")
        for name, end in (("edge", "_low"), ("edge", "_high"), ("interior", ""))
    )
    layout = program.layout(operand)
    changed = [d for d in range(len(layout)) if low[d] or high[d] or inner[d]]
    for name in ("edge_padding_low", "edge_padding_high"):
        changed += [d for d, extent in enumerate(bounds(op, name)) if not extent.is_constant]
    layout = program.settled(operand)
    mixed = [d for d in dict.fromkeys(changed) if is_open(layout[d])]
    if any(as_prefix(layout[d]) is None for d in mixed):
        raise LoweringError("a dimension that is a product is padded")
    if mixed:
        value = splat(op.operands[1])
        if value is None:
            op.operands[0] = program.filled(operand, mixed, op.operands[1])
        else:
            op.operands[0] = program.masked(operand, mixed, value)
    sizes = hlo.shape(op.results[0])
    result = tuple(
        prefix(sizes[d], extents[0][d]) if d in changed else dimension
        for d, dimension in enumerate(layout)
    )
    if not varies(op, "edge_padding_low"):
        return [result]
    fronts = bounds(op, "edge_padding_low")
    if any(inner) or min(high) < 0 or any(factor < 0 for e in fronts for _, factor in e.terms):
        raise LoweringError("how much is padded in front depends on the sizes")
    places = [program.scalar(front) for front in fronts]
    whole = hlo.broadcast_in_dim(op.operands[1], sizes, [])
    return replaced(program, op, hlo.dynamic_update_slice(whole, op.operands[0], places), result)


@on("concatenate")
def concatenate(program: OpenProgram, op: ir.Operation, extents: Extents) -> list[Layout] | None:
    """Parts along an open dimension begin where those before them end at run time."""
    along = ir.IntegerAttr(op.attributes["dimension"]).value
    operands, shape = list(op.operands), hlo.shape(op.results[0])
    layout: list[Dimension] = [None] * len(shape)
    for operand in operands:
        layout = [
            None if d == along else unified(a, b)
            for d, (a, b) in enumerate(zip(layout, program.layout(operand), strict=True))
        ]
    layout[along] = prefix(shape[along], extents[0][along])
    ends = [Extent.of(0)]
    for operand in operands:
        factor = as_prefix(program.settled(operand)[along])
        if factor is None:
            raise LoweringError("a part of a concatenation has no one extent")
        ends.append(ends[-1].plus(factor.extent))
    if ends[-1] != extents[0][along]:
        raise LoweringError(f"{ends[-1]} elements are concatenated, not {extents[0][along]}")
    if all(end.is_constant for end in ends[:-1]):
        return [tuple(layout)]
    first = operands[0]
    rest = [0] * len(shape)
    rest[along] = shape[along] - hlo.shape(first)[along]
    zero = hlo.full(0, [], hlo.dtype(first))
    whole = hlo.pad(first, zero, [0] * len(shape), rest)
    origin = program.scalar(Extent.of(0))
    for operand, start in zip(operands[1:], ends[1:], strict=False):
        places = [program.scalar(start) if d == along else origin for d in range(len(shape))]
        whole = hlo.dynamic_update_slice(whole, operand, places)
    return replaced(program, op, whole, tuple(layout))
