"""Sizes that a call tells, and what a program compiled once for any of them says about itself.

A model with open dimensions is compiled for the largest sizes it takes, its *capacities*; how much
of each dimension is in use is an `Extent`, a polynomial in the model's open sizes `s0`, `s1`, ...
Imports no MLIR, since it is used on both sides of the compiler's process.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from stepwell.errors import ModelError

T = TypeVar("T")

SMALL_SIZES = (3, 5, 7, 2)
"""Sizes for which a model is looked at, of its open sizes in turn."""

SCALES = (2, 4, 8)
"""What these are multiplied by for models that do not take them, as far as there is room below the
capacities."""

LEAST_SIZES = (1, 2, 4, 8, 16)
"""Sizes below which an open size may not be, in the order in which they are tried."""

LEAST_CAPACITY = 16
"""No open size has a smaller capacity."""

Sum = tuple[tuple[str, int], ...]
"""Names of sizes and their factors, which are added up; the name of the number 1 is ""."""

Monomial = tuple[int, ...]
"""A product of open sizes, by number, in ascending order: () is 1."""

_TERM = re.compile(r"\s*([+-]?)\s*(?:(\d+)\s*(?:\*\s*)?)?((?:s\d+)(?:\s*\*\s*s\d+)*)?\s*")


@dataclass(frozen=True)
class Extent:
    """A sum of multiples of products of open sizes: `2*s0*s1 + s0 + 1`. `terms` has each product
    once, in order, without those of factor zero."""

    terms: tuple[tuple[Monomial, int], ...]

    @staticmethod
    def of(constant: int) -> Extent:
        """The extent that is always `constant`."""
        return Extent((((), constant),) if constant else ())

    @staticmethod
    def size(symbol: int) -> Extent:
        """The open size of that number."""
        return Extent((((symbol,), 1),))

    @staticmethod
    def make(terms: Mapping[Monomial, int]) -> Extent:
        """From factors by product."""
        return Extent(tuple(sorted((m, f) for m, f in terms.items() if f)))

    @staticmethod
    def parse(text: str) -> Extent:
        """The inverse of `str`. Raises ValueError."""
        terms: dict[Monomial, int] = {}
        position = 0
        while position < len(text):
            match = _TERM.match(text, position)
            if match is None or match.end() == position or not (match[2] or match[3]):
                raise ValueError(f"{text!r} is not an extent")
            factor = int(match[2] or 1) * (-1 if match[1] == "-" else 1)
            symbols = tuple(sorted(int(s) for s in re.findall(r"s(\d+)", match[3] or "")))
            terms[symbols] = terms.get(symbols, 0) + factor
            position = match.end()
        return Extent.make(terms)

    @property
    def is_constant(self) -> bool:
        """Whether no open size occurs in it."""
        return all(not monomial for monomial, _ in self.terms)

    def at(self, sizes: Sequence[int]) -> int:
        """Its value for these open sizes."""
        return sum(f * math.prod(sizes[s] for s in monomial) for monomial, f in self.terms)

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
                monomial = tuple(sorted((*first, *second)))
                terms[monomial] = terms.get(monomial, 0) + factor * other_factor
        return Extent.make(terms)

    def divided(self, divisor: int) -> Extent | None:
        """The whole number of times that `divisor` goes into it; None when a rest may be left."""
        if any(factor % divisor for _, factor in self.terms):
            return None
        return Extent.make({monomial: factor // divisor for monomial, factor in self.terms})

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        parts = []
        for monomial, factor in sorted(self.terms, key=lambda term: (-len(term[0]), term)):
            symbols = "*".join(f"s{s}" for s in monomial)
            size = (
                symbols
                if abs(factor) == 1 and symbols
                else "*".join(filter(None, (str(abs(factor)), symbols)))
            )
            parts.append(("- " if factor < 0 else "+ ") + size)
        text = " ".join(parts)
        return text[2:] if text.startswith("+ ") else "-" + text[2:]


def fit(
    points: Sequence[Sequence[int]], values: Sequence[int], sides: Iterable[Extent] = ()
) -> Extent | None:
    """The simplest extent that has `values` at `points` of open sizes: a constant, a multiple of
    one product plus a constant, multiples of two sizes plus a constant, or a multiple of a product
    of two or three of `sides` plus a constant. None when there is no such with integer factors."""
    if len(set(values)) == 1:
        return Extent.of(values[0])
    symbols = range(len(points[0]))
    monomials = [
        monomial
        for degree in (1, 2, 3)
        for monomial in itertools.combinations_with_replacement(symbols, degree)
    ]
    for monomial in monomials:
        found = _line(points, values, Extent.make({monomial: 1}))
        if found is not None:
            return found
    for first, second in itertools.combinations(symbols, 2):
        slopes = [_slope(points, values, symbol) for symbol in (first, second)]
        if None not in slopes:
            terms = {(s,): f for s, f in zip((first, second), slopes, strict=True) if f is not None}
            rest = values[0] - Extent.make(terms).at(points[0])
            found = Extent.make({**terms, (): rest})
            if all(found.at(p) == v for p, v in zip(points, values, strict=True)):
                return found
    products = (
        functools.reduce(Extent.times, factors)
        for count in (2, 3)
        for factors in itertools.combinations_with_replacement(sides, count)
    )
    lines = (_line(points, values, product) for product in products)
    return next((found for found in lines if found is not None), None)


def _line(points: Sequence[Sequence[int]], values: Sequence[int], product: Extent) -> Extent | None:
    """`factor * product + constant` through all values."""
    xs = [product.at(point) for point in points]
    other = next((i for i, x in enumerate(xs) if x != xs[0]), None)
    if other is None:
        return None
    factor, left = divmod(values[other] - values[0], xs[other] - xs[0])
    found = Extent.of(values[0] - factor * xs[0]).plus(product, factor)
    exact = not left and all(found.at(p) == v for p, v in zip(points, values, strict=True))
    return found if exact else None


def _slope(points: Sequence[Sequence[int]], values: Sequence[int], symbol: int) -> int | None:
    """How fast values grow with `symbol`, from a point that differs from the first in it alone."""
    for point, value in zip(points, values, strict=True):
        moved = [i for i, (a, b) in enumerate(zip(point, points[0], strict=True)) if a != b]
        if moved == [symbol]:
            factor, left = divmod(value - values[0], point[symbol] - points[0][symbol])
            return None if left else factor
    return None


@dataclass(frozen=True)
class Fixed:
    """A dimension of an input, by number, that is of one size in calls that have code of their
    own."""

    input: int
    dimension: int
    size: int


@dataclass(frozen=True)
class OpenShapes:
    """The inputs' shapes in which the names of open sizes stand, and the capacity of each size.

    Names that are in `sums` stand for sums of multiples of open sizes. No open size is below
    its number in `least`, which is empty when all may be 1."""

    shapes: Mapping[str, tuple[int | str, ...]]
    capacities: Mapping[str, int]
    sums: Mapping[str, Sum] = field(default_factory=dict)
    least: tuple[int, ...] = ()

    @property
    def names(self) -> list[str]:
        """The open sizes; `s0` is the first."""
        return list(self.capacities)

    def shapes_at(self, sizes: Sequence[int]) -> dict[str, tuple[int, ...]]:
        """The inputs' shapes for these sizes."""
        known = {"": 1, **dict(zip(self.names, sizes, strict=True))}
        for name, parts in self.sums.items():
            known[name] = sum(factor * known[part] for part, factor in parts)
        return {
            name: tuple(known[n] if isinstance(n, str) else n for n in shape)
            for name, shape in self.shapes.items()
        }

    def samples(self) -> list[tuple[int, ...]]:
        """Large sizes to look at a model for: its capacities, and one size changed at a time, from
        even to odd or back."""
        most = tuple(self.capacities.values())
        found = [most]
        for number, capacity in enumerate(most):
            found.append((*most[:number], _changed(capacity), *most[number + 1 :]))
        return found

    def small_samples(self) -> list[tuple[int, ...]]:
        """Small sizes to look at it for, so that bounds that only small sizes keep to show; then
        larger ones, for a model that does not take these."""
        most = tuple(self.capacities.values())
        small = [SMALL_SIZES[number % len(SMALL_SIZES)] for number in range(len(most))]
        room = [max(1, _changed(capacity) - 1 - n) for n, capacity in enumerate(most)]
        found = [tuple(small)]
        for scale in SCALES:
            found.append(tuple(min(scale * n, m) for n, m in zip(small, room, strict=True)))
        return list(dict.fromkeys(found))

    def least_samples(self) -> list[tuple[int, ...]]:
        """The smallest sizes, for which it may be another: from which on is it the same?"""
        return [(size,) * len(self.capacities) for size in LEAST_SIZES]

    def sampled(self, at: Callable[[tuple[int, ...]], T]) -> list[T]:
        """What `at` gives for the sizes that a model is looked at for, where that has to be told
        ahead. Raises ModelError as `at` does for large sizes, or for all small ones."""
        found = [at(point) for point in self.samples()]
        errors: list[ModelError] = []
        for small in self.small_samples():
            try:
                found.append(at(small))
                break
            except ModelError as error:
                errors.append(error)
        else:
            raise errors[0]
        # What `least` of a model's small sizes asks for.
        smallest: list[tuple[int, ...]] = []
        for point in self.least_samples():
            point = tuple(map(min, point, small))
            if len(smallest) < 2 and point != small:
                with contextlib.suppress(ModelError):
                    found.append(at(point))
                    smallest.append(point)
        alone = [
            (*point[:number], 1, *point[number + 1 :])
            for point in (*smallest, small)
            for number in range(len(small))
        ]
        for point in dict.fromkeys(alone):
            if point not in smallest:
                with contextlib.suppress(ModelError):
                    found.append(at(point))
        return found

    def to_json(self) -> list[object]:
        """As lists, for a request."""
        shapes = [[name, list(shape)] for name, shape in self.shapes.items()]
        sums = [[name, list(parts)] for name, parts in self.sums.items()]
        return [shapes, [list(item) for item in self.capacities.items()], sums]

    @staticmethod
    def from_json(data: Sequence) -> OpenShapes:
        """The inverse of `to_json`."""
        shapes, capacities, sums = data
        return OpenShapes(
            {name: tuple(shape) for name, shape in shapes},
            dict(capacities),
            {name: tuple((part, factor) for part, factor in parts) for name, parts in sums},
        )


