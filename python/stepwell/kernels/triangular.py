"""Small triangular matrices that are kernels of their own, described as data: Cholesky factors, and
systems to solve, of up to `BLOCK` rows. What the kernel changes is its last argument."""

from __future__ import annotations

from dataclasses import dataclass

from stepwell.mlir import ir

KIND = "triangular"
"""The kind of such a kernel."""

ATTRIBUTE = "kernel.triangular"
"""The attribute that describes it."""

BLOCK = 32
"""The most rows of a matrix."""


@dataclass(frozen=True)
class Triangular:
    """A kernel on [batch, n, n]: the lower Cholesky factor in the place of the matrix; or, with
    `solves`, on [batch, n, n] and [batch, n, m]: the solution x of a x = b in the place of b, where
    a is `lower` or upper triangular, with ones on its diagonal for `unit`."""

    solves: bool
    lower: bool = True
    unit: bool = False

    def to_attribute(self) -> ir.Attribute:
        """The description as a dictionary."""
        return ir.DictAttr.get({name: ir.BoolAttr.get(value) for name, value in vars(self).items()})

    @staticmethod
    def from_attribute(attribute: ir.Attribute) -> Triangular:
        """The inverse of `to_attribute`."""
        entries = ir.DictAttr(attribute)
        names = ("solves", "lower", "unit")
        return Triangular(*(ir.BoolAttr(entries[name]).value for name in names))
