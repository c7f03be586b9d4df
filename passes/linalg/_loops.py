"""Loops over tensors in `scf`, written from Python: scalars are read and written by index.

Values of type `index` are built with `arith`; a loop carries tensors, so that what a body writes
with `insert` is one buffer after bufferization.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stepwell.attributes import i64
from stepwell.mlir import dialect, ir, nested_operations
from stepwell.passes.linalg._captured import nested_operands
from stepwell.passes.linalg._fusion_graph import HOST, is_host_block

arith = dialect("arith")
tensor = dialect("tensor")

Values = list[ir.Value]
Rewrite = Callable[[ir.Operation], Sequence[ir.Value] | None]
"""Builds what replaces an operation's results; None leaves the operation."""
Body = Callable[[ir.Value, Values], Sequence[ir.Value]]

_SIGNED = {"EQ": 0, "NE": 1, "LT": 2, "LE": 3, "GT": 4, "GE": 5, "ULT": 6}


def index(value: int) -> ir.Value:
    """A constant of type index."""
    return arith.ConstantOp(ir.IndexType.get(), value).result


def boolean(value: bool) -> ir.Value:
    """A constant of type i1."""
    return arith.ConstantOp(ir.IntegerType.get_signless(1), int(value)).result


def add(lhs: ir.Value, rhs: ir.Value) -> ir.Value:
    """lhs + rhs."""
    return arith.AddIOp(lhs, rhs).result


def subtract(lhs: ir.Value, rhs: ir.Value) -> ir.Value:
    """lhs - rhs."""
    return arith.SubIOp(lhs, rhs).result


def multiply(lhs: ir.Value, rhs: ir.Value) -> ir.Value:
    """lhs * rhs."""
    return arith.MulIOp(lhs, rhs).result


def minimum(lhs: ir.Value, rhs: ir.Value) -> ir.Value:
    """The smaller of two signed integers."""
    return arith.MinSIOp(lhs, rhs).result


def shift_left(lhs: ir.Value, rhs: ir.Value) -> ir.Value:
    """lhs << rhs."""
    return arith.ShLIOp(lhs, rhs).result


def both(lhs: ir.Value, rhs: ir.Value) -> ir.Value:
    """Conjunction of two i1."""
    return arith.AndIOp(lhs, rhs).result


def either(lhs: ir.Value, rhs: ir.Value) -> ir.Value:
    """Disjunction of two i1."""
    return arith.OrIOp(lhs, rhs).result


def negate(value: ir.Value) -> ir.Value:
    """Negation of an i1."""
    return arith.XOrIOp(value, boolean(True)).result


def compare(lhs: ir.Value, direction: str, rhs: ir.Value) -> ir.Value:
    """Comparison of integers: EQ, NE, LT, LE, GT, GE (signed) or ULT."""
    kind = i64(_SIGNED[direction])
    return arith.CmpIOp(kind, lhs, rhs).result


def choose(condition: ir.Value, on_true: ir.Value, on_false: ir.Value) -> ir.Value:
    """One of two values of a type."""
    return arith.SelectOp(condition, on_true, on_false).result


def inside(position: Sequence[ir.Value], shape: Sequence[int]) -> ir.Value:
    """Whether every coordinate of `position` lies within `shape` (negative ones do not)."""
    result = boolean(True)
    for coordinate, size in zip(position, shape, strict=True):
        result = both(result, compare(coordinate, "ULT", index(size)))
    return result


def signed_index(scalar: ir.Value) -> ir.Value:
    """An integer of StableHLO, of any signedness, as an index."""
    wide = ir.Operation.create(
        "stablehlo.convert",
        operands=[as_tensor(scalar)],
        results=[ir.RankedTensorType.get([], ir.IntegerType.get_signless(64))],
    ).results[0]
    return to_index(extract(wide))


def to_index(scalar: ir.Value) -> ir.Value:
    """A signless or signed integer as an index."""
    return arith.IndexCastOp(ir.IndexType.get(), scalar).result


def shape_of(value: ir.Value) -> list[int]:
    """The static shape of a tensor."""
    return list(ir.RankedTensorType(value.type).shape)


def element_of(value: ir.Value) -> ir.Type:
    """The element type of a tensor."""
    return ir.RankedTensorType(value.type).element_type


