"""`legalize-scan`: cumulative reductions carry what they have reduced so far.

    %r = "stablehlo.reduce_window"(%x, %zero) ({add}) {window_dimensions = [9], padding = [[8, 0]]}

has a window as long as its dimension: each result is the one before it, combined with one element
more. Instead of n^2 combinations there are n:

    %r, %t = linalg.generic {kernel.scan = "forward"} ins(%x) outs(%r, %t) { %t + %x }

is one operation of the host that CPUs have a kernel for (`kernels/scan.py`). In loops that are one
scalar kernel, and where a body is more than elementwise, it is loops over scalars:

    scf.for %i = 0 to 9 { %sum = %sum + %x[%i]; %r[%i] = %sum }

Sums of f32 are accumulated in f64 and those of f16 and bf16 in f32, since rounding errors grow with
the length. Windows of up to 32 elements stay where there is no kernel, if the body is one
operation: they are combined from left to right in either direction. The order of operands is that
of elements, whatever the direction, since bodies need not commute. For GPUs, the longer ones are
made of short ones (`_parallel_scan.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.kernels.scan import scan
from stepwell.mlir import dialect, ir
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg import _loops as loops
from stepwell.passes.linalg._fusion_graph import is_host_block
from stepwell.passes.linalg._loops import Values
from stepwell.passes.linalg._parallel_scan import BLOCK, scan_in_blocks
from stepwell.passes.stablehlo._cumulative import cumulative
from stepwell.passes.stablehlo._values import integers, splat
from stepwell.targets.nvidia import NvidiaTarget

arith = dialect("arith")

_WIDER = {"f32": np.float64, "f16": np.float32, "bf16": np.float32}

_ELEMENTWISE = frozenset(
    ["abs", "add", "and", "compare", "constant", "convert", "exponential", "exponential_minus_one",
     "is_finite", "log", "log_plus_one", "maximum", "minimum", "multiply", "negate", "not", "or",
     "return", "select", "subtract", "xor"]
)  # fmt: skip
"""Operations of bodies that kernels compute with vectors."""


@dataclass(frozen=True)
class LegalizeScan(Pass):
    """Rewrite every cumulative `reduce_window` inside a function; others stay."""

    name: ClassVar[str] = "legalize-scan"
    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation, state: State) -> None:
        on_gpu = isinstance(state.target, NvidiaTarget)
        in_host = _in_blocks if on_gpu else _as_kernel
        loops.rewrite_operations(op, {"stablehlo.reduce_window": in_host}, wrap=False)
        loops.rewrite_operations(op, {"stablehlo.reduce_window": _scan})


def _in_blocks(op: ir.Operation) -> Values | None:
    found = _long(op)
    return None if found is None or not is_host_block(op.block) else scan_in_blocks(op, *found)


def _as_kernel(op: ir.Operation) -> Values | None:
    found = cumulative(op)
    body = op.regions[0].blocks[0]
    names = {child.operation.name.removeprefix("stablehlo.") for child in body.operations}
    if found is None or not is_host_block(op.block) or not names <= _ELEMENTWISE:
        return None
    combination = _Combination(op, found)
    outer, length, inner = map(math.prod, combination.parts)
    operands = [hlo.reshape(value, (outer, length, inner)) for value in combination.operands]
    totals = [
        hlo.broadcast_in_dim(combination.widened(value), (outer, inner), ())
        for value in combination.initial
    ]

    def step(elements: Values, totals: Values) -> tuple[Values, Values]:
        new = combination.of(totals, elements)
        return combination.rounded(new), new

    results = scan(operands, totals, combination.kinds, step, backward=combination.backward)
    return [hlo.reshape(result, combination.shape) for result in results]


class _Combination:
    """What a cumulative `op` combines along `dimension`, and how."""

    def __init__(self, op: ir.Operation, found: tuple[int, bool]) -> None:
        dimension, self.backward = found
        count = len(op.results)
        self.operands, self.initial = list(op.operands)[:count], list(op.operands)[count:]
        self.shape = loops.shape_of(self.operands[0])
        self.parts = (
            self.shape[:dimension],
            self.shape[dimension : dimension + 1],
            self.shape[dimension + 1 :],
        )
        self.body = op.regions[0].blocks[0]
        self.kinds = [loops.element_of(operand) for operand in self.operands]
        kind = str(self.kinds[0])
        self.wide = _WIDER[kind] if _is_sum(self.body) and kind in _WIDER else None

    def widened(self, start: ir.Value) -> ir.Value:
        """An initial value, of the type of the totals."""
        known = splat(start)
        if self.wide is None:
            return start
        return hlo.convert(start, self.wide) if known is None else hlo.full(known, (), self.wide)

    def of(self, totals: Values, elements: Values) -> Values:
        """The next totals, of scalars."""
        if self.wide is None:
            ordered = [*elements, *totals] if self.backward else [*totals, *elements]
            return loops.inline_scalars(self.body, ordered)
        return [arith.AddFOp(totals[0], arith.ExtFOp(totals[0].type, elements[0]).result).result]

    def rounded(self, totals: Values) -> Values:
        """Totals as results."""
        if self.wide is None:
            return totals
        return [arith.TruncFOp(self.kinds[0], totals[0]).result]


def _scan(op: ir.Operation) -> Values | None:
    found = _long(op)
    if found is None:
        return None
    combination = _Combination(op, found)
    outer, (length,), inner = combination.parts
    operands, kinds, count = combination.operands, combination.kinds, len(op.results)

    def row(before: Values, results: Values) -> Sequence[ir.Value]:
        starts = [loops.extract(combination.widened(value)) for value in combination.initial]
        totals = [loops.empty(inner, start.type) for start in starts]
        totals = loops.nest(
            inner,
            totals,
            lambda point, values: [
                loops.insert(start, value, point)
                for start, value in zip(starts, values, strict=True)
            ],
        )

        def step(number: ir.Value, carried: Values) -> Sequence[ir.Value]:
            last = loops.index(length - 1)
            position = loops.subtract(last, number) if combination.backward else number

            def element(behind: Values, values: Values) -> Sequence[ir.Value]:
                point = [*before, position, *behind]
                new = combination.of(
                    [loops.extract(total, behind) for total in values[count:]],
                    [loops.extract(operand, point) for operand in operands],
                )
                rounded = combination.rounded(new)
                return [
                    *(
                        loops.insert(v, r, point)
                        for v, r in zip(rounded, values[:count], strict=True)
                    ),
                    *(loops.insert(v, t, behind) for v, t in zip(new, values[count:], strict=True)),
                ]

            return loops.nest(inner, carried, element)

        bounds = loops.index(0), loops.index(length), loops.index(1)
        return loops.loop(*bounds, [*results, *totals], step)[:count]

    return loops.nest(outer, [loops.empty(combination.shape, kind) for kind in kinds], row)


def _long(op: ir.Operation) -> tuple[int, bool] | None:
    """`cumulative` where windows are not combined each by itself: by one operation, from few."""
    body = list(op.regions[0].blocks[0].operations)
    few = max(integers(op, "window_dimensions"), default=0) <= BLOCK
    return None if few and len(body) == 2 else cumulative(op)


def _is_sum(body: ir.Block) -> bool:
    """Whether a region returns the sum of its two arguments."""
    operations = [child.operation for child in body.operations]
    if len(operations) != 2 or operations[0].name != "stablehlo.add":
        return False
    return list(operations[0].operands) == list(body.arguments)
