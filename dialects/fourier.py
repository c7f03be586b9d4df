"""Fourier transforms in StableHLO, of complex numbers by parts: a last dimension of two.

A transform of moderate length is one product with a constant matrix; a longer one is split into two
shorter ones (Cooley and Tukey, "An algorithm for the machine calculation of complex Fourier
series", 1965); one of prime length becomes a cyclic convolution (Bluestein, "A linear filtering
approach to the computation of the discrete Fourier transform", 1970).

On the way down, lengths without large prime factors are left to `legalize-fourier` as calls.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir

DIRECT = 512
"""Transforms up to this length are one matrix product."""

CALL = "stepwell.fourier"
"""The custom call of x [outer, n, inner, 2] that `legalize-fourier` makes loops of; `inverse` is an
attribute. One side, of an even length, may be real: [outer, n, 1, 1], the other half a spectrum."""

FACTORS = (4, 2, 3, 5, 7, 11, 13, 17, 19, 23)

Constant = Callable[[np.ndarray, str], ir.Value]
"""Makes a constant of an array, named by its role."""


def transform(
    constant: Constant,
    x: ir.Value,
    length: int,
    *,
    inverse: bool,
    onesided: bool,
    calls: bool = False,
) -> ir.Value:
    """The DFT of x [..., n, 1 or 2]: [..., bins, 2], or [..., n, 1], real, from half a spectrum.

    `onesided` means that one side of the transform is real, and half a spectrum with one number
    more the other. `constant` makes constants. `calls` allows calls that `legalize-fourier` lowers.
    """
    real_result = inverse and onesided
    bins = length // 2 + 1 if onesided and not inverse else length
    if calls and onesided and length % 2 == 0 and factors(length // 2) is not None:
        if real_result:
            return _call(x, True, (length, 1))
        if hlo.shape(x)[-1] == 1:
            return _call(x, False, (bins, 2))
    if length <= DIRECT and not (calls and factors(length) is not None):
        if real_result:
            return _apply(constant, x, _half_spectrum_matrix(length))
        return _apply(constant, x, _matrix(length, inverse)[:, :, :bins])
    if hlo.shape(x)[-1] == 1:
        x = _padded(x, len(hlo.shape(x)) - 1, 0, 1)
    if real_result:
        x = _full_spectrum(x, length)
    result = _long(constant, x, inverse, calls)
    if real_result:
        return _part(result, len(hlo.shape(result)) - 1, 0, 1)
    return _part(result, len(hlo.shape(result)) - 2, 0, bins)


def roots(exponents: np.ndarray, length: int, *, inverse: bool = False) -> np.ndarray:
    """`exp(-2 pi i exponents / length)`, or the conjugate; exact reduction of the angle first."""
    angle = (2 if inverse else -2) * np.pi * (exponents % length) / length
    return np.exp(1j * angle)


def factors(length: int) -> list[int] | None:
    """`length` as a product of FACTORS; None when it has a greater prime factor."""
    found = []
    for factor in FACTORS:
        while length % factor == 0:
            found.append(factor)
            length //= factor
    return found if length == 1 else None


@functools.lru_cache(8)
def _matrix(length: int, inverse: bool) -> np.ndarray:
    """[n, 2, k, 2]: real and imaginary part of every result from those of every element."""
    index = np.arange(length)
    matrix = roots(np.multiply.outer(index, index), length, inverse=inverse)
    return _as_real(matrix / length if inverse else matrix)


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
    matrix = roots(np.multiply.outer(bins, np.arange(length)), length, inverse=True)
    return _as_real(matrix * weight[:, None])[..., :1]


def _apply(constant: Constant, x: ir.Value, matrix: np.ndarray) -> ir.Value:
    """x [..., n, parts] times matrix [n, 2, k, parts of the result]."""
    rank, parts = len(hlo.shape(x)), hlo.shape(x)[-1]
    weights = constant(matrix[:, :parts].astype(hlo.dtype(x)), "roots")
    return hlo.dot_general(x, weights, ([rank - 2, rank - 1], [0, 1]))


def _long(constant: Constant, x: ir.Value, inverse: bool, calls: bool) -> ir.Value:
    """The complex transform of x [..., n, 2] for any n."""
    *batch, length, _ = hlo.shape(x)
    if calls and factors(length) is not None:
        return _call(x, inverse, (length, 2))
    if length <= DIRECT:
        return _apply(constant, x, _matrix(length, inverse))
    first = _factor(length)
    if first == 1:
        return _bluestein(constant, x, inverse, calls)
    second = length // first
    rank = len(batch)
    # x[j1 * second + j2] to [..., j2, j1]; its transform over j1 is [..., j2, k1].
    columns = hlo.reshape(x, [*batch, first, second, 2])
    columns = hlo.transpose(columns, [*range(rank), rank + 1, rank, rank + 2])
    columns = _long(constant, columns, inverse, calls)
    exponents = np.multiply.outer(np.arange(second), np.arange(first))
    columns = _multiply(constant, columns, roots(exponents, length, inverse=inverse))
    # The transform over j2 is [..., k1, k2]; k1 + first * k2 is the index of the result.
    rows = hlo.transpose(columns, [*range(rank), rank + 1, rank, rank + 2])
    rows = _long(constant, rows, inverse, calls)
    result = hlo.transpose(rows, [*range(rank), rank + 1, rank, rank + 2])
    return hlo.reshape(result, [*batch, length, 2])


def _factor(length: int) -> int:
    """The greatest divisor up to the square root."""
    return next(d for d in range(math.isqrt(length), 0, -1) if length % d == 0)


def _bluestein(constant: Constant, x: ir.Value, inverse: bool, calls: bool) -> ir.Value:
    """`jk = (j^2 + k^2 - (k - j)^2) / 2` makes of the sum a convolution with a chirp."""
    *batch, length, _ = hlo.shape(x)
    axis = len(batch)
    size = 1 << (2 * length - 2).bit_length()
    index = np.arange(length, dtype=np.int64)
    chirp = roots(index * index, 2 * length, inverse=inverse)
    kernel = np.zeros(size, np.complex128)
    kernel[:length] = chirp.conj()
    kernel[size - length + 1 :] = chirp.conj()[:0:-1]
    spread = _padded(_multiply(constant, x, chirp), axis, 0, size - length)
    spectrum = _multiply(constant, _long(constant, spread, False, calls), np.fft.fft(kernel))
    convolved = _part(_long(constant, spectrum, True, calls), axis, 0, length)
    return _multiply(constant, convolved, chirp / length if inverse else chirp)


def along(x: ir.Value, axis: int, inverse: bool) -> ir.Value:
    """The transform of x [..., 2] along `axis` as a call."""
    shape = hlo.shape(x)
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 : -1])
    return _called(x, [outer, shape[axis], inner], inverse, shape)


def _call(x: ir.Value, inverse: bool, made: tuple[int, int]) -> ir.Value:
    """The transform of x [..., n, parts] as a call; the result's last dimensions are `made`."""
    *batch, length, _ = hlo.shape(x)
    return _called(x, [math.prod(batch), length, 1], inverse, [*batch, *made])


