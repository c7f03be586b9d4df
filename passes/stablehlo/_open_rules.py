"""How each StableHLO operation carries along the parts of dimensions in use: a rule an operation.

A rule gets the program and an operation, may mask operands or build another operation in its place,
and returns the layout of each result. It raises LoweringError where the program for all sizes
cannot be told from that of the capacities. `result_extents` are those that were found by looking at
several sizes: rules that make new dimensions take them from there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.errors import LoweringError
from stepwell.frontends.open_sizes import BOUNDS
from stepwell.mlir import ir
from stepwell.mlir import stablehlo as bindings
from stepwell.open_dimensions import (
    Dimension,
    Layout,
    as_prefix,
    closed,
    is_open,
    prefix,
    regrouped,
    unified,
)
from stepwell.passes.stablehlo._open_program import Number, OpenProgram
from stepwell.passes.stablehlo._values import ELEMENTWISE, integers, padding, splat
from stepwell.sizes import Extent

Extents = Sequence[Sequence[Extent]]
Rule = Callable[[OpenProgram, ir.Operation, Extents], list[Layout] | None]
"""Returns None where it has built other operations in the place of the one given."""

RULES: dict[str, Rule] = {}

BOUNDED = {
    "stablehlo.slice": ("start_indices", "limit_indices", "strides"),
    "stablehlo.pad": ("edge_padding_low", "edge_padding_high", "interior_padding"),
    "stablehlo.dynamic_slice": ("slice_sizes",),
    "stablehlo.gather": ("slice_sizes",),
}
"""The array attributes that may depend on sizes, of which the operation's rule decides."""

_MORE_ELEMENTWISE = ("complex", "real", "imag", "map", "bitcast_convert")


def on(*names: str) -> Callable[[Rule], Rule]:
    """Decorator: the rule is for `stablehlo.<name>`."""

    def enter(rule: Rule) -> Rule:
        RULES.update({f"stablehlo.{name}": rule for name in names})
        return rule

    return enter


def bounds(op: ir.Operation, attribute: str) -> list[Extent]:
    """The elements of an array attribute, those that depend on sizes among them."""
    name = BOUNDS + attribute
    if name not in op.attributes:
        return [Extent.of(number) for number in integers(op, attribute)]
    return [Extent.parse(ir.StringAttr(text).value) for text in op.attributes[name]]


def _varies(op: ir.Operation, *attributes: str) -> bool:
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
    if splat(result) is not None:
        return [(None,) * len(extents[0])]
    return [tuple(map(prefix, hlo.shape(result), extents[0]))]


@on("iota")
def iota(program: OpenProgram, op: ir.Operation, extents: Extents) -> list[Layout]:
    """Along the one dimension, numbers; along the others, the same."""
    along = ir.IntegerAttr(op.attributes["iota_dimension"]).value
    shape = hlo.shape(op.results[0])
    return [
        tuple(
            prefix(size, extent) if number == along else None
            for number, (size, extent) in enumerate(zip(shape, extents[0], strict=True))
        )
    ]


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
def reshape(program: OpenProgram, op: ir.Operation, extents: Extents) -> list[Layout]:
    """Factors of dimensions are grouped in another way."""
    operand = op.operands[0]
    layout, shape = program.layout(operand), hlo.shape(operand)
    sizes = hlo.shape(op.results[0])
    if all(dimension is None for dimension in layout):
        return [(None,) * len(sizes)]
    kept = _kept_dimensions(shape, sizes)
    equal = {target for source, target in kept.items() if layout[source] is None}
    known = program.fills.get(operand, {})
    program.fills[op.results[0]] = {kept[d]: fill for d, fill in known.items() if d in kept}
    grouped = regrouped(layout, shape, sizes)
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
        whole = sizes[number] == shape[number]
        if dimension is None or whole:
            layout.append(dimension)
        elif as_prefix(dimension) is None:
            raise LoweringError("a slice takes a part of a dimension that is a product")
        else:
            layout.append(prefix(sizes[number], extents[0][number]))
    if not _varies(op, "start_indices", "strides"):
        return [tuple(layout)]
    moves = [start for start in starts if not start.is_constant]
    grows = all(factor > 0 for start in moves for monomial, factor in start.terms if monomial)
    if not grows or any(stride != 1 for stride in strides):
        raise LoweringError("a slice begins at a number that falls as sizes grow")
    places = [program.scalar(start) for start in starts]
    return _replaced(program, op, hlo.dynamic_slice(operand, places, sizes), tuple(layout))


def _replaced(program: OpenProgram, op: ir.Operation, value: ir.Value, layout: Layout) -> None:
    """Put `value` in the place of the result of `op`."""
    program.layouts[value] = layout
    op.results[0].replace_all_uses_with(value)
    op.erase()


