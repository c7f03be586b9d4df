"""Complex numbers in both widths, and the Fourier transform."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from .case import case, numbers

SHAPE = (5, 19)


def complex_numbers(*shape: int, kind: type = np.complex64, low: float = -3) -> np.ndarray:
    """Random numbers of the square from `low` to 3 in both parts."""
    part = np.float32 if kind is np.complex64 else np.float64
    real = numbers(*shape, dtype=part, low=low)
    return (real + 1j * numbers(*shape, dtype=part, low=low - 0.5)).astype(kind)


for _kind in (np.complex64, np.complex128):
    _label = _kind.__name__
    _x, _y = complex_numbers(*SHAPE, kind=_kind), complex_numbers(*SHAPE, kind=_kind, low=-2)
    for _name, _function in {
        "abs": lax.abs, "neg": lax.neg, "sign": lax.sign, "exp": lax.exp, "log": lax.log,
        "log1p": lax.log1p, "expm1": lax.expm1, "sqrt": lax.sqrt, "rsqrt": lax.rsqrt,
        "tanh": lax.tanh, "tan": lax.tan, "sin": lax.sin, "cos": lax.cos, "real": lax.real,
        "imag": lax.imag, "conj": lax.conj, "logistic": lax.logistic, "angle": jnp.angle,
        "sinh": lax.sinh, "cosh": lax.cosh, "asin": lax.asin, "acos": lax.acos, "atan": lax.atan,
        "asinh": lax.asinh, "acosh": lax.acosh, "atanh": lax.atanh, "square": lax.square,
    }.items():  # fmt: skip
        case(f"{_name}_{_label}", _function, _x)
    for _name, _function in {
        "add": lax.add, "sub": lax.sub, "mul": lax.mul, "div": lax.div, "pow": lax.pow,
        "eq": lax.eq, "ne": lax.ne,
    }.items():  # fmt: skip
        case(f"{_name}_{_label}", _function, _x, _y)
    case(f"select_{_label}", lambda x, y: jnp.where(x.real > 0, x, y), _x, _y)
    case(f"sum_{_label}", lambda x: jnp.sum(x, axis=1), _x)
    case(f"prod_{_label}", lambda x: jnp.prod(x, axis=0), _x)
    # Products are rounded as XLA's are: a few roundings of the largest part are left for others.
    _exact = 4 * float(np.finfo(_kind).eps)
    case(f"cumprod_{_label}", lambda x: lax.cumprod(x, axis=0), _x, tolerance=_exact)
    case(f"cube_{_label}", lambda x: lax.integer_pow(x, 3), _x, tolerance=_exact)
    case(
        f"window_product_{_label}",
        lambda x: lax.reduce_window(x, np.asarray(1, x.dtype), lax.mul, (2, 2), (1, 1), "VALID"),
        _x,
        tolerance=_exact,
    )
    case(f"matmul_{_label}", lambda x, y: x @ y.T, _x, _y)
    case(f"fft_{_label}", jnp.fft.fft, _x)
    case(f"fft_of_prime_length_{_label}", jnp.fft.fft, complex_numbers(2, 1013, kind=_kind))
    case(f"ifft_of_three_dimensions_{_label}", jnp.fft.ifftn, complex_numbers(4, 5, 6, kind=_kind))

_Z, _W = complex_numbers(*SHAPE), complex_numbers(*SHAPE, low=-2)
case("convert_float32_to_complex64", lambda x: x.astype(jnp.complex64), numbers(*SHAPE))
case("constant_complex64", lambda x: x * jnp.asarray(complex_numbers(19)), _Z)
case("iota_complex64", lambda x: x + jnp.arange(19, dtype=jnp.complex64), _Z)
case("transpose_complex64", lambda x: x.T, _Z)
case("pad_complex64", lambda x: lax.pad(x, jnp.complex64(1 + 2j), [(1, 0, 1), (0, 2, 0)]), _Z)
case("concatenate_complex64", lambda x, y: lax.concatenate([x, y], 1), _Z, _W)
case("gather_complex64", lambda x: x[jnp.array([2, 0, 4])], _Z)
case("scatter_complex64", lambda x: x.at[jnp.array([2, 0])].set(7j), _Z)
case("scatter_add_complex64", lambda x, y: x.at[jnp.array([2, 0, 2, 1, 1])].add(y), _Z, _W)
case("sort_complex64", lambda x: jnp.sort(x, axis=1), _Z)
case("cumsum_complex64", lambda x: jnp.cumsum(x, axis=1), _Z)
case(
    "loop_complex64",
    lambda x: lax.fori_loop(0, 4, lambda i, c: c * 1j + 1, x),
    _Z,
)
case(
    "condition_complex64",
    lambda p, x: lax.cond(p > 0, jnp.conj, lambda y: y * 2j, x),
    np.array(-1, np.float32),
    _Z,
)
case(
    "convolution_complex64",
    lambda x, k: lax.conv(x, k, (1, 1), "SAME"),
    complex_numbers(1, 3, 7, 7),
    complex_numbers(4, 3, 3, 3),
)
case("rfft_of_rows", jnp.fft.rfft, numbers(3, 30))
case("rfft_of_planes", jnp.fft.rfft2, numbers(2, 9, 16))
case("irfft_of_odd_length", lambda x: jnp.fft.irfft(x, 9), complex_numbers(3, 5))
case("irfft_of_planes", jnp.fft.irfft2, complex_numbers(2, 6, 5))
case("fft_of_1500", jnp.fft.fft, complex_numbers(2, 1500))
case("irfft_of_nothing", lambda x: jnp.fft.irfft(x, 32), complex_numbers(0, 17))
case("fft_of_rows", jnp.fft.fft, complex_numbers(37, 60))
case("ifft_of_columns", lambda x: jnp.fft.ifft(x, axis=1), complex_numbers(2, 77, 21))
case("fft_in_two_steps", jnp.fft.fft, complex_numbers(2, 1 << 13))
case("ifft_in_two_steps", jnp.fft.ifft, complex_numbers(3, 30 * 36))
case("rfft_in_two_steps", jnp.fft.rfft, numbers(2, 1 << 12))
case("irfft_in_two_steps", jnp.fft.irfft, complex_numbers(2, 1025))

_SQUARE = complex_numbers(2, 5, 5) + 4 * np.eye(5, dtype=np.complex64)
_HERMITIAN = (_SQUARE @ _SQUARE.conj().transpose(0, 2, 1)).astype(np.complex64)
case("cholesky_complex64", lambda x: jnp.tril(lax.linalg.cholesky(x)), _HERMITIAN)
for _left in (True, False):
    for _lower in (True, False):
        for _transpose, _conjugate in ((False, False), (True, False), (True, True)):
            case(
                f"triangular_solve_complex64_{_left}_{_lower}_{_transpose}_{_conjugate}",
                lambda a, b, left=_left, lower=_lower, t=_transpose, c=_conjugate: (
                    lax.linalg.triangular_solve(
                        a, b, left_side=left, lower=lower, transpose_a=t, conjugate_a=c
                    )
                ),
                _SQUARE,
                complex_numbers(2, 5, 3) if _left else complex_numbers(2, 3, 5),
            )
