"""The operators of `quantized_decomposed`, which PyTorch's quantisers of exported programs (PT2E)
write.

Bounds of what is already quantised, and its type, say nothing that the tensor does not: functions
here take them because the operators do. Scales are inverted first, as PyTorch's kernels have it.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import torch

from stepwell.frontends.torch.decompositions.registry import Decomposition

Number = torch.Tensor | float
"""One number, which may be a tensor of one element."""


def _as_number(number: Number, dtype: torch.dtype) -> Number:
    return number.reshape([]).to(dtype) if isinstance(number, torch.Tensor) else number


def _quantize(
    x: torch.Tensor, scale: Number, zero: Number, low: Number, high: Number, dtype: torch.dtype
) -> torch.Tensor:
    """One scale, which is inverted in f64."""
    x = x.to(torch.float32)
    inverse, low, high = (_as_number(n, x.dtype) for n in (1.0 / scale, low, high))
    whole = (x * inverse).round() + _as_number(zero, x.dtype)
    return torch.clamp(whole, low, high).to(dtype)  # pyright: ignore[reportArgumentType, reportCallIssue]


def _dequantize(
    x: torch.Tensor,
    scale: Number,
    zero: Number,
    low: Number,
    high: Number,
    dtype: torch.dtype,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    to = out_dtype or torch.float32
    return (x.to(to) - _as_number(zero, to)) * _as_number(scale, to)


def _along(parameter: torch.Tensor, axis: int, rank: int) -> torch.Tensor:
    """A number for each index of dimension `axis` of a tensor of `rank`, as that is read."""
    return parameter.reshape([-1 if d == axis % rank else 1 for d in range(rank)])


def _quantize_channels(
    x: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor,
    axis: int,
    low: int,
    high: int,
    dtype: torch.dtype,
) -> torch.Tensor:
    x = x.to(torch.float32)
    inverse = (1.0 / _along(scales, axis, x.dim())).to(x.dtype)
    whole = (x * inverse).round() + _along(zeros, axis, x.dim()).to(x.dtype)
    return whole.clamp(low, high).to(dtype)


def _dequantize_channels(
    x: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor | None,
    axis: int,
    low: int,
    high: int,
    dtype: torch.dtype,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    to = out_dtype or torch.float32
    numbers = x.to(to)
    if zeros is not None:
        numbers = numbers - _along(zeros, axis, x.dim()).to(to)
    return numbers * _along(scales, axis, x.dim()).to(to)


def _fake_quantize_channels(
    x: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor, axis: int, low: int, high: int
) -> torch.Tensor:
    scales, zeros = (_along(n, axis, x.dim()).to(x.dtype) for n in (scales, zeros))
    whole = (x * (1.0 / scales)).round() + zeros
    return (whole.clamp(low, high) - zeros) * scales


def _quantize_rows(
    x: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor,
    low: int,
    high: int,
    dtype: torch.dtype,
) -> torch.Tensor:
    """A scale for each row along the last dimension. PyTorch's kernel computes in f64 where scales
    are of it, this in f32."""
    x = x.to(torch.float32)
    whole = x * (1.0 / scales).to(x.dtype) + zeros.to(x.dtype)
    return whole.round().clamp(low, high).to(dtype)


def _dequantize_rows(
    x: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor,
    low: int,
    high: int,
    dtype: torch.dtype,
    output_dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    numbers = x.to(torch.float32) - zeros.to(torch.float32)
    return (numbers * scales.to(torch.float32)).to(output_dtype)


def _in_groups(
    x: torch.Tensor, parameters: tuple[torch.Tensor | None, ...], size: int
) -> list[torch.Tensor]:
    """`x` [M, N] as [M, groups, elements], and the parameters of its groups likewise."""
    size = min(size, x.shape[-1])
    grouped = x.reshape(x.shape[0], -1, size)
    given = [p for p in parameters if p is not None]
    return [grouped, *(p.reshape(*grouped.shape[:2], 1).to(torch.float32) for p in given)]


def _quantize_groups(
    x: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor,
    low: int,
    high: int,
    dtype: torch.dtype,
    group_size: int = 128,
) -> torch.Tensor:
    grouped, scale, zero = _in_groups(x, (scales, zeros), group_size)
    whole = (grouped * (1.0 / scale) + zero).round()
    return whole.clamp(low, high).to(dtype).reshape(x.shape)


def _dequantize_groups(
    x: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor | None,
    low: int,
    high: int,
    dtype: torch.dtype,
    group_size: int = 128,
    output_dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    grouped, scale, *zero = _in_groups(x, (scales, zeros), group_size)
    numbers = grouped.to(torch.float32)
    return ((numbers - zero[0] if zero else numbers) * scale).reshape(x.shape).to(output_dtype)


def _range(x: torch.Tensor, dims: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """The least and the largest along `dims`, kept with size 1, and zero."""
    low, high = x.amin(dims, keepdim=True), x.amax(dims, keepdim=True)
    return low.clamp(max=0.0), high.clamp(min=0.0)


def _choose(
    x: torch.Tensor, low: int, high: int, eps: float, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale and zero point of the range of x, one element each."""
    least, largest = (v.reshape([1]) for v in _range(x, list(range(x.dim()))))
    scale = ((largest - least) / float(high - low)).to(torch.float32).clamp(min=eps)
    zero = (low - (least / scale).round()).clamp(low, high)
    return scale.to(torch.float64), zero.to(torch.int64)


