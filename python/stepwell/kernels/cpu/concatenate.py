"""Concatenation: each operand is copied into its part of the result, a run at a time, inside the
constant halo when the result is padded."""

from __future__ import annotations

import math

from stepwell.kernels.builder import Lanes
from stepwell.kernels.evaluate import to_storage
from stepwell.kernels.group import KernelGroup, widths
from stepwell.kernels.index import Index, delinearize
from stepwell.kernels.structured import defining_op, element_type, shape_of
from stepwell.mlir import ir


def emit(group: KernelGroup, lanes: int) -> None:
    """Write the copies of one `tensor.concat`; a task is one index of the dimensions before the
    concatenated one."""
    nest = group.nest
    op = defining_op(group.outputs[0].value)
    assert op is not None
    assert op.name == "tensor.concat"
    axis = ir.IntegerAttr(op.attributes["dim"]).value
    outer = math.prod(group.outputs[0].shape[:axis])
    with nest.parallel("task", outer) as task:
        group.fill_halos(Index.of(task), lanes)
        offset = 0
        for part in op.operands:
            shape = shape_of(part)
            inner = math.prod(shape[axis:])
            for begin, end, width in widths(inner, lanes):
                vector = Lanes.of(width)
                with nest.loop("i", begin, end, width) as i, group.evaluator.scope():
                    flat = Index.of(task) * inner + Index.of(i) + vector.index
                    point = delinearize(flat, shape)
                    value = group.evaluator.at(part, point, vector)
                    place = list(point)
                    place[axis] = place[axis] + offset
                    stored = to_storage(value, element_type(part))
                    for output in group.outputs:
                        inside = [n + low for n, low in zip(place, output.low, strict=True)]
                        nest.store(stored, output.buffer, inside, vector)
            offset += shape[axis]
