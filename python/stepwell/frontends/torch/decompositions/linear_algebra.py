"""Linear algebra that comes down to factorisations and triangular solves.

PyTorch ends with an error where a matrix has no factorisation; a compiled module gives NaN there.
Under `torch.compile` PyTorch's check stays in the graph, and runs in PyTorch.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import functools
import math

import torch

from stepwell.frontends.torch.decompositions.registry import by_kernel, itself, mend

aten = torch.ops.aten


def _unless_failed(x: torch.Tensor, info: torch.Tensor) -> torch.Tensor:
    failed = (info != 0).reshape([*info.shape, *[1] * (x.dim() - info.dim())])
    return torch.where(failed, torch.full((), torch.nan, dtype=x.dtype), x)


@mend(aten.linalg_cholesky.default)
def _linalg_cholesky(x: torch.Tensor, *, upper: bool = False) -> torch.Tensor:
    return _unless_failed(*aten.linalg_cholesky_ex(x, upper=upper))


@mend(aten.cholesky.default)
def _cholesky(x: torch.Tensor, upper: bool = False) -> torch.Tensor:
    return _unless_failed(*aten.linalg_cholesky_ex(x, upper=upper))


@mend(aten.linalg_inv.default, aten.inverse.default)
def _inverse(x: torch.Tensor) -> torch.Tensor:
    return _unless_failed(*aten.linalg_inv_ex(x))


@mend(aten.linalg_solve.default)
def _solve(a: torch.Tensor, b: torch.Tensor, *, left: bool = True) -> torch.Tensor:
    found, _, _, info = aten._linalg_solve_ex(a, b, left=left)
    return _unless_failed(found, info)


@mend(aten.linalg_inv_ex.default)
def _inverse_and_info(x: torch.Tensor, *, check_errors: bool = False) -> object:
    if x.numel():
        return NotImplemented
    return x.clone(), torch.zeros(x.shape[:-2], dtype=torch.int32)


@mend(aten.linalg_tensorinv.default)
def _tensor_inverse(x: torch.Tensor, ind: int = 2) -> torch.Tensor:
    rows = math.prod(x.shape[:ind])
    found = _unless_failed(*aten.linalg_inv_ex(x.reshape(rows, -1)))
    return found.reshape([*x.shape[ind:], *x.shape[:ind]])


@mend(aten._linalg_solve_ex.default)
def _solve_and_info(
    a: torch.Tensor, b: torch.Tensor, *, left: bool = True, check_errors: bool = False
) -> object:
    if a.numel():
        return NotImplemented
    batch = a.shape[:-2]
    pivots = torch.zeros([*batch, a.shape[-1]], dtype=torch.int32)
    return b.clone(), a.clone(), pivots, torch.zeros(batch, dtype=torch.int32)


@mend(aten.linalg_lu_factor.default)
def _lu_factor(x: torch.Tensor, *, pivot: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    factors, pivots, _ = aten.linalg_lu_factor_ex(x, pivot=pivot)
    return factors, pivots


def _of_determinant(overload: torch._ops.OpOverload, x: torch.Tensor) -> object:
    """PyTorch factors the transpose of real matrices that lie row by row, and its gradient reads
    the factors so."""
    if x.dtype.is_complex or not x.is_contiguous():
        return NotImplemented
    return itself(overload, x.mT)


for _overload in (aten._linalg_det.default, aten._linalg_slogdet.default):
    mend(_overload)(functools.partial(_of_determinant, _overload))


@mend(aten.triangular_solve.default)
def _triangular_solve(
    b: torch.Tensor,
    a: torch.Tensor,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """With the matrix as well, as broadcast for the sides."""
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    whole = a.expand(*batch, *a.shape[-2:])
    turned = a.mT if transpose else a
    found = torch.linalg.solve_triangular(
        turned, b, upper=upper != transpose, unitriangular=unitriangular
    )
    return found, whole.clone()


@mend(aten.cholesky_solve.default)
def _cholesky_solve(b: torch.Tensor, factor: torch.Tensor, upper: bool = False) -> torch.Tensor:
    lower = factor.mH if upper else factor
    half = torch.linalg.solve_triangular(lower, b, upper=False)
    return torch.linalg.solve_triangular(lower.mH, half, upper=True)


@mend(aten.cholesky_inverse.default)
def _cholesky_inverse(factor: torch.Tensor, upper: bool = False) -> torch.Tensor:
    identity = torch.eye(factor.shape[-1], dtype=factor.dtype).expand(factor.shape)
    return _cholesky_solve(identity, factor, upper)  # pyright: ignore[reportReturnType]


@mend(aten.linalg_pinv.atol_rtol_tensor)
def _pinv(
    x: torch.Tensor,
    *,
    atol: torch.Tensor | None = None,
    rtol: torch.Tensor | None = None,
    hermitian: bool = False,
) -> object:
    """Singular values below the tolerances count as zero."""
    if not x.numel():
        return x.new_zeros([*x.shape[:-2], x.shape[-1], x.shape[-2]])
    if hermitian:
        values, vectors = torch.linalg.eigh(x)
        left, s, right = vectors, values, vectors.mH
        sizes = values.abs()
    else:
        left, s, right = torch.linalg.svd(x, full_matrices=False)
        sizes = s
    largest = sizes.amax(-1, keepdim=True)
    if rtol is None:
        factor = max(x.shape[-2:]) * torch.finfo(x.dtype).eps if atol is None else 0.0
        least = largest * factor
    else:
        least = largest * rtol.to(s.dtype).unsqueeze(-1)
    if atol is not None:
        least = torch.maximum(least, atol.to(s.dtype).unsqueeze(-1))
    inverse = torch.where(sizes > least, 1 / s, 0)
    return (right.mH * inverse.unsqueeze(-2)) @ left.mH


@mend(aten._linalg_svd.default)
def _svd(
    x: torch.Tensor,
    full_matrices: bool = False,
    compute_uv: bool = True,
    *,
    driver: str | None = None,
) -> object:
    """Matrices without elements have no singular values, and any vectors: PyTorch's are those of
    identities."""
    if x.numel() or not compute_uv:
        return NotImplemented
    *batch, m, n = x.shape
    least = min(m, n)
    left, right = (m, n) if full_matrices else (least, least)
    u, v = (torch.eye(*sizes, dtype=x.dtype) for sizes in ((m, left), (right, n)))
    values = torch.zeros([*batch, least], dtype=x.real.dtype)
    return u.expand(*batch, m, left).clone(), values, v.expand(*batch, right, n).clone()


for _overload in (aten.linalg_norm.default, aten.linalg_norm.ord_str):
    mend(_overload)(functools.partial(by_kernel, _overload))

_TERMS = 18
_SMALL = {torch.float32: 3.01, torch.float64: 1.09}
"""The 1-norm up to which so many terms of exp's series are enough: P. Bader, S. Blanes and F.
Casas, Computing the matrix exponential with an optimized Taylor polynomial approximation, 2019."""
_MOST_SQUARINGS = 16


@mend(aten.linalg_matrix_exp.default)
def _matrix_exp(x: torch.Tensor) -> object:
    """Of a matrix scaled by a power of two, squared as often; matrices that need more than 2^16
    give NaN. Half precision is rounded once."""
    if x.dtype in (torch.float16, torch.bfloat16):
        return torch.linalg.matrix_exp(x.float()).to(x.dtype)
    if (dtype := x.real.dtype) not in _SMALL:
        return NotImplemented
    norm = x.abs().sum(-2).amax(-1)
    count = (norm / _SMALL[dtype]).clamp(min=1.0).log2().ceil()[..., None, None]
    scaled = x * torch.exp2(-count)
    powers = [torch.eye(x.shape[-1], dtype=x.dtype).expand(x.shape), scaled]
    block = 6
    while len(powers) <= block:
        powers.append(powers[-1] @ scaled)
    coefficients, term = [], 1.0
    for number in range(_TERMS + 1):
        coefficients.append(term)
        term /= number + 1
    total = powers[0] * coefficients[_TERMS]
    for start in range(_TERMS - block, -1, -block):
        total = total @ powers[block]
        for number in range(block):
            total = total + powers[number] * coefficients[start + number]
    for number in range(_MOST_SQUARINGS):
        total = torch.where(count > number, total @ total, total)
    return torch.where(count > _MOST_SQUARINGS, torch.nan, total)
