"""The sizes that a model is compiled for at once: from the shapes of several calls, or from names
and largest sizes that a user gives."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TypeGuard

from stepwell.errors import UsageError
from stepwell.sizes import LEAST_CAPACITY, OpenShapes
from stepwell.specialization import TENSOR, OpenSpec

UNNAMED = "?"
"""The name of an open dimension that has none."""

Shapes = Mapping[str, tuple[int, ...]]
NamedShapes = Mapping[str, Sequence[int | str]]
"""Shapes by input name, in which names stand for open sizes."""


def generalized(
    inputs: Sequence[OpenSpec],
    history: Sequence[Shapes],
    *,
    exact: bool = False,
    with_sums: bool = False,
) -> OpenShapes | None:
    """The shapes of `inputs` in which those dimensions are open that differ between calls.

    Dimensions of one name, or that had the same sizes in all calls, are one open size. Its capacity
    is the next power of two, or with `exact` the largest size seen. With `with_sums`, a size that
    was the sum of two others, or of one and the same number, in all calls, follows from these. None
    when the calls have inputs of different ranks, or sizes that contradict the names, and when
    there are no sums.
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
            if len(set(column)) == 1:
                shape.append(column[0])
                continue
            declared = spec.shape[dimension] if spec.shape is not None else UNNAMED
            name = f"{spec.name}.{dimension}" if declared == UNNAMED else str(declared)
            if columns.setdefault(name, column) != column:
                return None
            shape.append(names.setdefault(column, name))
        shapes[spec.name] = tuple(shape)
    sums = _sums(names) if with_sums else {}
    if not names or (with_sums and not sums):
        return None
    most = {name: max(column) for column, name in names.items() if name not in sums}
    return OpenShapes(shapes, {name: _capacity(n, exact) for name, n in most.items()}, sums)


def _sums(names: Mapping[tuple[int, ...], str]) -> dict[str, tuple[int | str, ...]]:
    """What sizes by name are the sums of, as `names` by the sizes of all calls tell."""
    found: dict[str, tuple[int | str, ...]] = {}
    ordered = sorted(names.items(), key=lambda item: max(item[0]))
    for number, (column, name) in enumerate(ordered):
        smaller = [item for item in ordered[:number] if item[1] not in found]
        for (one, first), (other, second) in itertools.combinations(smaller, 2):
            if column == tuple(map(sum, zip(one, other, strict=True))):
                found[name] = (first, second)
        for one, first in smaller:
            rests = {total - part for total, part in zip(column, one, strict=True)}
            if name not in found and len(rests) == 1:
                found[name] = (first, *rests)
    return found


def _capacity(size: int, exact: bool) -> int:
    return max(LEAST_CAPACITY, size if exact else 1 << (size - 1).bit_length())


def are_known(shapes: NamedShapes | None) -> TypeGuard[Mapping[str, Sequence[int]] | None]:
    """Whether no name of an open size is in `shapes`."""
    return not any(isinstance(size, str) for shape in (shapes or {}).values() for size in shape)


def bounded(
    inputs: Sequence[OpenSpec], shapes: NamedShapes, max_sizes: Mapping[str, int]
) -> OpenShapes:
    """The shapes of `inputs` for any size up to that of its name in `max_sizes`.

    Inputs that `shapes` leaves out are as the model declares them. What `shapes` gives for a
    dimension that the model has a name for, holds for others of that name. Raises UsageError for
    dimensions without a size or largest size, and for what contradicts the model.
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
    found = {spec.name: _shape(spec, shapes, said, max_sizes) for spec in inputs}
    named = {size: None for shape in found.values() for size in shape if isinstance(size, str)}
    sums = {name: _parts(name) for name in named if name not in max_sizes}
    used = {name: None for name in named if name not in sums}
    used |= {part: None for parts in sums.values() for part in parts if isinstance(part, str)}
    for name in max_sizes:
        if name not in used:
            listed = ", ".join(used) or "none"
            raise UsageError(f'"{name}" is no open dimension of an input (open: {listed})')
    if not used:
        raise UsageError("no dimension of the inputs has a name, so that there is no open size")
    most = {name: max(LEAST_CAPACITY, max_sizes[name]) for name in used}
    return OpenShapes(found, most, sums)


def _parts(size: str) -> tuple[int | str, ...]:
    """The names and numbers that a size such as `past + n` adds up."""
    parts = [part.strip() for part in size.split("+")]
    return tuple(int(part) if part.isdigit() else part for part in parts)


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
        for part in _parts(size):
            if isinstance(part, str) and part not in max_sizes:
                raise UsageError(
                    f"{part}, dimension {number} of input {spec}, has no largest size; "
                    f'give max_sizes={{"{part}": 512}}, or --max {part}=512'
                )
    return tuple(shape)


def _renamed(size: int | str, said: Mapping[str, int | str]) -> int | str:
    """A declared size with what was said of the names in it."""
    if not isinstance(size, str) or size in said:
        return size if isinstance(size, int) else said[size]
    parts = [said.get(part, part) if isinstance(part, str) else part for part in _parts(size)]
    if all(isinstance(part, int) for part in parts):
        return sum(part for part in parts if isinstance(part, int))
    return " + ".join(map(str, parts))
