"""Element types: one table between MLIR's names and numpy's dtypes."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from stepwell.errors import LoweringError
from stepwell.mlir import ir

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

_SMALL_BY_MLIR: dict[str, np.dtype] = {
    "f8E3M4": np.dtype(ml_dtypes.float8_e3m4),
    "f8E4M3": np.dtype(ml_dtypes.float8_e4m3),
    "f8E4M3B11FNUZ": np.dtype(ml_dtypes.float8_e4m3b11fnuz),
    "f8E4M3FN": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8E4M3FNUZ": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "f8E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "f8E5M2FNUZ": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "f8E8M0FNU": np.dtype(ml_dtypes.float8_e8m0fnu),
    "f6E2M3FN": np.dtype(ml_dtypes.float6_e2m3fn),
    "f6E3M2FN": np.dtype(ml_dtypes.float6_e3m2fn),
    "f4E2M1FN": np.dtype(ml_dtypes.float4_e2m1fn),
    "i4": np.dtype(ml_dtypes.int4),
    "i2": np.dtype(ml_dtypes.int2),
    "ui4": np.dtype(ml_dtypes.uint4),
    "ui2": np.dtype(ml_dtypes.uint2),
}
SMALL = frozenset(_SMALL_BY_MLIR)
"""MLIR's names of types that processors do not compute with; in memory an element takes a byte."""

_NUMPY_BY_MLIR: dict[str, np.dtype] = {
    "f64": np.dtype(np.float64),
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": BFLOAT16,
    "i1": np.dtype(np.bool_),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "ui8": np.dtype(np.uint8),
    "ui16": np.dtype(np.uint16),
    "ui32": np.dtype(np.uint32),
    "ui64": np.dtype(np.uint64),
    "complex<f32>": np.dtype(np.complex64),
    "complex<f64>": np.dtype(np.complex128),
    **_SMALL_BY_MLIR,
}
_MLIR_BY_NUMPY = {dtype: name for name, dtype in _NUMPY_BY_MLIR.items()}


def to_numpy(element_type: ir.Type) -> np.dtype:
    """The numpy dtype of an MLIR element type; raises LoweringError for types numpy lacks."""
    return to_numpy_by_name(str(element_type))


def to_numpy_by_name(element_type: str) -> np.dtype:
    """The numpy dtype of the MLIR element type of this name."""
    dtype = _NUMPY_BY_MLIR.get(element_type)
    if dtype is None:
        raise LoweringError(f"element type {element_type} has no numpy counterpart")
    return dtype


def to_mlir(dtype: np.dtype | type) -> ir.Type:
    """The MLIR element type of a numpy dtype (needs a current context)."""
    name = _MLIR_BY_NUMPY.get(np.dtype(dtype))
    if name is None:
        raise LoweringError(f"dtype {np.dtype(dtype)} is not supported")
    return ir.Type.parse(name)


def tensor_type(shape: tuple[int, ...] | list[int], dtype: np.dtype | type) -> ir.RankedTensorType:
    """`tensor<...>` of a static shape and a numpy dtype (needs a current context)."""
    return ir.RankedTensorType.get(list(shape), to_mlir(dtype))


def is_small(dtype: np.dtype) -> bool:
    """Whether `dtype` is a float of 8 bits or fewer, or an integer of 4 or 2."""
    return dtype in _SMALL_BY_MLIR.values()


def is_integer(dtype: np.dtype) -> bool:
    """Whether `dtype` is a signed or unsigned integer, those of ml_dtypes included."""
    return dtype.kind in "iu" or (is_small(dtype) and "int" in dtype.name)


def is_unsigned(dtype: np.dtype) -> bool:
    """Whether `dtype` is an unsigned integer, those of ml_dtypes included."""
    return is_integer(dtype) and dtype.name.startswith("uint")


def is_float(dtype: np.dtype) -> bool:
    """Whether `dtype` is a real floating-point type, those of ml_dtypes included."""
    return dtype.kind == "f" or (dtype.kind == "V" and not is_integer(dtype))


def limits(dtype: np.dtype) -> tuple[float, float] | tuple[int, int]:
    """The least and the greatest finite value of an integer or float type."""
    if is_integer(dtype):
        integer = ml_dtypes.iinfo(dtype)
        return int(integer.min), int(integer.max)
    number = ml_dtypes.finfo(dtype)
    return float(number.min), float(number.max)


def bits(dtype: np.dtype) -> int:
    """The width of an element in bits; a boolean is a byte."""
    if is_small(dtype):
        return int(
            ml_dtypes.iinfo(dtype).bits if is_integer(dtype) else ml_dtypes.finfo(dtype).bits
        )
    return 8 * dtype.itemsize
