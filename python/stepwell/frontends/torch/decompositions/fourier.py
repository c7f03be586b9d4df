"""Fourier transforms, which PyTorch itself breaks down into those of one kind each."""

# pyright: reportMissingImports=false
from __future__ import annotations

import functools

import torch

from stepwell.frontends.torch.decompositions.registry import mend

aten = torch.ops.aten


def _broken_down(overload: torch._ops.OpOverload, *arguments: object, **keywords: object) -> object:
    """By PyTorch's own kernel; `overload.decompose` would come back here."""
    kernel = torch._C.DispatchKey.CompositeImplicitAutograd
    return overload._op_dk(kernel, *arguments, **keywords)


for _overload in (
    aten.fft_fft.default,
    aten.fft_fft2.default,
    aten.fft_fftn.default,
    aten.fft_fftshift.default,
    aten.fft_hfft.default,
    aten.fft_ifft.default,
    aten.fft_ifft2.default,
    aten.fft_ifftn.default,
    aten.fft_ifftshift.default,
    aten.fft_ihfft.default,
    aten.fft_irfft.default,
    aten.fft_irfft2.default,
    aten.fft_irfftn.default,
    aten.fft_rfft.default,
    aten.fft_rfft2.default,
    aten.fft_rfftn.default,
    aten.stft.center,
    aten.stft.default,
):
    mend(_overload)(functools.partial(_broken_down, _overload))
