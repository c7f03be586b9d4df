"""Operators of PyTorch on complex numbers, which the passes of torch-mlir have no lowering for.

    torch.aten.mul.Tensor %x, %y : !torch.vtensor<[4],complex<f32>>  ->  stablehlo.multiply %x, %y
    torch.aten._fft_r2c %x, [0], 0, true                             ->  stablehlo.fft %x {RFFT}

They are taken over where an operand or the result is complex; views and copies are not: those
have a lowering for any type.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.torch import linear_algebra
from stepwell.frontends.torch.hidden_calls import created
from stepwell.mlir import ir

Operand = ir.Value | int | float
Lowering = Callable[..., ir.Value]

FORMS: dict[str, Lowering] = {}
"""What makes the result of an operator, given the call that stands for it and its operands."""

LOWERED_AS_THEY_ARE = frozenset(
    [
        "_assert_tensor_metadata",
        "_unsafe_view",
        "alias",
        "cat",
        "clone",
        "detach",
        "expand",
        "permute",
        "roll",
        "select",
        "slice",
        "split_with_sizes",
        "squeeze",
        "t",
        "transpose",
        "unsqueeze",
        "view",
        "view_of",
    ]
)
"""Operators, without their overloads, that torch-mlir has a right lowering for, or needs none."""


def is_supported(name: str) -> bool:
    """Whether the operator `name`, as `aten.mul.Tensor`, has a form for complex numbers."""
    name = name.removesuffix(".default")
    plain = name.split(".")[1] in LOWERED_AS_THEY_ARE
    return plain or name in FORMS or name in linear_algebra.FORMS


def _lowering(*names: str) -> Callable[[Lowering], Lowering]:
    def enter(function: Lowering) -> Lowering:
        FORMS.update(dict.fromkeys(names, function))
        return function

    return enter


def _parts(x: ir.Value) -> tuple[ir.Value, ir.Value]:
    kind = ir.RankedTensorType.get(hlo.shape(x), ir.ComplexType(hlo.element_type(x)).element_type)
    return created("stablehlo.real", [kind], [x])[0], created("stablehlo.imag", [kind], [x])[0]


def _joined(real: ir.Value, imaginary: ir.Value) -> ir.Value:
    kind = ir.RankedTensorType.get(hlo.shape(real), ir.ComplexType.get(hlo.element_type(real)))
    return created("stablehlo.complex", [kind], [real, imaginary])[0]


def _as(operand: Operand, like: ir.Value) -> ir.Value:
    """A number or a tensor in the shape and the element type of `like`: its real part if that is
    real."""
    return _converted(operand, hlo.shape(like), hlo.dtype(like))


def _converted(operand: Operand, shape: Sequence[int], kind: np.dtype) -> ir.Value:
    if not isinstance(operand, ir.Value):
        operand = hlo.full(operand, shape, _part(kind))
    rank = len(hlo.shape(operand))
    dims = range(len(shape) - rank, len(shape))
    kept = [d for d, size in zip(dims, hlo.shape(operand), strict=True) if size == shape[d]]
    operand = hlo.reshape(operand, [shape[d] for d in kept])
    if hlo.dtype(operand).kind == "c" and kind.kind != "c":
        operand = hlo.convert(_parts(operand)[0], kind)
    elif hlo.dtype(operand).kind == "c" and hlo.dtype(operand) != kind:
        operand = _joined(*(hlo.convert(part, _part(kind)) for part in _parts(operand)))
    elif hlo.dtype(operand).kind != "c":
        operand = hlo.convert(operand, _part(kind))
        if kind.kind == "c":
            operand = _joined(operand, hlo.full_like(operand, 0))
    return hlo.broadcast_in_dim(operand, shape, kept)


def _part(kind: np.dtype) -> np.dtype:
    """Of the real part, or `kind` if it is real."""
    return np.dtype(f"f{kind.itemsize // 2}") if kind.kind == "c" else kind


# --- Parts ----------------------------------------------------------------------------------------


@_lowering("aten.complex")
def _complex(op: ir.Operation, real: ir.Value, imaginary: ir.Value) -> ir.Value:
    shape, kind = hlo.shape(op.results[0]), _part(hlo.dtype(op.results[0]))
    return _joined(_converted(real, shape, kind), _converted(imaginary, shape, kind))


@_lowering("aten.polar")
def _polar(op: ir.Operation, length: ir.Value, angle: ir.Value) -> ir.Value:
    shape, kind = hlo.shape(op.results[0]), _part(hlo.dtype(op.results[0]))
    length, angle = _converted(length, shape, kind), _converted(angle, shape, kind)
    real, imaginary = hlo.unary("cosine", angle), hlo.unary("sine", angle)
    return _joined(hlo.multiply(length, real), hlo.multiply(length, imaginary))


@_lowering("aten.view_as_real")
def _view_as_real(op: ir.Operation, x: ir.Value) -> ir.Value:
    shape = [*hlo.shape(x), 1]
    return hlo.concatenate([hlo.reshape(part, shape) for part in _parts(x)], len(shape) - 1)


@_lowering("aten.view_as_complex")
def _view_as_complex(op: ir.Operation, x: ir.Value) -> ir.Value:
    *shape, _ = hlo.shape(x)
    start = [0] * len(shape)
    real = hlo.slice(x, [*start, 0], [*shape, 1])
    imaginary = hlo.slice(x, [*start, 1], [*shape, 2])
    return _joined(hlo.reshape(real, shape), hlo.reshape(imaginary, shape))


@_lowering("aten._conj", "aten._conj_physical", "aten.conj_physical")
def _conjugate(op: ir.Operation, x: ir.Value) -> ir.Value:
    real, imaginary = _parts(x)
    return _joined(real, hlo.unary("negate", imaginary))


@_lowering("aten.angle")
def _angle(op: ir.Operation, x: ir.Value) -> ir.Value:
    real, imaginary = _parts(x)
    return hlo.binary("atan2", imaginary, real)


@_lowering("aten.abs")
def _abs(op: ir.Operation, x: ir.Value) -> ir.Value:
    return created("stablehlo.abs", [op.results[0].type], [x])[0]


@_lowering("prims.convert_element_type")
def _convert(op: ir.Operation, x: ir.Value, dtype: int) -> ir.Value:
    if hlo.dtype(op.results[0]).kind == "b":
        real, imaginary = (hlo.compare(y, hlo.full_like(y, 0), "NE") for y in _parts(x))
        return hlo.binary("or", real, imaginary)
    return _as(x, op.results[0])


# --- Arithmetic -----------------------------------------------------------------------------------


def _unary(name: str, op: ir.Operation, x: ir.Value) -> ir.Value:
    return created(name, [x.type], [x])[0]


for _operator, _function in (
    ("aten.neg", "stablehlo.negate"),
    ("aten.exp", "stablehlo.exponential"),
    ("aten.expm1", "stablehlo.exponential_minus_one"),
    ("aten.log", "stablehlo.log"),
    ("aten.log1p", "stablehlo.log_plus_one"),
    ("aten.sqrt", "stablehlo.sqrt"),
    ("aten.rsqrt", "stablehlo.rsqrt"),
    ("aten.sigmoid", "stablehlo.logistic"),
    ("aten.sin", "stablehlo.sine"),
    ("aten.cos", "stablehlo.cosine"),
    ("aten.tan", "stablehlo.tan"),
    ("aten.asin", "chlo.asin"),
    ("aten.acos", "chlo.acos"),
    ("aten.atan", "chlo.atan"),
    ("aten.sinh", "chlo.sinh"),
    ("aten.cosh", "chlo.cosh"),
    ("aten.tanh", "stablehlo.tanh"),
    ("aten.asinh", "chlo.asinh"),
    ("aten.acosh", "chlo.acosh"),
    ("aten.atanh", "chlo.atanh"),
):
    _lowering(_operator)(functools.partial(_unary, _function))


def _binary(name: str, op: ir.Operation, x: Operand, y: Operand, alpha: float = 1) -> ir.Value:
    """`alpha` is the factor of `y` in sums and differences."""
    like = op.results[0]
    first, second = _as(x, like), _as(y, like)
    if alpha != 1:
        second = hlo.multiply(second, _as(alpha, like))
    return hlo.binary(name, first, second)


for _operator, _function in (
    ("add", "add"),
    ("sub", "subtract"),
    ("mul", "multiply"),
    ("div", "divide"),
):
    for _overload in ("Tensor", "Scalar"):
        _lowering(f"aten.{_operator}.{_overload}")(functools.partial(_binary, _function))


@_lowering("aten.mm", "aten.bmm")
def _product(op: ir.Operation, x: ir.Value, y: ir.Value) -> ir.Value:
    batch = range(len(hlo.shape(x)) - 2)
    return hlo.dot_general(x, y, ([len(batch) + 1], [len(batch)]), (batch, batch))


# --- Fourier transforms ---------------------------------------------------------------------------


def _transformed(x: ir.Value, dim: int, kind: str, length: int) -> ir.Value:
    """`stablehlo.fft` along `dim`; of `length` where the result is real."""
    rank = len(hlo.shape(x))
    order = [d for d in range(rank) if d != dim] + [dim]
    found = hlo.fft(hlo.transpose(x, order), kind, length)
    return hlo.transpose(found, [order.index(d) for d in range(rank)])


_NO_SCALE, _BY_ROOT = 0, 1


def _scaled(x: ir.Value, count: int, normalization: int, divided: int = 1) -> ir.Value:
    """`x` for a transform of `count` elements, having been divided by `divided`."""
    whole = 1 if normalization == _NO_SCALE else count
    factor = divided / (math.sqrt(whole) if normalization == _BY_ROOT else whole)
    return x if factor == 1 else hlo.multiply(x, _as(factor, x))


def _along(x: ir.Value, dims: Sequence[int]) -> list[int]:
    return [d % len(hlo.shape(x)) for d in dims]


@_lowering("aten._fft_c2c")
def _complex_to_complex(
    op: ir.Operation, x: ir.Value, dims: Sequence[int], normalization: int, forward: bool
) -> ir.Value:
    dims = _along(x, dims)
    sizes = [hlo.shape(x)[d] for d in dims]
    for dim, size in zip(dims, sizes, strict=True):
        x = _transformed(x, dim, "FFT" if forward else "IFFT", size)
    count = math.prod(sizes)
    return _scaled(x, count, normalization, 1 if forward else count)


@_lowering("aten._fft_r2c")
def _real_to_complex(
    op: ir.Operation, x: ir.Value, dims: Sequence[int], normalization: int, onesided: bool
) -> ir.Value:
    if not onesided:
        return _complex_to_complex(op, _as(x, op.results[0]), dims, normalization, True)
    *others, last = _along(x, dims)
    count = math.prod(hlo.shape(x)[d] for d in (*others, last))
    half = _transformed(x, last, "RFFT", hlo.shape(x)[last])
    whole = _complex_to_complex(op, half, others, _NO_SCALE, True)
    return _scaled(whole, count, normalization)


@_lowering("aten._fft_c2r")
def _complex_to_real(
    op: ir.Operation, x: ir.Value, dims: Sequence[int], normalization: int, size: int
) -> ir.Value:
    *others, last = _along(x, dims)
    count = math.prod(hlo.shape(x)[d] for d in others) * size
    x = _complex_to_complex(op, x, others, _NO_SCALE, False)
    return _scaled(_transformed(x, last, "IRFFT", size), count, normalization, size)


__all__ = ["FORMS", "is_supported"]
