"""Dataclasses from plain data, as JSON has it: what `dataclasses.asdict` made, checked."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def from_plain(kind: type[T], data: object) -> T:
    """An instance of the dataclass `kind`, whose fields are integers, floats, booleans, strings,
    mappings, tuples of one type, and such dataclasses; fields with a default may be missing.

    Raises ValueError, a clause that says what is wrong.
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"{_shown(data)} is no object")
    hints = typing.get_type_hints(kind)
    fields = {f.name: f for f in dataclasses.fields(kind)}  # pyright: ignore[reportArgumentType]
    for name in data:
        if name not in fields:
            raise ValueError(f"there is no field {name}")
    for name, field in fields.items():
        if field.default is dataclasses.MISSING and name not in data:
            raise ValueError(f"{name} is missing")
    return kind(**{name: _value(name, hints[name], value) for name, value in data.items()})


def _value(name: str, hint: object, value: object) -> object:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return from_plain(hint, value)
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple and isinstance(value, list | tuple):
        if parts[-1] is ... or len(parts) == len(value):
            return tuple(_value(name, parts[0], part) for part in value)
    elif isinstance(value, bool):
        if hint is bool:
            return value
    elif isinstance(value, int) and hint is float:
        return float(value)
    elif origin is not tuple and isinstance(value, origin or typing.cast("type", hint)):
        return value
    raise ValueError(f"{name} is {_shown(value)}")


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."
