"""`divide-loops`: give each thread its own rows of a batch that a loop goes over.

    %h = stablehlo.while(%t = 0, %h = %h0) cond { %t < 32 } do {
      %x = stablehlo.dynamic_slice %xs, %t, 0, 0 .. -> tensor<1x8x64xf32>
      %next = stablehlo.tanh(%x + stablehlo.dot_general(%h, %w))
      stablehlo.return %t + 1, %next
    }
      ->  %h = stablehlo.while(%row = 0, %out = tensor.empty()) cond { %row < 8 } do {
            %part = stablehlo.dynamic_slice %h0, %row, 0 .. -> tensor<4x64xf32>
            %last = stablehlo.while(%t = 0, %h = %part) cond { %t < 32 } do {
              %x = stablehlo.dynamic_slice %xs, %t, %row, 0 .. -> tensor<1x4x64xf32>
              ..
            }
            stablehlo.return %row + 4, stablehlo.dynamic_update_slice %out, %last, %row, 0
          } {stepwell.parts = [2, 1, 4]}

Threads that share each kernel of a step wait for one another twice a step or more; now they wait
once, at the end. In return each reads all weights at every step. Whether that pays is estimated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from stepwell.attributes import PARTS, i64_array
from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.open_sizes import EXTENTS
from stepwell.kernels.structured import defining_op
from stepwell.mlir import dialect, ir
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg._batch_rules import on_part, operand_dimensions
from stepwell.passes.linalg._captured import captured
from stepwell.passes.linalg.place_control_flow import LEAST_ELEMENTS, iteration_work
from stepwell.passes.stablehlo._values import has_one_use, splat
from stepwell.targets import Target

tensor = dialect("tensor")

_WAIT = 2000
"""Cycles that it takes to hand the tasks of a kernel to other threads and to wait for them."""

_L2_RATE = 32
"""Bytes a cycle that a core reads from its L2."""

_WAITING = 0.12
"""The part of the shorter of that and multiply-adds that the longer does not hide."""

_ALONE = 64
"""Elements that every thread may compute for itself at each step: counters, conditions."""

_APART = tuple(f"stablehlo.{name}" for name in ("while", "if", "case", "rng", "custom_call"))
"""Operations that loops hold which are left as they are."""

_FREE = ("stablehlo.constant", "stablehlo.reshape", "stablehlo.broadcast_in_dim", "stablehlo.iota")


@dataclass(frozen=True)
class DivideLoops(Pass):
    """Look at the loops of a function's body."""

    name: ClassVar[str] = "divide-loops"
    anchor: ClassVar[str] = "func.func"
    threads: int | None = None
    """How many there are; by default those that the model is compiled for."""

    def run(self, op: ir.Operation, state: State) -> None:
        threads = self.threads or state.threads
        if threads == 1 or not len(op.regions[0].blocks) or EXTENTS in op.attributes:
            return  # of an open batch, few rows may be in use
        for child in list(op.regions[0].blocks[0].operations):
            loop = child.operation
            if loop.name == "stablehlo.while":
                division = next(
                    (d for d in _divisions(loop, threads) if _pays(d, state.target)), None
                )
                if division is not None:
                    _divide(division)


@dataclass
class _Division:
    """Which rows of what a loop carries belong together."""

    loop: ir.Operation
    batch: int
    parts: int
    carried: dict[int, int] = field(default_factory=dict)
    """The dimension along which carried value n holds the batch."""

    dimensions: dict[ir.Value, int] = field(default_factory=dict)
    """The same of every value of the body, and from outside, of which rows are asked for."""

    alone: set[ir.Value] = field(default_factory=set)
    """Values that every part needs whole."""

    stores: set[int] = field(default_factory=set)
    """Carried values that steps only write slices of: they stay whole."""

    @property
    def body(self) -> ir.Block:
        return self.loop.regions[1].blocks[0]

    @property
    def rows(self) -> int:
        return self.batch // self.parts

    def yielded(self, number: int) -> ir.Value:
        return list(self.body.operations)[-1].operation.operands[number]

    def number(self, value: ir.Value) -> int | None:
        """Which carried value `value` is, at the beginning of a step."""
        if isinstance(value, ir.BlockArgument) and value.owner == self.body:
            return ir.BlockArgument(value).arg_number
        return None

    def inside(self, value: ir.Value) -> ir.Operation | None:
        """The operation of the body that makes `value`."""
        op = defining_op(value)
        return op if op is not None and op.block == self.body else None


