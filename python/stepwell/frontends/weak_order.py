"""Comparisons in the weak order, which later versions of StableHLO have than this build reads.

    %0 = stablehlo.compare LT, %x, %y, WEAKORDER : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>

All NaNs are one number, above infinity, and so are both zeros: numbers that are made so compare in
the total order. In between the comparison is a custom call.

Source: https://github.com/openxla/stablehlo (stablehlo/tests/interpret/compare.mlir).
"""

from __future__ import annotations

import re

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir, nested_operations

_MARK = b"WEAKORDER"
_TARGET = "stepwell.weak_order"
_COMPARE = re.compile(
    r"stablehlo\.compare\s+(\w+)\s*,\s*(%[\w#$.-]+)\s*,\s*(%[\w#$.-]+)\s*,\s*WEAKORDER\s*:"
)


def has_weak_order(data: bytes) -> bool:
    """Whether text may have such comparisons."""
    return _MARK in data


def without_weak_order_syntax(text: str) -> str:
    """`text` with such comparisons as custom calls."""
    return _COMPARE.sub(rf'stablehlo.custom_call @{_TARGET}(\2, \3) {{direction = "\1"}} :', text)


def legalize_weak_order(module: ir.Module) -> None:
    """Write these custom calls, of known shape, as comparisons in the total order."""
    for op in nested_operations(module.operation):
        if op.name != "stablehlo.custom_call" or not _is_static(op):
            continue
        if ir.StringAttr(op.attributes["call_target_name"]).value != _TARGET:
            continue
        direction = ir.StringAttr(op.attributes["direction"]).value
        with op.location, ir.InsertionPoint(op):
            made = hlo.compare_in_order(op.operands[0], op.operands[1], direction)
        op.results[0].replace_all_uses_with(made)
        op.erase()


def _is_static(op: ir.Operation) -> bool:
    kinds = [value.type for value in op.operands]
    return all(isinstance(kind, ir.RankedTensorType) and kind.has_static_shape for kind in kinds)
