"""Functions that check the values of their arguments, which an export does not know.

`torch.cov` and `torch.corrcoef` ask whether their weights are positive, `torch.linalg.lstsq` what
rank a matrix has, a loss whether variances are negative, and so are not exported. Inside of
`without_checks()` the same is computed without the questions.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch.overrides import TorchFunctionMode


def _cov(
    x: torch.Tensor,
    *,
    correction: int = 1,
    fweights: torch.Tensor | None = None,
    aweights: torch.Tensor | None = None,
) -> torch.Tensor:
    """Of the rows of `x`; there is no covariance where no more is known than `correction`."""
    x = x.reshape(1, -1) if x.dim() < 2 else x
    if not (x.dtype.is_floating_point or x.dtype.is_complex):
        x = x.to(torch.get_default_dtype())
    given = [weights for weights in (fweights, aweights) if weights is not None]
    if not given:
        centred = x - x.mean(1, keepdim=True)
        degrees = torch.full((), max(x.shape[1] - correction, 0), dtype=x.real.dtype)
        return ((centred @ centred.mH) / degrees).squeeze()
    weights = torch.ones(x.shape[1], dtype=x.real.dtype)
    for some in given:
        weights = weights * some
    total = weights.sum()
    degrees = total - correction
    if aweights is not None and correction:
        degrees = total - correction * (weights * aweights).sum() / total
    centred = x - ((x * weights).sum(1) / total).unsqueeze(1)
    return ((centred * weights) @ centred.mH / degrees.clamp(min=0)).squeeze()


def _corrcoef(x: torch.Tensor) -> torch.Tensor:
    covariances = _cov(x)
    if not covariances.dim():
        return covariances / covariances
    deviations = covariances.diagonal().real.sqrt()
    found = covariances / deviations.unsqueeze(0) / deviations.unsqueeze(1)
    return found if found.dtype.is_complex else found.clamp(-1, 1)


def _lstsq(
    a: torch.Tensor,
    b: torch.Tensor,
    rcond: float | None = None,
    *,
    driver: str | None = None,
) -> object:
    """The solution of least norm, of singular values above `rcond` times the largest. How many
    those are decides for "gelsd" and "gelss" whether residuals are returned."""
    if driver not in (None, "gelsy", "gels"):
        return torch.linalg.lstsq(a, b, rcond, driver=driver)
    sides = b.unsqueeze(-1) if b.dim() == 1 or b.shape == a.shape[:-1] else b
    if rcond is None:
        rcond = max(a.shape[-2:]) * torch.finfo(a.dtype).eps
    left, values, right = torch.linalg.svd(a, full_matrices=False)
    counted = values > rcond * values[..., :1]
    if driver == "gels":  # every matrix is taken to be of full rank
        counted = torch.ones_like(counted)
    inverse = torch.where(counted, 1 / values, 0).unsqueeze(-1)
    solution = right.mH @ (inverse * (left.mH @ sides))
    none = values.new_zeros(0)
    if driver == "gels":
        more_rows = a.shape[-2] > a.shape[-1]
        residuals = (sides - a @ solution).abs().square().sum(-2) if more_rows else none
        rank = none.to(torch.int64)
    else:
        residuals, rank = none, counted.sum(-1)
    found = solution if sides is b else solution.squeeze(-1)
    results = (found, residuals, rank, none)
    return torch.return_types.linalg_lstsq(results)  # pyright: ignore[reportAttributeAccessIssue]


def _gaussian_nll_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    var: torch.Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> torch.Tensor:
    """Variances may be one for each element, or one for all of the last dimension."""
    if not isinstance(var, torch.Tensor):
        var = torch.full_like(input, var)
    if var.shape == input.shape[:-1] and var.shape != input.shape:
        var = var.unsqueeze(-1)
    var = var.clamp(min=eps)
    loss = 0.5 * (var.log() + (input - target).square() / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


_FUNCTIONS: Mapping[object, Callable[..., object]] = {
    torch.linalg.lstsq: _lstsq,
    torch.nn.functional.gaussian_nll_loss: _gaussian_nll_loss,
    torch.cov: _cov,
    torch.Tensor.cov: _cov,
    torch.corrcoef: _corrcoef,
    torch.Tensor.corrcoef: _corrcoef,
}


class _WithoutChecks(TorchFunctionMode):
    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple = (),
        kwargs: dict | None = None,
    ) -> object:
        return _FUNCTIONS.get(func, func)(*args, **(kwargs or {}))


def without_checks() -> TorchFunctionMode:
    """A context in which these functions do not look at values."""
    return _WithoutChecks()
