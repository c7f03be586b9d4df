"""`legalize-joint-reductions`: for GPUs, reductions of several operands as elementwise steps, and
those of one operand whose body is more than one operation.

    %max, %place = stablehlo.reduce(%x, %numbers) ... dimensions = [1]   // 51200 elements: argmax

    %0, %1 = body of elements 16 i, 16 i + 1, .. of %x and %numbers      // 3200
    %2, %3 = body of elements 16 i, 16 i + 1, .. of %0 and %1            // 200
    ...

Every step is parallel in all that are left. A window of several operands (a pool that says which
elements it took) is a step for each of its places. Neighbours are combined in their order, as the
specification asks (https://openxla.org/stablehlo/spec#reduce), so that of equal elements the body
may choose the first. Numbers that count elements are not read, but computed.

On CPUs, only a reduction across no dimensions is such a step: initial values and elements.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import ClassVar

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg import _loops as loops
from stepwell.passes.linalg._fusion_graph import is_host_block
from stepwell.passes.linalg._loops import Values
from stepwell.passes.linalg._mapped import mapped_region
from stepwell.passes.stablehlo._values import (
    integers,
    optional_integers,
    padding,
    producer,
    splat,
)
from stepwell.targets.nvidia import NvidiaTarget

PART = 16
"""How many neighbours one step combines."""

LARGEST_WINDOW = 128
"""Elements of the largest window of several operands that is written out."""


@dataclass(frozen=True)
class LegalizeJointReductions(Pass):
    """Rewrite every such reduction in the host; on CPUs, those across no dimensions anywhere."""

    name: ClassVar[str] = "legalize-joint-reductions"
    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation, state: State) -> None:
        rewrites = _REWRITES if isinstance(state.target, NvidiaTarget) else _REWRITES_OF_CPUS
        loops.rewrite_operations(op, rewrites, wrap=False)


def _reduce(op: ir.Operation) -> Values | None:
    count = len(op.results)
    body = op.regions[0].blocks[0]
    operands, initial = list(op.operands)[:count], list(op.operands)[count:]
    shape = hlo.shape(operands[0])
    if (count == 1 and _has_emitter(body)) or 0 in shape or not is_host_block(op.block):
        return None
    values = operands
    for dimension in sorted(integers(op, "dimensions"), reverse=True):
        values = _along(body, values, dimension)
    kind = hlo.shape(op.results[0])
    starts = [hlo.broadcast_in_dim(value, kind, ()) for value in initial]
    return mapped_region(body, [*starts, *(hlo.reshape(value, kind) for value in values)])


def _reduce_nothing(op: ir.Operation) -> Values | None:
    """A reduction across no dimensions."""
    if integers(op, "dimensions"):
        return None
    kind, count = hlo.shape(op.results[0]), len(op.results)
    starts = [hlo.broadcast_in_dim(value, kind, ()) for value in list(op.operands)[count:]]
    return mapped_region(op.regions[0].blocks[0], [*starts, *list(op.operands)[:count]])


def _reduce_window(op: ir.Operation) -> Values | None:
    """Windows of several operands: a step for each place in the window."""
    count = len(op.results)
    body = op.regions[0].blocks[0]
    operands, initial = list(op.operands)[:count], list(op.operands)[count:]
    shape, result = hlo.shape(operands[0]), hlo.shape(op.results[0])
    rank = len(shape)
    windows = integers(op, "window_dimensions")
    strides, dilations, base = (
        optional_integers(op, f"{name}s", rank, 1)
        for name in ("window_stride", "window_dilation", "base_dilation")
    )
    pads = padding(op, rank)
    known = set(base) == {1} and all(splat(value) is not None for value in initial)
    if count == 1 or 0 in (*shape, *result) or math.prod(windows) > LARGEST_WINDOW:
        return None
    if not known or not is_host_block(op.block) or any(min(pair) < 0 for pair in pads):
        return None
    if any(map(any, pads)):
        lows, highs = zip(*pads, strict=True)
        pairs = zip(operands, initial, strict=True)
        operands = [hlo.pad(value, start, lows, highs) for value, start in pairs]
    values = [hlo.broadcast_in_dim(value, result, ()) for value in initial]
    for place in itertools.product(*map(range, windows)):
        begin = [n * dilation for n, dilation in zip(place, dilations, strict=True)]
        end = [b + (n - 1) * s + 1 for b, n, s in zip(begin, result, strides, strict=True)]
        values = mapped_region(
            body, [*values, *(hlo.slice(operand, begin, end, strides) for operand in operands)]
        )
    return values


def _has_emitter(body: ir.Block) -> bool:
    """Whether a reduction of one operand is one of those that kernels know."""
    names = [child.operation.name.removeprefix("stablehlo.") for child in body.operations]
    return len(names) == 2 and names[0] in hlo.COMBINERS


def _along(body: ir.Block, values: Values, dimension: int) -> Values:
    """Reduce along `dimension`, which has one element then."""
    length = hlo.shape(values[0])[dimension]
    rests: list[tuple[Values, list[int]]] = []
    while length > 1:
        part = _part(length)
        whole = length // part
        for number in reversed(range(whole * part, length)):
            rests.append(_every(values, dimension, number, 1, 1))
        (first, before), *others = (
            _every(values, dimension, start, part, whole) for start in range(part)
        )
        for following, offsets in others:
            first = mapped_region(body, [*first, *following], [*before, *offsets])
            before = [0] * len(first)
        values, length = first, whole
    for following, offsets in reversed(rests):
        values = mapped_region(body, [*values, *following], [0] * len(values) + offsets)
    return values


def _part(length: int) -> int:
    """How many neighbours to combine: up to `PART`, so that few elements are left over."""
    if length <= PART:
        return length
    return min(range(PART, PART // 2, -1), key=lambda part: length % part)


def _every(
    values: Values, dimension: int, start: int, stride: int, count: int
) -> tuple[Values, list[int]]:
    """`count` elements of each along `dimension`, `stride` apart from `start` on; and what is still
    to be added to them."""
    found, offsets = [], []
    for value in values:
        axis = _counted(value)
        shape = list(hlo.shape(value))
        offsets.append(start if axis == dimension else 0)
        if axis is not None:
            shape[dimension] = count
            numbers = hlo.iota(shape, axis, hlo.dtype(value))
            by = hlo.full(stride if axis == dimension else 1, shape, hlo.dtype(value))
            found.append(hlo.multiply(numbers, by))
            continue
        starts, strides = [0] * len(shape), [1] * len(shape)
        starts[dimension], strides[dimension] = start, stride
        shape[dimension] = start + (count - 1) * stride + 1
        found.append(hlo.slice(value, starts, shape, strides))
    return found, offsets


def _counted(value: ir.Value) -> int | None:
    """The dimension whose places `value` has as elements."""
    spread, dimensions = producer(value, "broadcast_in_dim"), None
    if spread is not None:
        dimensions = integers(spread, "broadcast_dimensions")
        value = spread.operands[0]
    made = producer(value, "iota")
    if made is None or (dimensions is not None and len(dimensions) != 1):
        return None
    axis = ir.IntegerAttr(made.attributes["iota_dimension"]).value
    return axis if dimensions is None else dimensions[axis]


_REWRITES_OF_CPUS: dict[str, loops.Rewrite] = {"stablehlo.reduce": _reduce_nothing}

_REWRITES: dict[str, loops.Rewrite] = {
    "stablehlo.reduce": _reduce,
    "stablehlo.reduce_window": _reduce_window,
}
