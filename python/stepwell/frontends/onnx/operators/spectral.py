"""Fourier transforms and what goes with them: DFT, STFT, MelWeightMatrix and windows.

Complex numbers are a last dimension of two, as in ONNX. A transform of moderate length is one
product with a constant matrix; a longer one is split into two shorter ones (Cooley and Tukey, "An
algorithm for the machine calculation of complex Fourier series", 1965); one of prime length
becomes a cyclic convolution (Bluestein, "A linear filtering approach to the computation of the
discrete Fourier transform", 1970).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import onnx

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import operator
from stepwell.frontends.onnx.shaping import along, normalize_axis
from stepwell.mlir import ir

DIRECT = 512
"""Transforms up to this length are one matrix product."""


@operator("DFT", since=17)
def dft_by_attribute(node: Node, x: Tensor, dft_length: Tensor | None = None) -> ir.Value:
    return _dft(node, x, dft_length, node.integer("axis", 1))


@operator("DFT", since=20)
def dft(
    node: Node, x: Tensor, dft_length: Tensor | None = None, axis: Tensor | None = None
) -> ir.Value:
    return _dft(node, x, dft_length, -2 if axis is None else int(node.known(axis, "axis").item()))


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
        length = int(node.known(dft_length, "dft_length").item())
    if length < 1:
        node.unsupported(f"a transform of length {length} is not defined")
    others = [d for d in range(x.rank - 1) if d != axis]
    order = [*others, axis, x.rank - 1]
    value = hlo.transpose(hlo.convert(x.value, _wide(x.dtype)), order)
    result = _transform(node, value, length, inverse=inverse, onesided=onesided)
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
    step = int(node.known(frame_step, "frame_step").item())
    if frame_length is not None:
        length = int(node.known(frame_length, "frame_length").item())
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
    result = _transform(node, frames, length, inverse=False, onesided=onesided)
    return hlo.convert(result, signal.dtype)


def _wide(kind: np.dtype) -> np.dtype:
    return np.dtype(np.float32) if kind.itemsize < 4 else kind


# --- Transforms of the last dimension but one ----------------------------------------------------


def _transform(node: Node, x: ir.Value, length: int, *, inverse: bool, onesided: bool) -> ir.Value:
    """The DFT of x [..., n, 1 or 2]: [..., bins, 2], or real numbers from half a spectrum."""
    real_result = inverse and onesided
    x = _resized(x, length // 2 + 1 if real_result else length)
    bins = length // 2 + 1 if onesided and not inverse else length
    if length <= DIRECT:
        if real_result:
            return _apply(node, x, _half_spectrum_matrix(length))
        return _apply(node, x, _matrix(length, inverse)[:, :, :bins])
    if hlo.shape(x)[-1] == 1:
        x = _padded(x, len(hlo.shape(x)) - 1, 0, 1)
    if real_result:
        x = _full_spectrum(x, length)
    result = _long(node, x, inverse)
    if real_result:
        return _part(result, len(hlo.shape(result)) - 1, 0, 1)
    return _part(result, len(hlo.shape(result)) - 2, 0, bins)


def _roots(exponents: np.ndarray, length: int, inverse: bool) -> np.ndarray:
    """`exp(-2 pi i exponents / length)`, or the conjugate; exact reduction of the angle first."""
    angle = (2 if inverse else -2) * np.pi * (exponents % length) / length
    return np.exp(1j * angle)


@functools.lru_cache(8)
def _matrix(length: int, inverse: bool) -> np.ndarray:
    """[n, 2, k, 2]: real and imaginary part of every result from those of every element."""
    index = np.arange(length)
    roots = _roots(np.multiply.outer(index, index), length, inverse)
    if inverse:
        roots = roots / length
    return _as_real(roots)


def _as_real(factors: np.ndarray) -> np.ndarray:
    """Complex [n, k] as real [n, 2, k, 2]: (a + ib)(c + id) by parts."""
    real, imaginary = np.real(factors), np.imag(factors)
    from_real = np.stack([real, imaginary], axis=-1)
    from_imaginary = np.stack([-imaginary, real], axis=-1)
    return np.stack([from_real, from_imaginary], axis=1)


def _half_spectrum_matrix(length: int) -> np.ndarray:
    """[length // 2 + 1, 2, length, 1]: the real signal of a half spectrum.

    Every bin but the first (and the middle one of an even length) counts for its mirror too.
    """
    bins = np.arange(length // 2 + 1)
    weight = np.where((bins == 0) | (2 * bins == length), 1.0, 2.0) / length
    roots = _roots(np.multiply.outer(bins, np.arange(length)), length, True)
    return _as_real(roots * weight[:, None])[..., :1]


def _apply(node: Node, x: ir.Value, matrix: np.ndarray) -> ir.Value:
    """x [..., n, parts] times matrix [n, 2, k, parts of the result]."""
    rank, parts = len(hlo.shape(x)), hlo.shape(x)[-1]
    weights = node.constant(matrix[:, :parts].astype(hlo.dtype(x)), "roots")
    return hlo.dot_general(x, weights, ([rank - 2, rank - 1], [0, 1]))


def _long(node: Node, x: ir.Value, inverse: bool) -> ir.Value:
    """The complex transform of x [..., n, 2] for any n."""
    *batch, length, _ = hlo.shape(x)
    if length <= DIRECT:
        return _apply(node, x, _matrix(length, inverse))
    first = _factor(length)
    if first == 1:
        return _bluestein(node, x, inverse)
    second = length // first
    rank = len(batch)
    # x[j1 * second + j2] to [..., j2, j1]; its transform over j1 is [..., j2, k1].
    columns = hlo.reshape(x, [*batch, first, second, 2])
    columns = hlo.transpose(columns, [*range(rank), rank + 1, rank, rank + 2])
    columns = _long(node, columns, inverse)
    exponents = np.multiply.outer(np.arange(second), np.arange(first))
    columns = _multiply(node, columns, _roots(exponents, length, inverse))
    # The transform over j2 is [..., k1, k2]; k1 + first * k2 is the index of the result.
    rows = hlo.transpose(columns, [*range(rank), rank + 1, rank, rank + 2])
    rows = _long(node, rows, inverse)
    result = hlo.transpose(rows, [*range(rank), rank + 1, rank, rank + 2])
    return hlo.reshape(result, [*batch, length, 2])


def _factor(length: int) -> int:
    """The greatest divisor up to the square root."""
    return next(d for d in range(math.isqrt(length), 0, -1) if length % d == 0)


def _bluestein(node: Node, x: ir.Value, inverse: bool) -> ir.Value:
    """`jk = (j^2 + k^2 - (k - j)^2) / 2` makes of the sum a convolution with a chirp."""
    *batch, length, _ = hlo.shape(x)
    axis = len(batch)
    size = 1 << (2 * length - 2).bit_length()
    index = np.arange(length, dtype=np.int64)
    chirp = _roots(index * index, 2 * length, inverse)
    kernel = np.zeros(size, np.complex128)
    kernel[:length] = chirp.conj()
    kernel[size - length + 1 :] = chirp.conj()[:0:-1]
    spread = _padded(_multiply(node, x, chirp), axis, 0, size - length)
    spectrum = _multiply(node, _long(node, spread, False), np.fft.fft(kernel))
    convolved = _part(_long(node, spectrum, True), axis, 0, length)
    return _multiply(node, convolved, chirp / length if inverse else chirp)


def _multiply(node: Node, x: ir.Value, factors: np.ndarray) -> ir.Value:
    """Complex x [..., 2] times constant complex factors of its trailing dimensions."""
    shape = hlo.shape(x)
    kept = range(len(shape) - 1 - factors.ndim, len(shape) - 1)
    kind = hlo.dtype(x)

    def spread(array: np.ndarray, role: str) -> ir.Value:
        constant = node.constant(array.astype(kind), role)
        return hlo.broadcast_in_dim(constant, shape[:-1], kept)

    def part(i: int) -> ir.Value:
        return hlo.reshape(_part(x, len(shape) - 1, i, i + 1), shape[:-1])

    real, imaginary = part(0), part(1)
    cosine, sine = spread(np.real(factors), "cosine"), spread(np.imag(factors), "sine")
    results = [
        hlo.subtract(hlo.multiply(real, cosine), hlo.multiply(imaginary, sine)),
        hlo.add(hlo.multiply(real, sine), hlo.multiply(imaginary, cosine)),
    ]
    return hlo.concatenate([hlo.reshape(r, [*shape[:-1], 1]) for r in results], len(shape) - 1)


def _full_spectrum(x: ir.Value, length: int) -> ir.Value:
    """All bins of a real signal from the first half: bin n - k is the conjugate of bin k.

    The imaginary parts of the first and the middle bin do not count.
    """
    *batch, bins, _ = hlo.shape(x)
    axis, kind = len(batch), hlo.dtype(x)
    real, imaginary = (_part(x, axis + 1, i, i + 1) for i in range(2))
    index = hlo.iota(hlo.shape(imaginary), axis, np.int64)
    own = hlo.compare(index, hlo.full_like(index, 0), "EQ")
    if length % 2 == 0:
        own = hlo.or_(own, hlo.compare(index, hlo.full_like(index, bins - 1), "EQ"))
    imaginary = hlo.select(own, hlo.full(0, hlo.shape(imaginary), kind), imaginary)
    mirrored = slice(1, length - bins + 1)
    halves = [
        hlo.concatenate(
            [part, hlo.reverse(sign(_part(part, axis, mirrored.start, mirrored.stop)), [axis])],
            axis,
        )
        for part, sign in ((real, _same), (imaginary, hlo.negate))
    ]
    return hlo.concatenate(halves, axis + 1)


def _same(x: ir.Value) -> ir.Value:
    return x


def _resized(x: ir.Value, size: int) -> ir.Value:
    """x [..., n, parts] cropped or filled with zeros to n = size."""
    axis = len(hlo.shape(x)) - 2
    return _padded(x, axis, 0, size - hlo.shape(x)[axis])


def _padded(x: ir.Value, axis: int, low: int, high: int) -> ir.Value:
    if (low, high) == (0, 0):
        return x
    rank = len(hlo.shape(x))
    zero = hlo.full(0, [], hlo.dtype(x))
    sides = [[side if d == axis else 0 for d in range(rank)] for side in (low, high)]
    return hlo.pad(x, zero, *sides)


def _part(x: ir.Value, axis: int, start: int, end: int) -> ir.Value:
    shape = hlo.shape(x)
    if (start, end) == (0, shape[axis]):
        return x
    begin = [start if d == axis else 0 for d in range(len(shape))]
    return hlo.slice(x, begin, [end if d == axis else n for d, n in enumerate(shape)])


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
    bands = int(node.known(num_mel_bins, "num_mel_bins").item())
    length = int(node.known(dft_length, "dft_length").item())
    rate = int(node.known(sample_rate, "sample_rate").item())
    edges = np.array(
        [
            node.known(lower_edge_hertz, "lower_edge_hertz").item(),
            node.known(upper_edge_hertz, "upper_edge_hertz").item(),
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
    count = int(node.known(size, "size").item())
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
