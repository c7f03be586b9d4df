"""Cumulative operators of PyTorch, as windows that reach back to the beginning of a dimension.

torch.aten.cumprod %x, 1     ->  stablehlo.reduce_window(%x, 1) {multiply}
torch.aten.cummax %x, 1      ->  stablehlo.reduce_window(%x, %places, -inf, 0) {later one wins}
torch.aten.logcumsumexp %x   ->  stablehlo.m + log(reduce_window(%x, 1, -inf, 0))
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir

Lowering = Callable[..., list[ir.Value]]
Combine = Callable[[list[ir.Value], list[ir.Value]], Sequence[ir.Value]]
"""What scalars of earlier elements and of later ones become together."""


def _windows(
    operands: Sequence[ir.Value], initial: Sequence[float], dim: int, combine: Combine
) -> list[ir.Value]:
    """`operands` combined with all that stands before them along `dim`."""
    shape = hlo.shape(operands[0])
    if 0 in shape:
        return list(operands)
    if not shape:
        lengthened = [hlo.reshape(operand, [1]) for operand in operands]
        return [hlo.reshape(r, []) for r in _windows(lengthened, initial, 0, combine)]
    starts = [
        hlo.full(number, [], hlo.dtype(operand))
        for number, operand in zip(initial, operands, strict=True)
    ]
    return hlo.cumulative(operands, starts, dim % len(shape), combine)


def _product(op: ir.Operation, x: ir.Value, dim: int, kind: int | None = None) -> list[ir.Value]:
    x = hlo.convert(x, hlo.dtype(op.results[0]))

    def multiplied(before: list[ir.Value], here: list[ir.Value]) -> list[ir.Value]:
        return [hlo.multiply(before[0], here[0])]

    return _windows([x], [1], dim, multiplied)


def _extreme(combine: str, op: ir.Operation, x: ir.Value, dim: int) -> list[ir.Value]:
    """The extreme so far and where it stands, the last of equal ones; NaN wins over all."""
    shape, kind = hlo.shape(x), hlo.dtype(x)
    numbers = hlo.iota(shape, dim % len(shape), np.int64) if shape else hlo.full(0, [], np.int64)
    direction = "GE" if combine == "maximum" else "LE"

    def chosen(before: list[ir.Value], here: list[ir.Value]) -> list[ir.Value]:
        wins = hlo.compare(here[0], before[0], direction)
        if kind.kind in "fV":
            wins = hlo.binary("or", wins, hlo.compare(here[0], here[0], "NE"))
        return [hlo.select(wins, new, old) for new, old in zip(here, before, strict=True)]

    return _windows([x, numbers], [hlo.identity(combine, kind), 0], dim, chosen)


def _logarithm_of_sum(op: ir.Operation, x: ir.Value, dim: int) -> list[ir.Value]:
    """m + log(s), where m is the largest x so far and s the sum of e^(x - m), in a wider type."""
    kind = hlo.dtype(x)
    single, wide = np.dtype(np.float32), np.dtype(np.float64)
    narrow = kind if kind.itemsize > single.itemsize else single
    x = hlo.convert(x, narrow)
    ones = hlo.full(1, hlo.shape(x), wide if kind.itemsize >= single.itemsize else single)

    def joined(before: list[ir.Value], here: list[ir.Value]) -> list[ir.Value]:
        (a, sum_a), (b, sum_b) = before, here
        apart = hlo.unary("negate", hlo.unary("abs", hlo.subtract(a, b)))
        alike = hlo.compare(a, b, "EQ")  # both infinite, perhaps
        apart = hlo.select(alike, hlo.full(0, [], narrow), apart)
        factor = hlo.convert(hlo.unary("exponential", apart), hlo.dtype(sum_a))
        larger = hlo.compare(a, b, "GE")
        most, least = hlo.select(larger, sum_a, sum_b), hlo.select(larger, sum_b, sum_a)
        return [hlo.maximum(a, b), hlo.add(most, hlo.multiply(least, factor))]

    most, total = _windows([x, ones], [float("-inf"), 0], dim, joined)
    result = hlo.add(most, hlo.unary("log", hlo.convert(total, narrow)))
    return [hlo.convert(result, kind)]


FORMS: dict[str, Lowering] = {
    "aten.cumprod": _product,
    "aten.cummax": functools.partial(_extreme, "maximum"),
    "aten.cummin": functools.partial(_extreme, "minimum"),
    "aten.logcumsumexp": _logarithm_of_sum,
}
"""What makes the results of an operator, given the call that stands for it and its operands."""
