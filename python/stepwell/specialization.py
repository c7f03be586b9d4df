"""What a compilation may take from a call: shapes, structures and values that a model leaves open.

A model is compiled for one `Specialization`. What it leaves open beyond that is an
`OpenModelError`: the caller learns the signature, and which values have to be known. Imports no
MLIR, since it is used on both sides of the compiler's process.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from stepwell.errors import InputError
from stepwell.runtime.inputs import numpy_dtype
from stepwell.sizes import OpenShapes

Structure: TypeAlias = "str | list[Structure] | None"
"""What a run-time value is made of: TENSOR, None for an empty optional, a list for a sequence."""

Key: TypeAlias = "tuple[Key | str | int | bytes, ...]"
"""What code is for, beside its model."""

TENSOR = "tensor"

OFFERED_ELEMENTS = 1024
"""Inputs of at most this size are offered to the importer, which takes those it has to know."""


@dataclass(frozen=True)
class Specialization:
    """What is fixed beside the shapes of a model's inputs.

    `structures` says what inputs are made of that are sequences or optional. `values` are known
    tensors by name: of inputs, and of values computed on the way, for which the names of the
    ONNX graph stand, those inside a function or branch after the name of its node's output and "/".
    `given` tensors are inputs of the compiled code, in this order after those of the model, in the
    place of the nodes that compute them.
    With `results`, the compiled code returns these tensors and not the model's outputs.
    `offered` are values of inputs, of which the importer says which have to be known.
    With `sizes`, the program is one for all sizes that it says are open, of `given` tensors, too,
    and for all numbers in the tensors `told` that are not negative in `values`: each is the size of
    an input of its own, a vector that is not read (`told_inputs`).
    """

    structures: Mapping[str, Structure] = field(default_factory=dict)
    values: Mapping[str, np.ndarray] = field(default_factory=dict)
    given: Mapping[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    results: tuple[str, ...] | None = None
    offered: Mapping[str, np.ndarray] = field(default_factory=dict)
    sizes: OpenShapes | None = None
    told: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        named = self.structures or self.values or self.given or self.results or self.offered
        return bool(named or self.sizes)

    def at(
        self, shapes: Mapping[str, tuple[int, ...]]
    ) -> tuple[dict[str, tuple[int, ...]], Specialization]:
        """The shapes of the model's inputs, and what is fixed besides, where all inputs have
        `shapes`."""
        given = {name: (kind, shapes[name]) for name, (kind, _) in self.given.items()}
        values = dict(self.values)
        others = set(given)
        for name in self.told:
            numbers = told_inputs(name, self.values[name])
            others |= set(numbers)
            values[name] = self.values[name].copy()
            values[name][values[name] >= 0] = [shapes[number][0] for number in numbers]
        inputs = {name: shape for name, shape in shapes.items() if name not in others}
        return inputs, replace(self, given=given, values=values, sizes=None)

    def to_json(self) -> str:
        """As text for a request and for the key of a cached artifact."""
        data = {
            "structures": self.structures,
            "values": {name: _encode(array) for name, array in sorted(self.values.items())},
            "given": [[name, kind, list(shape)] for name, (kind, shape) in self.given.items()],
            "results": self.results,
            "offered": {name: _encode(array) for name, array in sorted(self.offered.items())},
            "sizes": None if self.sizes is None else self.sizes.to_json(),
            "told": self.told,
        }
        return json.dumps(data, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Specialization:
        """What `to_json` wrote."""
        data = json.loads(text)
        return Specialization(
            data["structures"],
            {name: _decode(*array) for name, array in data["values"].items()},
            {name: (kind, tuple(shape)) for name, kind, shape in data["given"]},
            None if data["results"] is None else tuple(data["results"]),
            {name: _decode(*array) for name, array in data["offered"].items()},
            None if data["sizes"] is None else OpenShapes.from_json(data["sizes"]),
            tuple(data["told"]),
        )


def told_inputs(name: str, array: np.ndarray) -> list[str]:
    """The names of the vectors that are as long as the numbers in the tensor `name` say, those of
    `array` that are not negative."""
    return [f"value {place} of {name}" for place, number in enumerate(array.flat) if number >= 0]


def _encode(array: np.ndarray) -> list[object]:
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return [array.dtype.name, list(array.shape), data]


def _decode(dtype: str, shape: Sequence[int], data: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(data), numpy_dtype(dtype)).reshape(shape)


@dataclass(frozen=True)
class OpenSpec:
    """An input or output as a model declares it. `shape` holds names of open dimensions, None is an
    unknown rank; `kind` is TENSOR, or that within "seq(...)" and "optional(...)"."""

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None
    kind: str = TENSOR

    def __str__(self) -> str:
        sizes = "..." if self.shape is None else ", ".join(map(str, self.shape))
        text = f"{self.dtype}[{sizes}]"
        return f"{self.name}: {self.kind.replace(TENSOR, text)}"

    @property
    def is_open(self) -> bool:
        """Whether a call has to tell the shape or the structure."""
        return (
            self.kind != TENSOR
            or self.shape is None
            or any(isinstance(size, str) for size in self.shape)
        )

    @staticmethod
    def from_list(fields: Sequence[object]) -> OpenSpec:
        """From the fields as JSON has them."""
        name, dtype, shape, kind = fields
        sizes = None if shape is None else tuple(shape)  # pyright: ignore[reportArgumentType]
        return OpenSpec(str(name), str(dtype), sizes, str(kind))


@dataclass(frozen=True)
class Signature:
    """What a model takes and gives: `defaults` are inputs that have a value of their own, `limits`
    the largest that named dimensions may be, `fixed` the shapes of inputs that were asked for.
    Of the inputs `known`, the values have to be known before any code runs."""

    inputs: tuple[OpenSpec, ...]
    outputs: tuple[OpenSpec, ...]
    defaults: tuple[OpenSpec, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict)
    fixed: Mapping[str, Sequence[int]] = field(default_factory=dict)
    known: tuple[str, ...] = ()


def flatten(spec: OpenSpec, value: object) -> tuple[Structure, dict[str, object]]:
    """The structure of `value`, an input declared as `spec`, and its tensors by name: `x[0]` is the
    first of the sequence `x`. Raises InputError when it is not of the declared kind."""
    return _flatten(spec.name, spec.kind, value)


def _flatten(name: str, kind: str, value: object) -> tuple[Structure, dict[str, object]]:
    if kind.startswith("optional("):
        if value is None:
            return None, {}
        return _flatten(name, kind.removeprefix("optional(")[:-1], value)
    if kind.startswith("seq("):
        if not isinstance(value, (list, tuple)):
            raise InputError(f"input {name!r} is a {type(value).__name__}; the model takes a list")
        parts: list[Structure] = []
        tensors: dict[str, object] = {}
        for index, element in enumerate(value):
            part, inner = _flatten(f"{name}[{index}]", kind.removeprefix("seq(")[:-1], element)
            parts.append(part)
            tensors |= inner
        return parts, tensors
    if value is None:
        raise InputError(f"input {name!r} is None; the model takes a tensor")
    return TENSOR, {name: value}


def check_names(
    specs: Sequence[OpenSpec], feed: Mapping[str, object], more: Container[str] = ()
) -> None:
    """Raise InputError when `feed` lacks an input that is not optional, or has one that is neither
    of `specs` nor in `more`."""
    names = [spec.name for spec in specs]
    unknown = [name for name in feed if name not in names and name not in more]
    if unknown:
        raise InputError(
            f"the model has no input {unknown[0]!r}; its inputs are: {', '.join(names) or 'none'}"
        )
    for spec in specs:
        if spec.name not in feed and not spec.kind.startswith("optional("):
            raise InputError(f"the input {spec.name!r} was not given; it is {spec}")


def check_shape(name: str, shape: tuple[int, ...], wanted: tuple[int | str, ...]) -> None:
    """Raise InputError when `shape` is not `wanted`, in which names stand for any size."""
    text = f"({', '.join(map(str, wanted))}{',' if len(wanted) == 1 else ''})"
    if len(shape) != len(wanted):
        raise InputError(
            f"input {name!r} has rank {len(shape)} (shape {shape}) and the model "
            f"takes rank {len(wanted)} (shape {text})"
        )
    if any(isinstance(w, int) and w != n for w, n in zip(wanted, shape, strict=True)):
        raise InputError(f"input {name!r} has shape {shape} and the model takes {text}")


def check_limits(
    name: str, shape: Sequence[int], wanted: Sequence[int | str], limits: Mapping[str, int]
) -> None:
    """Raise InputError where a dimension of `shape`, named in `wanted`, is above that name's number
    in `limits`."""
    for number, (size, dimension) in enumerate(zip(shape, wanted, strict=True)):
        limit = limits.get(str(dimension))
        if limit is not None and size > limit:
            raise InputError(
                f"input {name!r} has shape {tuple(shape)}; its dimension {number}, {dimension}, "
                f"may be {limit} at most"
            )
