"""Sizes that a call tells, and what a program compiled once for any of them says about itself.

A model with open dimensions is compiled for the largest sizes it takes, its *capacities*; how much
of each dimension is in use is an `Extent`, a function of the model's open sizes `s0`, `s1`, ...
Imports no MLIR, since it is used on both sides of the compiler's process.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from stepwell.errors import ModelError
from stepwell.extents import MANY, Extent, direction

T = TypeVar("T")

SMALL_SIZES = (3, 5, 7, 2)
"""Sizes for which a model is looked at, of its open sizes in turn."""

SCALES = (2, 4, 8)
"""What these are multiplied by for models that do not take them, as far as there is room below the
capacities."""

LEAST_SIZES = (1, 2, 4, 8, 16)
"""Sizes below which an open size may not be, in the order in which they are tried."""

LEAST_CAPACITY = 16
"""No open size has a smaller capacity, but where the model says that it is never larger."""

LEAST_LIMIT = 4
"""Dimensions that a model says are never as large, have code for each size."""

_MAGNITUDES = ((0.9, 1), (0.2, 1), (0.2, 0.5), (0.2, 0.5))
"""Where many sizes are changed at once, they are capacities to such powers."""

_LEAST_SAMPLES, _MOST_SAMPLES, _MOST_DRAWN = 5, 12, 64

Sum = tuple[tuple[str, int], ...]
"""Names of sizes and their factors, which are added up; the name of the number 1 is ""."""


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
    its number in `least`, which is empty when all may be 1. The program has to be right for the
    sizes `seen`, whatever others are looked at."""

    shapes: Mapping[str, tuple[int | str, ...]]
    capacities: Mapping[str, int]
    sums: Mapping[str, Sum] = field(default_factory=dict)
    least: tuple[int, ...] = ()
    seen: tuple[tuple[int, ...], ...] = ()

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

    def sizes_in(self, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...] | None:
        """The open sizes of inputs of these `shapes`; None where one stands in sums of several
        alone."""
        known = {
            name: size
            for input_name, shape in self.shapes.items()
            for name, size in zip(shape, shapes[input_name], strict=True)
        }
        for name, parts in self.sums.items():
            (part, factor), *others = sorted(parts, key=lambda part: not part[0])
            if name in known and not any(other for other, _ in others):
                known[part] = (known[name] - sum(rest for _, rest in others)) // factor
        if not known.keys() >= self.capacities.keys():
            return None
        return tuple(known[name] for name in self.capacities)

    def samples(self) -> list[tuple[int, ...]]:
        """Large sizes to look at a model for: its capacities, and one size changed at a time, from
        even to odd or back. Of many sizes all are changed, each in another way."""
        most = tuple(self.capacities.values())
        found = [most]
        if self.are_many:
            while not _are_apart(found) and len(found) < _MOST_SAMPLES:
                found.append(self._changed_at_once(len(found)))
            return found
        for number, capacity in enumerate(most):
            found.append((*most[:number], _changed(capacity), *most[number + 1 :]))
        return found

    def rounding_sampled(
        self, at: Callable[[tuple[int, ...]], T]
    ) -> list[tuple[tuple[int, ...], T]]:
        """Sizes by which, beside the others, numbers are told apart that strides divide, and what
        `at` gives for them. Raises ModelError as `at` does for those of them above the halves of
        the capacities, which a model takes that does not take small ones."""
        halves = list(map(_half, self.capacities.values()))
        room = [capacity - 1 for capacity in self.capacities.values()]
        above = [tuple(map(min, [n + n // k + 3 for n in halves], room)) for k in (8, 2)]
        above.insert(0, tuple(map(min, [n + 1 for n in halves], room)))
        below = [tuple(n - 1 for n in halves), tuple(n // 2 + 3 for n in halves)]
        try:
            return [(point, at(point)) for point in (above[0], *below)]
        except ModelError:
            return [(point, at(point)) for point in above]

    def sample_with(
        self, wanted: Callable[[tuple[int, ...]], bool], above: tuple[int, ...]
    ) -> tuple[int, ...] | None:
        """Large sizes that are `wanted`, of which one is not the capacity, but no less than `above`
        has it; None if there are none such."""
        most = tuple(self.capacities.values())
        if self.are_many:
            points = (self._changed_at_once(seed) for seed in range(_MOST_SAMPLES, _MOST_DRAWN))
            raised = (tuple(map(max, point, above)) for point in points)
            return next(filter(wanted, raised), None)
        for number, capacity in enumerate(most):
            for size in range(capacity - 1, above[number] - 1, -1):
                point = (*most[:number], size, *most[number + 1 :])
                if wanted(point):
                    return point
        return None

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

    @property
    def are_many(self) -> bool:
        """Whether there are too many to change one at a time."""
        return len(self.capacities) > MANY

    def _changed_at_once(self, seed: int) -> tuple[int, ...]:
        """Sizes below the capacities: large ones, ones of any magnitude and small ones in turn."""
        drawn = random.Random(seed)
        low, high = _MAGNITUDES[seed % len(_MAGNITUDES)]
        return tuple(
            max(2, min(capacity - 1, int(capacity ** drawn.uniform(low, high))))
            for capacity in self.capacities.values()
        )

    def orders(self, least: Sequence[int]) -> list[tuple[int, ...]]:
        """Small sizes that ascend and that descend, none below its number in `least`."""
        count = len(self.capacities)
        most, floor = tuple(self.capacities.values()), tuple(least) or (1,) * count
        rows = (range(1, count + 1), range(count, 0, -1))
        return [
            tuple(min(n + low - 1, m) for n, low, m in zip(row, floor, most, strict=True))
            for row in rows
        ]

    def least_samples(self) -> list[tuple[int, ...]]:
        """The smallest sizes, for which it may be another: from which on is it the same?"""
        return [(size,) * len(self.capacities) for size in LEAST_SIZES]

    def sampled(self, at: Callable[[tuple[int, ...]], T]) -> list[T]:
        """What `at` gives for the sizes that a model is looked at for, where that has to be told
        ahead. Raises ModelError as `at` does for large sizes, or for all small ones."""
        found = [at(point) for point in self.samples()]
        with contextlib.suppress(ModelError):
            found += [result for _, result in self.rounding_sampled(at)]
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
        seen = [list(sizes) for sizes in self.seen]
        return [shapes, [list(item) for item in self.capacities.items()], sums, seen]

    @staticmethod
    def from_json(data: Sequence) -> OpenShapes:
        """The inverse of `to_json`."""
        shapes, capacities, sums, seen = data
        return OpenShapes(
            {name: tuple(shape) for name, shape in shapes},
            dict(capacities),
            {name: tuple((part, factor) for part, factor in parts) for name, parts in sums},
            seen=tuple(map(tuple, seen)),
        )


def _are_apart(points: Sequence[tuple[int, ...]]) -> bool:
    """Whether no size is another one, multiplied by a number and added to one, at all `points`."""
    seen = set(map(direction, zip(*points, strict=True)))
    return len(seen) == len(points[0]) and len(points) > _LEAST_SAMPLES


def _changed(capacity: int) -> int:
    """Another large size, which is even where `capacity` is odd, and that few numbers divide."""
    half, odd = _half(capacity), 1 + capacity % 2
    return next(n for n in (half + half // 4 + odd, half + odd, half - odd) if n < capacity)


def _half(capacity: int) -> int:
    """The largest power of two below `capacity`."""
    return 1 << (capacity - 1).bit_length() - 1


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
                parts, rest = extent.split()
                if len(parts) == 1 and len(parts[0][0]) == 1:
                    (symbol,), factor = parts[0]
                    if isinstance(symbol, int):
                        yield symbol, number, dimension, factor, rest
