"""The one registry of ONNX operators: functions by operator name and opset version."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

import numpy as np

from stepwell.mlir import ir

if TYPE_CHECKING:
    from stepwell.frontends.onnx.node import Value

Result: TypeAlias = "ir.Value | np.ndarray | Value"
"""What an operator makes: an IR value, or data known at compile time."""


class Build(Protocol):
    """An operator: `build(node, *inputs)`; an omitted optional input is None."""

    def __call__(self, *args: object) -> Result | Sequence[Result]: ...


@dataclass(frozen=True)
class Operator:
    """A registered operator. `folds`: on constant inputs it returns arrays by itself."""

    name: str
    since: int
    build: Build
    folds: bool
    structures: bool
    domain: str

    def wrong_inputs(self, inputs: Sequence[object]) -> str | None:
        """A sentence where an input is left out that the function needs, or one is too many."""
        for i, parameter in enumerate(self._parameters):
            if parameter.kind is parameter.VAR_POSITIONAL:
                return self._left_out(inputs, range(i, len(inputs)), parameter)
            if parameter.default is None:
                continue
            wrong = self._left_out(inputs, range(i, i + 1), parameter)
            if wrong is not None:
                return wrong
        most = len(self._parameters)
        return f"it has {len(inputs)} inputs, and takes {most}" if len(inputs) > most else None

    @staticmethod
    def _left_out(
        inputs: Sequence[object], places: Iterable[int], parameter: inspect.Parameter
    ) -> str | None:
        may_be_absent = str(parameter.annotation).endswith("| None")
        for i in places:
            if i >= len(inputs) or (inputs[i] is None and not may_be_absent):
                return f"its input {i} ({parameter.name}) is missing"
        return None

    @cached_property
    def _parameters(self) -> list[inspect.Parameter]:
        """Those of the function behind the node."""
        return list(inspect.signature(self.build).parameters.values())[1:]


_operators: dict[tuple[str, str], dict[int, Operator]] = {}
"""By domain and name, then by version. The standard's own domain is the empty one."""

Function = TypeVar("Function", bound=Callable[..., object])


def operator(
    name: str, since: int = 1, *, folds: bool = False, structures: bool = False, domain: str = ""
) -> Callable[[Function], Function]:
    """Register a function as ONNX operator `name` of `domain` from the domain's opset `since` on.

    `folds` says that the function returns numpy arrays when its inputs are constants; for others,
    small constant results are computed by onnx's reference evaluator. `structures` says that it
    takes sequences and optional values.
    """

    def register(build: Function) -> Function:
        versions = _operators.setdefault((domain, name), {})
        if since in versions:
            raise ValueError(f"{name} since {since} is registered twice")
        versions[since] = Operator(name, since, build, folds, structures, domain)  # pyright: ignore[reportArgumentType]
        return build

    return register


def find(name: str, opset: int, domain: str = "") -> Operator | None:
    """The operator for a model of `opset`: the greatest version that is not newer; else None."""
    _load_families()
    operators = _operators.get(("" if domain == "ai.onnx" else domain, name), {})
    versions = [since for since in operators if since <= opset]
    return operators[max(versions)] if versions else None


def names() -> list[str]:
    """All registered operators of the standard's own domain, sorted."""
    return sorted({entry.name for entry in registered() if not entry.domain})


def registered() -> list[Operator]:
    """All registered operators, by domain, name and version."""
    _load_families()
    return [
        versions[since] for _, versions in sorted(_operators.items()) for since in sorted(versions)
    ]


@cache
def _load_families() -> None:
    """Import every module of `operators/`, which registers what it defines."""
    package = importlib.import_module("stepwell.frontends.onnx.operators")
    for family in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{family.name}")
