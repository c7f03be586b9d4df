"""Matrix products and convolutions of integers that were narrow, less numbers that are known: equal
to XLA's, to the bit."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from programs import skip_elsewhere

import stepwell

TARGETS = ("host", "x86_64-v3")
PROGRAMS, PRODUCTS = 4, 10

Product = Callable[[jax.Array, jax.Array], jax.Array]


def random_product(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray, Product]:
    """Operands, of which the second has small numbers half of the time, and their product."""
    kinds = [random.choice([np.int8, np.uint8, np.int16]) for _ in range(2)]
    most = random.choice([64, 1 << 15])

    def operand(shape: tuple[int, ...], kind: type, most: int) -> np.ndarray:
        limits = np.iinfo(kind)
        low, high = max(limits.min, -most), min(limits.max, most)
        return random.integers(low, high + 1, shape).astype(kind)

    if random.integers(2):
        m, k, n = (int(size) for size in random.integers(1, 40, 3))
        shapes = (2, m, k), (k, n)
        product: Product = jnp.matmul
    else:
        shapes, product = random_convolution(random)
    offsets = [int(number) for number in random.integers(-130, 130, 2) * random.integers(0, 2, 2)]
    lhs = operand(shapes[0], kinds[0], 1 << 15)
    rhs = operand(shapes[1], kinds[1], most)

    def shifted(x: jax.Array, y: jax.Array) -> jax.Array:
        return product(x.astype(jnp.int32) - offsets[0], y.astype(jnp.int32) - offsets[1])

    return lhs, rhs, shifted


def random_convolution(
    random: np.random.Generator,
) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], Product]:
    """The shapes of an image and of filters, and what convolves them."""
    groups, side, size = (int(random.integers(1, most)) for most in (3, 4, 15))
    channels, outputs = (groups * int(random.integers(1, most)) for most in (6, 12))
    stride, spread, dilation = (int(number) for number in random.integers(1, 3, 3))
    left, right = (int(number) for number in random.integers(0, 3, 2))
    size += dilation * side
    last = bool(random.integers(2))
    image = (1, size, size, channels) if last else (1, channels, size, size)
    per_group = channels // groups
    filters = (side, side, per_group, outputs) if last else (outputs, per_group, side, side)

    def product(x: jax.Array, y: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(
            x,
            y,
            (stride, stride),
            [(left, right)] * 2,
            lhs_dilation=(spread, spread),
            rhs_dilation=(dilation, dilation),
            dimension_numbers=("NHWC", "HWIO", "NHWC") if last else ("NCHW", "OIHW", "NCHW"),
            feature_group_count=groups,
        )

    return (image, filters), product


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_same_as_xla(seed: int, constant: bool, target: str) -> None:
    """Several at once, by operands of the call and by constants."""
    skip_elsewhere(target)
    random = np.random.default_rng(seed)
    cases = [random_product(random) for _ in range(PRODUCTS)]

    def program(images: list[jax.Array], weights: list[jax.Array]) -> list[jax.Array]:
        return [
            product(x, jnp.asarray(rhs) if constant else y)
            for x, y, (_, rhs, product) in zip(images, weights, cases, strict=True)
        ]

    arguments = [lhs for lhs, _, _ in cases], [rhs for _, rhs, _ in cases]
    jitted = jax.jit(program, keep_unused=True)
    flat = [array for part in arguments for array in part]
    results = stepwell.compile(jitted.lower(*arguments), target=target, threads=1)(*flat)
    for number, (got, want) in enumerate(zip(results, jitted(*arguments), strict=True)):
        np.testing.assert_array_equal(got, want, err_msg=f"product {number}")
