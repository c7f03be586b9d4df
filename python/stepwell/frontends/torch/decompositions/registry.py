"""The table of own decompositions."""

# pyright: reportMissingImports=false
from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

import torch

Decomposition = Callable[..., object]

MENDS: dict[torch._ops.OperatorBase, Decomposition] = {}

_plain: set[torch._ops.OpOverload] = set()


def mend(*overloads: torch._ops.OpOverload) -> Callable[[Decomposition], Decomposition]:
    """Decorator: the function takes the place of `overloads`, and returns NotImplemented where it
    leaves the operator as it is. One that is entered later is asked where those before it do so."""

    def enter(function: Decomposition) -> Decomposition:
        for overload in overloads:
            own = _unless_plain(overload, function)
            before = MENDS.get(overload)
            MENDS[overload] = own if before is None else first_of(before, own)
        return function

    return enter


def first_of(before: Decomposition, after: Decomposition) -> Decomposition:
    """`before`, and `after` where it leaves the operator as it is."""

    @functools.wraps(after)
    def call(*arguments: object, **keywords: object) -> object:
        found = before(*arguments, **keywords)
        return after(*arguments, **keywords) if found is NotImplemented else found

    return call


def _unless_plain(overload: torch._ops.OpOverload, function: Decomposition) -> Decomposition:
    @functools.wraps(function)
    def call(*arguments: object, **keywords: object) -> object:
        if overload in _plain:
            return NotImplemented
        with _place_of(arguments, keywords):
            return function(*arguments, **keywords)

    return call


def _place_of(
    arguments: Sequence[object], keywords: Mapping[str, object]
) -> AbstractContextManager[object]:
    """Lets what is made lie where it is asked for, or where operands do, if that is not the CPU."""
    asked = keywords.get("device")
    places = [asked] if isinstance(asked, torch.device) else []
    for value in arguments:
        operands = value if isinstance(value, list | tuple) else (value,)
        places += [operand.device for operand in operands if isinstance(operand, torch.Tensor)]
    return next((place for place in places if place.type != "cpu"), contextlib.nullcontext())


def itself(overload: torch._ops.OpOverload, *arguments: object, **keywords: object) -> object:
    """The operator, not broken down once more: for a decomposition that mends its arguments."""
    _plain.add(overload)
    try:
        return overload(*arguments, **keywords)
    finally:
        _plain.discard(overload)


def by_kernel(overload: torch._ops.OpOverload, *arguments: object, **keywords: object) -> object:
    """What PyTorch's own kernel breaks the operator down into; `overload.decompose` would come
    back to the table."""
    kernel = torch._C.DispatchKey.CompositeImplicitAutograd
    return overload._op_dk(kernel, *arguments, **keywords)
