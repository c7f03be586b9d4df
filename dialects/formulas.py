"""Formulas of the elements of tensors: operators that build StableHLO.

    x = Elements(op.operands[0])
    y = choose(x < 1.0, x * x, exponential(-x) + 0.5)       # y.value is a tensor of the type of x

Sizes need not be known: constants are `chlo.constant_like`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.kernels.evaluate import ROUNDED
from stepwell.mlir import ir


@dataclass(frozen=True)
class Elements:
    """The elements of a tensor of floats in a formula. A number stands for a tensor of it; a
    comparison gives a tensor of i1."""

    value: ir.Value

    def _other(self, other: Elements | float) -> ir.Value:
        return other.value if isinstance(other, Elements) else self.full(other).value

    @property
    def is_double(self) -> bool:
        """Whether they are f64."""
        return hlo.dtype(self.value) == np.float64

    def full(self, number: float) -> Elements:
        """`number` in the type of these elements."""
        kind = self.value.type
        attributes = {"value": ir.FloatAttr.get(hlo.element_type(self.value), number)}
        made = ir.Operation.create("chlo.constant_like", [kind], [self.value], attributes)
        return Elements(made.results[0])

    def __add__(self, other: Elements | float) -> Elements:
        return Elements(hlo.add(self.value, self._other(other)))

    def __sub__(self, other: Elements | float) -> Elements:
        return Elements(hlo.subtract(self.value, self._other(other)))

    def __mul__(self, other: Elements | float) -> Elements:
        return Elements(hlo.multiply(self.value, self._other(other)))

    def __truediv__(self, other: Elements | float) -> Elements:
        return Elements(hlo.divide(self.value, self._other(other)))

    def __neg__(self) -> Elements:
        return Elements(hlo.negate(self.value))

    def __abs__(self) -> Elements:
        return Elements(hlo.abs(self.value))

    def __radd__(self, other: float) -> Elements:
        return self.full(other) + self

    def __rsub__(self, other: float) -> Elements:
        return self.full(other) - self

    def __rmul__(self, other: float) -> Elements:
        return self.full(other) * self

    def __rtruediv__(self, other: float) -> Elements:
        return self.full(other) / self

    def __lt__(self, other: Elements | float) -> ir.Value:
        return hlo.compare(self.value, self._other(other), "LT")

    def __le__(self, other: Elements | float) -> ir.Value:
        return hlo.compare(self.value, self._other(other), "LE")

    def __gt__(self, other: Elements | float) -> ir.Value:
        return hlo.compare(self.value, self._other(other), "GT")

    def __ge__(self, other: Elements | float) -> ir.Value:
        return hlo.compare(self.value, self._other(other), "GE")

    def equals(self, other: Elements | float) -> ir.Value:
        """Where both are equal numbers."""
        return hlo.compare(self.value, self._other(other), "EQ")


def _function(build: Callable[[ir.Value], ir.Value]) -> Callable[[Elements], Elements]:
    def apply(x: Elements) -> Elements:
        return Elements(build(x.value))

    return apply


exponential = _function(hlo.exponential)
exponential_minus_one = _function(hlo.exponential_minus_one)
floor = _function(hlo.floor)
log = _function(hlo.log)
round_to_even = _function(hlo.round_nearest_even)
sqrt = _function(hlo.sqrt)


def chlo(name: str, *operands: Elements) -> Elements:
    """`chlo.<name>`, a function of tensors of one type."""
    kind = operands[0].value.type
    made = ir.Operation.create(f"chlo.{name}", [kind], [operand.value for operand in operands])
    return Elements(made.results[0])


def rounded(x: Elements) -> Elements:
    """x, made by an operation that is neither fused nor merged with one that reads it."""
    x.value.owner.attributes[ROUNDED] = ir.UnitAttr.get()
    return x


def choose(condition: ir.Value, then: Elements | float, other: Elements) -> Elements:
    """`then` where `condition` holds, else `other`."""
    chosen = then if isinstance(then, Elements) else other.full(then)
    return Elements(hlo.select(condition, chosen.value, other.value))


def polynomial(x: Elements, coefficients: tuple[float, ...]) -> Elements:
    """Horner's scheme, highest power first."""
    value = x * coefficients[0] + coefficients[1]
    for coefficient in coefficients[2:]:
        value = value * x + coefficient
    return value


def computed_in(kind: type, function: Callable[..., Elements]) -> Callable[..., Elements]:
    """`function` computed in numbers of `kind` and rounded to the type of its arguments."""

    def wide(*arguments: Elements) -> Elements:
        widened = [Elements(hlo.convert(x.value, kind)) for x in arguments]
        return Elements(hlo.convert(function(*widened).value, hlo.dtype(arguments[0].value)))

    return wide
