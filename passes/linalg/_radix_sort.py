"""Sorting by the bytes of one key: least significant first, each pass stable (D. Knuth, "The Art of
Computer Programming", volume 3, section 5.2.5).

    for each byte of the key {
      counts = how many elements have each value of the byte
      places = where the elements of each value begin: sums of the counts before it
      move each element of %from to the next place of its byte's value in %to
      copy %to back into %from }

Keys are the bits of what the comparator compares, turned so that unsigned bytes have the order of
the keys: the sign of integers is inverted, and floats in their total order have either the sign or,
below zero, all bits inverted. A byte that all elements share costs a pass of counting only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import dialect, ir
from stepwell.passes.linalg import _loops as loops
from stepwell.passes.linalg._loops import Values
from stepwell.passes.stablehlo._values import ELEMENTWISE, producer

arith = dialect("arith")

_VALUES = 256
_WORTH = 16
"""Elements in a row for each byte of the key, from which on this takes less time than merging."""


@dataclass(frozen=True)
class Key:
    """What a comparator orders elements by: `value`, as its block computes it from an element of
    the sort's operand `operand`."""

    block: ir.Block
    value: ir.Value
    operand: int
    descends: bool

    @staticmethod
    def of(less: ir.Block) -> Key | None:
        """The key of a comparator that compares one function of both elements of an operand:
        integers, or floats in their total order."""
        (verdict,) = list(less.operations)[-1].operands
        compare = producer(verdict, "compare")
        if compare is None:
            return None
        lhs, rhs = compare.operands
        direction = _enumerator(compare, "comparison_direction")
        arguments = list(less.arguments)
        read = _arguments_read(lhs) or set()
        numbers = [n for n in range(0, len(arguments), 2) if read == {arguments[n]}]
        if not numbers or direction not in ("LT", "GT"):
            return None
        left, right = arguments[numbers[0] :][:2]
        if not _is_same(lhs, rhs, left, right):
            return None
        kind = str(hlo.element_type(lhs))
        is_total = _enumerator(compare, "compare_type") == "TOTALORDER"
        if kind not in _INTEGERS and not (is_total and kind in _FLOATS):
            return None
        return Key(less, lhs, numbers[0] // 2, direction == "GT")

    def is_worth_it(self, length: int) -> bool:
        """Whether rows of `length` elements are sorted faster by bytes than by merging."""
        return length >= _WORTH * self.bytes

    @property
    def bytes(self) -> int:
        """The size of a key."""
        return hlo.dtype(self.value).itemsize

    def bits(self, element: ir.Value) -> ir.Value:
        """The key of a scalar as a signless integer, the unsigned order of which is that of the
        elements."""
        width = 8 * self.bytes
        value = _inlined(self.value, dict.fromkeys(self.block.arguments, loops.as_tensor(element)))
        bits = loops.extract(hlo.bitcast_convert(value, np.dtype(f"i{self.bytes}")))
        kind = str(hlo.element_type(value))
        if kind in _FLOATS:
            below = arith.ShRSIOp(bits, _constant(bits, width - 1)).result
            turned = arith.OrIOp(below, _constant(bits, -(1 << (width - 1)))).result
            bits = arith.XOrIOp(bits, turned).result
        elif not kind.startswith("u"):
            bits = arith.XOrIOp(bits, _constant(bits, -(1 << (width - 1)))).result
        return arith.XOrIOp(bits, _constant(bits, -1)).result if self.descends else bits

    def byte(self, element: ir.Value, number: ir.Value) -> ir.Value:
        """Byte `number` of the key of a scalar, the least significant one first, as an index."""
        bits = self.bits(element)
        shift = arith.IndexCastOp(bits.type, loops.multiply(number, loops.index(8))).result
        low = arith.AndIOp(arith.ShRUIOp(bits, shift).result, _constant(bits, _VALUES - 1)).result
        return arith.IndexCastUIOp(ir.IndexType.get(), low).result


def sort_by_bytes(key: Key, lines: Values, spare: Values, length: int) -> Values:
    """The lines, tensors of one dimension, in the order of the key; `spare` are as many others."""
    count = len(lines)
    counts = loops.empty([_VALUES], ir.IndexType.get())
    zero, one, size = loops.index(0), loops.index(1), loops.index(length)

    def step(number: ir.Value, values: Values) -> Sequence[ir.Value]:
        *both, counts = values
        source, target = both[:count], both[count:]

        def byte(position: ir.Value) -> ir.Value:
            return key.byte(loops.extract(source[key.operand], [position]), number)

        def tally(position: ir.Value, carried: Values) -> Sequence[ir.Value]:
            place = [byte(position)]
            more = loops.add(loops.extract(carried[0], place), one)
            return [loops.insert(more, carried[0], place)]

        def begin(value: ir.Value, carried: Values) -> Sequence[ir.Value]:
            start, counts = carried
            mine = loops.extract(counts, [value])
            return [loops.add(start, mine), loops.insert(start, counts, [value])]

        def move(position: ir.Value, carried: Values) -> Sequence[ir.Value]:
            *into, starts = carried
            value = [byte(position)]
            place = loops.extract(starts, value)
            return [
                *(
                    loops.insert(loops.extract(s, [position]), t, [place])
                    for s, t in zip(source, into, strict=True)
                ),
                loops.insert(loops.add(place, one), starts, value),
            ]

        def moved() -> Sequence[ir.Value]:
            limit = loops.index(_VALUES)
            starts = loops.loop(zero, limit, one, [zero, counts], begin)[1]
            *into, used = loops.loop(zero, size, one, [*target, starts], move)
            return [*(loops.written(t, s) for t, s in zip(into, source, strict=True)), *into, used]

        (counts,) = loops.nest([_VALUES], [counts], lambda at, c: [loops.insert(zero, c[0], at)])
        (counts,) = loops.loop(zero, size, one, [counts], tally)
        shared = loops.compare(loops.extract(counts, [byte(zero)]), "EQ", size)
        types = [value.type for value in values]
        return loops.branch(shared, types, lambda: [*source, *target, counts], moved)

    state = [*lines, *spare, counts]
    return loops.loop(zero, loops.index(key.bytes), one, state, step)[:count]


_INTEGERS = frozenset(["i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64"])
_FLOATS = frozenset(["f16", "bf16", "f32", "f64"])


def _constant(like: ir.Value, value: int) -> ir.Value:
    return arith.ConstantOp(like.type, value).result


def _arguments_read(value: ir.Value) -> set[ir.Value] | None:
    """The block arguments that `value` is computed from, by elementwise operations and constants;
    None if by others."""
    if isinstance(value, ir.BlockArgument):
        return {value}
    op = value.owner.operation
    if op.name != "stablehlo.constant" and producer(value, *ELEMENTWISE) is None:
        return None
    read = [_arguments_read(operand) for operand in op.operands]
    known = [arguments for arguments in read if arguments is not None]
    return set().union(*known) if len(known) == len(read) else None


def _is_same(lhs: ir.Value, rhs: ir.Value, left: ir.Value, right: ir.Value) -> bool:
    """Whether `rhs` is computed from `right` as `lhs` is from `left`."""
    if lhs == left or rhs == right:
        return lhs == left and rhs == right
    if lhs == rhs:
        return _arguments_read(lhs) == set()
    if isinstance(lhs, ir.BlockArgument) or isinstance(rhs, ir.BlockArgument):
        return False
    first, second = lhs.owner.operation, rhs.owner.operation
    return (
        first.name == second.name
        and _attributes(first) == _attributes(second)
        and [r.type for r in first.results] == [r.type for r in second.results]
        and len(first.operands) == len(second.operands)
        and all(
            _is_same(a, b, left, right)
            for a, b in zip(first.operands, second.operands, strict=True)
        )
    )


def _attributes(op: ir.Operation) -> dict[str, ir.Attribute]:
    return {name: op.attributes[name] for name in op.attributes}


def _inlined(value: ir.Value, known: dict[ir.Value, ir.Value]) -> ir.Value:
    """`value`, computed anew from `known` values in place of block arguments."""
    if value not in known:
        operands = [_inlined(operand, known) for operand in value.owner.operands]
        copy = value.owner.operation.clone()
        for number, operand in enumerate(operands):
            copy.operands[number] = operand
        known[value] = copy.results[0]
    return known[value]


def _enumerator(op: ir.Operation, name: str) -> str:
    if name not in op.attributes:
        return ""
    return str(op.attributes[name]).split()[-1].rstrip(">")
