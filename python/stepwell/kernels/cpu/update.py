"""Updates of a slice in place: the slice is written over the destination's old contents, at offsets
that may be known only at run time."""

from __future__ import annotations

import math

from stepwell.errors import LoweringError
from stepwell.kernels.builder import Lanes
from stepwell.kernels.evaluate import slice_offsets, slice_source, to_storage
from stepwell.kernels.group import KernelGroup, widths
from stepwell.kernels.index import Index, delinearize
from stepwell.kernels.structured import defining_op, element_type, shape_of


def emit(group: KernelGroup, lanes: int) -> None:
    """Write the copy of one `tensor.insert_slice`; a run of elements that lie together in the
    destination is one task."""
    nest, evaluator = group.nest, group.evaluator
    output = group.outputs[0]
    op = defining_op(output.value)
    if op is None or op.name != "tensor.insert_slice":
        raise LoweringError(f"{group.name}: an update is one tensor.insert_slice")
    source = op.operands[0]
    shape = shape_of(source)
    offsets = slice_offsets(op, evaluator.offset)
    outer = math.prod(shape[: _contiguous_from(shape, output.shape)])
    inner = math.prod(shape) // max(outer, 1)
    with nest.parallel("task", outer) as task:
        for begin, end, width in widths(inner, lanes):
            vector = Lanes.of(width)
            with nest.loop("i", begin, end, width) as i, evaluator.scope():
                point = delinearize(Index.of(task) * inner + Index.of(i) + vector.index, shape)
                value = to_storage(evaluator.at(source, point, vector), element_type(source))
                nest.store(value, output.buffer, slice_source(op, point, offsets), vector)


def _contiguous_from(shape: tuple[int, ...], whole: tuple[int, ...]) -> int:
    """The first dimension of the slice from which on its elements lie together."""
    first = len(shape)
    for size, full in zip(reversed(shape), reversed(whole), strict=False):
        first -= 1
        if size != full:
            break
    return max(first, 0)
