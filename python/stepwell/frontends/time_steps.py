"""Loops over the steps of a sequence: what recurrent operators share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir

UNROLLED = 8
"""Sequences up to this length become straight code, which is some ten percent faster than a loop,
whose products are the same fast kernels; but every step is compiled, and longer ones take long."""

Values = Sequence[ir.Value]

Step = Callable[[ir.Value, Values, Values], tuple[Values, Values]]
"""`step(t, inputs, states)` gives the states after step t, and what it adds to the results.

t is a scalar of int32; inputs and results are without the dimension of time.
"""


def over_time(
    step: Step,
    sequences: Values,
    states: Values,
    results: Sequence[tuple[Sequence[int], np.dtype]],
    length: int,
    *,
    reverse: bool = False,
    unrolled: int = UNROLLED,
) -> tuple[list[ir.Value], list[ir.Value]]:
    """Run `step` at every index of the first dimension of `sequences`, backwards if `reverse`;
    up to a length of `unrolled` as straight code.

    `results` has the shape and dtype of what each step adds. Returns the last states, and the
    results of all steps, stacked in the order of time along a first dimension of `length`.
    """
    order = range(length)[::-1] if reverse else range(length)
    if 0 < length <= unrolled:
        return _unrolled(step, sequences, states, order)

    def body(i: ir.Value, *carried: ir.Value) -> list[ir.Value]:
        t = hlo.subtract(_index(length - 1), i) if reverse else i
        before, stacks = carried[: len(states)], carried[len(states) :]
        after, added = step(t, [_at(sequence, t) for sequence in sequences], before)
        filled = [_put(stack, t, value) for stack, value in zip(stacks, added, strict=True)]
        return [hlo.add(i, _index(1)), *after, *filled]

    stacks = [hlo.full(0, [length, *shape], kind) for shape, kind in results]
    _, *final = hlo.while_loop(
        [_index(0), *states, *stacks],
        lambda i, *_: hlo.compare(i, _index(length), "LT"),
        body,
    )
    return final[: len(states)], final[len(states) :]


def _unrolled(
    step: Step, sequences: Values, states: Values, order: range
) -> tuple[list[ir.Value], list[ir.Value]]:
    rows: dict[int, list[ir.Value]] = {}
    for t in order:
        inputs = [_at_constant(sequence, t) for sequence in sequences]
        states, added = step(_index(t), inputs, states)
        rows[t] = [hlo.reshape(value, [1, *hlo.shape(value)]) for value in added]
    columns = zip(*(rows[t] for t in sorted(rows)), strict=True)
    return list(states), [hlo.concatenate(column, 0) for column in columns]


def _index(value: int) -> ir.Value:
    return hlo.full(value, [], np.int32)


def _at_constant(sequence: ir.Value, t: int) -> ir.Value:
    _, *rest = hlo.shape(sequence)
    row = hlo.slice(sequence, [t, *[0] * len(rest)], [t + 1, *rest])
    return hlo.reshape(row, rest)


def _at(sequence: ir.Value, t: ir.Value) -> ir.Value:
    _, *rest = hlo.shape(sequence)
    start = [t, *[_index(0)] * len(rest)]
    return hlo.reshape(hlo.dynamic_slice(sequence, start, [1, *rest]), rest)


def _put(stack: ir.Value, t: ir.Value, value: ir.Value) -> ir.Value:
    start = [t, *[_index(0)] * len(hlo.shape(value))]
    return hlo.dynamic_update_slice(stack, hlo.reshape(value, [1, *hlo.shape(value)]), start)
