"""Masks that are constants, or are computed from constants, as comparisons of indices on GPUs.

    %m = a constant, true up to the diagonal       %m = linalg.generic: index 1 <= index 0
    %y = select(%m, %x, -inf)                  ->  %y = select(%m, %x, -inf)

The comparison costs less than to read the mask, and an attention that has it knows which tiles of
keys need no mask at all.
"""

from __future__ import annotations

import math

import numpy as np

from stepwell.kernels.index import Index, Variable, delinearize
from stepwell.kernels.structured import RESHAPES, Structured, defining_op, element_type, shape_of
from stepwell.kernels.triangle import Triangle
from stepwell.mlir import ir
from stepwell.passes.linalg._known_values import KnownValues
from stepwell.passes.linalg.hoist_constants import weight_name
from stepwell.weights import WeightTable

_MOST_ELEMENTS = 1 << 27
"""Larger masks would take seconds."""

_AT_ONCE = 1 << 20
_LEAST_SIDE = 2


def write_triangles(block: ir.Block, weights: WeightTable) -> None:
    """Let operations of `block` that read such a mask, views of it too, read a comparison."""
    known: dict[ir.Value, bool] = {}
    """Whether what is known is a view."""
    made: dict[ir.Value, ir.Value | None] = {}
    for child in list(block.operations):
        op = child.operation
        structured = Structured.of(op)
        elementwise = structured is not None and structured.is_elementwise
        copies = structured is not None and structured.copied_input() is not None
        is_view = op.name in RESHAPES or (elementwise and copies)
        is_known = _is_known(op, structured, known, weights)
        if is_view or (elementwise and not is_known):
            for number, value in enumerate(op.operands):
                if not known.get(value, not _is_weight(value, weights)):
                    found = _replacement(value, op, made, weights)
                    if found is not None:
                        op.operands[number] = found
        if is_known:
            known.update(dict.fromkeys(op.results, is_view))


def _is_weight(value: ir.Value, weights: WeightTable) -> bool:
    if defining_op(value) is not None:
        return False
    argument = ir.BlockArgument(value)
    function = argument.owner.owner.operation
    if function.name != "func.func":
        return False
    name = weight_name(function, argument.arg_number)
    return name is not None and name in weights


def _is_known(
    op: ir.Operation,
    structured: Structured | None,
    known: dict[ir.Value, bool],
    weights: WeightTable,
) -> bool:
    """Whether the operation computes elements of constants and indices only."""
    if op.name in ("arith.constant", "tensor.empty"):
        return True
    if structured is not None and structured.is_elementwise:
        inputs = structured.inputs
    elif op.name in (*RESHAPES, "linalg.fill"):
        inputs = tuple(op.operands)
    else:
        return False
    return all(value in known or _is_weight(value, weights) for value in inputs)


def _replacement(
    value: ir.Value,
    reader: ir.Operation,
    made: dict[ir.Value, ir.Value | None],
    weights: WeightTable,
) -> ir.Value | None:
    """The comparison that is `value`, before the first operation that reads it."""
    if value not in made:
        element = element_type(value)
        boolean = str(element) == "i1"
        triangle = None
        if boolean or isinstance(element, ir.FloatType):
            triangle = _triangle_of(value, weights)
        made[value] = None
        if triangle is not None:
            with ir.InsertionPoint(reader), reader.location:
                made[value] = triangle.make(shape_of(value), element)
    return made[value]


def _triangle_of(value: ir.Value, weights: WeightTable) -> Triangle | None:
    """The triangle that all matrices of the last two dimensions of `value` are, if they are one."""
    if len(shape_of(value)) < _LEAST_SIDE or min(shape_of(value)[-2:]) < _LEAST_SIDE:
        return None
    *outer, rows, columns = shape_of(value)
    masks = math.prod(outer)
    first, last = (_read(value, weights, range(row, row + 1)) for row in (0, rows - 1))
    if first is None or last is None or masks * rows * columns > _MOST_ELEMENTS:
        return None
    near, far = last[0, 0, 0], first[0, 0, -1]
    seen = int((first[0, 0] == near).sum())
    offset = seen - 1 if seen else int((last[0, 0] == near).sum()) - rows
    if near == far:
        return None
    step = max(1, _AT_ONCE // (columns * masks))
    for start in range(0, rows, step):
        chunk = range(start, min(start + step, rows))
        data = _read(value, weights, chunk)
        is_near = np.arange(columns) <= np.arange(chunk.start, chunk.stop)[:, None] + offset
        if data is None or not np.all(data == np.where(is_near, near, far)):
            return None
    return Triangle(offset, float(near), float(far))


def _read(value: ir.Value, weights: WeightTable, rows: range) -> np.ndarray | None:
    """The elements of `rows`, [matrix, row, column]; None where one is not known."""
    *outer, count, columns = shape_of(value)
    sizes = (math.prod(outer), count, columns)
    names = ("matrix", "row", "column")
    variables = [Variable(n, 0, size - 1) for n, size in zip(names, sizes, strict=True)]
    places = {
        variables[0]: np.arange(sizes[0]).reshape(-1, 1, 1),
        variables[1]: np.arange(rows.start, rows.stop).reshape(1, -1, 1),
        variables[2]: np.arange(columns).reshape(1, 1, -1),
    }
    matrix, row, column = map(Index.of, variables)
    point = [*delinearize(matrix, outer), row, column]
    found = KnownValues(weights, set(), places).at(value, point)
    if not np.all(found.known):
        return None
    return np.broadcast_to(found.data, (sizes[0], len(rows), columns))
