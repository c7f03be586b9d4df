"""Elementwise kernels: chains of pointwise operations, broadcasts, slices, pads and copies.

The trailing dimensions in which every operand is contiguous (or constant) are walked as one flat
loop of vectors; the dimensions before them are the tasks. What no full vector covers is done by
halving vectors.
"""

from __future__ import annotations

import math

from stepwell.kernels.builder import Lanes
from stepwell.kernels.group import KernelGroup, accesses, task_grain, widths
from stepwell.kernels.index import Index, Variable, delinearize, linearize
from stepwell.kernels.structured import shape_of

FLAT_TASK_ELEMENTS = 4096
"""Elements of a task when the whole domain is one flat loop: enough to outweigh its dispatch."""


def emit(group: KernelGroup, lanes: int) -> None:
    """Write the loops of an elementwise group."""
    nest = group.nest
    shape = group.outputs[0].shape
    split = flat_from(group, shape)
    outer, inner = math.prod(shape[:split]), math.prod(shape[split:])
    if outer == 1 and inner > FLAT_TASK_ELEMENTS:
        _emit_flat(group, inner, lanes)
        return
    with nest.parallel("task", outer) as task, group.evaluator.scope():
        base = Index.of(task) * inner
        group.fill_halos(Index.of(task), lanes)
        for begin, end, width in widths(inner, lanes):
            vector = Lanes.of(width)
            with nest.loop("i", begin, end, width) as i, group.evaluator.scope():
                _write_all(group, base + Index.of(i) + vector.index, vector)


def _emit_flat(group: KernelGroup, count: int, lanes: int) -> None:
    nest = group.nest
    grain = task_grain(count, FLAT_TASK_ELEMENTS)
    grain = -(-grain // lanes) * lanes
    whole = count // lanes * lanes
    with nest.parallel("task", -(-whole // grain)) as task:
        group.fill_halos(Index.of(task), lanes)
        vector = Lanes.of(lanes)
        start = Index.of(task) * grain
        with nest.loop_between("i", start, start + grain, whole, lanes) as i:
            i = Variable("i", 0, whole - lanes, i.value)
            with group.evaluator.scope():
                _write_all(group, Index.of(i) + vector.index, vector)
        if count > whole:
            with nest.when(Index.of(task), equals=0) as branch, branch.then():
                for begin, end, width in widths(count - whole, lanes):
                    vector = Lanes.of(width)
                    with nest.loop("i", whole + begin, whole + end, width) as i:
                        with group.evaluator.scope():
                            _write_all(group, Index.of(i) + vector.index, vector)


def _write_all(group: KernelGroup, flat: Index, vector: Lanes) -> None:
    for output in group.outputs:
        group.write(output, delinearize(flat, output.shape), vector)


def flat_from(group: KernelGroup, shape: tuple[int, ...]) -> int:
    """The first dimension from which on all reads and writes move by 0 or 1 element with a flat
    index; the rank less one when there is none."""
    leaves = set(group.evaluator.buffers)
    for split in range(len(shape)):
        inner = math.prod(shape[split:])
        flat = Variable("flat", 0, max(inner, 1) - 1)
        outer = [Variable(f"o{i}", 0, max(n, 1) - 1) for i, n in enumerate(shape[:split])]
        position = linearize([Index.of(o) for o in outer], shape[:split]) * inner + Index.of(flat)
        if all(_moves_flat(group, output, position, flat, leaves) for output in group.outputs):
            return split
    return max(len(shape) - 1, 0)


def _moves_flat(group: KernelGroup, output, position: Index, flat: Variable, leaves: set) -> bool:
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
