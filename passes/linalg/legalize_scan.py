"""`legalize-scan`: cumulative reductions as loops that carry what they have reduced so far.

    %r = "stablehlo.reduce_window"(%x, %zero) ({add}) {window_dimensions = [9], padding = [[8, 0]]}

has a window as long as its dimension: each result is the one before it, combined with one element
more. Instead of n^2 combinations there are n:

    scf.for %i = 0 to 9 { %sum = %sum + %x[%i]; %r[%i] = %sum }

with one accumulator for each element of the dimensions behind, which LLVM vectorises. Sums of f32
are accumulated in f64 and those of f16 and bf16 in f32, since rounding errors grow with the length.
Windows of up to 32 elements stay: they are combined from left to right in either direction.
The order of operands is that of elements, whatever the direction, since bodies need not commute.
For GPUs, the longer ones are made of short ones (`_parallel_scan.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from stepwell.mlir import dialect, ir
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg import _loops as loops
from stepwell.passes.linalg._fusion_graph import is_host_block
from stepwell.passes.linalg._loops import Values
from stepwell.passes.linalg._parallel_scan import BLOCK, scan_in_blocks
from stepwell.passes.stablehlo._values import integers, optional_integers, padding
from stepwell.targets.nvidia import NvidiaTarget

arith = dialect("arith")

_WIDER = {"f32": ir.F64Type, "f16": ir.F32Type, "bf16": ir.F32Type}


@dataclass(frozen=True)
class LegalizeScan(Pass):
    """Rewrite every cumulative `reduce_window` inside a function; others stay."""

    name: ClassVar[str] = "legalize-scan"
    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation, state: State) -> None:
        if isinstance(state.target, NvidiaTarget):
            loops.rewrite_operations(op, {"stablehlo.reduce_window": _in_blocks}, wrap=False)
        loops.rewrite_operations(op, {"stablehlo.reduce_window": _scan})


def _in_blocks(op: ir.Operation) -> Values | None:
    found = _cumulative(op)
    return None if found is None or not is_host_block(op.block) else scan_in_blocks(op, *found)


def _scan(op: ir.Operation) -> Values | None:
    found = _cumulative(op)
    if found is None:
        return None
    dimension, backward = found
    count = len(op.results)
    operands, initial = list(op.operands)[:count], list(op.operands)[count:]
    shape = loops.shape_of(operands[0])
    outer, length, inner = shape[:dimension], shape[dimension], shape[dimension + 1 :]
    body = op.regions[0].blocks[0]
    kinds = [loops.element_of(operand) for operand in operands]
    wide = _WIDER[str(kinds[0])].get() if _is_sum(body) and str(kinds[0]) in _WIDER else None

    def combined(totals: Values, elements: Values) -> Values:
        if wide is None:
            ordered = [*elements, *totals] if backward else [*totals, *elements]
            return loops.inline_scalars(body, ordered)
        return [arith.AddFOp(totals[0], arith.ExtFOp(wide, elements[0]).result).result]

    def row(before: Values, results: Values) -> Sequence[ir.Value]:
        starts = [loops.extract(value) for value in initial]
        if wide is not None:
            starts = [arith.ExtFOp(wide, starts[0]).result]
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
            position = loops.subtract(last, number) if backward else number

            def element(behind: Values, values: Values) -> Sequence[ir.Value]:
                point = [*before, position, *behind]
                new = combined(
                    [loops.extract(total, behind) for total in values[count:]],
                    [loops.extract(operand, point) for operand in operands],
                )
                rounded = new if wide is None else [arith.TruncFOp(kinds[0], new[0]).result]
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

    return loops.nest(outer, [loops.empty(shape, kind) for kind in kinds], row)


def _cumulative(op: ir.Operation) -> tuple[int, bool] | None:
    """The dimension along which `op` accumulates, and whether from its end; else None."""
    shape = loops.shape_of(op.operands[0])
    windows = integers(op, "window_dimensions")
    moved = [d for d, size in enumerate(windows) if size != 1]
    if len(moved) != 1 or windows[moved[0]] != shape[moved[0]] or max(windows) <= BLOCK:
        return None
    for name in ("window_strides", "base_dilations", "window_dilations"):
        if set(optional_integers(op, name, len(shape), 1)) != {1}:
            return None
    dimension, length = moved[0], shape[moved[0]]
    pads = padding(op, len(shape))
    sides = {(length - 1, 0): False, (0, length - 1): True}
    if any(pad != (0, 0) for d, pad in enumerate(pads) if d != dimension):
        return None
    backward = sides.get(pads[dimension])
    return None if backward is None else (dimension, backward)


def _is_sum(body: ir.Block) -> bool:
    """Whether a region returns the sum of its two arguments."""
    operations = [child.operation for child in body.operations]
    if len(operations) != 2 or operations[0].name != "stablehlo.add":
        return False
    return list(operations[0].operands) == list(body.arguments)