def _divisions(loop: ir.Operation, threads: int) -> Iterator[_Division]:
    """The ways to divide `loop`, by each dimension of each value that it carries."""
    blocks = [region.blocks[0] for region in loop.regions]
    operations = [child.operation for block in blocks for child in list(block.operations)[:-1]]
    if (
        not any(True for result in loop.results for _ in result.uses)
        or not all(isinstance(value.type, ir.RankedTensorType) for value in loop.operands)
        or any(len(op.results) != 1 or op.name in _APART for op in operations)
    ):
        return
    for number, value in enumerate(loop.operands):
        for dimension, size in enumerate(hlo.shape(value)):
            parts = max(p for p in range(1, threads + 1) if size % p == 0)
            division = _Division(loop, size, parts)
            if 1 < parts <= size and _follow(division, number, dimension) and _is_whole(division):
                yield division


def _follow(division: _Division, number: int, dimension: int) -> bool:
    """Find which rows the next value of carried value `number` is made of, step by step back;
    whether these rows are made of such rows alone."""
    division.carried[number] = dimension
    pending = [(division.yielded(number), dimension)]
    while pending:
        value, place = pending.pop()
        if value in division.dimensions:
            if division.dimensions[value] != place:
                return False
            continue
        if hlo.shape(value)[place] != division.batch:
            return False
        division.dimensions[value] = place
        carried = division.number(value)
        if carried is not None:
            if division.carried.setdefault(carried, place) != place:
                return False
            pending.append((division.yielded(carried), place))
        if (op := division.inside(value)) is None:
            continue
        found = operand_dimensions(op, place)
        if found is None:
            division.alone.add(value)
            continue
        for operand, where in zip(op.operands, found, strict=True):
            if where is None:
                division.alone.add(operand)
            else:
                pending.append((operand, where))
    return True


def _is_whole(division: _Division) -> bool:
    """Whether what the parts need whole does not depend on the rows of others, and is little; finds
    the carried values that stay whole, too."""
    operations = [child.operation for child in division.body.operations]
    of_rows = {division.body.arguments[n] for n in division.carried}
    for op in operations[:-1]:
        if any(value in of_rows for value in (*op.operands, *captured(op))):
            of_rows.update(op.results)
    counters = [n for n in range(len(division.loop.operands)) if n not in division.carried]
    division.alone.update(division.yielded(n) for n in counters)
    condition = division.loop.regions[0].blocks[0]
    tested = [condition.arguments[n] for n in division.carried]
    if any(True for argument in tested for _ in argument.uses) or division.alone & of_rows:
        return False
    if any(True for n in counters for _ in division.loop.results[n].uses):
        return False
    division.stores = {n for n in division.carried if _is_store(division, n)}
    return _work_alone(division) <= _ALONE


def _is_store(division: _Division, number: int) -> bool:
    """Whether steps do nothing with carried value `number` but write slices of whole rows to it."""
    value = division.body.arguments[number]
    while value != division.yielded(number):
        uses = list(value.uses)
        writer = uses[0].owner.operation if len(uses) == 1 else None
        if (
            writer is None
            or writer.name != "stablehlo.dynamic_update_slice"
            or writer.operands[0] != value
            or operand_dimensions(writer, division.carried[number]) is None
        ):
            return False
        value = writer.results[0]
    return value != division.body.arguments[number] and has_one_use(value)


def _work_alone(division: _Division) -> int:
    """Elements that each part computes of what it needs whole."""
    pending, known, total = list(division.alone), set[ir.Value](), 0
    while pending:
        value = pending.pop()
        op = division.inside(value)
        if op is None or value in known:
            continue
        known.add(value)
        if op.name not in _FREE:
            total += math.prod(hlo.shape(value))
        pending += list(op.operands)
    return total


