"""Operators on complex numbers that come down to those on their parts, and complex literals.

index_select(z, 0, i)  ->  complex(index_select(real(z), 0, i), index_select(imag(z), 0, i))
z * (2 + 1j)           ->  z * complex(2, 1)
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from stepwell.frontends.torch.decompositions.registry import mend

aten = torch.ops.aten

Number = int | float | complex


def is_complex(value: object) -> bool:
    """Whether it is a tensor of complex numbers."""
    return isinstance(value, torch.Tensor) and value.dtype.is_complex


REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}
"""The type of the parts."""


def _part(value: object, name: str) -> object:
    """The part `real` or `imag` of a tensor, of the tensors in a list, or of a number."""
    if isinstance(value, (list, tuple)):
        return [_part(element, name) for element in value]
    if is_complex(value):
        return getattr(value, name)
    if isinstance(value, torch.Tensor) and value.dtype.is_floating_point and name == "imag":
        return torch.zeros_like(value)
    return value


def _by_parts(
    overload: torch._ops.OpOverload, places: Sequence[int], *arguments: object, **keywords: object
) -> object:
    """The operator on the real and on the imaginary parts of what stands at `places`, after the
    first was converted to the type that is asked for."""
    if isinstance(dtype := keywords.get("dtype"), torch.dtype):
        if not (is_complex(arguments[0]) or dtype.is_complex):
            return NotImplemented
        number = arguments[0].to(dtype)  # pyright: ignore[reportAttributeAccessIssue]
        return overload(number, *arguments[1:], **{**keywords, "dtype": None})
    given = [argument for n, argument in enumerate(arguments) if n in places]
    if not any(map(is_complex, given)):
        return NotImplemented
    real, imaginary = (
        overload(
            *(
                (getattr(complex(a), name) if isinstance(a, Number) else _part(a, name))
                if number in places
                else a
                for number, a in enumerate(arguments)
            ),
            **keywords,
        )
        for name in ("real", "imag")
    )
    return torch.complex(*_alike(real, imaginary))


def _alike(real: torch.Tensor, imaginary: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    dtype = torch.promote_types(real.dtype, imaginary.dtype)
    return real.to(dtype), imaginary.to(dtype)


for _overload, _places in (
    (aten.sum.default, (0,)),
    (aten.sum.dim_IntList, (0,)),
    (aten.mean.default, (0,)),
    (aten.mean.dim, (0,)),
    (aten.cumsum.default, (0,)),
    (aten.index.Tensor, (0,)),
    (aten._unsafe_index.Tensor, (0,)),
    (aten.index_select.default, (0,)),
    (aten.gather.default, (0,)),
    (aten.masked_scatter.default, (0, 2)),
    (aten.flip.default, (0,)),
    (aten.tril.default, (0,)),
    (aten.triu.default, (0,)),
    (aten.diagonal.default, (0,)),
    (aten.repeat.default, (0,)),
    (aten.copy.default, (0, 1)),
    (aten.where.self, (1, 2)),
    (aten.index_put.default, (0, 2)),
    (aten._unsafe_index_put.default, (0, 2)),
    (aten.index_add.default, (0, 3)),
    (aten.scatter.src, (0, 3)),
    (aten.scatter_add.default, (0, 3)),
    (aten.slice_scatter.default, (0, 1)),
    (aten.select_scatter.default, (0, 1)),
    (aten.masked_fill.Scalar, (0, 2)),
    (aten.masked_fill.Tensor, (0, 2)),
    (aten.constant_pad_nd.default, (0, 2)),
):
    mend(_overload)(functools.partial(_by_parts, _overload, _places))


# --- Numbers --------------------------------------------------------------------------------------


def _full(size: Sequence[int], number: Number, dtype: torch.dtype) -> torch.Tensor:
    part, number = REAL[dtype], complex(number)
    return torch.complex(
        torch.full(size, number.real, dtype=part), torch.full(size, number.imag, dtype=part)
    )


@mend(aten.full.default)
def _full_default(size: Sequence[int], number: Number, **how: object) -> object:
    dtype = how.get("dtype")
    if dtype is None and isinstance(number, complex):
        dtype = torch.complex64 if torch.get_default_dtype() == torch.float32 else torch.complex128
    if not isinstance(dtype, torch.dtype) or not dtype.is_complex:
        return NotImplemented
    return _full(size, number, dtype)


@mend(aten.full_like.default)
def _full_like(x: torch.Tensor, number: Number, **how: object) -> object:
    dtype = how.get("dtype") or x.dtype
    if not isinstance(dtype, torch.dtype) or not (dtype.is_complex or x.dtype.is_complex):
        return NotImplemented
    if not dtype.is_complex:
        return torch.full(x.shape, number, dtype=dtype)
    return _full(x.shape, number, dtype)


@mend(aten.scalar_tensor.default)
def _scalar_tensor(number: Number, **how: object) -> object:
    return _full_default([], number, **how)


@mend(aten.eye.default, aten.eye.m)
def _eye(rows: int, columns: int | None = None, **how: object) -> object:
    dtype = how.get("dtype")
    if not isinstance(dtype, torch.dtype) or dtype not in REAL:
        return NotImplemented
    ones = torch.eye(rows, rows if columns is None else columns, dtype=REAL[dtype])
    return torch.complex(ones, torch.zeros_like(ones))


def _with_tensors(
    overload: torch._ops.OpOverload, *arguments: object, **keywords: object
) -> object:
    """The operator with tensors in the place of numbers that are complex."""
    if not any(isinstance(argument, complex) for argument in arguments):
        return NotImplemented
    kinds = [a.dtype for a in arguments if isinstance(a, torch.Tensor)]
    dtype = functools.reduce(torch.promote_types, kinds, torch.complex32)
    if dtype == torch.complex32:
        dtype = torch.complex64
    return overload(
        *(_full([], a, dtype) if isinstance(a, complex) else a for a in arguments), **keywords
    )


for _packet in (aten.add, aten.sub, aten.mul, aten.div):
    for _overload in (_packet.Tensor, _packet.Scalar):
        mend(_overload)(functools.partial(_with_tensors, _packet.Tensor))


@mend(aten._conj.default)
def _conjugate(x: torch.Tensor | Number) -> object:
    """Gradients have literals as they are, and look at the parts of what is only marked."""
    if isinstance(x, torch.Tensor):
        return aten._conj_physical(x)
    return _full([], complex(x).conjugate(), torch.complex64)


@mend(aten.rsub.Scalar)
def _rsub(x: torch.Tensor, number: Number, alpha: Number = 1) -> object:
    if not (is_complex(x) or isinstance(number, complex)):
        return NotImplemented
    kind = x.dtype if is_complex(x) else torch.promote_types(x.dtype, torch.complex64)
    return _full([], number, kind) - x * alpha


# --- Functions ------------------------------------------------------------------------------------


@mend(aten.pow.Tensor_Scalar)
def _power(x: torch.Tensor, exponent: Number) -> object:
    """Whole powers by multiplication."""
    if not is_complex(x):
        return NotImplemented
    if isinstance(exponent, complex) or exponent != int(exponent) or abs(exponent) > 64:
        return _general_power(x, torch.full((), exponent, dtype=x.dtype))
    left, square = abs(int(exponent)), x
    found = torch.full_like(x, 1)
    while left:
        if left % 2:
            found = found * square
        left //= 2
        if left:
            square = square * square
    return 1 / found if exponent < 0 else found


@mend(aten.pow.Tensor_Tensor)
def _power_of_tensors(x: torch.Tensor, y: torch.Tensor) -> object:
    if not (is_complex(x) or is_complex(y)):
        return NotImplemented
    dtype = torch.promote_types(x.dtype, y.dtype)
    return _general_power(x.to(dtype), y.to(dtype))


def _general_power(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """exp(y log x); no power of zero but that with zero is another number."""
    is_zero, by_zero = (x.real == 0) & (x.imag == 0), (y.real == 0) & (y.imag == 0)
    found = torch.exp(y * torch.log(x))
    return torch.where(by_zero, 1, torch.where(is_zero, 0, found))


@mend(aten.reciprocal.default)
def _reciprocal(x: torch.Tensor) -> object:
    return torch.ones((), dtype=x.real.dtype) / x if is_complex(x) else NotImplemented


@mend(aten.square.default)
def _square(x: torch.Tensor) -> object:
    return x * x if is_complex(x) else NotImplemented


@mend(aten.sgn.default)
def _sgn(x: torch.Tensor) -> object:
    if not is_complex(x):
        return NotImplemented
    length = x.abs()
    return x / torch.where(length == 0, 1, length)


@mend(aten.eq.Tensor)
def _equal(x: torch.Tensor, y: torch.Tensor) -> object:
    if not (is_complex(x) or is_complex(y)):
        return NotImplemented
    x, y = x + torch.zeros_like(y), y + torch.zeros_like(x)
    return (x.real == y.real) & (x.imag == y.imag)


@mend(aten.mv.default)
def _mv(matrix: torch.Tensor, vector: torch.Tensor) -> object:
    return (matrix @ vector.unsqueeze(1)).squeeze(1) if is_complex(matrix) else NotImplemented


@mend(aten.dot.default)
def _dot(x: torch.Tensor, y: torch.Tensor) -> object:
    return (x * y).sum() if is_complex(x) else NotImplemented


@mend(aten.vdot.default)
def _vdot(x: torch.Tensor, y: torch.Tensor) -> object:
    return (x.conj() * y).sum() if is_complex(x) else NotImplemented


@mend(aten.addmm.default)
def _addmm(
    x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: Number = 1, alpha: Number = 1
) -> object:
    return x * beta + (a @ b) * alpha if is_complex(a) else NotImplemented
