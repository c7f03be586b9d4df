"""The table of own decompositions."""

# pyright: reportMissingImports=false
from __future__ import annotations

import functools
from collections.abc import Callable

import torch

Decomposition = Callable[..., object]

MENDS: dict[torch._ops.OperatorBase, Decomposition] = {}

_plain: set[torch._ops.OpOverload] = set()


def mend(*overloads: torch._ops.OpOverload) -> Callable[[Decomposition], Decomposition]:
    """Decorator: the function takes the place of `overloads`, and returns NotImplemented where it
    leaves the operator as it is."""

    def enter(function: Decomposition) -> Decomposition:
        for overload in overloads:
            MENDS[overload] = _unless_plain(overload, function)
        return function

    return enter


def _unless_plain(overload: torch._ops.OpOverload, function: Decomposition) -> Decomposition:
    @functools.wraps(function)
    def call(*arguments: object, **keywords: object) -> object:
        if overload in _plain:
            return NotImplemented
        return function(*arguments, **keywords)

    return call


def itself(overload: torch._ops.OpOverload, *arguments: object, **keywords: object) -> object:
    """The operator, not broken down once more: for a decomposition that mends its arguments."""
    _plain.add(overload)
    try:
        return overload(*arguments, **keywords)
    finally:
        _plain.discard(overload)