def empty(shape: Sequence[int], element: ir.Type) -> ir.Value:
    """A tensor without contents, unlike `tensor.empty` never merged with another one: a loop that
    carried the same one twice would get one buffer for both."""
    return ir.Operation.create(
        "bufferization.alloc_tensor",
        results=[ir.RankedTensorType.get(list(shape), element)],
        attributes={"operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 0, 0])},
    ).results[0]


def extract(source: ir.Value, position: Sequence[ir.Value] = ()) -> ir.Value:
    """The scalar of `source` at `position`."""
    return tensor.ExtractOp(source, list(position)).result


def insert(scalar: ir.Value, target: ir.Value, position: Sequence[ir.Value]) -> ir.Value:
    """`target` with the scalar at `position` replaced."""
    return tensor.InsertOp(scalar, target, list(position)).result


def written(value: ir.Value, destination: ir.Value) -> ir.Value:
    """`value`, copied into the buffer of `destination`: what a loop yields for a carried tensor."""
    return ir.Operation.create(
        "bufferization.materialize_in_destination",
        operands=[value, destination],
        results=[destination.type],
    ).results[0]


def as_tensor(scalar: ir.Value) -> ir.Value:
    """A scalar as a tensor of rank 0."""
    return tensor.FromElementsOp(ir.RankedTensorType.get([], scalar.type), [scalar]).result


def loop(
    lower: ir.Value, upper: ir.Value, step: ir.Value, carried: Sequence[ir.Value], body: Body
) -> Values:
    """`scf.for`; `body` gets the induction variable and what is carried, and returns the latter."""
    op = ir.Operation.create(
        "scf.for",
        operands=[lower, upper, step, *carried],
        results=[value.type for value in carried],
        regions=1,
    )
    block = op.regions[0].blocks.append(ir.IndexType.get(), *[value.type for value in carried])
    with ir.InsertionPoint(block):
        arguments = list(block.arguments)
        ir.Operation.create("scf.yield", operands=list(body(arguments[0], arguments[1:])))
    return list(op.results)


def nest(
    sizes: Sequence[int],
    carried: Sequence[ir.Value],
    body: Callable[[Values, Values], Sequence[ir.Value]],
) -> Values:
    """Loops from 0 over `sizes`, outermost first; `body` gets all induction variables."""

    def level(done: Values, values: Values) -> Sequence[ir.Value]:
        if len(done) == len(sizes):
            return body(done, values)
        bounds = index(0), index(sizes[len(done)]), index(1)
        return loop(*bounds, values, lambda i, inner: level([*done, i], inner))

    return list(level([], list(carried)))


def branch(
    condition: ir.Value,
    types: Sequence[ir.Type],
    on_true: Callable[[], Sequence[ir.Value]],
    on_false: Callable[[], Sequence[ir.Value]],
) -> Values:
    """`scf.if` with results of `types`."""
    op = ir.Operation.create("scf.if", operands=[condition], results=list(types), regions=2)
    for region, values in zip(op.regions, (on_true, on_false), strict=True):
        with ir.InsertionPoint(region.blocks.append()):
            ir.Operation.create("scf.yield", operands=list(values()))
    return list(op.results)


def inline(block: ir.Block, arguments: Sequence[ir.Value]) -> Values:
    """Copy the body of a region to here with `arguments` for its block arguments; returns what its
    terminator returns."""
    mapping = dict(zip(block.arguments, arguments, strict=True))
    for child in block.operations:
        op = child.operation
        if op.name == "stablehlo.return":
            return [mapping.get(value, value) for value in op.operands]
        clone = op.clone()
        for number, operand in enumerate(list(clone.operands)):
            if operand in mapping:
                clone.operands[number] = mapping[operand]
        for inner, number, operand in nested_operands(clone):
            if operand in mapping:
                inner.operands[number] = mapping[operand]
        mapping.update(zip(op.results, clone.results, strict=True))
    return []


def inline_scalars(block: ir.Block, scalars: Sequence[ir.Value]) -> Values:
    """`inline` for a region on tensors of rank 0: takes and returns scalars."""
    return [extract(value) for value in inline(block, [as_tensor(scalar) for scalar in scalars])]


def rewrite_operations(
    function: ir.Operation, rewrites: dict[str, Rewrite], *, wrap: bool = True
) -> None:
    """Replace every operation inside `function` that `rewrites` names, inner ones first.

    With `wrap`, what stands in the host program, at the function's top level or in control flow
    that the host runs, goes into one `scf.execute_region`, so that its scalars stay inside one
    operation on tensors; but not that control flow itself.
    """
    if not len(function.regions[0].blocks):
        return
    found = [op for op in nested_operations(function) if op.name in rewrites]
    for op in found:
        with ir.InsertionPoint(op), op.location:
            build = rewrites[op.name]
            apart = wrap and HOST not in op.attributes and is_host_block(op.block)
            values = _wrapped(op, build) if apart else build(op)
        if values is not None:
            for result, value in zip(op.results, values, strict=True):
                result.replace_all_uses_with(value)
            op.erase()


def _wrapped(op: ir.Operation, build: Rewrite) -> Sequence[ir.Value] | None:
    wrapper = ir.Operation.create(
        "scf.execute_region",
        results=[result.type for result in op.results],
        attributes={"no_inline": ir.UnitAttr.get()},
        regions=1,
    )
    with ir.InsertionPoint(wrapper.regions[0].blocks.append()):
        values = build(op)
        if values is not None:
            ir.Operation.create("scf.yield", operands=list(values))
    body = list(wrapper.regions[0].blocks[0].operations)
    if values is None or len(body) == 1:
        wrapper.erase()
        return values
    return list(wrapper.results)