def _pays(division: _Division, target: Target) -> bool:
    """Whether a step takes less time where each thread has rows of its own."""
    if iteration_work(division.loop) < division.parts * LEAST_ELEMENTS:
        return False  # such a loop is one kernel
    products = weights = work = 0
    for child in division.body.operations:
        op = child.operation
        if op.name != "stablehlo.dot_general":
            continue
        sizes = [math.prod(hlo.shape(value)) for value in (*op.operands, *op.results)]
        products += 1
        work += math.isqrt(math.prod(sizes))
        weights += sum(
            size * hlo.dtype(value).itemsize
            for value, size in zip(op.operands, sizes, strict=False)
            if value not in division.dimensions
        )

    def time(size: float) -> float:
        """Cycles of a step in which each thread reads so many bytes of weights."""
        computing = work / target.vector_lanes / division.parts
        near = size <= target.l2_bytes
        reading = size / (_L2_RATE if near else target.l3_rate)
        waiting = _WAITING if near else target.waiting
        return max(computing, reading) + waiting * min(computing, reading)

    return time(weights) < time(weights / division.parts) + _WAIT * (products + 1)


def _divide(division: _Division) -> None:
    """Put a loop over the parts in the place of the loop over the steps."""
    loop, stores = division.loop, division.stores
    kept = [
        n
        for n in sorted(division.carried)
        if n in stores or any(True for _ in loop.results[n].uses)
    ]
    with ir.InsertionPoint(loop), loop.location:
        zero, step, end = (hlo.full(n, [], np.int32) for n in (0, division.rows, division.batch))
        values = [loop.operands[n] for n in kept]
        starts = [
            value
            if n in stores
            else tensor.EmptyOp(list(hlo.shape(value)), hlo.element_type(value)).result
            for n, value in zip(kept, values, strict=True)
        ]

        def body(begin: ir.Value, *outs: ir.Value) -> list[ir.Value]:
            part = _Part(division, begin, zero)
            results = part.steps(dict(zip(kept, outs, strict=True)))
            updated = [
                results[n]
                if n in stores
                else hlo.dynamic_update_slice(out, results[n], part.place(out, division.carried[n]))
                for n, out in zip(kept, outs, strict=True)
            ]
            return [hlo.add(begin, step), *updated]

        _, *results = hlo.while_loop(
            [zero, *starts], lambda begin, *_: hlo.compare(begin, end, "LT"), body
        )
    results[0].owner.attributes[PARTS] = i64_array([division.parts, 1, division.rows])
    for n, result in zip(kept, results, strict=True):
        loop.results[n].replace_all_uses_with(result)
    loop.erase()


