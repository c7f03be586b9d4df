"""From the shapes of several calls to the sizes that a model should be compiled for at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stepwell.sizes import LEAST_CAPACITY, OpenShapes
from stepwell.specialization import OpenSpec

UNNAMED = "?"
"""The name of an open dimension that has none."""

Shapes = Mapping[str, tuple[int, ...]]


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
