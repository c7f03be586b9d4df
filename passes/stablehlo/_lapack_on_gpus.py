"""The functions of LAPACK that GPUs compute without it: Cholesky factors and triangular systems of
real matrices, by StableHLO's operations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir
from stepwell.passes.stablehlo._lapack_call import LapackCall

_TRANSPOSES = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}


def _potrf(call: LapackCall) -> list[ir.Value]:
    """The factor in the named triangle, the other one as it is; and of which leading minor LAPACK
    would say that it is not positive, the first of them, or 0."""
    (matrix,), lower = call.op.operands, call.letter("uplo", "LU") == "L"
    attributes = {"lower": ir.BoolAttr.get(lower)}
    factor = ir.Operation.create("stablehlo.cholesky", [matrix.type], [matrix], attributes).results[
        0
    ]
    shape = hlo.shape(matrix)
    rank, size = len(shape), shape[-1]
    row, column = (hlo.iota(shape, rank + d, np.int32) for d in (-2, -1))
    named = hlo.compare(row, column, "GE" if lower else "LE")
    positive = hlo.compare(factor, hlo.full_like(factor, 0), "GT")
    fine = hlo.or_(hlo.compare(row, column, "NE"), positive)
    number = hlo.select(fine, hlo.full_like(row, size), row)
    first = hlo.reduce(number, hlo.full(size, (), np.int32), [rank - 2, rank - 1], "minimum")
    failed = hlo.compare(first, hlo.full_like(first, size), "LT")
    info = hlo.select(failed, hlo.add(first, hlo.full_like(first, 1)), hlo.full_like(first, 0))
    return [hlo.select(named, factor, matrix), info]


def _trsm(call: LapackCall) -> list[ir.Value]:
    matrix, target = call.op.operands
    attributes = {
        "left_side": ir.BoolAttr.get(call.letter("side", "LR") == "L"),
        "lower": ir.BoolAttr.get(call.letter("uplo", "LU") == "L"),
        "unit_diagonal": ir.BoolAttr.get(call.letter("diag", "NU") == "U"),
        "transpose_a": ir.Attribute.parse(
            f"#stablehlo<transpose {_TRANSPOSES[call.letter('trans_x', 'NTC')]}>"
        ),
    }
    solved = ir.Operation.create(
        "stablehlo.triangular_solve", [target.type], [matrix, target], attributes
    )
    return list(solved.results)


_ROUTINES: dict[str, Callable[[LapackCall], list[ir.Value]]] = {"potrf": _potrf, "trsm": _trsm}


def on_gpu(function: str, call: LapackCall) -> list[ir.Value] | None:
    """The results of a call of `function`, without LAPACK; None where the host has to call it, for
    complex matrices, and for those that do not lie column by column."""
    if function not in _ROUTINES or call.is_complex or not call.is_by_columns():
        return None
    return _ROUTINES[function](call)
