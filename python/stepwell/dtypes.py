"""Element types: one table between MLIR's names and numpy's dtypes."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from stepwell.errors import LoweringError
from stepwell.mlir import ir

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

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
}
_MLIR_BY_NUMPY = {dtype: name for name, dtype in _NUMPY_BY_MLIR.items()}


def to_numpy(element_type: ir.Type) -> np.dtype:
    """The numpy dtype of an MLIR element type; raises LoweringError for types numpy lacks."""
    dtype = _NUMPY_BY_MLIR.get(str(element_type))
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
