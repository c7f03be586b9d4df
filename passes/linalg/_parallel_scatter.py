"""Scatters for machines of many threads.

A scatter whose body is one operation that may be done in any order, or replaces, becomes a kernel
of its own, which changes its destination in place (`kernels/gpu/scatter.py`); one of several
operands a kernel for each:

    %r = "stablehlo.scatter"(%x, %i, %u) ({add})
      ->  func.func private @kernel_scatter_0(%i, %u, %x) attributes {kernel.kind = "scatter", ..}
          %r = call @kernel_scatter_0(%i, %u, %x)

Where updates that replace may meet and are many, a scatter by maximum first writes down for each
element which is its last.

A select_and_scatter is turned round: one operation finds the element that each window selects, the
next adds up, for each element, what comes from the windows that have selected it. Both are parallel
in all elements, and sums have the order of the windows.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.kernels.scatter import ATTRIBUTE, KIND, REPLACE, Scatter
from stepwell.mlir import ir
from stepwell.mlir import stablehlo as bindings
from stepwell.passes.linalg import _loops as loops
from stepwell.passes.linalg._kernel_calls import call_kernel
from stepwell.passes.linalg._mapped import mapped
from stepwell.passes.stablehlo._values import optional_integers, padding

LOOKED_AT = 64
"""Of so many windows at most, each thread looks at those that follow its own."""

MOST_SELECTED = 128
"""Elements of the largest window of a select_and_scatter, which is written out."""

_COMBINERS = {
    "stablehlo.add": "add",
    "stablehlo.multiply": "mul",
    "stablehlo.maximum": "max",
    "stablehlo.minimum": "min",
    "stablehlo.and": "and",
    "stablehlo.or": "or",
    "stablehlo.xor": "xor",
}
_FLOATS = ("f64", "f32", "f16", "bf16")
_OF_FLOATS = ("add", "mul", "max", "min")
_INDEX = np.int32


def scatter_in_parallel(op: ir.Operation) -> list[ir.Value] | None:
    """The results of a scatter, each by a kernel of its own; None for bodies that do more than one
    operation to an operand, or look at several."""
    count = len(op.results)
    operands, indices = list(op.operands)[:count], op.operands[count]
    updates = list(op.operands)[count + 1 :]
    known = [_combiner(op, number) for number in range(count)]
    combiners = [combiner for combiner in known if combiner is not None]
    if len(combiners) < count:
        return None
    sizes, shape = hlo.shape(updates[0]), hlo.shape(operands[0])
    if 0 in (*shape, *sizes):
        return operands
    indices, owners, results = _signed(indices), None, []
    for combiner, x, update in zip(combiners, operands, updates, strict=True):
        scatter = _description(op, combiner, sizes)
        arguments = [indices, update]
        if combiner == REPLACE and scatter.count(sizes) > LOOKED_AT and not scatter.distinct:
            owners = _owners(scatter, indices, shape, update) if owners is None else owners
            arguments.append(owners)
        results.append(_call(scatter, [*arguments, x]))
    return results


def _combiner(op: ir.Operation, number: int) -> str | None:
    """What the body of a scatter does to the operand of a number, if it is known how: something
    that depends on it and its update alone."""
    block, element = op.regions[0].blocks[0], hlo.element_type(op.operands[number])
    old, new = block.arguments[number], block.arguments[len(op.results) + number]
    value = list(block.operations)[-1].operation.operands[number]
    if value == new:
        return REPLACE
    made = value.owner
    if isinstance(made, ir.Block) or made.name not in _COMBINERS or len(made.operands) != 2:
        return None
    if {*made.operands} != {old, new}:
        return None
    combiner = _COMBINERS[made.name]
    if not isinstance(element, ir.IntegerType):
        return combiner if str(element) in _FLOATS and combiner in _OF_FLOATS else None
    if element.width == 1:
        return combiner if combiner in ("and", "or", "xor") else None
    if combiner in ("max", "min") and element.is_unsigned:
        return f"{combiner}u"
    return combiner if element.width >= 8 else None


def _description(op: ir.Operation, combiner: str, updates: Sequence[int]) -> Scatter:
    numbers = bindings.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    batching = list(numbers.input_batching_dims)
    pairs = zip(batching, numbers.scatter_indices_batching_dims, strict=True)
    said = "unique_indices" in op.attributes and ir.BoolAttr(op.attributes["unique_indices"]).value
    scatter = Scatter(
        combiner,
        tuple(numbers.update_window_dims),
        tuple(sorted([*numbers.inserted_window_dims, *batching])),
        tuple(numbers.scattered_dims_to_operand_dims),
        tuple(itertools.chain.from_iterable(pairs)),
        numbers.index_vector_dim,
        distinct=said,
    )
    return dataclasses.replace(scatter, distinct=True) if scatter.count(updates) == 1 else scatter


def _signed(indices: ir.Value) -> ir.Value:
    """Indices as signed integers of at least 32 bits."""
    kind = ir.IntegerType(hlo.element_type(indices))
    if kind.is_unsigned:
        return hlo.convert(indices, np.int32 if kind.width < 32 else np.int64)
    return indices if kind.width >= 32 else hlo.convert(indices, np.int32)


def _call(scatter: Scatter, arguments: Sequence[ir.Value]) -> ir.Value:
    """A call of the kernel for `scatter`, whose last argument is the destination."""
    described = scatter.to_attribute()
    return call_kernel(KIND, ATTRIBUTE, described, arguments[:-1], arguments[-1:])[0]


def _owners(
    scatter: Scatter,
    indices: ir.Value,
    result: Sequence[int],
    updates: ir.Value,
) -> ir.Value:
    """For each element of the result, without the dimensions that windows have as a whole, the
    number of the last update that goes there; -1 for none."""
    sizes = hlo.shape(updates)
    whole = scatter.whole(result, sizes)
    kept = [d for d in range(len(result)) if d not in whole]
    dims = [d for d in range(len(result)) if d not in scatter.fixed]
    gone = [w for d, w in zip(dims, scatter.window, strict=True) if d in whole]
    left = [d for d in range(len(sizes)) if d not in gone]
    scattered = scatter.scattered(len(sizes))
    numbers = hlo.iota((scatter.count(sizes),), 0, _INDEX)
    numbers = hlo.reshape(numbers, [sizes[d] for d in scattered])
    shape = [sizes[d] for d in left]
    numbers = hlo.broadcast_in_dim(numbers, shape, [left.index(d) for d in scattered])
    places = [v for pair in scatter.places.items() for v in (kept.index(pair[0]), pair[1])]
    by_maximum = Scatter(
        "max",
        tuple(left.index(w) for w in scatter.window if w in left),
        tuple(kept.index(d) for d in scatter.fixed),
        tuple(kept.index(d) for d in scatter.targets),
        tuple(places),
        scatter.vector,
        distinct=False,
    )
    none = hlo.full(-1, [result[d] for d in kept], _INDEX)
    return _call(by_maximum, [indices, numbers, none])


def select_and_scatter_in_parallel(op: ir.Operation) -> list[ir.Value] | None:
    """The result of a select_and_scatter from its operand's side; None for large windows."""
    x, source, init = op.operands
    rank = len(hlo.shape(x))
    sizes = optional_integers(op, "window_dimensions", rank, 1)
    strides = optional_integers(op, "window_strides", rank, 1)
    pads = padding(op, rank)
    windows = hlo.shape(source)
    empty = 0 in (*hlo.shape(x), *windows)
    if empty or math.prod(sizes) > MOST_SELECTED or any(low < 0 for low, _ in pads):
        return None
    select, scatter = (region.blocks[0] for region in op.regions)
    lows = [low for low, _ in pads]
    chosen = _selected(x, windows, sizes, strides, lows, select)
    return [_gathered(x, source, init, chosen, (sizes, strides, lows), scatter)]