@dataclass
class _Part:
    """Builds the loop over the steps of the rows that begin at `begin`."""

    division: _Division
    begin: ir.Value
    zero: ir.Value
    rows: dict[ir.Value, ir.Value] = field(default_factory=dict)
    """What stands in the place of a value, of which there are these rows alone."""

    wholes: dict[ir.Value, ir.Value] = field(default_factory=dict)
    """What stands in the place of a value of the body that every part computes."""

    def steps(self, outs: dict[int, ir.Value]) -> list[ir.Value]:
        """The loop; what stays whole begins as in `outs`."""
        division = self.division
        starts = []
        for n, value in enumerate(division.loop.operands):
            if n in division.stores:
                starts.append(outs[n])
            elif n in division.carried:
                starts.append(self._rows_of(value, division.carried[n]))
            else:
                starts.append(value)
        for value, dimension in division.dimensions.items():
            if self._is_sliced(value):
                self.rows[value] = self._rows_of(value, dimension)

        def condition(*arguments: ir.Value) -> ir.Value:
            block = division.loop.regions[0].blocks[0]
            copies = dict(zip(block.arguments, arguments, strict=True))
            (*inner, end) = (child.operation for child in block.operations)
            for op in inner:
                copies[op.results[0]] = _copy(op, [copies.get(v, v) for v in op.operands])
            return copies.get(end.operands[0], end.operands[0])

        def body(*arguments: ir.Value) -> Sequence[ir.Value]:
            for n, argument in enumerate(arguments):
                made = self.rows if n in division.carried else self.wholes
                made[division.body.arguments[n]] = argument
            return [
                self._make(division.yielded(n), whole=n not in division.carried)
                for n in range(len(arguments))
            ]

        return hlo.while_loop(starts, condition, body)

    def _is_sliced(self, value: ir.Value) -> bool:
        """Whether `value` comes from outside, and its rows are not cut out by an operation of the
        body."""
        division = self.division
        if division.inside(value) is not None or division.number(value) is not None:
            return False
        return any(
            use.owner.operation.block == division.body
            and use.owner.operation.name != "stablehlo.dynamic_slice"
            for use in value.uses
        )

    def _rows_of(self, value: ir.Value, dimension: int) -> ir.Value:
        """The part's rows of a value that is there as a whole."""
        sizes = list(hlo.shape(value))
        sizes[dimension] = self.division.rows
        if (number := splat(value)) is not None:
            return hlo.full(number, sizes, hlo.dtype(value))
        return hlo.dynamic_slice(value, self.place(value, dimension), sizes)

    def place(self, value: ir.Value, dimension: int) -> list[ir.Value]:
        """Where the part's rows begin of a value that is there as a whole."""
        return [self.begin if d == dimension else self.zero for d in range(len(hlo.shape(value)))]

    def _make(self, value: ir.Value, *, whole: bool) -> ir.Value:
        """`value`, or the part's rows of it, with all that it is made of made before it, however
        long the way back is."""
        stack, made = [(value, whole)], value
        while stack:
            value, whole = stack[-1]
            missing = next((n for n in self._needs(value, whole) if self._is_missing(*n)), None)
            if missing is not None:
                stack.append(missing)
                continue
            stack.pop()
            made = self._whole(value) if whole else self._part(value)
        return made

    def _needs(self, value: ir.Value, whole: bool) -> list[tuple[ir.Value, bool]]:
        """The values that `value` is made of directly, and whether they are needed whole."""
        op = self.division.inside(value)
        if op is None or not self._is_missing(value, whole):
            return []
        if whole:
            return [(operand, True) for operand in op.operands]
        found = operand_dimensions(op, self.division.dimensions[value])
        if found is None:
            return [(value, True)]
        return [(v, where is None) for v, where in zip(op.operands, found, strict=True)]

    def _is_missing(self, value: ir.Value, whole: bool) -> bool:
        made = self.wholes if whole else self.rows
        return self.division.inside(value) is not None and value not in made

    def _whole(self, value: ir.Value) -> ir.Value:
        op = self.division.inside(value)
        if op is not None and value not in self.wholes:
            with op.location:
                self.wholes[value] = _copy(op, [self._whole(v) for v in op.operands])
        return self.wholes.get(value, value)

    def _part(self, value: ir.Value) -> ir.Value:
        """The part's rows of `value`; of what stays whole, the whole with the part's rows made."""
        if value not in self.rows:
            op = self.division.inside(value)
            if op is None:
                return value  # whole, and cut by the operation that reads it
            with op.location:
                self.rows[value] = self._made(op, self.division.dimensions[value])
        return self.rows[value]

    def _made(self, op: ir.Operation, dimension: int) -> ir.Value:
        found = operand_dimensions(op, dimension)
        if found is None:
            return self._rows_of(self._whole(op.results[0]), dimension)
        operands = [
            self._whole(v) if where is None else self._part(v)
            for v, where in zip(op.operands, found, strict=True)
        ]
        first = {"stablehlo.dynamic_slice": 1, "stablehlo.dynamic_update_slice": 2}.get(op.name)
        if first is not None and hlo.shape(operands[0])[dimension] == self.division.batch:
            place = first + dimension
            operands[place] = hlo.convert(self.begin, hlo.dtype(operands[place]))
            if first == 2:
                return hlo.dynamic_update_slice(operands[0], operands[1], operands[2:])
        return on_part(op, operands, self.division.rows, dimension)


def _copy(op: ir.Operation, operands: list[ir.Value]) -> ir.Value:
    copy = op.clone()
    for number, operand in enumerate(operands):
        copy.operands[number] = operand
    return copy.results[0]
