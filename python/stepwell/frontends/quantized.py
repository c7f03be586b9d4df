"""Quantized tensors where upstream's conversion of quantized ops to arithmetic does not know them.

    %y = stablehlo.reverse %x, dims = [0] : tensor<4x!quant.uniform<i8:f32, 0.5>>

becomes

    %0 = stablehlo.bitcast_convert %x : (tensor<4x!quant.uniform<i8:f32, 0.5>>) -> tensor<4xi8>
    %1 = stablehlo.reverse %0, dims = [0] : tensor<4xi8>
    %y = stablehlo.bitcast_convert %1 : (tensor<4xi8>) -> tensor<4x!quant.uniform<i8:f32, 0.5>>

- Ops that move elements or have regions take and give the integers that store them, and so do the
  arguments and results of the regions.
- What has scales along another dimension than the last, or stands for other numbers than f32, is
  computed by its definition (`quantized_arithmetic.py`).
"""

from __future__ import annotations

from stepwell.frontends import quantized_arithmetic as arithmetic
from stepwell.frontends.quantized_arithmetic import is_quantized
from stepwell.mlir import ir, nested_operations

_STORED = frozenset(
    [
        "stablehlo.broadcast_in_dim",
        "stablehlo.case",
        "stablehlo.concatenate",
        "stablehlo.constant",
        "stablehlo.dynamic_slice",
        "stablehlo.dynamic_update_slice",
        "stablehlo.gather",
        "stablehlo.if",
        "stablehlo.optimization_barrier",
        "stablehlo.pad",
        "stablehlo.reduce",
        "stablehlo.reshape",
        "stablehlo.reverse",
        "stablehlo.scatter",
        "stablehlo.select",
        "stablehlo.select_and_scatter",
        "stablehlo.slice",
        "stablehlo.sort",
        "stablehlo.torch_index_select",
        "stablehlo.transpose",
        "stablehlo.while",
    ]
)


def legalize(main: ir.Operation) -> None:
    """Rewrite what upstream does not know; it does the rest."""
    for op in nested_operations(main):
        if op.name in _STORED:
            _store_as_integers(op)
        elif arithmetic.is_needed(op):
            arithmetic.compute(op)


def _store_as_integers(op: ir.Operation) -> None:
    for block in [block for region in op.regions for block in region.blocks]:
        with ir.InsertionPoint.at_block_begin(block), op.location:
            for argument in block.arguments:
                _store(argument)
        _store_operands(list(block.operations)[-1].operation)
    _store_operands(op)
    with ir.InsertionPoint.after(op), op.location:
        for result in op.results:
            _store(result)


def _store_operands(op: ir.Operation) -> None:
    with ir.InsertionPoint(op), op.location:
        for number, operand in enumerate(op.operands):
            if is_quantized(operand):
                op.operands[number] = arithmetic.stored(operand)


def _store(value: ir.Value) -> None:
    """Make `value` integers, which are quantized numbers again for those that use it."""
    if not is_quantized(value):
        return
    kind = value.type
    uses = [(use.owner.operation, use.operand_number) for use in value.uses]
    value.set_type(arithmetic.stored_type(kind))
    again = arithmetic.bitcast(value, kind)
    for user, number in uses:
        user.operands[number] = again
