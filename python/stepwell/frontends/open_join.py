"""One program from the same one for several sizes: which of their operations belong together.

Operations are no longer in the same order, or as many, where numbers or shapes are equal for one
size by chance: a size of 3 and the number 3 are one constant there, and two for a size of 7. So
programs are compared from what they return, back to their arguments. An operation of the first
that stands for several in others is doubled; what no result depends on is dropped. Where a size is
1, elements that are repeated once are those that there are, and the first one is all of them: a
program may lack an operation there that repeats or takes them in others. Where a size is the
largest, the first elements of a table may be all of it: there the first program is given an
operation that takes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stepwell.dialects import stablehlo as hlo
from stepwell.errors import ModelError
from stepwell.kernels.structured import source_name
from stepwell.mlir import ir

Together = tuple[ir.Value, ...]
"""One value of each program."""

Operations = list[ir.Operation | None]
"""One operation of each program; None where it is left out."""

Enter = Callable[[Operations, Sequence[Together]], None]
"""What is called with operations that belong together, and their results."""


def join(blocks: Sequence[ir.Block], enter: Enter) -> None:
    """Make the first of `blocks`, a program at one size, that of all.

    `enter` is called with the operations that belong together, those of values before those of
    their users, and the one of the first program may be given attributes. Raises ModelError when
    the programs differ by more than shapes and attributes.
    """
    _Join(enter).block(blocks)


class _Join:
    def __init__(self, enter: Enter) -> None:
        self._enter = enter
        self._joined: dict[Together, ir.Value] = {}
        self._taken: dict[Together, Together] = {}
        # Operations by their first result, since their own hash changes with their operands.
        self._used: set[ir.Value] = set()
        self._operands: dict[ir.Value, list[ir.Value]] = {}

    def block(self, blocks: Sequence[ir.Block]) -> None:
        """Join the arguments of `blocks`, and what their last operations depend on."""
        ends = [list(block.operations)[-1].operation for block in blocks]
        _check(ends[0], [len(block.arguments) for block in blocks])
        for together in zip(*(block.arguments for block in blocks), strict=True):
            self._joined[together] = together[0]
        for number, together in enumerate(self._operands_of([*ends])):
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
            taken = self._as_taken(together)
            ops = _owners(taken)
            missing = [t for t in self._operands_of(ops, taken) if t not in self._joined]
            pending += missing
            if not missing:
                self._operation(ops, taken)
                self._joined[together] = self._joined[taken]
        return self._joined[wanted]

    def _as_taken(self, together: Together) -> Together:
        """`together`, with a slice of all elements in the first program where that has none and
        others take the first ones."""
        first, *others = together
        if _is_slice(first) or not any(map(_takes_first, others)):
            return together
        if together not in self._taken:
            if isinstance(first.owner, ir.Block):
                place = ir.InsertionPoint.at_block_begin(first.owner)
            else:
                place = ir.InsertionPoint.after(first.owner.operation)
            shape = hlo.shape(first)
            with first.context, ir.Location.unknown(), place:
                whole = hlo.slice(first, [0] * len(shape), shape)
            self._taken[together] = (whole, *others)
        return self._taken[together]

    def _operands_of(self, ops: Operations, together: Together = ()) -> list[Together]:
        """Operands that belong together, those that the first program had at the beginning. That of
        an operation which is left out is its result, in `together`."""
        assert ops[0] is not None
        first = list(ops[0].operands)
        if ops[0].results:
            first = self._operands.get(ops[0].results[0], first)
        rest = [
            [together[number]] if op is None else list(op.operands)
            for number, op in enumerate(ops[1:], 1)
        ]
        _check(ops[0], [len(first), *map(len, rest)])
        return list(zip(first, *rest, strict=True))

    def _operation(self, ops: Operations, together: Together) -> None:
        """Join `ops`, of which all operands are joined."""
        first = ops[0]
        assert first is not None
        present = [op for op in ops if op is not None]
        _check(first, [len(op.results) for op in present])
        _check(first, [len(op.regions) for op in present])
        operands = [self._joined[t] for t in self._operands_of(ops, together)]
        results = (
            list(zip(*(op.results for op in present), strict=True))
            if len(present) == len(ops)
            else [together]
        )
        if first.results[0] in self._used:
            first = _double(first)
        else:
            self._operands[first.results[0]] = list(first.operands)
        self._used.add(first.results[0])
        for number, value in enumerate(operands):
            first.operands[number] = value
        for values, result in zip(results, first.results, strict=True):
            self._joined[values] = result
        self._enter([first, *ops[1:]], results)
        joined = [first, *present[1:]]
        for regions in zip(*(op.regions for op in joined), strict=True):
            _check(first, [len(list(region.blocks)) for region in regions])
            for blocks in zip(*(region.blocks for region in regions), strict=True):
                self.block(blocks)


def _owners(together: Together) -> Operations:
    """The operations of which values that belong together are results."""
    results = [ir.OpResult(v) if isinstance(v, ir.OpResult) else None for v in together]
    first = results[0]
    if first is None:
        raise ModelError("the model is another for other sizes")
    op = first.owner.operation
    found: Operations = [op]
    for result in results[1:]:
        other = None if result is None else result.owner.operation
        if other is not None and other.name == op.name:
            _check(op, [first.result_number, ir.OpResult(result).result_number])
        else:
            other = None
            _check(op, [True, _may_be_left_out(op)])
        found.append(other)
    return found


def _is_slice(value: ir.Value) -> bool:
    is_result = not isinstance(value.owner, ir.Block)
    return is_result and value.owner.operation.name == "stablehlo.slice"


def _takes_first(value: ir.Value) -> bool:
    """Whether `value` is the first elements of another."""
    return _is_slice(value) and _may_be_left_out(value.owner.operation)


def _may_be_left_out(op: ir.Operation) -> bool:
    """Whether `op` gives its operand as it is for some sizes: it repeats elements, or takes the
    first ones."""
    if op.name == "stablehlo.slice":
        starts, steps = (
            set(ir.DenseI64ArrayAttr(op.attributes[name])) for name in ("start_indices", "strides")
        )
        return starts <= {0} and steps <= {1}
    if op.name != "stablehlo.broadcast_in_dim":
        return False
    dimensions = list(ir.DenseI64ArrayAttr(op.attributes["broadcast_dimensions"]))
    return dimensions == list(range(len(hlo.shape(op.results[0]))))


def _double(op: ir.Operation) -> ir.Operation:
    """A copy of `op` behind it, without what was entered."""
    with op.context, ir.InsertionPoint.after(op):
        copy = op.operation.clone().operation
    for name in [name for name in copy.attributes if name.startswith("stepwell.")]:
        del copy.attributes[name]
    return copy


def _check(op: ir.Operation, found: Sequence[object]) -> None:
    """Raise ModelError unless what was `found` of `op` and those of other sizes is the same."""
    if len(set(found)) > 1:
        raise ModelError(f"{source_name(op)}: the model is another for other sizes")
