"""Scalar code applied to whole tensors as one operation, so that it is one node of a fusion group,
whatever it reads twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir
from stepwell.passes.linalg import _loops as loops
from stepwell.passes.stablehlo._values import i64s


def mapped(
    arguments: Sequence[ir.Value],
    element: ir.Type,
    body: Callable[[list[ir.Value]], ir.Value],
) -> ir.Value:
    """`stablehlo.map` of `arguments`, which have one shape, to a tensor of `element`: what `body`
    makes of tensors of rank 0, element by element. Those that it does not read are left out, since
    nothing says where they would be read."""
    shape = hlo.shape(arguments[0])
    kinds = [ir.RankedTensorType.get([], hlo.element_type(value)) for value in arguments]
    with hlo.detached_block(*kinds) as block:
        ir.Operation.create("stablehlo.return", operands=[body(list(block.arguments))])
        _drop_unread(block)
        read = [n for n, scalar in enumerate(block.arguments) if any(True for _ in scalar.uses)]
        for number in reversed(range(len(kinds))):
            if number not in read:
                block.erase_argument(number)
        with ir.InsertionPoint(block.owner.operation):
            op = ir.Operation.create(
                "stablehlo.map",
                results=[ir.RankedTensorType.get(list(shape), element)],
                operands=[arguments[number] for number in read],
                attributes={"dimensions": i64s(range(len(shape)))},
                regions=1,
            )
        block.append_to(op.regions[0])
    return op.results[0]


def _drop_unread(block: ir.Block) -> None:
    """Erase the operations of a body whose results nothing reads."""
    for child in reversed(list(block.operations)[:-1]):
        if not any(True for result in child.operation.results for _ in result.uses):
            child.operation.erase()


def mapped_region(
    block: ir.Block, arguments: Sequence[ir.Value], offsets: Sequence[int] | None = None
) -> list[ir.Value]:
    """What a region on tensors of rank 0 returns for each element of `arguments`, with `offsets`
    added to them: one operation a result."""
    end = list(block.operations)[-1].operation

    def body(scalars: list[ir.Value], number: int) -> ir.Value:
        moved = [
            hlo.add(scalar, hlo.full(offset, (), hlo.dtype(scalar))) if offset else scalar
            for scalar, offset in zip(scalars, offsets or [0] * len(scalars), strict=True)
        ]
        return loops.inline(block, moved)[number]

    return [
        mapped(
            arguments,
            hlo.element_type(value),
            lambda scalars, number=number: body(scalars, number),
        )
        for number, value in enumerate(end.operands)
    ]
