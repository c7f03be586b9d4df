"""The sizes that a model is compiled for at once: from the shapes of several calls, or from names
and largest sizes that a user gives."""

from __future__ import annotations

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
    inputs: Sequence[OpenSpec], history: Sequence[Shapes], *, exact: bool = False
) -> OpenShapes | None:
    """The shapes of `inputs` in which those dimensions are open that differ between calls.

    Dimensions of one name, or that had the same sizes in all calls, are one open size. Its capacity
    is the next power of two, or with `exact` the largest size seen. None when the calls have
    inputs of different ranks, empty ones, or sizes that contradict the names.
    """
    shapes: dict[str, tuple[int | str, ...]] = {}
    columns: dict[str, tuple[int, ...]] = {}
    names: dict[tuple[int, ...], str] = {}
    for spec in inputs:
        calls = [call[spec.name] for call in history]
        if len({len(shape) for shape in calls}) > 1 or any(0 in shape for shape in calls):
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
    most = {name: max(column) for column, name in names.items()}
    if not most:
        return None
    return OpenShapes(shapes, {name: _capacity(n, exact) for name, n in most.items()})


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
    used = {size: None for shape in found.values() for size in shape if isinstance(size, str)}
    for name in max_sizes:
        if name not in used:
            listed = ", ".join(used) or "none"
            raise UsageError(f'"{name}" is no open dimension of an input (open: {listed})')
    if not used:
        raise UsageError("no dimension of the inputs has a name, so that there is no open size")
    return OpenShapes(found, {name: max(LEAST_CAPACITY, max_sizes[name]) for name in used})


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
    shape = [
        said.get(size, size) if isinstance(size, str) and spec.name not in shapes else size
        for size in given
    ]
    for number, size in enumerate(shape):
        if size == UNNAMED:
            raise UsageError(f"dimension {number} of input {spec} is open; give the input's shape")
        if isinstance(size, str) and size not in max_sizes:
            raise UsageError(
                f"{size}, dimension {number} of input {spec}, has no largest size; "
                f'give max_sizes={{"{size}": 512}}, or --max {size}=512'
            )
    return tuple(shape)