def _choose_symmetric(
    x: torch.Tensor, low: int, high: int, eps: float, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """A scale for numbers of either sign, whose zero is the middle of the bytes."""
    largest = x.abs().amax().reshape([1])
    scale = (largest / ((high - low) / 2)).to(torch.float32).clamp(min=eps)
    zero = 128 if dtype == torch.uint8 else 0
    return scale.to(torch.float64), torch.full([1], zero, dtype=torch.int64)


def _choose_rows_symmetric(
    x: torch.Tensor, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    largest = x.abs().amax(-1, keepdim=True)
    if largest.dtype == torch.float16:
        largest = largest.to(torch.float32)
    scales = largest.clamp(min=1e-5) / 127
    return scales, torch.zeros_like(scales)


def _choose_rows(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """For signed bytes. The zero point is off by less at the end of the range that is chosen."""
    low, high = -128, 127
    least, largest = _range(x, [-1])
    scale = ((largest - least) / float(high - low)).clamp(min=torch.finfo(torch.float32).eps)
    below, above = low - least / scale, high - largest / scale
    error = (low + least / scale) + (high + largest / scale)
    zero = torch.where(error > 0, below, above).clamp(low, high).round()
    return scale.to(torch.float64), zero.to(torch.int64)


_FUNCTIONS: dict[str, Decomposition] = {
    "quantize_per_tensor.default": _quantize,
    "quantize_per_tensor.tensor": _quantize,
    "quantize_per_tensor.tensor2": _quantize,
    "dequantize_per_tensor.default": _dequantize,
    "dequantize_per_tensor.tensor": _dequantize,
    "dequantize_per_tensor.tensor2": _dequantize,
    "quantize_per_channel.default": _quantize_channels,
    "dequantize_per_channel.default": _dequantize_channels,
    "quantize_per_token.default": _quantize_rows,
    "dequantize_per_token.default": _dequantize_rows,
    "quantize_per_channel_group.default": _quantize_groups,
    "dequantize_per_channel_group.default": _dequantize_groups,
    "choose_qparams.tensor": _choose,
    "choose_qparams_symmetric.tensor": _choose_symmetric,
    "choose_qparams_per_token.default": _choose_rows_symmetric,
    "choose_qparams_per_token_asymmetric.default": _choose_rows,
    "_choose_qparams_per_token_asymmetric_impl.default": _choose_rows,
    "fake_quant_per_channel.default": _fake_quantize_channels,
    "convert_element_type.no_fuse": torch.Tensor.to,
}


def of_quantizer() -> dict[torch._ops.OperatorBase, Decomposition]:
    """The operators that PyTorch's quantiser, when it is imported, adds."""
    found = {}
    for key, function in _FUNCTIONS.items():
        name, overload = key.split(".")
        operator = getattr(torch.ops.quantized_decomposed, name, None)
        if operator is not None and overload in operator.overloads():
            found[getattr(operator, overload)] = function
    return found
