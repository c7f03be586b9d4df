"""How much of a dimension is in use, as a function of a model's open sizes.

Imports no MLIR, since it is used on both sides of the compiler's process.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

_TOKEN = re.compile(r"\s*(\d+|s\d+|floordiv|min|[-+*()])")

_MOST_FACTORS = 3
"""Of a product that is looked for."""

MANY, _MANY_SIDES = 5, 32
"""Of more sizes, or extents made of them, what is made of a few is not looked for."""

_MOST_DIVISOR = 64
"""Of a size that is looked for."""


@dataclass(frozen=True)
class Quotient:
    """`dividend` divided by `divisor`, rounded down. `Extent.floordiv` makes it: there is one form
    of each, whose factors are not negative and below the divisor."""

    dividend: Extent
    divisor: int

    def __str__(self) -> str:
        return f"{_operand(self.dividend)} floordiv {self.divisor}"


@dataclass(frozen=True)
class Limited:
    """`extent`, but no more than `limit`: as many as there are of the first elements."""

    extent: Extent
    limit: int

    def __str__(self) -> str:
        return f"{_operand(self.extent)} min {self.limit}"


Atom = int | Quotient | Limited
"""An open size, by number, a quotient, or a size with a limit."""

Monomial = tuple[Atom, ...]
"""A product of atoms, in order: () is 1."""


@dataclass(frozen=True)
class Extent:
    """A sum of multiples of products of open sizes, of quotients of such sums and of sums with a
    limit, as `2*s0*s1 + (s0 + 3) floordiv 4 + s1 min 100`. `terms` has each product once, in order,
    without those of factor zero."""

    terms: tuple[tuple[Monomial, int], ...]

    @staticmethod
    def of(constant: int) -> Extent:
        """The extent that is always `constant`."""
        return Extent((((), constant),) if constant else ())

    @staticmethod
    def size(symbol: int) -> Extent:
        """The open size of that number."""
        return Extent.atom(symbol)

    @staticmethod
    def atom(atom: Atom) -> Extent:
        """The extent that is `atom`."""
        return Extent((((atom,), 1),))

    @staticmethod
    def make(terms: Mapping[Monomial, int]) -> Extent:
        """From factors by product."""
        kept = ((monomial, factor) for monomial, factor in terms.items() if factor)
        return Extent(tuple(sorted(kept, key=lambda term: list(map(_order, term[0])))))

    @staticmethod
    def parse(text: str) -> Extent:
        """The inverse of `str`. Raises ValueError."""
        return _Parser(text).whole()

    @property
    def is_constant(self) -> bool:
        """Whether no open size occurs in it."""
        return all(not monomial for monomial, _ in self.terms)

    @property
    def is_polynomial(self) -> bool:
        """Whether it is made of open sizes alone."""
        return all(isinstance(atom, int) for monomial, _ in self.terms for atom in monomial)

    def split(self) -> tuple[list[tuple[Monomial, int]], int]:
        """The terms that depend on sizes, and the constant."""
        return [term for term in self.terms if term[0]], dict(self.terms).get((), 0)

    def at(self, sizes: Sequence[int]) -> int:
        """Its value for these open sizes."""
        return sum(f * math.prod(_value(a, sizes) for a in m) for m, f in self.terms)

    def plus(self, other: Extent, factor: int = 1) -> Extent:
        """`self + factor * other`."""
        terms = dict(self.terms)
        for monomial, value in other.terms:
            terms[monomial] = terms.get(monomial, 0) + factor * value
        return Extent.make(terms)

    def times(self, other: Extent) -> Extent:
        """The product of the two."""
        terms: dict[Monomial, int] = {}
        for first, factor in self.terms:
            for second, other_factor in other.terms:
                monomial = tuple(sorted((*first, *second), key=_order))
                terms[monomial] = terms.get(monomial, 0) + factor * other_factor
        return Extent.make(terms)

    def divided(self, divisor: int) -> Extent | None:
        """The whole number of times that `divisor` goes into it; None when a rest may be left."""
        if any(factor % divisor for _, factor in self.terms):
            return None
        return Extent.make({monomial: factor // divisor for monomial, factor in self.terms})

    def floordiv(self, divisor: int) -> Extent:
        """Divided by `divisor`, a positive number, and rounded down."""
        parts = {monomial: divmod(factor, divisor) for monomial, factor in self.terms}
        whole = Extent.make({monomial: factor for monomial, (factor, _) in parts.items()})
        rest = Extent.make({monomial: factor for monomial, (_, factor) in parts.items()})
        if rest.is_constant:
            return whole
        (first, *others), constant = rest.split()
        (monomial, factor), inner = first, first[0][0]
        if isinstance(inner, Quotient) and len(monomial) == factor == 1 and not others:
            # ((a floordiv m) + c) floordiv n == (a + c m) floordiv (m n)
            joint = inner.dividend.plus(Extent.of(constant * inner.divisor))
            return whole.plus(joint.floordiv(inner.divisor * divisor))
        return whole.plus(Extent.atom(Quotient(rest, divisor)))

    def limited(self, limit: int) -> Extent:
        """The extent, but `limit` where that is less."""
        if self.is_constant:
            return Extent.of(min(self.at(()), limit))
        return Extent.atom(Limited(self, limit))

    def bound(self, others: Iterable[Extent]) -> Extent | None:
        """The least that is one of `others` and a constant and, for all sizes, not below this; None
        where no such is found. `d * (x floordiv d)` is no more than `x`."""
        found: list[tuple[int, Extent]] = []
        for other in others:
            ends = [self, *self._rounded_up(other)]
            beyond = [rest for end in ends if (rest := end.plus(other, -1)).is_constant]
            found += [(rest.at(()), other.plus(rest)) for rest in beyond]
        return min(found, key=lambda pair: pair[0])[1] if found else None

    def _rounded_up(self, other: Extent) -> Iterator[Extent]:
        """Without a quotient that is one of `other` and a constant."""
        for monomial, factor in self.terms:
            if factor < 2 or len(monomial) != 1 or not isinstance(monomial[0], Quotient):
                continue
            for shift in range(factor):
                dividend = other.plus(Extent.of(shift))
                rest = Extent.atom(monomial[0]).plus(dividend.floordiv(factor), -1)
                if rest.is_constant:
                    without = self.plus(Extent.atom(monomial[0]), -factor)
                    yield without.plus(dividend).plus(rest, factor)

    def replacing(self, atom: Atom, other: Atom) -> Extent:
        """With `other` in place of `atom`."""
        found = Extent.of(0)
        for monomial, factor in self.terms:
            atoms = [Extent.atom(other if a == atom else a) for a in monomial]
            found = found.plus(functools.reduce(Extent.times, atoms, Extent.of(factor)))
        return found

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        parts = []
        order = sorted(self.terms, key=lambda term: (-len(term[0]), list(map(_order, term[0]))))
        for monomial, factor in order:
            factors = [str(abs(factor))] if abs(factor) != 1 or not monomial else []
            alone = len(monomial) == 1 and not factors
            factors += [_text(atom, alone=alone) for atom in monomial]
            parts.append(("- " if factor < 0 else "+ ") + "*".join(factors))
        text = " ".join(parts)
        return text[2:] if text.startswith("+ ") else "-" + text[2:]


def _value(atom: Atom, sizes: Sequence[int]) -> int:
    if isinstance(atom, Limited):
        return min(atom.extent.at(sizes), atom.limit)
    return sizes[atom] if isinstance(atom, int) else atom.dividend.at(sizes) // atom.divisor


def _order(atom: Atom) -> tuple[int, str]:
    """What atoms are sorted by: open sizes by number, then others."""
    return (atom, "") if isinstance(atom, int) else (1 << 32, str(atom))


def _operand(extent: Extent) -> str:
    text = str(extent)
    return text if text.isalnum() else f"({text})"


def _text(atom: Atom, *, alone: bool) -> str:
    if isinstance(atom, int):
        return f"s{atom}"
    return str(atom) if alone else f"({atom})"


class _Parser:
    """Reads what `Extent.__str__` writes."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[str] = []
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None:
                raise self._error()
            self.tokens.append(match[1])
            position = match.end()

    def _error(self) -> ValueError:
        return ValueError(f"{self.text!r} is not an extent")

    def _taken(self, *wanted: str) -> str | None:
        """The next token, if it is one of those `wanted`."""
        return self.tokens.pop(0) if self.tokens and self.tokens[0] in wanted else None

    def whole(self) -> Extent:
        found = self._sum()
        if self.tokens:
            raise self._error()
        return found

    def _sum(self) -> Extent:
        sign = self._taken("-")
        found = Extent.of(0).plus(self._product(), -1 if sign else 1)
        while sign := self._taken("+", "-"):
            found = found.plus(self._product(), -1 if sign == "-" else 1)
        return found

    def _product(self) -> Extent:
        found = self._factor()
        while operator := self._taken("*", "floordiv", "min"):
            other = self._factor()
            if operator == "*":
                found = found.times(other)
            elif operator == "min" and other.is_constant:
                found = found.limited(other.at(()))
            elif other.is_constant and other.at(()) > 0:
                found = found.floordiv(other.at(()))
            else:
                raise self._error()
        return found

    def _factor(self) -> Extent:
        if not self.tokens:
            raise self._error()
        token = self.tokens.pop(0)
        if token.isdigit():
            return Extent.of(int(token))
        if token[0] == "s":
            return Extent.size(int(token[1:]))
        found = self._sum() if token == "(" else None
        if found is None or not self._taken(")"):
            raise self._error()
        return found


