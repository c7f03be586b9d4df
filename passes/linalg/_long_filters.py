"""Long filters as several short ones, whose number is a loop of its own.

    y[n, w, o] += x[n, w + k, c] * f[k, c, o]                  k < 11
      ->
    y[n, w, o] += x[n, w + 4 g + k, c] * f[g, k, c, o]         g < 3, k < 4

What lacks of the last one is zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from stepwell.kernels.index import Index, Variable, apply_map
from stepwell.kernels.structured import Structured, defining_op, element_type, shape_of
from stepwell.mlir import dialect, ir
from stepwell.passes.base import State
from stepwell.passes.linalg.hoist_constants import (
    WEIGHT,
    add_argument,
    weight_argument,
    weight_arguments,
)

tensor = dialect("tensor")

_LENGTHS = (3, 4, 5)
"""Terms of a short filter."""

_MEMOIZED = "linalg.memoized_indexing_maps"
"""What a named operation leaves on the one that it became: its maps."""

_SHORT = 5
"""Filters of no more terms are left as they are."""

Lengths = Mapping[int, int]
"""By loop of a filter, the terms of the short ones that it becomes."""


def lengths(convolution: Structured) -> list[Lengths]:
    """How a convolution's long filters, of stride 1, may be divided: all of them alike."""
    sizes = convolution.loop_sizes()
    loops = [Variable(f"d{i}", 0, max(n, 1) - 1) for i, n in enumerate(sizes)]
    found = []
    for index in apply_map(convolution.maps[0], [Index(((loop, 1),)) for loop in loops]):
        read = {loops.index(v): index.coefficient(v) for v in index.variables()}
        summed = [d for d in read if convolution.iterators[d] == "reduction"]
        rows = [d for d in read if d not in summed]
        if len(summed) == len(rows) == 1 and read[rows[0]] == 1 and sizes[summed[0]] > _SHORT:
            found += summed
    return [dict.fromkeys(found, length) for length in _LENGTHS] if found else []


def divide(convolution: Structured, lengths: Lengths) -> Structured:
    """The same convolution with a loop more for each filter that is divided, in front of it; its
    filters are yet to be filled in."""
    op, rhs = convolution.op, convolution.maps[1]
    count, sizes = rhs.n_dims, convolution.loop_sizes()
    dims = [ir.AffineExpr.get_dim(d) for d in range(count + len(lengths))]
    places = list(dims[:count])
    for number, (loop, length) in enumerate(lengths.items(), count):
        places[loop] = dims[number] * length + dims[loop]
    moved = ir.AffineMap.get(len(dims), 0, places)
    filters = [*dims[count:], *rhs.results]
    maps = [
        [expression.compose(moved) for expression in convolution.maps[0].results],
        filters,
        list(convolution.output_map.results),
    ]
    groups = [math.ceil(sizes[loop] / length) for loop, length in lengths.items()]
    positions = [expression.position for expression in rhs.results]
    shape = [*groups, *(lengths.get(loop, sizes[loop]) for loop in positions)]
    with ir.InsertionPoint(op), op.location:
        divided = op.clone().operation
        divided.operands[1] = tensor.EmptyOp(shape, element_type(convolution.inputs[1])).result
    if _MEMOIZED in divided.attributes:
        del divided.attributes[_MEMOIZED]
    divided.attributes["indexing_maps"] = ir.ArrayAttr.get(
        [ir.AffineMapAttr.get(ir.AffineMap.get(len(dims), 0, results)) for results in maps]
    )
    kinds = [*convolution.iterators, *["reduction"] * len(lengths)]
    divided.attributes["iterator_types"] = ir.ArrayAttr.get(
        [ir.Attribute.parse(f"#linalg.iterator_type<{kind}>") for kind in kinds]
    )
    found = Structured.of(divided)
    assert found is not None
    return found


def fill_in(
    divided: Structured, plain: Structured, lengths: Lengths, host: ir.Operation, state: State
) -> None:
    """Give `divided` the filters of `plain`, a weight, as a new one."""
    filters = plain.inputs[1]
    number = weight_argument(filters, host)
    assert number is not None
    name = weight_arguments(host)[number]
    array = state.weights[name].reshape(shape_of(filters))
    positions = [expression.position for expression in plain.maps[1].results]
    shape: list[int] = []
    numbers: list[int] = []
    pads = []
    for loop, size in zip(positions, array.shape, strict=True):
        length = lengths.get(loop, size)
        groups = math.ceil(size / length)
        pads.append((0, groups * length - size))
        if loop in lengths:
            numbers.append(len(shape))
            shape.append(groups)
        shape.append(length)
    split = np.pad(array, pads).reshape(shape)
    made = np.ascontiguousarray(np.moveaxis(split, numbers, range(len(numbers))))
    kind = divided.inputs[1].type
    new = state.weights.add(f"{name}_divided", made)
    placeholder = defining_op(divided.inputs[1])
    divided.op.operands[1] = add_argument(host, kind, WEIGHT, new)
    assert placeholder is not None
    placeholder.erase()


def erase(divided: Structured) -> None:
    """Erase what `divide` made."""
    placeholder = defining_op(divided.inputs[1])
    divided.op.erase()
    assert placeholder is not None
    placeholder.erase()


def is_known(convolution: Structured, host: ir.Operation, state: State) -> bool:
    """Whether the filters are a weight whose data is at hand."""
    number = weight_argument(convolution.inputs[1], host)
    names = weight_arguments(host)
    return number is not None and number in names and names[number] in state.weights
