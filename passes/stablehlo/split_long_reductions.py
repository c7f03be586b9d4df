"""split-long-reductions: reductions are cut in parts that fill a machine, or that vectors can walk.

    %z = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
       : (tensor<1048576xf32>, tensor<f32>) -> tensor<f32>

becomes

    %0 = stablehlo.reshape %x : ... -> tensor<256x4096xf32>
    %1 = stablehlo.reduce(%0 init: 0) applies stablehlo.add across dimensions = [1]
    %z = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [0]

On a GPU a row is reduced by one block, or by a cluster of them, and a block reduces 32 columns:
where there are few of them and they are long, most of the GPU would wait. On a CPU a row is reduced
by one thread, and so are a few columns: a few that are long, and of which nothing else is made (as
a softmax is), are cut, too. On all machines a reduction over dimensions on both sides of one that
stays (the statistics of images whose channels come first, or of groups of channels that come last)
is made of one over the last dimensions and one over the others. CPUs take the others first where
the last are short: then the columns of vectors are added, not parts of rows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir, nested_operations
from stepwell.passes.base import Pass, State
from stepwell.passes.stablehlo._values import has_one_use, integers
from stepwell.targets import Target
from stepwell.targets.nvidia import NvidiaTarget

LONG_ROW = 1 << 16
"""Elements of a row from which on it is cut."""

SHORTEST_ROW = 2048
"""Of a part."""

LONG_COLUMN = 1024
MANY = 1 << 20
"""Elements of columns, of each and of all together, from which on they are cut."""

SHORTEST_COLUMN = 64
BLOCK_COLUMNS = 32
"""How many columns a block reduces."""

SHORTEST_ROW_OF_CPUS = 64
"""Elements of a row that is reduced by itself before others."""

COLUMNS_OF_CPUS, MANY_OF_CPUS = 128, 1 << 18
"""Columns that the threads of a CPU cannot share, and elements of them that are worth it."""

PARTS_OF_CPUS = 16
"""Into so many parts, of all rows together, CPUs cut: enough for their threads to share."""

BLOCKS = 2
"""How many a multiprocessor should have."""

_WORDS = ("f32", "i32", "ui32")
"""Types of which clusters reduce rows."""

_ELEMENTS = r"f64|f32|f16|bf16|i1|u?i(8|16|32|64)"


@dataclass(frozen=True)
class SplitLongReductions(Pass):
    """Look at every reduction of one operand."""

    name: ClassVar[str] = "split-long-reductions"

    def run(self, op: ir.Operation, state: State) -> None:
        target = state.target
        blocks = BLOCKS * target.multiprocessors if isinstance(target, NvidiaTarget) else None
        found = [inner for inner in nested_operations(op) if inner.name == "stablehlo.reduce"]
        for reduction in found:
            combiner = _combiner(reduction)
            if combiner is None:
                continue
            with ir.InsertionPoint(reduction), reduction.location:
                made = _Reduction(reduction, combiner, blocks, _row_blocks(reduction, target)).cut()
            if made is not None:
                reduction.results[0].replace_all_uses_with(made)
                reduction.erase()


def _combiner(op: ir.Operation) -> str | None:
    """The one operation of the body of a reduction of one operand whose shape is known."""
    block = op.regions[0].blocks[0]
    operations = [child.operation for child in block.operations]
    static = all(hlo.tensor_type(v).has_static_shape for v in (*op.operands, *op.results))
    if len(op.results) != 1 or len(operations) != 2 or not static:
        return None
    name = operations[0].name.removeprefix("stablehlo.")
    joins = {*operations[0].operands} == {*block.arguments}
    known = re.fullmatch(_ELEMENTS, str(hlo.element_type(op.results[0])))
    return name if name in hlo.COMBINERS and joins and known else None


def _row_blocks(op: ir.Operation, target: Target) -> int:
    """How many blocks of a GPU reduce a row."""
    in_clusters = str(hlo.element_type(op.results[0])) in _WORDS
    return target.cluster_blocks if isinstance(target, NvidiaTarget) and in_clusters else 1


class _Reduction:
    """A reduction for so many `blocks` of a GPU, of which `row_blocks` share a row; on a CPU for
    None."""

    def __init__(
        self, op: ir.Operation, combiner: str, blocks: int | None, row_blocks: int
    ) -> None:
        self.x, self.init = op.operands
        self.combiner = combiner
        self.blocks, self.row_blocks = blocks, row_blocks
        self.shape = hlo.shape(self.x)
        self.dimensions = sorted(integers(op, "dimensions"))

    def cut(self) -> ir.Value | None:
        """The reduction in two steps; None where it is best left as it is."""
        moving = [d for d, size in enumerate(self.shape) if size > 1]
        reduced = [d for d in moving if d in self.dimensions]
        if not reduced or 0 in self.shape:
            return None
        behind = reduced[-1] == moving[-1]
        last = reduced[-1:]
        while len(last) < len(reduced) and reduced[-len(last) - 1] + 1 == last[0]:
            last.insert(0, reduced[-len(last) - 1])
        length = math.prod(self.shape[d] for d in last)
        if behind and last != reduced:
            if self.blocks is None and length < SHORTEST_ROW_OF_CPUS:
                return self._in_turn([d for d in self.dimensions if d not in last])
            return self._in_turn(last)
        if len(last) != len(reduced):
            return None
        count = math.prod(self.shape) // length
        parts = None
        if behind and (self.blocks is not None or has_one_use(self.x)):
            parts = self._row_parts(self.blocks or PARTS_OF_CPUS, length, count)
        elif not behind and self.blocks is not None:
            parts = self._column_parts(self.blocks, length, count)
        elif not behind and has_one_use(self.x):
            parts = self._column_parts_of_cpus(length, count)
        return None if parts is None else self._in_parts(last, length, parts)

    def _row_parts(self, blocks: int, length: int, rows: int) -> int | None:
        if length < LONG_ROW or rows * self.row_blocks * BLOCKS > blocks:
            return None
        return _divisor(length, blocks // rows, length // SHORTEST_ROW)

    def _column_parts(self, blocks: int, length: int, columns: int) -> int | None:
        wanted = blocks * BLOCK_COLUMNS // columns
        if length < LONG_COLUMN or length * columns < MANY or wanted < BLOCKS:
            return None
        return _divisor(length, wanted, length // SHORTEST_COLUMN)

    def _column_parts_of_cpus(self, length: int, columns: int) -> int | None:
        if columns > COLUMNS_OF_CPUS or length < LONG_COLUMN or length * columns < MANY_OF_CPUS:
            return None
        return _divisor(length, PARTS_OF_CPUS, length // SHORTEST_COLUMN)

    def _in_turn(self, begin: Sequence[int]) -> ir.Value:
        """First the reduction over the dimensions `begin`."""
        first = hlo.reduce(self.x, self._identity(), list(begin), self.combiner)
        left = [d for d in range(len(self.shape)) if d not in begin]
        rest = [left.index(d) for d in self.dimensions if d not in begin]
        return hlo.reduce(first, self.init, rest, self.combiner)

    def _in_parts(self, merged: Sequence[int], length: int, parts: int) -> ir.Value:
        """`merged` dimensions that follow each other as `parts` pieces."""
        begin, end = merged[0], merged[-1] + 1
        shape = [*self.shape[:begin], parts, length // parts, *self.shape[end:]]
        split = hlo.reshape(self.x, shape)
        first = hlo.reduce(split, self._identity(), [begin + 1], self.combiner)
        total = hlo.reduce(first, self.init, [begin], self.combiner)
        kept = [size for d, size in enumerate(self.shape) if d not in self.dimensions]
        return hlo.reshape(total, kept)

    def _identity(self) -> ir.Value:
        kind = hlo.dtype(self.x)
        return hlo.full(hlo.identity(self.combiner, kind), (), kind)


def _divisor(length: int, wanted: int, most: int) -> int | None:
    """The divisor of `length` that is next to `wanted`, between 2 and `most`; such that parts are
    whole vectors, where there is one that is not much farther."""
    divisors = {n for n in range(2, math.isqrt(length) + 1) if length % n == 0}
    divisors |= {length // n for n in divisors}
    fitting = [n for n in divisors if n <= most]
    if not fitting:
        return None

    def distance(parts: int) -> float:
        return abs(math.log(parts / wanted)) + (0 if length // parts % 8 == 0 else 1)

    return min(sorted(fitting), key=distance)
