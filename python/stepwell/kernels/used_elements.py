"""How many elements along a dimension are in use, in a program with open sizes."""

from __future__ import annotations

from dataclasses import dataclass

from stepwell.errors import LoweringError
from stepwell.extents import Extent
from stepwell.kernels.group import KernelGroup, accesses
from stepwell.kernels.index import Index, Variable, apply_map, constant, delinearize, linearize
from stepwell.kernels.reduction import Combiner
from stepwell.kernels.structured import RESHAPES, Structured, defining_op, elements, shape_of
from stepwell.mlir import dialect, ir
from stepwell.open_dimensions import (
    Dimension,
    Factor,
    Layout,
    as_prefix,
    capacity,
    closed,
    parse_layout,
    prefix,
)

arith = dialect("arith")

PREFIXES = "kernel.prefixes"
"""Of a kernel: pairs of the number of an argument, a vector of booleans of which the first are
true, and how many of them: `[[3, "s0"]]`."""

OPEN = "kernel.open"
"""Of a contraction in a kernel: the extents of its result's dimensions, as `kernel.extents`."""

KERNEL_EXTENTS = "kernel.extents"
"""Of a kernel: for each result, which part of it is needed."""

NEEDED = "kernel.needed"
"""Of a reduction in a kernel: which part of its result is needed, as `kernel.extents`."""

KERNEL_SIZES = "kernel.sizes"
"""Of a kernel whose last argument before its results says them: what the sizes are,
`["s0", "2*s0"]`."""

COUNTED = "kernel.counted"
"""Of a loop that counts how many elements are in use: their extent."""


@dataclass(frozen=True)
class UsedElements:
    """How many elements are in use, at run time, and as an extent."""

    count: Index
    extent: Extent

    def are_as_many(self, contraction: ir.Operation, dimension: int, size: int) -> bool:
        """Whether `dimension` of the result of `contraction` is all `size` rows, and as many of it
        are in use."""
        if OPEN not in contraction.attributes:
            return False
        layout = parse_layout(ir.StringAttr(contraction.attributes[OPEN]).value)
        return as_prefix(layout[dimension]) == Factor(size, self.extent)


def prefixes_of(function: ir.Operation) -> dict[ir.Value, Extent]:
    """The arguments of a kernel that are vectors of booleans, and how many of them are true."""
    if PREFIXES not in function.attributes:
        return {}
    arguments = function.regions[0].blocks[0].arguments
    return {
        arguments[ir.IntegerAttr(number).value]: Extent.parse(ir.StringAttr(extent).value)
        for number, extent in function.attributes[PREFIXES]
    }


def needed_layout(op: ir.Operation) -> Layout:
    """Which part of the result of a reduction is needed; () where all of it is."""
    return (
        parse_layout(ir.StringAttr(op.attributes[NEEDED]).value) if NEEDED in op.attributes else ()
    )


def unneeded_from(group: KernelGroup, op: Structured) -> dict[int, Index]:
    """For loops of the reduction `op`: from where on its results are not needed, where others of
    the group are, which were filled there."""
    layout = needed_layout(op.op)
    written = [written_layout(group, number) for number in range(len(group.outputs))]
    found = {}
    for number, expression in enumerate(op.output_map.results):
        part = as_prefix(layout[number]) if layout else None
        if part is None or not part.is_open:
            continue
        others = [as_prefix(of[number]) if len(of) == len(layout) else None for of in written]
        if any(other is None or other.extent != part.extent for other in others):
            found[expression.position] = told(group, layout[number])
    return found


def written_layout(group: KernelGroup, number: int) -> Layout:
    """Which part of a result of the kernel is needed, without what lies around it."""
    output = group.outputs[number]
    stated = group.function.attributes.get(KERNEL_EXTENTS, None)
    if stated is None:
        return tuple(map(closed, output.shape))
    layout = parse_layout(ir.StringAttr(stated[number]).value)
    return tuple(
        prefix(size, part.extent.plus(Extent.of(low), -1))
        if (part := as_prefix(dimension)) is not None and part.is_open
        else closed(size)
        for dimension, size, low in zip(layout, output.shape, output.low, strict=True)
    )


def factors_of(group: KernelGroup, number: int) -> list[tuple[Factor, ...]]:
    """Which part of a result of the kernel is needed, by the factors of its dimensions; one in
    which something lies around it has but one."""
    output = group.outputs[number]
    layout = written_layout(group, number)
    if KERNEL_EXTENTS in group.function.attributes:
        stated = parse_layout(
            ir.StringAttr(group.function.attributes[KERNEL_EXTENTS][number]).value
        )
        layout = tuple(
            whole if capacity(whole) == size and not low else part
            for whole, part, size, low in zip(stated, layout, output.shape, output.low, strict=True)
        )
    return [dimension or () for dimension in layout]


def told(group: KernelGroup, dimension: Dimension) -> Index:
    """How many elements of `dimension`, a prefix, are needed, as the sizes that the kernel is given
    say. Raises LoweringError where they do not."""
    part = as_prefix(dimension)
    assert part is not None
    if not part.is_open:
        return constant(part.capacity)
    size = told_size(group, part)
    if size is None:
        raise LoweringError(f"{group.name}: nobody tells {part.extent}")
    return size