def _selected(
    x: ir.Value,
    windows: Sequence[int],
    sizes: Sequence[int],
    strides: Sequence[int],
    lows: Sequence[int],
    select: ir.Block,
) -> ir.Value:
    """The flat position in `x` that each window selects."""
    shape = hlo.shape(x)
    reach = [(n - 1) * s + k for n, s, k in zip(windows, strides, sizes, strict=True)]
    highs = [max(0, r - n - low) for r, n, low in zip(reach, shape, lows, strict=True)]
    around = x
    if any(lows) or any(highs):
        around = hlo.pad(x, hlo.full(0, (), hlo.dtype(x)), lows, highs)
    best, place, found = x, x, None
    for number, offset in enumerate(itertools.product(*map(range, sizes))):
        limits = [o + (n - 1) * s + 1 for o, n, s in zip(offset, windows, strides, strict=True)]
        value = hlo.slice(around, offset, limits, strides)
        position, inside = _position(shape, windows, offset, strides, lows)
        if number == 0:
            best, place, found = value, position, inside
            continue
        arguments = [best, value, place, position]
        arguments += [flag for flag in (found, inside) if flag is not None]

        def choose(scalars: list[ir.Value], of: int, found=found, inside=inside) -> ir.Value:
            """The earlier or the later of a pair of arguments."""
            take = hlo.not_(loops.inline(select, scalars[:2])[0])
            if found is not None:
                take = hlo.or_(take, hlo.not_(scalars[4]))
            if inside is not None:
                take = hlo.and_(take, scalars[-1])
            return hlo.select(take, scalars[of + 1], scalars[of])

        kinds = [hlo.element_type(value) for value in (best, place)]
        best = mapped(arguments, kinds[0], lambda scalars, choose=choose: choose(scalars, 0))
        place = mapped(arguments, kinds[1], lambda scalars, choose=choose: choose(scalars, 2))
        if found is not None:
            found = None if inside is None else hlo.or_(found, inside)
    return place


