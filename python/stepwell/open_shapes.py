"""The sizes that a model is compiled for at once: from the shapes of several calls, or from names
and largest sizes that a user gives."""

from __future__ import annotations

import enum
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeGuard

from stepwell.errors import UsageError
from stepwell.sizes import LEAST_CAPACITY, LEAST_LIMIT, OpenShapes, Sum
from stepwell.specialization import TENSOR, OpenSpec

UNNAMED = "?"
"""The name of an open dimension that has none."""

ROOM = 4
"""Sizes that depend on data are of any magnitude."""

MOST_STRIDE = 32
"""Sizes are taken for multiples of a power of two up to this: what the strides of a network divide
images by."""


class Relation(enum.Enum):
    """What sizes that differ between calls may have to do with one another."""

    NONE = "none"
    SUMS = "sums"
    """One is the sum of two others, the sum of one and the same number, or a multiple of one."""
    MULTIPLES = "multiples"
    """Each is a multiple of a power of two."""


Shapes = Mapping[str, tuple[int, ...]]
NamedShapes = Mapping[str, Sequence[int | str]]
"""Shapes by input name, in which names stand for open sizes."""


def generalized(
    inputs: Sequence[OpenSpec],
    history: Sequence[Shapes],
    limits: Mapping[str, int] = MappingProxyType({}),
    *,
    exact: bool = False,
    related: Relation = Relation.NONE,
    bounds: Mapping[str, int] = MappingProxyType({}),
) -> OpenShapes | None:
    """The shapes of `inputs` in which those dimensions are open that differ between calls.

    Dimensions of one name, or that had the same sizes in all calls, are one open size. Its capacity
    is the next power of two, or with `exact` the largest size seen, but no more than `limits` has
    for a declared name. Dimensions in `bounds` (by input and number, "x.0") depend on data: they
    are open in any case, and have room for ROOM times as much, up to their number there. Sizes that
    were `related` in all calls follow from others, or from what they are multiples of. None when
    the calls have inputs of different ranks, or sizes that contradict the names, when none are so
    related, and for limits below LEAST_LIMIT.
    """
    shapes: dict[str, tuple[int | str, ...]] = {}
    columns: dict[str, tuple[int, ...]] = {}
    names: dict[tuple[int, ...], str] = {}
    for spec in inputs:
        calls = [call[spec.name] for call in history]
        if len({len(shape) for shape in calls}) > 1:
            return None
        shape: list[int | str] = []
        for dimension, column in enumerate(zip(*calls, strict=True)):
            # A size that depends on data is open even if it has been the same so far.
            bound = bounds.get(f"{spec.name}.{dimension}", 0)
            if len(set(column)) == 1 and (bound < LEAST_LIMIT or not column[0]):
                shape.append(column[0])
                continue
            declared = spec.shape[dimension] if spec.shape is not None else UNNAMED
            name = f"{spec.name}.{dimension}" if declared == UNNAMED else str(declared)
            if columns.setdefault(name, column) != column:
                return None
            shape.append(names.setdefault(column, name))
        shapes[spec.name] = tuple(shape)
    if related is Relation.MULTIPLES:
        return _multiples(shapes, names, limits, exact=exact)
    names |= _declared_units(names)
    sums = _declared_sums(names)
    known = len(sums)
    if related is Relation.SUMS:
        sums |= _sums({column: name for column, name in names.items() if name not in sums})
    if not names or (related is Relation.SUMS and len(sums) == known):
        return None
    capacities: dict[str, int] = {}
    for column, name in names.items():
        if name not in sums:
            same = (name, *(other for other, sizes in columns.items() if sizes == column))
            known = (limits[other] for other in same if other in limits)
            capacities[name] = min([_capacity(max(column), exact), *known])
            bound = max((bounds[other] for other in same if other in bounds), default=0)
            if bound and not exact:
                room = min(bound, ROOM * capacities[name])
                capacities[name] = max(room, *column)
    if min(capacities.values()) < LEAST_LIMIT:
        return None
    return OpenShapes(shapes, capacities, sums)


def _declared_units(names: Mapping[tuple[int, ...], str]) -> dict[tuple[int, ...], str]:
    """Sizes that no dimension has alone, such as the `w` of `8*w` or `w + 1`, as `names`: where
    the sizes of all calls are so made."""
    found: dict[tuple[int, ...], str] = {}
    for column, name in names.items():
        parts = _parts(name)
        constant = sum(factor for part, factor in parts if not part)
        units = [(part, factor) for part, factor in parts if part]
        if len(units) != 1 or units[0][0] in (name, *names.values(), *found.values()):
            continue
        unit, factor = units[0]
        sizes = [divmod(size - constant, factor) for size in column]
        whole = tuple(size for size, _ in sizes)
        if min(whole) > 0 and not any(left for _, left in sizes) and whole not in (*names, *found):
            found[whole] = unit
    return found


