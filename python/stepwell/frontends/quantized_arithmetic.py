"""Quantized numbers by their definition: integers that store them, scales and zero points.

    stored   = round(clamp(least, number / scale + zero_point, greatest))
    number   = (stored - zero_point) * scale

(https://openxla.org/stablehlo/spec#quantization-computations), in the type of the numbers. An op on
quantized tensors is the op on the numbers that they stand for.
"""

from __future__ import annotations

import numpy as np

from stepwell import dtypes
from stepwell.dense import write_dense
from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import dialect, ir

quant = dialect("quant")

_OPAQUE = frozenset(["stablehlo.bitcast_convert", "stablehlo.custom_call", "stablehlo.composite"])


def is_quantized(value: ir.Value) -> bool:
    """Whether `value` is a tensor of quantized numbers."""
    kind = value.type
    return isinstance(kind, ir.RankedTensorType) and isinstance(
        kind.element_type, quant.QuantizedType
    )


def is_needed(op: ir.Operation) -> bool:
    """Whether upstream's conversion does not know the quantized types of an op, which has no
    regions, or the op itself."""
    if op.name.startswith("func.") or op.name in _OPAQUE or len(op.regions):
        return False
    values = [value for value in (*op.operands, *op.results) if is_quantized(value)]
    return any(_is_unknown(value) for value in values) or (
        op.name == "stablehlo.is_finite" and bool(values)
    )


def compute(op: ir.Operation) -> None:
    """Replace `op` by its definition."""
    with ir.InsertionPoint(op), op.location:
        numbers = [_numbers(v) if is_quantized(v) else v for v in op.operands]
        if op.name in ("stablehlo.uniform_quantize", "stablehlo.uniform_dequantize"):
            computed = numbers
        else:
            names = [entry if isinstance(entry, str) else entry.name for entry in op.attributes]
            computed = ir.Operation.create(
                op.name,
                [_type_of_numbers(value) for value in op.results],
                numbers,
                {name: op.attributes[name] for name in names},
            ).results
        for old, new in zip(op.results, computed, strict=True):
            old.replace_all_uses_with(_quantized(new, old.type) if is_quantized(old) else new)
    op.erase()


def stored_type(kind: ir.Type) -> ir.Type:
    """The type of the integers that store a quantized tensor."""
    tensor = ir.RankedTensorType(kind)
    return ir.RankedTensorType.get(list(tensor.shape), tensor.element_type.storage_type)


def stored(value: ir.Value) -> ir.Value:
    """The integers that store a quantized tensor."""
    return bitcast(value, stored_type(value.type))


def bitcast(value: ir.Value, kind: ir.Type) -> ir.Value:
    """Quantized numbers as the integers that store them, or the other way round."""
    return ir.Operation.create("stablehlo.bitcast_convert", [kind], [value]).results[0]


def _is_unknown(value: ir.Value) -> bool:
    """Whether upstream cannot compute with `value`."""
    tensor = ir.RankedTensorType(value.type)
    element = tensor.element_type
    if isinstance(element, quant.UniformQuantizedPerAxisType):
        if element.quantized_dimension != len(tensor.shape) - 1:
            return True
    elif not isinstance(element, quant.UniformQuantizedType):
        return False
    return not isinstance(element.expressed_type, ir.F32Type)


def _type_of_numbers(value: ir.Value) -> ir.Type:
    if not is_quantized(value):
        return value.type
    tensor = ir.RankedTensorType(value.type)
    return ir.RankedTensorType.get(list(tensor.shape), tensor.element_type.expressed_type)


def _integer_type(element: ir.Type) -> np.dtype:
    signed = "i" if element.is_signed else "ui"
    return dtypes.to_numpy_by_name(f"{signed}{element.storage_type_integral_width}")


def _scales_and_zero_points(kind: ir.Type) -> tuple[ir.Value, ir.Value]:
    """Both in the shape and the type of the numbers."""
    tensor = ir.RankedTensorType(kind)
    element, shape = tensor.element_type, list(tensor.shape)
    number = dtypes.to_numpy(element.expressed_type)
    if not isinstance(element, quant.UniformQuantizedPerAxisType):
        return hlo.full(element.scale, shape, number), hlo.full(element.zero_point, shape, number)
    scales, points = (
        hlo.broadcast_in_dim(
            hlo.constant_of(write_dense(np.array(values, np.float64).astype(number))),
            shape,
            [element.quantized_dimension],
        )
        for values in (element.scales, element.zero_points)
    )
    return scales, points


def _numbers(value: ir.Value) -> ir.Value:
    """The numbers that a quantized tensor stands for."""
    element = ir.RankedTensorType(value.type).element_type
    scales, points = _scales_and_zero_points(value.type)
    integers = stored(value)
    if not element.is_signed:
        integers = hlo.bitcast_convert(integers, _integer_type(element))
    numbers = hlo.convert(integers, hlo.dtype(scales))
    return hlo.multiply(hlo.subtract(numbers, points), scales)


def _quantized(value: ir.Value, kind: ir.Type) -> ir.Value:
    """Numbers as a quantized tensor of this type."""
    element = ir.RankedTensorType(kind).element_type
    scales, points = _scales_and_zero_points(kind)
    shifted = hlo.add(hlo.divide(hlo.convert(value, hlo.dtype(scales)), scales), points)
    least, greatest = (
        hlo.full(limit, (), hlo.dtype(scales))
        for limit in (element.storage_type_min, element.storage_type_max)
    )
    rounded = hlo.round_nearest_even(hlo.clamp(least, shifted, greatest))
    return bitcast(hlo.convert(rounded, _integer_type(element)), kind)