def told_size(group: KernelGroup, part: Factor) -> Index | None:
    """The extent of an open factor, as the sizes that the kernel is given say; None where they do
    not."""
    if KERNEL_SIZES not in group.function.attributes:
        return None
    nest, buffer = group.nest, group.evaluator.buffers[group.inputs[-1]]
    for number, text in enumerate(group.function.attributes[KERNEL_SIZES]):
        rest = part.extent.plus(Extent.parse(ir.StringAttr(text).value), -1)
        if rest.is_constant:
            with nest.at_top():
                stored = nest.load_scalar(buffer, [constant(number)])
                size = arith.IndexCastOp(ir.IndexType.get(), stored).result
            return Index.of(Variable("size", 0, part.capacity, size)) + rest.at(())
    return None


def used_keys(group: KernelGroup, score: ir.Value, keys: int) -> UsedElements | None:
    """The number of keys in use, where `score` is -inf for the others; None where it is not."""
    return _counted(group, _mask_of_keys(group, score, keys))


@dataclass(frozen=True)
class ToldKeys:
    """How many keys are in use, as the sizes that a kernel is given say, and the vector of booleans
    that is true for these."""

    count: Index
    mask: ir.Value


def told_keys(group: KernelGroup, score: ir.Value, keys: int) -> ToldKeys | None:
    """The keys in use, where `score` is -inf for the others; None where it is not, or the kernel is
    not given their number."""
    mask = _mask_of_keys(group, score, keys)
    if mask is None:
        return None
    count = told_size(group, Factor(keys, prefixes_of(group.function)[mask]))
    return None if count is None else ToldKeys(count, mask)


def _mask_of_keys(group: KernelGroup, score: ir.Value, keys: int) -> ir.Value | None:
    shape = shape_of(score)
    kind = ir.ShapedType(score.type).element_type
    if shape[-1:] != (keys,) or not isinstance(kind, ir.FloatType):
        return None
    dims = _variables(shape)
    lowest = ir.FloatAttr.get(kind, float("-inf"))
    point = [Index.of(dim) for dim in dims]
    return _mask(score, point, dims[-1], lowest, set(prefixes_of(group.function)))


def used_terms(group: KernelGroup, op: Structured) -> dict[int, UsedElements]:
    """For the loops of a reduction of one operand: how many of their iterations join more than the
    combiner's identity, where a vector of booleans says so."""
    if PREFIXES not in group.function.attributes or len(op.inputs) != 1:
        return {}
    dims = _variables(op.loop_sizes())
    point = apply_map(op.maps[0], [Index.of(dim) for dim in dims])
    identity = Combiner.of(op).identity
    found = {}
    for loop, kind in enumerate(op.iterators):
        if kind == "reduction":
            prefixes = set(prefixes_of(group.function))
            used = _counted(group, _mask(op.inputs[0], point, dims[loop], identity, prefixes))
            if used is not None:
                found[loop] = used
    return found


def _counted(group: KernelGroup, mask: ir.Value | None) -> UsedElements | None:
    """How many elements of a vector of booleans are true."""
    if mask is None:
        return None
    extent = prefixes_of(group.function)[mask]
    if mask not in group.counted:
        group.counted[mask] = _count(group, mask, extent)
    return UsedElements(group.counted[mask], extent)


def _count(group: KernelGroup, mask: ir.Value, extent: Extent) -> Index:
    """How many elements of the vector `mask` are true, `extent` of them."""
    nest = group.nest
    with nest.at_top():
        zero = arith.ConstantOp(ir.IndexType.get(), 0).result

        def count(i: Variable, carried: list[ir.Value]) -> list[ir.Value]:
            flag = nest.load_scalar(group.evaluator.buffers[mask], [Index.of(i)])
            return [arith.AddIOp(carried[0], arith.IndexCastUIOp(zero.type, flag).result).result]

        size = elements(mask)
        (total,) = nest.reduce_loop("i", 0, size, 1, [zero], count)
    op = defining_op(total)
    assert op is not None
    op.attributes[COUNTED] = ir.StringAttr.get(str(extent))
    return Index.of(Variable("used", 0, size, total))


def _mask(
    value: ir.Value,
    point: list[Index],
    along: Variable,
    fill: ir.Attribute,
    prefixes: set[ir.Value],
) -> ir.Value | None:
    """The vector among `prefixes` by whose element `along` that of `value` at `point` is chosen
    instead of `fill`, maybe after others did so."""
    op = defining_op(value)
    while op is not None and op.name in RESHAPES:
        source = op.operands[0]
        point = delinearize(linearize(point, shape_of(op.results[0])), shape_of(source))
        op = defining_op(source)
    structured = Structured.of(op) if op is not None else None
    if structured is None or not structured.is_elementwise:
        return None
    body = [child.operation for child in structured.body.operations]
    if [inner.name for inner in body[-2:]] != ["arith.select", "linalg.yield"]:
        return None
    condition, chosen, other = body[-2].operands
    if not _is_constant(other, fill):
        return None
    arguments = list(structured.body.arguments)
    reads = {
        argument: (source, apply_map(affine_map, point))
        for argument, source, affine_map in zip(
            arguments, structured.inputs, structured.maps, strict=False
        )
    }
    if condition in reads:
        for leaf, indices in accesses(*reads[condition], prefixes):
            if indices == [Index.of(along)]:
                return leaf
    return _mask(*reads[chosen], along, fill, prefixes) if chosen in reads else None


def _is_constant(value: ir.Value, attribute: ir.Attribute) -> bool:
    op = defining_op(value)
    return op is not None and op.name == "arith.constant" and op.attributes["value"] == attribute


def _variables(sizes: tuple[int, ...] | list[int]) -> list[Variable]:
    return [Variable(f"d{i}", 0, max(size, 1) - 1) for i, size in enumerate(sizes)]
