"""Custom calls of JAX that multiply a sparse matrix, whose rows are stored one after another.

    %y = stablehlo.custom_call @cpu_csr_sparse_dense_ffi(%data, %starts, %columns, %x)
        : (tensor<7xf32>, tensor<4xi32>, tensor<7xi32>, tensor<5x2xf32>) -> tensor<3x2xf32>

Row i of the matrix has the elements %starts[i] to %starts[i + 1] of %data, in %columns. Each
element adds its product with a row of %x to the row of %y that it is in: the number of starts up
to its place, less one. What stands behind the last row, or in front of the first, is in none, and
a scatter leaves it out.
"""

from __future__ import annotations

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir, nested_operations

_TARGET = "cpu_csr_sparse_dense_ffi"


def legalize_sparse_rows(module: ir.Module) -> None:
    """Rewrite every such custom call of known shape; a context and a location are current."""
    for op in nested_operations(module.operation):
        if op.name != "stablehlo.custom_call" or not _is_static(op):
            continue
        if ir.StringAttr(op.attributes["call_target_name"]).value == _TARGET:
            with ir.InsertionPoint(op), op.location:
                op.results[0].replace_all_uses_with(_product(op))
            op.erase()


def _is_static(op: ir.Operation) -> bool:
    kinds = [value.type for value in (*op.operands, *op.results)]
    return all(isinstance(kind, ir.RankedTensorType) and kind.has_static_shape for kind in kinds)


def _product(op: ir.Operation) -> ir.Value:
    data, starts, columns, x = op.operands
    zeros = _zeros(hlo.shape(op.results[0]), hlo.dtype(x))
    count, *inner = hlo.shape(x)
    if 0 in (count, *hlo.shape(data), *hlo.shape(zeros)):
        return zeros
    inner_dims = range(1, 1 + len(inner))
    taken = hlo.gather(
        x, _vectors(columns), hlo.GatherDimensions(inner_dims, [0], [0], 1), [1, *inner]
    )
    products = hlo.multiply(hlo.broadcast_in_dim(data, hlo.shape(taken), [0]), taken)
    return hlo.scatter(
        zeros,
        _vectors(_rows(starts, *hlo.shape(data))),
        products,
        hlo.ScatterDimensions(inner_dims, [0], [0], 1),
        "add",
    )


def _zeros(dimensions: tuple[int, ...], kind: np.dtype) -> ir.Value:
    if kind.kind != "c":
        return hlo.full(0, dimensions, kind)
    part = hlo.full(0, dimensions, np.dtype(f"f{kind.itemsize // 2}"))
    return hlo.binary("complex", part, part)


def _rows(starts: ir.Value, count: int) -> ir.Value:
    """The row of each of `count` elements; -1 in front of the first."""
    zero = hlo.full(0, [], np.int32)
    begun = hlo.scatter(
        hlo.full(0, [count], np.int32),
        _vectors(starts),
        hlo.full(1, hlo.shape(starts), np.int32),
        hlo.ScatterDimensions([], [0], [0], 1),
        "add",
    )
    so_far = hlo.reduce_window(
        begun, zero, "add", window=[count], strides=[1], padding=[(count - 1, 0)]
    )
    return hlo.subtract(so_far, hlo.full(1, [count], np.int32))


def _vectors(indices: ir.Value) -> ir.Value:
    return hlo.reshape(indices, [*hlo.shape(indices), 1])
