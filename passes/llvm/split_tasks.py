"""`split-tasks`: make each kernel run a range of its tasks.

The one `affine.parallel` of a kernel becomes an `affine.for` over [begin, end), two new arguments;
how many tasks there are becomes the attribute `kernel.tasks`. A kernel without a parallel loop has
one. What the first task does apart from the rest (`kernel.apart`) comes before the loop, so that it
can be done alone: with tasks 0 to 0.

    func.func @k(%x) {                         func.func @k(%x, %begin, %end)
      affine.parallel (%t) = (0) to (48) {  ->     attributes {kernel.tasks = 48} {
                                                 affine.for %t = %begin to %end {

Where a task does nothing from some number on (`skip-unused-elements`), the loop ends there:

    scf.if %t * 6 < %rows { .. }           ->    affine.for %t = %begin to min(%end, %rows / 6) {
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stepwell.attributes import i64
from stepwell.errors import LoweringError
from stepwell.kernels.builder import APART
from stepwell.mlir import dialect, ir
from stepwell.passes.base import Pass, State

affine = dialect("affine")
arith = dialect("arith")


@dataclass(frozen=True)
class SplitTasks(Pass):
    """Run on every kernel function."""

    name: ClassVar[str] = "split-tasks"
    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation, state: State) -> None:
        if "kernel.kind" not in op.attributes:
            return
        entry = op.regions[0].blocks[0]
        index = ir.IndexType.get()
        begin, end = (entry.add_argument(index, ir.Location.unknown()) for _ in range(2))
        inputs = [argument.type for argument in entry.arguments]
        op.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, []))
        loops = [c.operation for c in entry.operations if c.operation.name == "affine.parallel"]
        if len(loops) > 1:
            name = ir.StringAttr(op.attributes["sym_name"]).value
            raise LoweringError(f"{name}: a kernel has one parallel loop, this one {len(loops)}")
        count = _split(loops[0], begin, end) if loops else 1
        op.attributes["kernel.tasks"] = i64(count)


def _split(loop: ir.Operation, begin: ir.Value, end: ir.Value) -> int:
    bound = ir.AffineMapAttr(loop.attributes["upperBoundsMap"]).value
    upper = next(iter(bound.results))
    if not isinstance(upper, ir.AffineConstantExpr):
        raise LoweringError("a parallel loop has a bound that is known only at run time")
    identity = ir.AffineMap.get(0, 1, [ir.AffineExpr.get_symbol(0)])
    body = loop.regions[0].blocks[0]
    task = body.arguments[0]
    condition = _last_condition(body)
    with ir.InsertionPoint(loop):
        if condition is not None:
            end = _earlier(end, condition)
        serial = affine.AffineForOp(
            identity, identity, lower_bound_operands=[begin], upper_bound_operands=[end]
        )
    target = serial.operation.regions[0].blocks[0]
    if condition is not None:
        _leave_out(condition)
    for child in list(body.operations):
        if APART in child.operation.attributes:
            child.operation.move_before(serial)
            child.operation.operands[0] = begin
    task.replace_all_uses_with(target.arguments[0])
    for child in list(body.operations):
        child.operation.detach_from_parent()
        target.append(child)
    loop.erase()
    return upper.value


@dataclass(frozen=True)
class _Condition:
    """What a task does, it does where its number times `step` is below `bound`."""

    branch: ir.Operation
    comparison: ir.Operation
    step: int
    bound: ir.Value


def _last_condition(body: ir.Block) -> _Condition | None:
    """The one condition of a loop's body, where it holds for the first tasks alone."""
    operations = [child.operation for child in body.operations]
    if [op.name for op in operations] != ["affine.apply", "arith.cmpi", "scf.if", "affine.yield"]:
        return None
    place, comparison, branch, _ = operations
    below = ir.IntegerAttr(comparison.attributes["predicate"]).value == arith.CmpIPredicate.slt
    step = _factor(ir.AffineMapAttr(place.attributes["map"]).value)
    if (
        not below
        or step is None
        or list(place.operands) != [body.arguments[0]]
        or comparison.operands[1] in (place.results[0], body.arguments[0])
        or comparison.operands[0] != place.results[0]
        or branch.operands[0] != comparison.results[0]
        or len(branch.results)
        or len(branch.regions[1].blocks)
    ):
        return None
    return _Condition(branch, comparison, step, comparison.operands[1])


def _factor(place: ir.AffineMap) -> int | None:
    """The factor of a map that is its dimension times a positive constant; None of others."""
    (expression,) = place.results
    if isinstance(expression, ir.AffineDimExpr):
        return 1
    if not isinstance(expression, ir.AffineMulExpr):
        return None
    left, right = expression.lhs, expression.rhs
    plain = isinstance(left, ir.AffineDimExpr) and isinstance(right, ir.AffineConstantExpr)
    return right.value if plain and right.value > 0 else None


def _earlier(end: ir.Value, condition: _Condition) -> ir.Value:
    index = ir.IndexType.get()
    step = arith.ConstantOp(index, condition.step).result
    return arith.MinSIOp(end, arith.CeilDivSIOp(condition.bound, step).result).result


def _leave_out(condition: _Condition) -> None:
    """Put what is done where the condition holds in its place."""
    block = condition.branch.regions[0].blocks[0]
    for child in list(block.operations)[:-1]:
        child.operation.move_before(condition.branch)
    place = condition.comparison.operands[0].owner
    for op in (condition.branch, condition.comparison, place):
        op.erase()
