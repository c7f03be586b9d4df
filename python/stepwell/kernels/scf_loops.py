"""Loops and branches of `scf` that carry values, for kernels whose control flow depends on data."""

from __future__ import annotations

from collections.abc import Callable

from stepwell.mlir import dialect, ir

arith = dialect("arith")
scf = dialect("scf")

Values = list[ir.Value]


def index(value: int) -> ir.Value:
    """A constant of type index."""
    return arith.ConstantOp(ir.IndexType.get(), value).result


def add(lhs: ir.Value, rhs: ir.Value | int) -> ir.Value:
    """lhs + rhs, of type index."""
    return arith.AddIOp(lhs, index(rhs) if isinstance(rhs, int) else rhs).result


def subtract(lhs: ir.Value, rhs: ir.Value | int) -> ir.Value:
    """lhs - rhs, of type index."""
    return arith.SubIOp(lhs, index(rhs) if isinstance(rhs, int) else rhs).result


def multiply(lhs: ir.Value, rhs: int) -> ir.Value:
    """lhs * rhs, of type index."""
    return lhs if rhs == 1 else arith.MulIOp(lhs, index(rhs)).result


def loop(
    bounds: tuple[int, int, int], carried: Values, body: Callable[[ir.Value, Values], Values]
) -> Values:
    """`scf.for` from, to and by `bounds`; `body` gets the variable and what is carried."""
    op = scf.ForOp(*map(index, bounds), carried)
    with ir.InsertionPoint(op.body):
        scf.YieldOp(body(op.induction_variable, list(op.inner_iter_args)))
    return list(op.results)


def each(count: int, body: Callable[[ir.Value], None]) -> None:
    """`scf.for` from 0 to `count` that carries nothing."""
    op = scf.ForOp(index(0), index(count), index(1))
    with ir.InsertionPoint(op.body):
        body(op.induction_variable)
        scf.YieldOp([])


def repeat(
    carried: Values, condition: Callable[[Values], ir.Value], body: Callable[[Values], Values]
) -> Values:
    """`scf.while`: `body` as long as `condition` holds; both get what is carried."""
    kinds = [value.type for value in carried]
    op = scf.WhileOp(kinds, carried)
    before, after = (region.blocks.append(*kinds) for region in (op.before, op.after))
    with ir.InsertionPoint(before):
        scf.ConditionOp(condition(list(before.arguments)), list(before.arguments))
    with ir.InsertionPoint(after):
        scf.YieldOp(body(list(after.arguments)))
    return list(op.results)


def either(condition: ir.Value, then: Callable[[], Values], otherwise: Values) -> Values:
    """What `then` computes where the condition holds, or `otherwise`."""
    op = scf.IfOp(condition, [value.type for value in otherwise], has_else=True)
    with ir.InsertionPoint(op.then_block):
        scf.YieldOp(then())
    with ir.InsertionPoint(op.else_block):
        scf.YieldOp(otherwise)
    return list(op.results)


def when(condition: ir.Value, then: Callable[[], None]) -> None:
    """Do `then` where the condition holds."""
    op = scf.IfOp(condition)
    with ir.InsertionPoint(op.then_block):
        then()
        scf.YieldOp([])