def _declared_sums(names: Mapping[tuple[int, ...], str]) -> dict[str, Sum]:
    """Names such as `2*b` and `past + n` as sums of others, where the sizes of all calls agree."""
    columns = {"": (1,) * len(next(iter(names), ())), **{name: c for c, name in names.items()}}
    found = {}
    for column, name in names.items():
        parts = _parts(name)
        if all(part != name and part in columns for part, _ in parts):
            multiples = [[factor * n for n in columns[part]] for part, factor in parts]
            if tuple(map(sum, zip(*multiples, strict=True))) == column:
                found[name] = parts
    return found


def _multiples(
    shapes: Mapping[str, tuple[int | str, ...]],
    names: Mapping[tuple[int, ...], str],
    limits: Mapping[str, int],
    *,
    exact: bool,
) -> OpenShapes | None:
    """`shapes` with open sizes of which those in `names` are the multiples; None if all are odd."""
    factors = {name: math.gcd(*column, MOST_STRIDE) for column, name in names.items()}
    if all(factor == 1 for factor in factors.values()):
        return None
    texts = {name: f"{f}*{name}" if f > 1 else name for name, f in factors.items()}
    capacities = {}
    for column, name in names.items():
        capacity = _capacity(max(column) // factors[name], exact)
        capacities[name] = min(
            capacity, limits.get(name, capacity * factors[name]) // factors[name]
        )
    if min(capacities.values()) < LEAST_LIMIT:
        return None
    return OpenShapes(
        {
            key: tuple(texts[n] if isinstance(n, str) else n for n in shape)
            for key, shape in shapes.items()
        },
        capacities,
        {texts[name]: ((name, factor),) for name, factor in factors.items() if factor > 1},
    )


def _sums(names: Mapping[tuple[int, ...], str]) -> dict[str, Sum]:
    """What sizes by name are the sums of, as `names` by the sizes of all calls tell."""
    found: dict[str, Sum] = {}
    ordered = sorted(names.items(), key=lambda item: max(item[0]))
    for number, (column, name) in enumerate(ordered):
        smaller = [item for item in ordered[:number] if item[1] not in found]
        for (one, first), (other, second) in itertools.combinations(smaller, 2):
            if column == tuple(map(sum, zip(one, other, strict=True))):
                found[name] = ((first, 1), (second, 1))
        for one, first in smaller:
            rests = {total - part for total, part in zip(column, one, strict=True)}
            ratios = {total / part for total, part in zip(column, one, strict=True)}
            if name not in found and len(rests) == 1:
                found[name] = ((first, 1), ("", rests.pop()))
            if name not in found and len(ratios) == 1 and column[0] % one[0] == 0:
                found[name] = ((first, column[0] // one[0]),)
    return found


def _capacity(size: int, exact: bool) -> int:
    return max(LEAST_CAPACITY, size if exact else 1 << (size - 1).bit_length())


def are_known(shapes: NamedShapes | None) -> TypeGuard[Mapping[str, Sequence[int]] | None]:
    """Whether no name of an open size is in `shapes`."""
    return not any(isinstance(size, str) for shape in (shapes or {}).values() for size in shape)


def bounded(
    inputs: Sequence[OpenSpec],
    shapes: NamedShapes,
    max_sizes: Mapping[str, int],
    limits: Mapping[str, int] = MappingProxyType({}),
) -> OpenShapes:
    """The shapes of `inputs` for any size up to that of its name in `max_sizes`.

    Inputs that `shapes` leaves out are as the model declares them. What `shapes` gives for a
    dimension that the model has a name for, holds for others of that name. `limits` are the largest
    sizes of the model's own names. Raises UsageError for dimensions without a size or largest size,
    and for what contradicts the model.
    """
    names = [spec.name for spec in inputs]
    for name in shapes:
        if name not in names:
            raise UsageError(f'"{name}" is no input of the model (inputs: {", ".join(names)})')
    for name, most in max_sizes.items():
        if most < 1:
            raise UsageError(f"the largest size of {name} is {most}; it must be 1 or more")
    said: dict[str, int | str] = {}
    for spec in inputs:
        if spec.name in shapes:
            _match(spec, shapes[spec.name], said)
    limit_of = {said.get(name, name): limit for name, limit in limits.items()}
    found = {spec.name: _shape(spec, shapes, said, max_sizes) for spec in inputs}
    named = {size: None for shape in found.values() for size in shape if isinstance(size, str)}
    sums = {name: _parts(name) for name in named if name not in max_sizes}
    used = {name: None for name in named if name not in sums}
    used |= {part: None for parts in sums.values() for part, _ in parts if part}
    for name in max_sizes:
        if name not in used:
            listed = ", ".join(used) or "none"
            raise UsageError(f'"{name}" is no open dimension of an input (open: {listed})')
    if not used:
        raise UsageError("no dimension of the inputs has a name, so that there is no open size")
    told = {
        name
        for size in named
        for name, factor in sums.get(size, ((size, 1),))
        if factor and len([part for part, _ in sums.get(size, ((size, 1),)) if part]) == 1
    }
    for name in used:
        if name not in told:
            raise UsageError(f"no dimension of an input tells {name}, which is in sums alone")
    capacities = {name: max(LEAST_CAPACITY, max_sizes[name]) for name in used}
    for name in used:
        limit = limit_of.get(name)
        if limit is None:
            continue
        if max_sizes[name] > limit:
            raise UsageError(
                f"the largest size of {name} is {max_sizes[name]}; the model takes {limit} at most"
            )
        if limit < LEAST_LIMIT:
            raise UsageError(
                f"the model takes {limit} at most for {name}, too few sizes for one code; "
                "compile it for each"
            )
        capacities[name] = min(capacities[name], limit)
    return OpenShapes(found, capacities, sums)


_MULTIPLE = re.compile(r"(?:(\d+)\s*\*\s*)?(.+?)(?:\s*\*\s*(\d+))?")


def _parts(size: str) -> Sum:
    """What a size such as `past + 2*n + 1` adds up."""
    found = []
    for part in size.split("+"):
        match = _MULTIPLE.fullmatch(part.strip())
        if match is None:
            return ((size, 1),)
        whole = part.strip().isdigit()
        found.append(
            ("", int(part)) if whole else (match[2], int(match[1] or 1) * int(match[3] or 1))
        )
    return tuple(found)


def _match(spec: OpenSpec, shape: Sequence[int | str], said: dict[str, int | str]) -> None:
    """Check `shape` against the declared one, and note what it says of declared names."""
    text = f"the shape of input {spec.name} is ({', '.join(map(str, shape))})"
    if spec.shape is None:
        return
    if len(shape) != len(spec.shape):
        raise UsageError(f"{text}, but the model declares {spec}, of rank {len(spec.shape)}")
    for number, (size, declared) in enumerate(zip(shape, spec.shape, strict=True)):
        if isinstance(declared, int):
            if size != declared:
                raise UsageError(f"{text}, but its dimension {number} is {declared} in the model")
        elif declared != UNNAMED and said.setdefault(declared, size) != size:
            raise UsageError(
                f"{text}, so that {declared}, its dimension {number}, is {size}; it is "
                f"{said[declared]} in another input"
            )


def _shape(
    spec: OpenSpec,
    shapes: NamedShapes,
    said: Mapping[str, int | str],
    max_sizes: Mapping[str, int],
) -> tuple[int | str, ...]:
    """The shape of one input, all names in which have a largest size."""
    if spec.kind != TENSOR:
        raise UsageError(f"input {spec} is no tensor, and code for any size takes tensors alone")
    given = shapes.get(spec.name, spec.shape)
    if given is None:
        raise UsageError(f"input {spec} has no rank in the model; give its shape")
    shape = list(given) if spec.name in shapes else [_renamed(size, said) for size in given]
    for number, size in enumerate(shape):
        if size == UNNAMED:
            raise UsageError(f"dimension {number} of input {spec} is open; give the input's shape")
        if not isinstance(size, str) or size in max_sizes:
            continue
        for part, _ in _parts(size):
            if part and part not in max_sizes:
                raise UsageError(
                    f"{part}, dimension {number} of input {spec}, has no largest size; "
                    f'give max_sizes={{"{part}": 512}}, or --max {part}=512'
                )
    return tuple(shape)


def _renamed(size: int | str, said: Mapping[str, int | str]) -> int | str:
    """A declared size with what was said of the names in it."""
    if not isinstance(size, str) or size in said:
        return size if isinstance(size, int) else said[size]
    constant, texts = 0, []
    for part, factor in _parts(size):
        value = said.get(part, part) if part else 1
        for name, times in _parts(value) if isinstance(value, str) else (("", value),):
            if name:
                texts.append(f"{factor * times}*{name}" if factor * times > 1 else name)
            else:
                constant += factor * times
    if not texts:
        return constant
    return " + ".join([*texts, *([str(constant)] if constant else [])])
