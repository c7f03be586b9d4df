"""Rules by which PyTorch breaks operators down before it asks any table of decompositions, and the
functions that stand in their place inside of `own_rules()`."""

# pyright: reportMissingImports=false
from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

from stepwell.frontends.torch.decompositions.registry import Decomposition

Table = dict[Any, Callable[..., object]]
"""What an operator does, by dispatch key or by mode."""

_instead: list[tuple[Any, str, Any, Decomposition]] = []
_of_torch: list[Callable[..., object] | None] = []
_changing = threading.Lock()
_inside: list[bool] = []
"""One for each thread, or level of a thread, that is inside: the first changes the rules, the last
restores them."""


def instead(operator: Any, table: str, key: Any) -> Callable[[Decomposition], Decomposition]:
    """Decorator: the function takes the place of `operator.table[key]`, which may be none, and
    returns NotImplemented where that is to be asked."""

    def enter(function: Decomposition) -> Decomposition:
        _instead.append((operator, table, key, function))
        return function

    return enter


@contextlib.contextmanager
def own_rules() -> Iterator[None]:
    """Inside of it, the functions of `instead` break their operators down."""
    with _changing:
        _inside.append(True)
        if len(_inside) == 1:
            for operator, table, key, function in _instead:
                rule = _rules(operator, table).get(key)
                _of_torch.append(rule)
                own = function if rule is None else functools.partial(_either, function, rule)
                _set_rule(operator, table, key, own)
    try:
        yield
    finally:
        with _changing:
            _inside.pop()
            if not _inside:
                for (operator, table, key, _), rule in zip(_instead, _of_torch, strict=True):
                    _set_rule(operator, table, key, rule)
                _of_torch.clear()


def _rules(operator: Any, table: str) -> Table:
    return getattr(operator, table)


def _set_rule(operator: Any, table: str, key: Any, rule: Callable[..., object] | None) -> None:
    if rule is None:
        del _rules(operator, table)[key]
    else:
        _rules(operator, table)[key] = rule
    operator._dispatch_cache.clear()


def _either(
    first: Decomposition, second: Decomposition, *arguments: object, **keywords: object
) -> object:
    result = first(*arguments, **keywords)
    return second(*arguments, **keywords) if result is NotImplemented else result
