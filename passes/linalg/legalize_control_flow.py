"""`legalize-control-flow`: while, if, case of StableHLO as loops and branches of `scf` on tensors.

    %r = stablehlo.while(%x = %init) cond {..} do {..}
      ->  %r = scf.while (%x = %init) { .. scf.condition(%c) %x } do { .. scf.yield %next }

Constants of the bodies move to the function's entry, where each is one weight.
`optimization_barrier`, `tuple` and `get_tuple_element` disappear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stepwell.attributes import PARTS
from stepwell.dialects import stablehlo as hlo
from stepwell.kernels.structured import defining_op
from stepwell.mlir import ir, nested_operations
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg._fusion_graph import HOST
from stepwell.passes.linalg._loops import Rewrite, extract, rewrite_operations


def _while(op: ir.Operation) -> Sequence[ir.Value]:
    loop = ir.Operation.create(
        "scf.while",
        operands=list(op.operands),
        results=[result.type for result in op.results],
        attributes=_marks(op),
        regions=2,
    )
    before, after = (_move(op.regions[i], loop.regions[i]) for i in range(2))
    condition = _terminator(before)
    with ir.InsertionPoint(condition), condition.location:
        ir.Operation.create(
            "scf.condition", operands=[extract(condition.operands[0]), *before.arguments]
        )
    condition.erase()
    _yield(after)
    return list(loop.results)


def _if(op: ir.Operation) -> Sequence[ir.Value]:
    branch = ir.Operation.create(
        "scf.if",
        operands=[extract(op.operands[0])],
        results=[result.type for result in op.results],
        attributes=_marks(op),
        regions=2,
    )
    for source, target in zip(op.regions, branch.regions, strict=True):
        _yield(_move(source, target))
    return list(branch.results)


def _case(op: ir.Operation) -> Sequence[ir.Value]:
    if len(op.regions) > 1:
        return _chain(op, 0)
    (*inner, end) = (child.operation for child in op.regions[0].blocks[0].operations)
    for child in inner:
        child.move_before(op)
    return list(end.operands)


def _chain(op: ir.Operation, number: int) -> Sequence[ir.Value]:
    """Branch `number` of a case, or a later one, on a condition that is a tensor; an index out of
    range means the last branch. `scf.index_switch` would be bufferized wrongly."""
    constant = hlo.full(number, [], np.int32)
    chosen = hlo.compare(op.operands[0], constant, "EQ")
    branch = ir.Operation.create(
        "scf.if",
        operands=[extract(chosen)],
        results=[result.type for result in op.results],
        attributes=_marks(op),
        regions=2,
    )
    _yield(_move(op.regions[number], branch.regions[0]))
    if number == len(op.regions) - 2:
        _yield(_move(op.regions[number + 1], branch.regions[1]))
    else:
        with ir.InsertionPoint(branch.regions[1].blocks.append()):
            ir.Operation.create("scf.yield", operands=list(_chain(op, number + 1)))
    return list(branch.results)


def _marks(op: ir.Operation) -> dict[str, ir.Attribute]:
    """The marks that `op` bears: of control flow that the host runs, and in parts."""
    return {name: op.attributes[name] for name in (HOST, PARTS) if name in op.attributes}


def _operands(op: ir.Operation) -> Sequence[ir.Value]:
    return list(op.operands)


def _tuple_element(op: ir.Operation) -> Sequence[ir.Value] | None:
    source = defining_op(op.operands[0])
    if source is None or source.name != "stablehlo.tuple":
        return None
    return [source.operands[ir.IntegerAttr(op.attributes["index"]).value]]


_REWRITES: dict[str, Rewrite] = {
    "stablehlo.while": _while,
    "stablehlo.if": _if,
    "stablehlo.case": _case,
    "stablehlo.optimization_barrier": _operands,
    "stablehlo.get_tuple_element": _tuple_element,
}


def _move(source: ir.Region, target: ir.Region) -> ir.Block:
    source.blocks[0].append_to(target)
    return target.blocks[0]


def _terminator(block: ir.Block) -> ir.Operation:
    return list(block.operations)[-1].operation


def _yield(block: ir.Block) -> None:
    """Turn the block's `stablehlo.return` into `scf.yield`."""
    end = _terminator(block)
    with ir.InsertionPoint(end), end.location:
        ir.Operation.create("scf.yield", operands=list(end.operands))
    end.erase()


@dataclass(frozen=True)
class LegalizeControlFlow(Pass):
    """Rewrite control flow at any depth, inner regions first."""

    name: ClassVar[str] = "legalize-control-flow"
    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation, state: State) -> None:
        if not len(op.regions[0].blocks):
            return
        entry = op.regions[0].blocks[0]
        constants = [
            inner
            for inner in nested_operations(op)
            if inner.name == "stablehlo.constant" and inner.block != entry
        ]
        first = entry.operations[0]
        for constant in constants:
            if _in_control_flow(constant, op):
                constant.move_before(first)
        rewrite_operations(op, _REWRITES)
        _erase_tuples(op)


def _in_control_flow(op: ir.Operation, function: ir.Operation) -> bool:
    """Whether only control flow stands between `op` and the function: not the scalar body of a
    reduction, which reads nothing from outside."""
    parent = op.parent
    while parent is not None and parent.operation != function:
        name = parent.operation.name
        if name not in _REWRITES and not name.startswith("scf."):
            return False
        parent = parent.operation.parent
    return True


def _erase_tuples(function: ir.Operation) -> None:
    tuples = [inner for inner in nested_operations(function) if inner.name == "stablehlo.tuple"]
    for inner in reversed(tuples):
        if not any(True for _ in inner.results[0].uses):
            inner.erase()
