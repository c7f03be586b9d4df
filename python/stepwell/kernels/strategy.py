"""What is chosen for a kernel, and from what: strategies, as attributes of functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, Self, TypeVar

from stepwell.mlir import ir
from stepwell.plain_data import from_plain

Strategy = TypeVar("Strategy")
"""A dataclass with the parameters of a kernel."""


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A way to run a kernel that a chooser considered. `cost` is the time that it estimates, in a
    unit of its own: it is to be compared with that of the candidates beside it alone."""

    name: str
    cost: float


@dataclasses.dataclass(frozen=True)
class Decision:
    """What was decided for a kernel or operation, as plain data. `kind` and `key` are those of an
    entry of a tuning record, `chosen` the fields of the strategy, `tuned` whether a record said so.
    `candidates` are what a cost model considered, the chosen one first; `variants` other strategies
    that are worth measuring."""

    kind: str
    key: str
    chosen: Mapping[str, object]
    tuned: bool
    candidates: tuple[Candidate, ...]
    variants: tuple[Mapping[str, object], ...]


@dataclasses.dataclass(frozen=True)
class Choice(Generic[Strategy]):
    """A choice that a pass has to make. `default` is what the cost model says, `context` what that
    depends on beside what is computed. `problem` says why a strategy cannot be, "" where it can;
    `candidates` and `variants` are those of a `Decision` for a strategy."""

    kind: str
    default: Strategy
    problem: Callable[[Strategy], str]
    candidates: Callable[[Strategy], Sequence[Candidate]] = lambda _: ()
    variants: Callable[[Strategy], Iterable[Strategy]] = lambda _: ()
    context: tuple[object, ...] = ()

    def read(self, fields: Mapping[str, object]) -> Strategy:
        """A strategy of these fields; raises ValueError, a clause, for one that cannot be."""
        strategy = from_plain(type(self.default), fields)
        if problem := self.problem(strategy):
            raise ValueError(problem)
        return strategy

    def decision(self, key: str, chosen: Strategy, *, tuned: bool) -> Decision:
        """That `chosen` was decided."""
        others = dict.fromkeys(v for v in self.variants(chosen) if v != chosen)
        return Decision(
            self.kind,
            key,
            _fields(chosen),
            tuned,
            tuple(self.candidates(chosen)),
            tuple(_fields(other) for other in others if not self.problem(other)),
        )


def _fields(strategy: object) -> dict[str, object]:
    return dataclasses.asdict(strategy)  # pyright: ignore[reportArgumentType]


@dataclasses.dataclass(frozen=True)
class IntegerStrategy:
    """A strategy whose fields are all integers; base of such dataclasses."""

    def to_attribute(self) -> ir.Attribute:
        """As a dictionary attribute, to stand on a kernel function."""
        i64 = ir.IntegerType.get_signless(64)
        fields = dataclasses.asdict(self).items()
        return ir.DictAttr.get({name: ir.IntegerAttr.get(i64, value) for name, value in fields})

    @classmethod
    def from_attribute(cls, attribute: ir.Attribute) -> Self:
        """The inverse of `to_attribute`; a field with a default value may be missing."""
        entries = ir.DictAttr(attribute)
        names = [field.name for field in dataclasses.fields(cls) if field.name in entries]
        return cls(**{name: ir.IntegerAttr(entries[name]).value for name in names})
