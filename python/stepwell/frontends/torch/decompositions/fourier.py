"""Fourier transforms: PyTorch itself breaks them down into those of one kind each."""

# pyright: reportMissingImports=false
from __future__ import annotations

import functools

import torch

from stepwell.frontends.torch.decompositions.registry import by_kernel, mend

aten = torch.ops.aten


for _overload in (
    aten.fft_fft.default,
    aten.fft_fft2.default,
    aten.fft_fftn.default,
    aten.fft_fftshift.default,
    aten.fft_hfft.default,
    aten.fft_hfft2.default,
    aten.fft_hfftn.default,
    aten.fft_ifft.default,
    aten.fft_ifft2.default,
    aten.fft_ifftn.default,
    aten.fft_ifftshift.default,
    aten.fft_ihfft.default,
    aten.fft_ihfft2.default,
    aten.fft_ihfftn.default,
    aten.fft_irfft.default,
    aten.fft_irfft2.default,
    aten.fft_irfftn.default,
    aten.fft_rfft.default,
    aten.fft_rfft2.default,
    aten.fft_rfftn.default,
    aten.stft.center,
    aten.stft.default,
):
    mend(_overload)(functools.partial(by_kernel, _overload))


@mend(aten.istft.default)
def _istft(
    x: torch.Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: torch.Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> object:
    """Frames added up where they overlap, and divided by the sum of their windows' squares, which
    PyTorch asks to be nowhere zero."""
    if return_complex:
        return NotImplemented
    hop = n_fft // 4 if hop_length is None else hop_length
    norm = "ortho" if normalized else "backward"
    frames = x.mT if onesided is not False else x.mT[..., : n_fft // 2 + 1]
    frames = torch.fft.irfft(frames, n_fft, norm=norm)
    width = n_fft if win_length is None else win_length
    inner = torch.ones(width, dtype=frames.dtype) if window is None else window
    before = (n_fft - width) // 2
    whole = aten.constant_pad_nd(inner, [before, n_fft - width - before], 0.0)
    count = frames.shape[-2]
    size = n_fft + hop * (count - 1)

    def added(parts: torch.Tensor) -> torch.Tensor:
        columns = parts.reshape(-1, count, n_fft).mT
        whole = torch.nn.functional.fold(columns, (1, size), (1, n_fft), stride=(1, hop))
        return whole.reshape(*parts.shape[:-2], size)

    signal = added(frames * whole)
    weight = added((whole * whole).expand(count, n_fft))
    begin = n_fft // 2 if center else 0
    end = size - begin if length is None else min(begin + length, size)
    found = (signal / weight)[..., begin:end]
    missing = 0 if length is None else length - found.shape[-1]
    return aten.constant_pad_nd(found, [0, missing], 0.0) if missing > 0 else found
