"""Functions that check the values of their arguments, which an export does not know.

`torch.cov` and `torch.corrcoef` ask whether their weights are positive, and so are not exported.
Inside of `without_checks()` the same is computed without the questions.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

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


_FUNCTIONS: Mapping[object, Callable[..., torch.Tensor]] = {
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
