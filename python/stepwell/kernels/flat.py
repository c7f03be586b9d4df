"""Which trailing dimensions of an elementwise group can be walked as one flat loop."""

from __future__ import annotations

import math

from stepwell.kernels.group import KernelGroup, Output, accesses
from stepwell.kernels.index import Index, Variable, delinearize, linearize
from stepwell.kernels.structured import shape_of
from stepwell.mlir import ir


def flat_from(group: KernelGroup, shape: tuple[int, ...]) -> int:
    """The first dimension from which on all reads and writes move by 0 or 1 element with a flat
    index; the rank less one when there is none."""
    leaves = set(group.evaluator.buffers)
    for split in range(len(shape)):
        position, flat = _flat_position(shape, split)
        if all(moves_flat(group, output, position, flat, leaves) for output in group.outputs):
            return split
    return max(len(shape) - 1, 0)


def part_flat_from(group: KernelGroup, part: ir.Value, first: int, *, strided: bool = False) -> int:
    """As `flat_from` for the reads that computing `part` takes, from dimension `first` on; where
    `strided`, reads may move by any constant number of elements."""
    leaves = set(group.evaluator.buffers)
    shape = shape_of(part)
    for split in range(first, len(shape)):
        position, flat = _flat_position(shape, split)
        steps = [
            _step(linearize(indices, shape_of(leaf)), flat)
            for leaf, indices in accesses(part, delinearize(position, shape), leaves)
        ]
        if all(step is not None if strided else step in (0, 1) for step in steps):
            return split
    return max(len(shape) - 1, 0)


def _flat_position(shape: tuple[int, ...], split: int) -> tuple[Index, Variable]:
    """An element of `shape`, and the variable that walks through its dimensions from `split` on."""
    inner = math.prod(shape[split:])
    flat = Variable("flat", 0, max(inner, 1) - 1)
    outer = [Variable(f"o{i}", 0, max(n, 1) - 1) for i, n in enumerate(shape[:split])]
    return linearize([Index.of(o) for o in outer], shape[:split]) * inner + Index.of(flat), flat


def moves_flat(
    group: KernelGroup, output: Output, position: Index, flat: Variable, leaves: set[ir.Value]
) -> bool:
    """Whether `output`'s place moves by one element with `flat`, and what is read for it by one or
    none, when `position` is the element computed."""
    point = delinearize(position, output.shape)
    placed = linearize(
        [i + low for i, low in zip(point, output.low, strict=True)], output.buffer.type.shape
    )
    reads = [
        linearize(indices, shape_of(leaf))
        for leaf, indices in accesses(output.value, point, leaves)
    ]
    return _step(placed, flat) == 1 and all(_step(read, flat) in (0, 1) for read in reads)


def _step(index: Index, flat: Variable) -> int | None:
    """How far `index` moves with `flat`; None when not by a constant."""
    if not index.depends_on(flat):
        return 0
    rest = Index(tuple((a, c) for a, c in index.terms if a is not flat))
    return None if rest.depends_on(flat) else index.coefficient(flat)
