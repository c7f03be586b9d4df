"""The one table of known failures: name of a test case to the reason why it fails.

A case named here must fail; when it passes, pytest says so and its entry goes.
"""

from __future__ import annotations

_INTEGERS = "the contraction emitter adds integers with arith.addf"
_NARROWING = "conversions to bfloat16 and half call compiler-rt, which nothing defines"
_SCALARS = "form-fusion-groups takes no operations on scalars taken from tensors"
_COPY = "scalar loops that copy a part of a buffer call memrefCopy"
_BOOLEANS = "the halo of booleans is stored as bits"
_CHUNK = "depthwise kernels of one block of points: the last chunk of channels is no variable"
_UNSUPPORTED = "not supported yet: has no lowering to linalg"
_CBRT = "math.cbrt has no expansion"
_EMPTY = "reductions over no elements have no lowering"

EXPECTED_FAILURES: dict[str, str] = {
    "i32": _INTEGERS,
    "i64": _INTEGERS,
    "add-bfloat16": _NARROWING,
    "subtract-bfloat16": _NARROWING,
    "multiply-bfloat16": _NARROWING,
    "maximum-bfloat16": _NARROWING,
    "minimum-bfloat16": _NARROWING,
    "divide-bfloat16": _NARROWING,
    "sign-bfloat16": _NARROWING,
    "chain-bfloat16": _NARROWING,
    "bool-to-bfloat16": _NARROWING,
    "int8-to-bfloat16": _NARROWING,
    "uint8-to-bfloat16": _NARROWING,
    "int32-to-bfloat16": _NARROWING,
    "int64-to-bfloat16": _NARROWING,
    "float16-to-bfloat16": _NARROWING,
    "float32-to-bfloat16": _NARROWING,
    "float64-to-bfloat16": _NARROWING,
    "float64-to-float16": _NARROWING,
    "select-scalar-with-7x19": _SCALARS,
    "select-scalar-predicate": _SCALARS,
    "roots": _CBRT,
    "empty-sum": _EMPTY,
    "empty-rows-sum": _EMPTY,
    "empty-matmul": _EMPTY,
    "empty-contraction": _EMPTY,
    "dynamic-slice": _SCALARS,
    "dynamic-slice-clamped": _SCALARS,
    "dynamic-update": _SCALARS,
    "embedding-one": _SCALARS,
    "pad-value-argument": _SCALARS,
    "pad-interior": _COPY,
    "pad-interior-and-edges": _COPY,
    "pad-booleans": _BOOLEANS,
    "scatter-set": _UNSUPPORTED,
    "scatter-add": _UNSUPPORTED,
    "sort": _UNSUPPORTED,
    "top-k": _UNSUPPORTED,
    "exp": "results below 1.65e-38 are flushed to zero",
    "erf": "5.5 ulp near 3.92",
    "log1p-large": "overflows from 4e36 on",
    "rsqrt": "1.43 ulp, stated as 1",
    "power": "1 to the power of NaN is NaN",
    "weight-also-added": "pack-operands retypes an argument that the epilogue reads too",
    "dilated-opt-level-0": _COPY,
    "x86_64-v3": "Winograd kernels with 8 lanes: IndexError in lower-groups-to-affine",
    "depthwise-72-of-7x7": _CHUNK,
    "light_shufflenet": _CHUNK,
}
