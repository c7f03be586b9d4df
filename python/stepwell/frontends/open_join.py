"""One program from the same one for several sizes: which of their operations belong together.

Operations are no longer in the same order, or as many, where numbers or shapes are equal for one
size by chance: a size of 3 and the number 3 are one constant there, and two for a size of 7. So
programs are compared from what they return, back to their arguments. An operation of the first
that stands for several in others is doubled; what no result depends on is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stepwell.errors import ModelError
from stepwell.kernels.structured import source_name
from stepwell.mlir import ir

Together = tuple[ir.Value, ...]
"""One value of each program."""


def join(blocks: Sequence[ir.Block], enter: Callable[[list[ir.Operation]], None]) -> None:
    """Make the first of `blocks`, a program at one size, that of all.

    `enter` is called with the operations that belong together, those of values before those of
    their users, and the one of the first program may be given attributes. Raises ModelError when
    the programs differ by more than shapes and attributes.
    """
    _Join(enter).block(blocks)


class _Join:
    def __init__(self, enter: Callable[[list[ir.Operation]], None]) -> None:
        self._enter = enter
        self._joined: dict[Together, ir.Value] = {}
        # Operations by their first result, since their own hash changes with their operands.
        self._used: set[ir.Value] = set()
        self._operands: dict[ir.Value, list[ir.Value]] = {}

    def block(self, blocks: Sequence[ir.Block]) -> None:
        """Join the arguments of `blocks`, and what their last operations depend on."""
        ends = [list(block.operations)[-1].operation for block in blocks]
        _check(ends, [len(block.arguments) for block in blocks])
        for together in zip(*(block.arguments for block in blocks), strict=True):
            self._joined[together] = together[0]
        for number, together in enumerate(self._operands_of(ends)):
            ends[0].operands[number] = self._value(together)
        for view in reversed(list(blocks[0].operations)[:-1]):
            op = view.operation
            if not op.results or op.results[0] not in self._used:
                op.erase()

    def _value(self, wanted: Together) -> ir.Value:
        """The value of the joint program that stands for `wanted`."""
        pending = [wanted]
        while pending:
            together = pending[-1]
            if together in self._joined:
                pending.pop()
                continue
            ops = _owners(together)
            missing = [t for t in self._operands_of(ops) if t not in self._joined]
            pending += missing
            if not missing:
                self._operation(ops)
        return self._joined[wanted]

    def _operands_of(self, ops: Sequence[ir.Operation]) -> list[Together]:
        """Operands that belong together, those that the first program had at the beginning."""
        first = list(ops[0].operands)
        if ops[0].results:
            first = self._operands.get(ops[0].results[0], first)
        rest = [list(op.operands) for op in ops[1:]]
        _check(ops, [len(first), *map(len, rest)])
        return list(zip(first, *rest, strict=True))

    def _operation(self, ops: list[ir.Operation]) -> None:
        """Join `ops`, of which all operands are joined."""
        first = ops[0]
        _check(ops, [len(op.results) for op in ops])
        _check(ops, [len(op.regions) for op in ops])
        operands = [self._joined[together] for together in self._operands_of(ops)]
        results = list(zip(*(op.results for op in ops), strict=True))
        if first.results[0] in self._used:
            first = _double(first)
        else:
            self._operands[first.results[0]] = list(first.operands)
        self._used.add(first.results[0])
        for number, value in enumerate(operands):
            first.operands[number] = value
        for together, result in zip(results, first.results, strict=True):
            self._joined[together] = result
        joined = [first, *ops[1:]]
        self._enter(joined)
        for regions in zip(*(op.regions for op in joined), strict=True):
            _check(joined, [len(list(region.blocks)) for region in regions])
            for blocks in zip(*(region.blocks for region in regions), strict=True):
                self.block(blocks)


def _owners(together: Together) -> list[ir.Operation]:
    """The operations of which values that belong together are results."""
    results = [ir.OpResult(value) for value in together if isinstance(value, ir.OpResult)]
    if len(results) < len(together):
        raise ModelError("the model is another for other sizes")
    ops = [result.owner.operation for result in results]
    _check(ops, [(op.name, r.result_number) for op, r in zip(ops, results, strict=True)])
    return ops


def _double(op: ir.Operation) -> ir.Operation:
    """A copy of `op` behind it, without what was entered."""
    with op.context, ir.InsertionPoint.after(op):
        copy = op.operation.clone().operation
    for name in [name for name in copy.attributes if name.startswith("stepwell.")]:
        del copy.attributes[name]
    return copy


def _check(ops: Sequence[ir.Operation], found: Sequence[object]) -> None:
    """Raise ModelError unless what was `found` of each of `ops` is the same."""
    if len(set(found)) > 1:
        raise ModelError(f"{source_name(ops[0])}: the model is another for other sizes")
