"""Fourier transforms and what goes with them: DFT, STFT, MelWeightMatrix and windows.

Complex numbers are a last dimension of two, as in ONNX.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import operator
from stepwell.frontends.onnx.shaping import along, normalize_axis
from stepwell.mlir import ir


@operator("DFT", since=17)
def dft_by_attribute(node: Node, x: Tensor, dft_length: Tensor | None = None) -> ir.Value:
    return _dft(node, x, dft_length, node.integer("axis", 1))


@operator("DFT", since=20)
def dft(
    node: Node, x: Tensor, dft_length: Tensor | None = None, axis: Tensor | None = None
) -> ir.Value:
    return _dft(node, x, dft_length, -2 if axis is None else int(node.known_number(axis, "axis")))


def _dft(node: Node, x: Tensor, dft_length: Tensor | None, axis: int) -> ir.Value:
    """One axis is transformed after it was cropped or filled with zeros to `dft_length`."""
    axis = normalize_axis(axis, x.rank)
    if x.rank < 2 or axis == x.rank - 1 or x.shape[-1] not in (1, 2):
        node.unsupported(
            f"the shape {list(x.shape)} and the axis {axis}: the last dimension has to hold real "
            "or complex numbers, and another is transformed"
        )
    inverse, onesided = (bool(node.integer(name, 0)) for name in ("inverse", "onesided"))
    length = 2 * (x.shape[axis] - 1) if inverse and onesided else x.shape[axis]
    if dft_length is not None:
        length = int(node.known_number(dft_length, "dft_length"))
    if length < 1:
        node.unsupported(f"a transform of length {length} is not defined")
    others = [d for d in range(x.rank - 1) if d != axis]
    order = [*others, axis, x.rank - 1]
    value = hlo.transpose(hlo.convert(x.value, _wide(x.dtype)), order)
    result = _transformed(value, length, inverse=inverse, onesided=onesided)
    back = [order.index(d) for d in range(x.rank)]
    return hlo.convert(hlo.transpose(result, back), x.dtype)


@operator("STFT")
def stft(
    node: Node,
    signal: Tensor,
    frame_step: Tensor,
    window: Tensor | None = None,
    frame_length: Tensor | None = None,
) -> ir.Value:
    """Transforms of windowed frames: [batch, time, 1 or 2] to [batch, frames, bins, 2]."""
    step = int(node.known_number(frame_step, "frame_step"))
    if frame_length is not None:
        length = int(node.known_number(frame_length, "frame_length"))
    else:
        length = signal.shape[1] if window is None else window.size
    if signal.rank != 3 or step < 1 or (window is not None and window.shape != (length,)):
        node.unsupported(
            f"a signal {list(signal.shape)} in frames of {length} by steps of {step}, with a "
            f"window of {'none' if window is None else window.size} elements, is not supported"
        )
    batch, time, parts = signal.shape
    wide = _wide(signal.dtype)
    starts = np.arange(0, time - length + 1, step, dtype=np.int64)
    dimensions = hlo.GatherDimensions([0, 2, 3], [], [1], 1)
    frames = hlo.gather(
        hlo.convert(signal.value, wide),
        node.constant(starts[:, None], "starts"),
        dimensions,
        [batch, length, parts],
    )
    if window is not None:
        factors = hlo.convert(window.value, wide)
        frames = hlo.multiply(frames, along(factors, 2, hlo.shape(frames)))
    onesided = bool(node.integer("onesided", 1))
    result = _transformed(frames, length, inverse=False, onesided=onesided)
    return hlo.convert(result, signal.dtype)


def _transformed(x: ir.Value, length: int, *, inverse: bool, onesided: bool) -> ir.Value:
    """The DFT of x [..., n, 1 or 2]: [..., bins, 2], or [..., length, 1], real, from half a
    spectrum. x is cropped or filled with zeros to what the transform takes."""
    from_half = inverse and onesided
    x = _resized(x, length // 2 + 1 if from_half else length)
    parts = _parts(x)
    if len(parts) == 1 and not inverse:
        half = _side_by_side(hlo.fft(parts[0], "RFFT", length))
        return half if onesided else _with_mirrored(half, length)
    imaginary = parts[1] if len(parts) == 2 else hlo.full_like(parts[0], 0)
    both = hlo.binary("complex", parts[0], imaginary)
    if from_half:
        real = hlo.fft(both, "IRFFT", length)
        return hlo.reshape(real, [*hlo.shape(real), 1])
    result = _side_by_side(hlo.fft(both, "IFFT" if inverse else "FFT", length))
    return _resized(result, length // 2 + 1) if onesided else result


def _with_mirrored(half: ir.Value, length: int) -> ir.Value:
    """All bins of a real signal from the first half [..., bins, 2]: bin n - k is the conjugate of
    bin k."""
    *batch, bins, _ = hlo.shape(half)
    axis = len(batch)
    begin, end = [*[0] * axis, 1, 0], [*batch, length - bins + 1, 2]
    mirrored = hlo.reverse(hlo.slice(half, begin, end), [axis])
    part = hlo.iota(hlo.shape(mirrored), axis + 1, np.int64)
    is_real = hlo.compare(part, hlo.full_like(part, 0), "EQ")
    conjugate = hlo.select(is_real, mirrored, hlo.negate(mirrored))
    return hlo.concatenate([half, conjugate], axis)


def _parts(x: ir.Value) -> list[ir.Value]:
    """The parts of x [..., n, 1 or 2], of which each is [..., n]."""
    *shape, count = hlo.shape(x)
    begin = [0] * len(shape)
    slices = [hlo.slice(x, [*begin, part], [*shape, part + 1]) for part in range(count)]
    return [hlo.reshape(part, shape) for part in slices]


def _side_by_side(x: ir.Value) -> ir.Value:
    """Complex x [..., n] as real [..., n, 2]."""
    parts = [hlo.unary(name, x) for name in ("real", "imag")]
    shape = hlo.shape(parts[0])
    return hlo.concatenate([hlo.reshape(part, [*shape, 1]) for part in parts], len(shape))


def _resized(x: ir.Value, size: int) -> ir.Value:
    """x [..., n, parts] cropped or filled with zeros to n = size."""
    *batch, count, _ = hlo.shape(x)
    if count == size:
        return x
    high = [*[0] * len(batch), size - count, 0]
    return hlo.pad(x, hlo.full(0, [], hlo.dtype(x)), [0] * len(high), high)


def _wide(kind: np.dtype) -> np.dtype:
    return np.dtype(np.float32) if kind.itemsize < 4 else kind


# --- Constants -----------------------------------------------------------------------------------


def _kind(node: Node) -> np.dtype:
    return np.dtype(
        onnx.helper.tensor_dtype_to_np_dtype(
            node.integer("output_datatype", onnx.TensorProto.FLOAT)
        )
    )


@operator("MelWeightMatrix", folds=True)
def mel_weight_matrix(
    node: Node,
    num_mel_bins: Tensor,
    dft_length: Tensor,
    sample_rate: Tensor,
    lower_edge_hertz: Tensor,
    upper_edge_hertz: Tensor,
) -> np.ndarray:
    """[dft_length // 2 + 1, num_mel_bins]: triangles, equally wide on the scale of mels."""
    bands = int(node.known_number(num_mel_bins, "num_mel_bins"))
    length = int(node.known_number(dft_length, "dft_length"))
    rate = int(node.known_number(sample_rate, "sample_rate"))
    edges = np.array(
        [
            node.known_number(lower_edge_hertz, "lower_edge_hertz"),
            node.known_number(upper_edge_hertz, "upper_edge_hertz"),
        ]
    )
    low, high = 2595 * np.log10(1 + edges / 700)
    mels = low + np.arange(bands + 2) * (high - low) / (bands + 2)
    hertz = 700 * (10 ** (mels / 2595) - 1)
    bins = ((length + 1) * hertz // rate).astype(np.int64)
    left, center, right = bins[:-2], bins[1:-1], bins[2:]
    row = np.arange(length // 2 + 1)[:, None]
    rising = np.where(left == center, row == center, (row - left) / np.maximum(center - left, 1))
    falling = (right - row) / np.maximum(right - center, 1)
    inside = (row >= left) & (row <= center)
    weights = np.where(inside, rising, 0)
    return np.where((row >= center) & (row < right), falling, weights).astype(_kind(node))


def _window(node: Node, size: Tensor, shape: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """`shape` of the angles `2 pi n / N`, with N one less where the window is symmetric."""
    count = int(node.known_number(size, "size"))
    whole = count if node.integer("periodic", 1) else count - 1
    with np.errstate(invalid="ignore"):
        angles = np.divide(2 * np.pi * np.arange(count), whole)
    return shape(angles).astype(_kind(node))


@operator("HannWindow", folds=True)
def hann_window(node: Node, size: Tensor) -> np.ndarray:
    return _window(node, size, lambda angle: np.sin(angle / 2) ** 2)


@operator("HammingWindow", folds=True)
def hamming_window(node: Node, size: Tensor) -> np.ndarray:
    return _window(node, size, lambda angle: 25 / 46 - 21 / 46 * np.cos(angle))


@operator("BlackmanWindow", folds=True)
def blackman_window(node: Node, size: Tensor) -> np.ndarray:
    return _window(node, size, lambda angle: 0.42 - 0.5 * np.cos(angle) + 0.08 * np.cos(2 * angle))