class Points(tuple[tuple[int, ...], ...]):
    """Open sizes for which a model was looked at. What extents are there is remembered."""

    def at(self, extent: Extent) -> tuple[int, ...]:
        """The values of `extent`."""
        if extent not in self._columns:
            self._columns[extent] = tuple(map(extent.at, self))
        return self._columns[extent]

    @functools.cached_property
    def _columns(self) -> dict[Extent, tuple[int, ...]]:
        return {}

    def products(self, values: Sequence[int]) -> list[Extent]:
        """The products of open sizes that grow as `values` do, or as a multiple of these."""
        return self._products.get(direction(values), [])

    @functools.cached_property
    def _products(self) -> dict[tuple[int, ...], list[Extent]]:
        found: dict[tuple[int, ...], list[Extent]] = {}
        for extent in _monomials(len(self[0])):
            found.setdefault(direction(self.at(extent)), []).append(extent)
        return found


def direction(values: Sequence[int]) -> tuple[int, ...]:
    """The same for numbers and their multiples, whatever is added."""
    steps = [value - values[0] for value in values]
    divisor = math.gcd(*steps) * (-1 if next(filter(None, steps), 0) < 0 else 1)
    return tuple(step // (divisor or 1) for step in steps)


def fit(
    points: Sequence[tuple[int, ...]], values: Sequence[int], sides: Iterable[Extent] = ()
) -> Extent | None:
    """The simplest extent that has `values` at `points`: a constant, a multiple of one product of
    sizes plus a constant, multiples of two sizes plus a constant, or what `sides` make alike: a
    multiple of one, of the sum or difference of two, or of a product of two or three, plus a
    constant. None when there is no such with integer factors, or several that only other points
    tell apart."""
    if len(set(values)) == 1:
        return Extent.of(values[0])
    points = points if isinstance(points, Points) else Points(points)
    found = next(_lines(points, values, points.products(values)), None)
    found = found or _plane(points, values)
    if found is not None:
        return found
    for candidates in _made_of(list(dict.fromkeys(sides))):
        lines = set(_lines(points, values, candidates))
        if lines:
            return lines.pop() if len(lines) == 1 else None
    return None


def has(points: Points, values: Sequence[int], extent: Extent) -> bool:
    """Whether `extent` has `values` at `points`."""
    return points.at(extent) == tuple(values)


def quotients(points: Points, values: Sequence[int]) -> Iterator[Extent]:
    """Sizes plus a constant, divided by a number and rounded down, that have `values`."""
    if len(points[0]) > MANY:
        return
    for symbol, divisor in itertools.product(range(len(points[0])), range(2, _MOST_DIVISOR + 1)):
        least = values[0] * divisor - points[0][symbol]
        for constant in range(least, least + divisor):
            extent = Extent.size(symbol).plus(Extent.of(constant)).floordiv(divisor)
            if has(points, values, extent):
                yield extent


def limited(points: Points, values: Sequence[int]) -> Callable[[Sequence[int]], int] | None:
    """A multiple of a size plus a constant, up to a limit, that has `values`, as the number of
    elements of a slice is; None when there is none. It is no extent."""
    limit = max(values)
    for symbol, factor in itertools.product(range(len(points[0])), range(1, _MOST_FACTORS + 1)):
        smallest = min(range(len(points)), key=lambda number: points[number][symbol])
        constant = values[smallest] - factor * points[smallest][symbol]

        def at(
            point: Sequence[int], line: tuple[int, int, int] = (symbol, factor, constant)
        ) -> int:
            return min(line[1] * point[line[0]] + line[2], limit)

        if all(at(point) == value for point, value in zip(points, values, strict=True)):
            return at
    return None


def rounded_elsewhere(points: Points, extent: Extent) -> Extent | None:
    """Another extent of the same values at `points`, a quotient in which is rounded in another
    place; None when there is none."""
    values = [extent.at(point) for point in points]
    quotients = {a for monomial, _ in extent.terms for a in monomial if isinstance(a, Quotient)}
    for quotient in quotients:
        for shift in (*range(1 - quotient.divisor, 0), *range(1, quotient.divisor)):
            moved = quotient.dividend.plus(Extent.of(shift))
            other = extent.replacing(quotient, Quotient(moved, quotient.divisor))
            if has(points, values, other):
                return other
    return None


def _monomials(symbols: int) -> Iterator[Extent]:
    """The products of so many open sizes, of many each by itself."""
    for degree in range(1, _MOST_FACTORS + 1 if symbols <= MANY else 2):
        for monomial in itertools.combinations_with_replacement(range(symbols), degree):
            yield Extent.make({monomial: 1})


def _made_of(sides: Sequence[Extent]) -> Iterator[Iterator[Extent]]:
    """What is looked for among `sides`, the simplest first."""
    yield iter(sides)
    pairs = itertools.combinations(sides, 2)
    if len(sides) > _MANY_SIDES:
        return
    yield (a.plus(b, sign) for a, b in pairs for sign in (1, -1))
    for count in range(2, _MOST_FACTORS + 1):
        chosen = itertools.combinations_with_replacement(sides, count)
        yield map(_product, chosen)


@functools.lru_cache(1 << 12)
def _product(factors: tuple[Extent, ...]) -> Extent:
    return functools.reduce(Extent.times, factors)


def _lines(points: Points, values: Sequence[int], extents: Iterable[Extent]) -> Iterator[Extent]:
    """`factor * extent + constant` through all values, of those `extents` that there is one of."""
    for extent in extents:
        xs = points.at(extent)
        other = next((i for i, x in enumerate(xs) if x != xs[0]), None)
        if other is None:
            continue
        factor = (values[other] - values[0]) // (xs[other] - xs[0])
        constant = values[0] - factor * xs[0]
        if all(factor * x + constant == value for x, value in zip(xs, values, strict=True)):
            yield Extent.of(constant).plus(extent, factor)


def _plane(points: Points, values: Sequence[int]) -> Extent | None:
    """Multiples of two sizes, plus a constant, through all values."""
    if len(points[0]) > MANY:
        return None
    slopes = [_slope(points, values, symbol) for symbol in range(len(points[0]))]
    for pair in itertools.combinations(range(len(slopes)), 2):
        if slopes[pair[0]] is not None and slopes[pair[1]] is not None:
            terms: dict[Monomial, int] = {(s,): slopes[s] or 0 for s in pair}
            rest = values[0] - Extent.make(terms).at(points[0])
            found = Extent.make({**terms, (): rest})
            if has(points, values, found):
                return found
    return None


def _slope(points: Points, values: Sequence[int], symbol: int) -> int | None:
    """How fast values grow with `symbol`, from a point that differs from the first in it alone."""
    for point, value in zip(points, values, strict=True):
        moved = [i for i, (a, b) in enumerate(zip(point, points[0], strict=True)) if a != b]
        if moved == [symbol]:
            factor, left = divmod(value - values[0], point[symbol] - points[0][symbol])
            return None if left else factor
    return None
