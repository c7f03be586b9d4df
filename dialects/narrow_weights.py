"""Weights that stay as narrow as a model stores them until a kernel reads them, in StableHLO.

    %w = stablehlo.custom_call @stepwell.widen(%codes, %scales, %zeros)
         : (tensor<KxNxi8>, tensor<BxNxf32>, tensor<BxNxf32>) -> tensor<KxNxf32>

is `(codes - zeros) * scales` in float32. Scales and zeros are those of B blocks of as many rows;
both may be left out, zeros alone too. `keep-weights-narrow` makes such calls, of constants alone,
and `legalize-to-linalg` an operation that the products which read it take in.
"""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir

CALL = "stepwell.widen"
"""The target of the custom call."""

ROUNDABLE = "stepwell.roundable"
"""Attribute of a product whose model lets its operands be rounded to bfloat16, or further."""


def widen(parameters: Sequence[ir.Value]) -> ir.Value:
    """The call of codes [K, N], signed bytes or floats of 16 bits, with scales and zeros [B, N]."""
    kind = ir.RankedTensorType.get(list(hlo.shape(parameters[0])), ir.F32Type.get())
    attributes = {"call_target_name": ir.StringAttr.get(CALL)}
    call = ir.Operation.create("stablehlo.custom_call", [kind], list(parameters), attributes)
    return call.results[0]


def is_widened(op: ir.Operation) -> bool:
    """Whether `op` is such a call."""
    if op.name != "stablehlo.custom_call":
        return False
    return ir.StringAttr(op.attributes["call_target_name"]).value == CALL