def _called(x: ir.Value, sizes: hlo.Ints, inverse: bool, made: hlo.Ints) -> ir.Value:
    """A call on x as [outer, n, inner, parts] of such `sizes`; its result has the shape `made`."""
    outer, _, inner = sizes
    flat = hlo.reshape(x, [*sizes, hlo.shape(x)[-1]])
    count = math.prod(made) // (outer * inner * made[-1])
    kind = ir.RankedTensorType.get([outer, count, inner, made[-1]], hlo.element_type(x))
    attributes = {
        "call_target_name": ir.StringAttr.get(CALL),
        "inverse": ir.BoolAttr.get(inverse),
    }
    call = ir.Operation.create("stablehlo.custom_call", [kind], [flat], attributes)
    return hlo.reshape(call.results[0], made)


def _multiply(constant: Constant, x: ir.Value, factors: np.ndarray) -> ir.Value:
    """Complex x [..., 2] times constant complex factors of its trailing dimensions."""
    shape = hlo.shape(x)
    kept = range(len(shape) - 1 - factors.ndim, len(shape) - 1)
    kind = hlo.dtype(x)

    def spread(array: np.ndarray, role: str) -> ir.Value:
        data = constant(array.astype(kind), role)
        return hlo.broadcast_in_dim(data, shape[:-1], kept)

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
    """All bins of a real signal from the first half: bin n - k is the conjugate of bin k."""
    *batch, bins, _ = hlo.shape(x)
    axis = len(batch)
    x = _without_idle_parts(x, length)
    mirrored = slice(1, length - bins + 1)
    halves = [
        hlo.concatenate(
            [part, hlo.reverse(sign(_part(part, axis, mirrored.start, mirrored.stop)), [axis])],
            axis,
        )
        for part, sign in (
            (_part(x, axis + 1, 0, 1), _same),
            (_part(x, axis + 1, 1, 2), hlo.negate),
        )
    ]
    return hlo.concatenate(halves, axis + 1)


def _without_idle_parts(x: ir.Value, length: int) -> ir.Value:
    """Half a spectrum x [..., bins, 2] of a real signal without the imaginary parts of the first
    bin and the middle one, which do not count."""
    *batch, bins, _ = hlo.shape(x)
    index = hlo.iota(hlo.shape(x), len(batch), np.int64)
    own = hlo.compare(index, hlo.full_like(index, 0), "EQ")
    if length % 2 == 0:
        own = hlo.or_(own, hlo.compare(index, hlo.full_like(index, bins - 1), "EQ"))
    part = hlo.iota(hlo.shape(x), len(batch) + 1, np.int64)
    idle = hlo.and_(own, hlo.compare(part, hlo.full_like(part, 1), "EQ"))
    return hlo.select(idle, hlo.full_like(x, 0), x)


def _same(x: ir.Value) -> ir.Value:
    return x


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
