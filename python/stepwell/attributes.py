"""Attributes of MLIR that many passes write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stepwell.mlir import ir

PARTS = "stepwell.parts"
"""Of a loop of the host whose iterations need nothing of one another: in how many parts threads may
run it at the same time, how many iterations a part has, and what an iteration adds to the counter,
which begins at 0."""

PRIVATE = "stepwell.private"
"""Of such a loop: where the memory begins in the arena that each part has for itself, and its
bytes; that of the next part follows."""

CHAIN = "stepwell.chain"
"""Of a call of the host that takes turns with its neighbours (`chain-kernels`): the number of the
chain, that of the runs of its tasks, then for each band and run begin and end of the tasks that the
band needs."""


def i64(value: int) -> ir.Attribute:
    """A 64-bit integer."""
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


def i64_array(values: Sequence[int]) -> ir.Attribute:
    """An array of 64-bit integers."""
    return ir.DenseI64ArrayAttr.get(list(values))


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