@on("pad")
def pad(program: OpenProgram, op: ir.Operation, extents: Extents) -> list[Layout]:
    """What is beyond the part in use is filled with the padding's value first."""
    if _varies(op, "edge_padding_low", "interior_padding"):
        raise LoweringError("how much is padded in front depends on the sizes")
    operand = op.operands[0]
    low, high, inner = (
        integers(op, f"{name}_padding{end}")
        for name, end in (("edge", "_low"), ("edge", "_high"), ("interior", ""))
    )
    layout = program.layout(operand)
    if any(low[d] < 0 and is_open(layout[d]) for d in range(len(layout))):
        raise LoweringError("an open dimension is padded by a negative number")
    changed = [d for d in range(len(layout)) if low[d] or high[d] or inner[d]]
    changed += [d for d, e in enumerate(bounds(op, "edge_padding_high")) if not e.is_constant]
    layout = program.settled(operand)
    mixed = [d for d in dict.fromkeys(changed) if is_open(layout[d])]
    if any(as_prefix(layout[d]) is None for d in mixed):
        raise LoweringError("a dimension that is a product is padded")
    if mixed:
        value = splat(op.operands[1])
        if value is None:
            raise LoweringError("an open dimension is padded with a value that is no constant")
        op.operands[0] = program.masked(operand, mixed, value)
    sizes = hlo.shape(op.results[0])
    return [
        tuple(
            prefix(sizes[d], extents[0][d]) if d in changed else dimension
            for d, dimension in enumerate(layout)
        )
    ]


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
    return _replaced(program, op, whole, tuple(layout))


# --- Sums ----------------------------------------------------------------------------------------


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
    """What changes nothing when it is combined with others."""
    if combiner in ("maximum", "minimum"):
        sign = -1 if combiner == "maximum" else 1
        if kind.kind in "fV":
            return sign * math.inf
        if kind.kind == "b":
            return sign > 0
        limits = np.iinfo(kind)
        return int(limits.max if sign > 0 else limits.min)
    simple = {"add": 0, "or": 0, "xor": 0, "multiply": 1}
    if combiner == "and":
        return True if kind.kind == "b" else -1
    return simple.get(combiner)


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
    """Beyond the part in use stands what the padding is: zeros."""
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
    spatial = [d for d in numbers.input_spatial_dimensions if is_open(layout[d])]
    if any(as_prefix(layout[d]) is None for d in spatial):
        raise LoweringError("a convolution goes along a dimension that is a product")
    if spatial:
        op.operands[0] = program.masked(image, spatial, 0)
    shape = hlo.shape(op.results[0])
    result = [prefix(size, extent) for size, extent in zip(shape, extents[0], strict=True)]
    result[numbers.output_batch_dimension] = batch
    result[numbers.output_feature_dimension] = closed(shape[numbers.output_feature_dimension])
    return [tuple(result)]


@on("reduce_window")
def reduce_window(program: OpenProgram, op: ir.Operation, extents: Extents) -> list[Layout]:
    """Windows that reach beyond the part in use find there what changes nothing."""
    if len(op.results) != 1 or _varies(op, "window_dimensions", "window_strides"):
        raise LoweringError("the windows of a reduction depend on the sizes")
    operand, shape = op.operands[0], hlo.shape(op.results[0])
    layout = program.settled(operand)
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


# --- Places --------------------------------------------------------------------------------------


@on("gather")
def gather(program: OpenProgram, op: ir.Operation, extents: Extents) -> list[Layout]:
    """Slices at indices; those into an open dimension are kept within the part in use."""
    numbers = bindings.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    operand, indices = op.operands
    sizes, shape = integers(op, "slice_sizes"), hlo.shape(operand)
    layout = program.layout(operand)
    _refuse_open_parts(op, shape, sizes)
    if any(is_open(layout[d]) for d in numbers.start_index_map):
        raise LoweringError("indices go into an open dimension")
    dropped = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    window = [d for d in range(len(shape)) if d not in dropped]
    if any(is_open(layout[d]) and sizes[d] != shape[d] for d in window):
        raise LoweringError("a part of an open dimension is gathered")
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


@on("sort")
def sort(program: OpenProgram, op: ir.Operation, extents: Extents) -> list[Layout]:
    """Rows in any number; the sorted dimension is closed."""
    along = ir.IntegerAttr(op.attributes["dimension"]).value
    return _along_closed(program, op, along, "sorted")


@on("reverse")
def reverse(program: OpenProgram, op: ir.Operation, extents: Extents) -> list[Layout]:
    """Dimensions that are reversed are closed."""
    layouts: list[Layout] = []
    for along in integers(op, "dimensions"):
        layouts = _along_closed(program, op, along, "reversed")
    return layouts or [program.layout(op.operands[0])]


def _along_closed(program: OpenProgram, op: ir.Operation, along: int, verb: str) -> list[Layout]:
    layouts = [program.layout(operand) for operand in op.operands]
    if any(is_open(layout[along]) for layout in layouts):
        raise LoweringError(f"an open dimension is {verb}")
    joint = layouts[0]
    for layout in layouts[1:]:
        joint = tuple(unified(a, b) for a, b in zip(joint, layout, strict=True))
    return [joint] * len(op.results)
