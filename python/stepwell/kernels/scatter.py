"""Scatters that are kernels of their own, described as data: where each update goes, and how it is
combined with what is there.

The kernel takes indices, updates and, for replacements, the number of the update that each element
takes in the end; what it changes is its destination.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stepwell.mlir import ir

KIND = "scatter"
"""The kind of a kernel that scatters."""

ATTRIBUTE = "kernel.scatter"
"""The attribute that describes it."""

REPLACE = "replace"
_FIELDS = ("window", "fixed", "targets", "batching")


@dataclass(frozen=True)
class Scatter:
    """The dimension numbers of a scatter (https://openxla.org/stablehlo/spec#scatter).

    `window` are the dimensions of the updates that lie in a window, `fixed` those of the result
    that windows do not have, `targets` those that the components of an index are places in;
    `batching` are pairs (dimension of the result, dimension of the indices); `vector` is the
    dimension of the indices' components. With `distinct`, no two updates meet.
    What an update does to an element is `combiner`: "replace", "add", "mul", "max", "min" ("maxu",
    "minu" for unsigned integers), "and", "or", "xor".
    """

    combiner: str
    window: tuple[int, ...]
    fixed: tuple[int, ...]
    targets: tuple[int, ...]
    batching: tuple[int, ...]
    vector: int
    distinct: bool

    def to_attribute(self) -> ir.Attribute:
        """The description as a dictionary."""
        numbers = {name: ir.DenseI64ArrayAttr.get(list(getattr(self, name))) for name in _FIELDS}
        integer = ir.IntegerType.get_signless(64)
        return ir.DictAttr.get(
            {
                "combiner": ir.StringAttr.get(self.combiner),
                "distinct": ir.BoolAttr.get(self.distinct),
                "vector": ir.IntegerAttr.get(integer, self.vector),
                **numbers,
            }
        )

    @staticmethod
    def from_attribute(attribute: ir.Attribute) -> Scatter:
        """The inverse of `to_attribute`."""
        entries = ir.DictAttr(attribute)
        window, fixed, targets, batching = (
            tuple(ir.DenseI64ArrayAttr(entries[name])) for name in _FIELDS
        )
        return Scatter(
            ir.StringAttr(entries["combiner"]).value,
            window,
            fixed,
            targets,
            batching,
            ir.IntegerAttr(entries["vector"]).value,
            ir.BoolAttr(entries["distinct"]).value,
        )

    @property
    def places(self) -> dict[int, int]:
        """For dimensions of the result that are places of a batch: those of the indices."""
        return dict(zip(self.batching[::2], self.batching[1::2], strict=True))

    def scattered(self, rank: int) -> list[int]:
        """The dimensions of updates of `rank` that are those of the indices, without `vector`."""
        return [d for d in range(rank) if d not in self.window]

    def whole(self, result: Sequence[int], updates: Sequence[int]) -> list[int]:
        """The dimensions of the result that every window has from end to end."""
        window = iter(self.window)
        sizes = {d: updates[next(window)] for d in range(len(result)) if d not in self.fixed}
        return [d for d, size in sizes.items() if size == result[d] and d not in self.targets]

    def count(self, updates: Sequence[int]) -> int:
        """How many windows there are."""
        return math.prod(updates[d] for d in self.scattered(len(updates)))