def _position(
    shape: Sequence[int],
    windows: Sequence[int],
    offset: Sequence[int],
    strides: Sequence[int],
    lows: Sequence[int],
) -> tuple[ir.Value, ir.Value | None]:
    """The flat position that element `offset` of each window has in an array of `shape`, and
    whether it is inside; None where all are."""
    flat, inside, factor = hlo.full(0, windows, _INDEX), None, 1
    for d in reversed(range(len(shape))):
        first = offset[d] - lows[d]
        last = (windows[d] - 1) * strides[d] + first
        place = hlo.iota(windows, d, _INDEX)
        place = hlo.multiply(place, hlo.full(strides[d], windows, _INDEX))
        place = hlo.add(place, hlo.full(first, windows, _INDEX))
        for fails, bound, direction in ((first < 0, 0, "GE"), (last >= shape[d], shape[d], "LT")):
            if fails:
                holds = hlo.compare(place, hlo.full(bound, windows, _INDEX), direction)
                inside = holds if inside is None else hlo.and_(inside, holds)
        flat = hlo.add(flat, hlo.multiply(place, hlo.full(factor, windows, _INDEX)))
        factor *= shape[d]
    return flat, inside


def _gathered(
    x: ir.Value,
    source: ir.Value,
    init: ir.Value,
    chosen: ir.Value,
    geometry: tuple[Sequence[int], Sequence[int], Sequence[int]],
    scatter: ir.Block,
) -> ir.Value:
    """For each element of `x`, `init` combined with the sources of the windows that chose it."""
    sizes, strides, lows = geometry
    shape, windows = hlo.shape(x), hlo.shape(source)
    reaches = [-(-k // s) for k, s in zip(sizes, strides, strict=True)]
    here = hlo.reshape(hlo.iota((math.prod(shape),), 0, _INDEX), shape)
    dims = range(len(shape))
    before = [r - 1 for r in reaches]
    # Element i of x is at i + low of the padded array, and in windows (i + low) / stride - j.
    ends = [(n - 1 + low) // s + 1 for n, low, s in zip(shape, lows, strides, strict=True)]
    after = [max(0, end - n) for end, n in zip(ends, windows, strict=True)]
    nobody = hlo.full(-1, (), _INDEX)
    nothing = hlo.full(0, (), hlo.dtype(source))
    if any(before) or any(after):
        chosen = hlo.pad(chosen, nobody, before, after)
        source = hlo.pad(source, nothing, before, after)
    total = hlo.broadcast_in_dim(init, shape, ())
    for back in itertools.product(*(range(r - 1, -1, -1) for r in reaches)):
        parts = []
        for value in (chosen, source):
            start = [before[d] - back[d] for d in dims]
            value = hlo.slice(value, start, [start[d] + ends[d] for d in dims], [1] * len(start))
            spread = [n for d in dims for n in (ends[d], strides[d])]
            value = hlo.broadcast_in_dim(value, spread, [2 * d for d in dims])
            value = hlo.reshape(value, [ends[d] * strides[d] for d in dims])
            limits = [lows[d] + shape[d] for d in dims]
            parts.append(hlo.slice(value, lows, limits, [1] * len(start)))

        def combined(scalars: list[ir.Value]) -> ir.Value:
            old, new, who, position = scalars
            made = loops.inline(scatter, [old, new])[0]
            return hlo.select(hlo.compare(who, position, "EQ"), made, old)

        who, what = parts
        total = mapped([total, what, who, here], hlo.element_type(total), combined)
    return total
