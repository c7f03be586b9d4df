"""Products of matrices of small integers, whose sums every type holds: results are exact."""

from __future__ import annotations

import jax
import ml_dtypes
import numpy as np
from jax import lax

BF16 = ml_dtypes.bfloat16
SUMS = {np.float16: np.float32, BF16: np.float32, np.float32: np.float32, np.int8: np.int32}


def integers(*shape: int, seed: int, dtype: type) -> np.ndarray:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


def product(a: np.ndarray, b: np.ndarray, dims: tuple) -> object:
    """dot_general in the type that sums have."""
    out = SUMS.get(a.dtype.type, np.float32)
    function = jax.jit(lambda a, b: lax.dot_general(a, b, dims, preferred_element_type=out))
    return jax.export.export(function)(a, b).mlir_module()


_NAMES = {3: ("NWC", "WIO", "NWC"), 4: ("NHWC", "HWIO", "NHWC"), 5: ("NDHWC", "DHWIO", "NDHWC")}


def convolution(
    shape: tuple[int, ...],
    window: tuple[int, ...],
    outputs: int,
    dtype: type,
    *,
    strides: tuple[int, ...] | None = None,
    dilation: tuple[int, ...] | None = None,
    padding: str = "VALID",
    groups: int = 1,
) -> tuple[object, list[np.ndarray], np.ndarray]:
    """A convolution of images of `shape`, channels last, by windows of the extents `window`, with
    its sum in f32: model, operands and result."""
    x = integers(*shape, seed=1, dtype=dtype)
    w = integers(*window, shape[-1] // groups, outputs, seed=2, dtype=dtype)

    def convolve(x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(
            x, w, strides or (1,) * len(window), padding, rhs_dilation=dilation,
            dimension_numbers=_NAMES[len(shape)], preferred_element_type=np.float32,
            feature_group_count=groups,
        )  # fmt: skip

    expected = np.asarray(convolve(*(v.astype(np.float32) for v in (x, w))))
    return jax.export.export(jax.jit(convolve))(x, w).mlir_module(), [x, w], expected


def matrices(
    layout: str, sizes: tuple[int, ...], dtype: type
) -> tuple[object, list[np.ndarray], np.ndarray]:
    """A product of batches of m x k and k x n, by what is contiguous in them: k, or m and n."""
    batch, m, k, n = sizes
    a, b = integers(batch, m, k, seed=1, dtype=dtype), integers(batch, k, n, seed=2, dtype=dtype)
    expected = np.matmul(a.astype(np.float64), b.astype(np.float64))
    left, right = 2, 1
    if layout[0] == "m":
        a, left = a.swapaxes(1, 2).copy(), 1
    if layout[1] == "k":
        b, right = b.swapaxes(1, 2).copy(), 2
    return product(a, b, (((left,), (right,)), ((0,), (0,)))), [a, b], expected
