"""What is chosen for a kernel, as an attribute of its function."""

from __future__ import annotations

import dataclasses
from typing import Self

from stepwell.mlir import ir


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A way to run a kernel that a chooser considered. `cost` is the time that it estimates, in a
    unit of its own: it is to be compared with that of the candidates beside it alone."""

    name: str
    cost: float


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
