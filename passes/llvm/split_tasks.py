"""`split-tasks`: make each kernel run a range of its tasks.

The one `affine.parallel` of a kernel becomes an `affine.for` over [begin, end), two new arguments;
how many tasks there are becomes the attribute `kernel.tasks`. A kernel without a parallel loop has
one.

    func.func @k(%x) {                         func.func @k(%x, %begin, %end)
      affine.parallel (%t) = (0) to (48) {  ->     attributes {kernel.tasks = 48} {
                                                 affine.for %t = %begin to %end {
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stepwell.attributes import i64
from stepwell.errors import LoweringError
from stepwell.mlir import dialect, ir
from stepwell.passes.base import Pass, State

affine = dialect("affine")


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
    with ir.InsertionPoint(loop):
        serial = affine.AffineForOp(
            identity, identity, lower_bound_operands=[begin], upper_bound_operands=[end]
        )
    body = loop.regions[0].blocks[0]
    target = serial.operation.regions[0].blocks[0]
    body.arguments[0].replace_all_uses_with(target.arguments[0])
    for child in list(body.operations):
        child.operation.detach_from_parent()
        target.append(child)
    loop.erase()
    return upper.value
