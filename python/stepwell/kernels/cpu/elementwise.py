"""Elementwise kernels: chains of pointwise operations, broadcasts, slices, pads and copies.

The trailing dimensions in which every operand is contiguous (or constant) are walked as one flat
loop of vectors; the dimensions before them are the tasks. What no full vector covers is done by
halving vectors.
"""

from __future__ import annotations

import math

from stepwell.kernels.builder import Lanes
from stepwell.kernels.flat import flat_from
from stepwell.kernels.group import KernelGroup, task_grain, widths
from stepwell.kernels.index import Index, Variable, delinearize

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
