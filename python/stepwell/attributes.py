"""Attributes of MLIR that many passes write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stepwell.mlir import ir


def i64(value: int) -> ir.Attribute:
    """A 64-bit integer."""
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


def strings(texts: Iterable[str]) -> ir.Attribute:
    """An array of strings."""
    return ir.ArrayAttr.get([ir.StringAttr.get(text) for text in texts])


def spec(name: str, dtype: str, shape: Sequence[int]) -> ir.Attribute:
    """What an input or output of a program is, as users see it."""
    return ir.DictAttr.get(
        {
            "name": ir.StringAttr.get(name),
            "dtype": ir.StringAttr.get(dtype),
            "shape": ir.DenseI64ArrayAttr.get(list(shape)),
        }
    )
