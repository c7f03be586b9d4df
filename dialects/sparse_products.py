"""Products with matrices of constants that are zero for the most part, in StableHLO.

    %y = stablehlo.custom_call @stepwell.sparse_dot(%values, %places, %starts, %x)
         : (tensor<Zxf32>, tensor<Zxi16>, tensor<(N+1)xi32>, tensor<BxKxLxf32>) -> tensor<BxNxMxf32>

is `y[b, n, m]`, the sum of `values[z] * x[b, places[z], m]` for z from `starts[n]` to before
`starts[n + 1]`: compressed sparse rows of a matrix [N, K] times each of B matrices [K, M], whose
rows may be followed by zeros, so that they begin at lines of the cache: L is M or more.
`keep-weights-sparse` makes such calls, and `legalize-to-linalg` an operation that is a kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir
from stepwell.weights import WeightTable

CALL = "stepwell.sparse_dot"
"""The target of the custom call."""


@dataclass(frozen=True)
class SparseRows:
    """A matrix float32[N, K] without its zeros: those of row n from `starts[n]` on. Where all of
    them, or all their places, are one number, as those of an identity are, a last term that is no
    row's differs: constants of one number are folded into what reads them, and are no arrays."""

    values: np.ndarray
    places: np.ndarray
    starts: np.ndarray

    @staticmethod
    def of(matrix: np.ndarray) -> SparseRows:
        """The compressed form of `matrix`; places are int16 where K allows, else int32."""
        rows, places = np.nonzero(matrix)
        counts = np.bincount(rows, minlength=len(matrix))
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        narrow = np.int16 if matrix.shape[1] <= 1 << 15 else np.int32
        values, places = matrix[rows, places], places.astype(narrow)
        if (values == values[0]).all() or (places == places[0]).all():
            values, places = np.append(values, values.dtype.type(0)), np.append(places, narrow(0))
            places[-1] = not places[0]
        return SparseRows(values, places, starts)


def sparse_dot(
    rows: SparseRows, dense: ir.Value, columns: int, weights: WeightTable, name: str
) -> ir.Value:
    """The call for a matrix, of which `name` is what its weights are called after, and the first
    `columns` columns of `dense` float32[B, K, L]; float32[B, N, columns]."""
    shape = [hlo.shape(dense)[0], len(rows.starts) - 1, columns]
    parts = {"values": rows.values, "places": rows.places, "starts": rows.starts}
    constants = [hlo.constant(a, weights, f"{name}_{part}") for part, a in parts.items()]
    call = ir.Operation.create(
        "stablehlo.custom_call",
        [ir.RankedTensorType.get(shape, ir.F32Type.get())],
        [*constants, dense],
        {"call_target_name": ir.StringAttr.get(CALL)},
    )
    return call.results[0]


def is_sparse_dot(op: ir.Operation) -> bool:
    """Whether `op` is such a call."""
    if op.name != "stablehlo.custom_call":
        return False
    return ir.StringAttr(op.attributes["call_target_name"]).value == CALL
