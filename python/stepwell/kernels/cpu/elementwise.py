"""Elementwise kernels: chains of pointwise operations, broadcasts, slices, pads and copies.

The trailing dimensions in which every operand is contiguous (or constant) are walked as one flat
loop of vectors; the dimensions before them are the tasks. What no full vector covers is done by
halving vectors.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from stepwell.kernels.builder import Lanes
from stepwell.kernels.flat import flat_from
from stepwell.kernels.group import KernelGroup, task_grain, widths
from stepwell.kernels.index import Index, Variable, delinearize

FLAT_TASK_ELEMENTS = 4096
"""Elements of a task when the whole domain is one flat loop: enough to outweigh its dispatch."""


Body = Callable[[Index, Lanes], None]
"""Writes the elements at a flat position, for all lanes."""


def emit(group: KernelGroup, lanes: int) -> None:
    """Write the loops of an elementwise group."""
    shape = group.outputs[0].shape

    def write(flat: Index, vector: Lanes) -> None:
        for output in group.outputs:
            group.write(output, delinearize(flat, output.shape), vector)

    walk(group, shape, flat_from(group, shape), lanes, write)


def walk(group: KernelGroup, shape: tuple[int, ...], split: int, lanes: int, write: Body) -> None:
    """Call `write` for the vectors of `shape`: the dimensions from `split` on are one flat loop,
    those before are tasks."""
    nest = group.nest
    outer, inner = math.prod(shape[:split]), math.prod(shape[split:])
    if outer == 1 and inner > FLAT_TASK_ELEMENTS:
        walk_flat(group, [(inner, write)], lanes)
        return
    with nest.parallel("task", outer) as task, group.evaluator.scope():
        base = Index.of(task) * inner
        group.fill_halos(Index.of(task), lanes)
        for begin, end, width in widths(inner, lanes):
            vector = Lanes.of(width)
            with nest.loop("i", begin, end, width) as i, group.evaluator.scope():
                write(base + Index.of(i) + vector.index, vector)


def walk_flat(group: KernelGroup, runs: list[tuple[int, Body]], lanes: int) -> None:
    """Call the second of each of `runs` for the vectors of as many elements as the first says; a
    task is a chunk of each run."""
    nest = group.nest
    longest = max(count for count, _ in runs)
    tasks = -(-longest // task_grain(longest, FLAT_TASK_ELEMENTS))
    with nest.parallel("task", tasks) as task:
        group.fill_halos(Index.of(task), lanes)
        for count, write in runs:
            vector = Lanes.of(lanes)
            whole = count // lanes * lanes
            grain = -(-whole // (tasks * lanes)) * lanes
            start = Index.of(task) * grain
            if whole:
                with nest.loop_between("i", start, start + grain, whole, lanes) as i:
                    i = Variable("i", 0, whole - lanes, i.value)
                    with group.evaluator.scope():
                        write(Index.of(i) + vector.index, vector)
            if count > whole:
                with nest.when(Index.of(task), equals=0) as branch, branch.then():
                    for begin, end, width in widths(count - whole, lanes):
                        vector = Lanes.of(width)
                        with nest.loop("i", whole + begin, whole + end, width) as i:
                            with group.evaluator.scope():
                                write(Index.of(i) + vector.index, vector)