def _changed(capacity: int) -> int:
    """Another large size, which is even where `capacity` is odd."""
    return 2 * (capacity // 3) + (1 - capacity % 2)


@dataclass(frozen=True)
class OpenSizes:
    """What a program for any sizes up to its capacities says of its signature.

    `inputs` and `outputs` have the extents of each dimension. Behind its inputs, such a program
    takes the values of `scalars` (one int64 vector, left out when there are none) and for each of
    `prefixes`, an extent and a capacity, a vector of that many booleans, of which as many as the
    extent says are true. Of the inputs and outputs whose numbers `exact_inputs` and `exact_outputs`
    have, it accesses no more than is in use, which lies together: arrays of just that size do.
    """

    names: tuple[str, ...]
    capacities: tuple[int, ...]
    inputs: tuple[tuple[Extent, ...], ...]
    outputs: tuple[tuple[Extent, ...], ...]
    scalars: tuple[Extent, ...] = ()
    prefixes: tuple[tuple[Extent, int], ...] = ()
    exact_inputs: tuple[int, ...] = ()
    exact_outputs: tuple[int, ...] = ()
    least: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """As JSON has it."""
        return {
            "names": list(self.names),
            "capacities": list(self.capacities),
            "inputs": [list(map(str, shape)) for shape in self.inputs],
            "outputs": [list(map(str, shape)) for shape in self.outputs],
            "scalars": list(map(str, self.scalars)),
            "prefixes": [[str(extent), capacity] for extent, capacity in self.prefixes],
            "exact_inputs": list(self.exact_inputs),
            "exact_outputs": list(self.exact_outputs),
            "least": list(self.least),
        }

    @staticmethod
    def from_dict(data: dict) -> OpenSizes:
        """The inverse of `to_dict`."""

        def extents(items: Sequence[str]) -> tuple[Extent, ...]:
            return tuple(map(Extent.parse, items))

        return OpenSizes(
            tuple(data["names"]),
            tuple(data["capacities"]),
            tuple(map(extents, data["inputs"])),
            tuple(map(extents, data["outputs"])),
            extents(data["scalars"]),
            tuple((Extent.parse(extent), capacity) for extent, capacity in data["prefixes"]),
            tuple(data["exact_inputs"]),
            tuple(data["exact_outputs"]),
            tuple(data.get("least", ())),
        )

    def open_dimensions(self) -> Iterator[tuple[int, int, int, int, int]]:
        """(size, input, dimension, factor, rest) where an input has a multiple of one open size and
        a constant rest."""
        for number, shape in enumerate(self.inputs):
            for dimension, extent in enumerate(shape):
                factors = dict(extent.terms)
                rest = factors.pop((), 0)
                if len(factors) == 1 and len(monomial := next(iter(factors))) == 1:
                    yield monomial[0], number, dimension, factors[monomial], rest
