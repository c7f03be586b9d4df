"""Functions that GPUs approximate by few instructions: quotients, but with precision "strict"; an
exponential of full precision; and, where a model allows it (precision "fast"), others by one.

Errors are those of PTX ISA ("Floating Point Instructions"), relative to the result, and what the
multiplications beside them add:

    exp    2^-22 + |x| 2^-24; results below 2^-126 are 0
    log    2^-22, and 2^-22 of absolute error between 0.5 and 2
    tanh   2^-11
    rsqrt  2^-22
    x / y  2 ulp of f32
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from stepwell.kernels import vector_math
from stepwell.kernels.builder import arith, vector
from stepwell.mlir import dialect, ir, nested_operations

llvm = dialect("llvm")

FAST_MATH = "kernel.fast_math"
"""Attribute of a kernel in which functions may be approximated."""

_SINGLE = "f32"

_VANISHING_EXPONENT = -88.0
"""e to this is below 2^-126."""


def expand(function: ir.Operation) -> None:
    """Replace the functions of f32, f16 and bf16 in a kernel."""
    found = [op for op in nested_operations(function) if op.name in _APPROXIMATIONS]
    for op in found:
        kind = op.results[0].type
        is_vector = isinstance(kind, ir.VectorType)
        element = str(kind.element_type if is_vector else kind)
        if element == "f64" or (is_vector and len(kind.shape) != 1):
            continue
        with ir.InsertionPoint(op), op.location:
            value = _by_lanes(_APPROXIMATIONS[op.name], _in_single(op.operands[0], element))
            if element != _SINGLE:
                value = arith.TruncFOp(kind, value).result
        op.results[0].replace_all_uses_with(value)
        op.erase()


def _in_single(value: ir.Value, element: str) -> ir.Value:
    if element == _SINGLE:
        return value
    if element == "bf16":
        return vector_math.extend_bfloat16(value)
    return arith.ExtFOp(vector_math.like(value.type, ir.F32Type.get()), value).result


def _by_lanes(function: Callable[..., ir.Value], *values: ir.Value) -> ir.Value:
    kind = values[0].type
    if not isinstance(kind, ir.VectorType):
        return function(*values)
    lanes = [
        function(*(vector.ExtractOp(value, [], [lane]).result for value in values))
        for lane in range(kind.shape[0])
    ]
    return vector.FromElementsOp(kind, lanes).result


def _intrinsic(name: str, *values: ir.Value) -> ir.Value:
    return ir.Operation.create(
        "llvm.call_intrinsic",
        results=[values[0].type],
        operands=list(values),
        attributes={
            "intrin": ir.StringAttr.get(name),
            "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(values), 0]),
        },
    ).results[0]


def quotient(x: ir.Value, y: ir.Value) -> ir.Value | None:
    """x / y of scalars or vectors of f32, f16 or bf16; None for other types. A quotient that is
    rounded as IEEE 754 wants it has a branch, and a call behind it."""
    kind = x.type
    element = str(kind.element_type if isinstance(kind, ir.VectorType) else kind)
    if element not in (_SINGLE, "f16", "bf16"):
        return None
    divide = functools.partial(_intrinsic, "llvm.nvvm.div.full")
    value = _by_lanes(divide, _in_single(x, element), _in_single(y, element))
    return value if element == _SINGLE else arith.TruncFOp(kind, value).result


def _times(value: ir.Value, factor: float) -> ir.Value:
    return arith.MulFOp(value, vector_math.constant(value.type, factor)).result


def power_of_two(x: ir.Value) -> ir.Value:
    """2^x of a scalar."""
    return _intrinsic("llvm.nvvm.ex2.approx.ftz", x)


def exp_of_nonpositive(x: ir.Value) -> ir.Value:
    """e^x for x <= 0, a scalar or vector of f32, within 3 ulp, of which 2 are those of
    `ex2.approx`; 0 below 2^-126. With h = x / ln 2 rounded, e^x = 2^h e^c, where c = x - h ln 2 is
    less than 2^-17, so that e^c is 1 + c to 2^-35."""
    x = arith.MaximumFOp(x, vector_math.constant(x.type, _VANISHING_EXPONENT)).result
    h = _times(x, math.log2(math.e))
    c = vector_math.multiply_add(h, vector_math.constant(x.type, -vector_math.LN2_HIGH), x)
    c = vector_math.multiply_add(h, vector_math.constant(x.type, -vector_math.LN2_LOW), c)
    power = _by_lanes(power_of_two, h)
    return vector_math.multiply_add(power, c, power)


def _exp(x: ir.Value) -> ir.Value:
    return power_of_two(_times(x, math.log2(math.e)))


def _log(x: ir.Value) -> ir.Value:
    return _times(_intrinsic("llvm.nvvm.lg2.approx.f", x), math.log(2))


def _tanh(x: ir.Value) -> ir.Value:
    """The instruction that LLVM has no intrinsic for, as assembly."""
    return llvm.inline_asm(x.type, [x], "tanh.approx.f32 $0, $1;", "=f,f", asm_dialect=0)


def _rsqrt(x: ir.Value) -> ir.Value:
    return _intrinsic("llvm.nvvm.rsqrt.approx.f", x)


_APPROXIMATIONS: dict[str, Callable[[ir.Value], ir.Value]] = {
    "math.exp": _exp,
    "math.log": _log,
    "math.tanh": _tanh,
    "math.rsqrt": _rsqrt,
}
