"""Products of rows with the matrix of their group (jax.lax.ragged_dot), and others whose matrices
numbers in memory choose, against jax."""

from __future__ import annotations

import re
from collections.abc import Callable

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax
from programs import skip_elsewhere

import stepwell
from stepwell.dialects import ragged
from stepwell.lowering import Lowered

ROWS, GROUPS, DEPTH, WIDTH = 512, 8, 24, 40

SIZES = {
    "uneven": [100, 3, 0, 64, 129, 1, 200, 15],
    "fewer-rows": [0, 5, 70, 0, 0, 33, 0, 0],
    "one-group": [0, 0, 0, 512, 0, 0, 0, 0],
    "no-rows": [0] * 8,
    "tiles": [64] * 8,
}


def arrays(dtype: type = np.float32) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(2)
    shapes = ((ROWS, DEPTH), (GROUPS, DEPTH, WIDTH))
    x, w = (random.integers(-3, 4, shape).astype(dtype) for shape in shapes)
    return x, w


def exported(function: object, *inputs: np.ndarray) -> str:
    return str(jax.export.export(jax.jit(function), platforms=["cpu"])(*inputs).mlir_module())


def check(function: Callable[..., jax.Array], *inputs: np.ndarray, **options: str) -> Lowered:
    """Exactly what jax computes; the module at level linalg."""
    module = exported(function, *inputs)
    (got,) = stepwell.compile(module, **options)(*inputs)
    want = np.asarray(jax.jit(function)(*inputs))
    np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))
    return stepwell.lower(module, **options).step("linalg")


def passed(lowered: Lowered) -> str:
    """The calls of kernels, with the types that they take and give."""
    return "\n".join(line for line in str(lowered).splitlines() if "= call @" in line)


def contractions(lowered: Lowered) -> list[str]:
    """The first lines of kernels that multiply."""
    return re.findall(r"func.func private @.*kernel.kind = \"contraction\".*", str(lowered))


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_same_as_jax(name: str, dtype: type) -> None:
    """Exactly: sums of small integers."""
    inputs = (*arrays(dtype), np.array(SIZES[name], np.int32))
    lowered = stepwell.lower(exported(lax.ragged_dot, *inputs)).step("stablehlo")
    assert "batching_dims" in str(lowered)
    check(lax.ragged_dot, *inputs)


TILES = 24
"""Of 32 rows, for 512 rows in 8 groups."""

TARGETS = ("x86_64-v3", "x86_64-v4", "x86_64-v4+vnni+bf16")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("constant", [False, True])
def test_matrices_are_read_in_place(target: str, dtype: type, constant: bool) -> None:
    """No kernel makes a matrix for each tile; those of a constant lie in panels, once."""
    skip_elsewhere(target)
    x, w = arrays(dtype)
    sizes = np.array(SIZES["uneven"], np.int32)
    inputs = (x, sizes) if constant else (x, w, sizes)

    def product(x: jax.Array, *rest: jax.Array) -> jax.Array:
        matrices = jnp.asarray(w) if constant else rest[0]
        return lax.ragged_dot(x, matrices, rest[-1])

    lowered = check(product, *inputs, target=target)
    assert not re.search(rf"tensor<{TILES}x{DEPTH}x{WIDTH}x", passed(lowered))
    (kernel,) = contractions(lowered)
    assert bool(re.search(rf"tensor<{GROUPS}x\d+x\d+x\d+x", kernel)) == constant
    assert bool(re.search(rf"tensor<{GROUPS}x{DEPTH}x{WIDTH}x", kernel)) != constant


def test_tiles_share_panels() -> None:
    """All tiles meet a panel of their matrices before they meet the next one, each asking for that
    of the tile behind it; 200 columns are no whole panels."""
    random = np.random.default_rng(6)
    x = random.integers(-3, 4, (ROWS, 64)).astype(np.float32)
    w = random.integers(-3, 4, (GROUPS, 64, 200)).astype(np.float32)

    def product(x: jax.Array, sizes: jax.Array) -> jax.Array:
        return lax.ragged_dot(x, jnp.asarray(w), sizes)

    lowered = check(product, x, np.array(SIZES["uneven"], np.int32))
    (kernel,) = contractions(lowered)
    assert "panels_first = true" in kernel
    assert "ask_panels = true" in kernel
    assert "memref.prefetch" in str(lowered.step("affine"))


def test_parameters_are_packed() -> None:
    """Several arguments that are matrices of groups, as in a mixture of experts."""
    random = np.random.default_rng(5)
    up, gate = (random.integers(-2, 3, (GROUPS, 32, 48)).astype(np.float32) for _ in range(2))
    down = random.integers(-2, 3, (GROUPS, 48, 32)).astype(np.float32)
    x = random.integers(-2, 3, (ROWS, 32)).astype(np.float32)

    def experts(
        x: jax.Array, up: jax.Array, gate: jax.Array, down: jax.Array, sizes: jax.Array
    ) -> jax.Array:
        rows = lax.ragged_dot(x, up, sizes) * lax.ragged_dot(x, gate, sizes)
        return lax.ragged_dot(rows, down, sizes)

    lowered = check(experts, x, up, gate, down, np.array(SIZES["uneven"], np.int32))
    assert str(lowered).count("stepwell.derived") == 3
    assert all(f"tensor<{GROUPS}x" in kernel for kernel in contractions(lowered))


def clipped(w: jax.Array, numbers: jax.Array) -> jax.Array:
    return w.at[numbers].get(mode="clip")


PRODUCTS = {
    "rhs": lambda x, w, n: jnp.einsum("bmk,bkn->bmn", x, clipped(w, n)),
    "transposed": lambda x, w, n: jnp.einsum("bmk,bnk->bmn", x, clipped(w.transpose(0, 2, 1), n)),
    "lhs": lambda x, w, n: jnp.einsum("bkn,bmk->bnm", clipped(w, n), x),
    "square": lambda x, w, n: jnp.einsum(
        "abmk,abkn->abmn", x.reshape(2, 3, *x.shape[1:]), clipped(w, n.reshape(2, 3))
    ),
    "blocks": lambda x, w, n: jnp.einsum(
        "bmak,bakn->bman",
        x.reshape(6, 10, 2, 12),
        clipped(w.reshape(4, 2, 12, 16), n),
    ),
    "reshaped": lambda x, w, n: jnp.einsum(
        "bmak,bakn->bman",
        x.reshape(6, 10, 2, 12),
        clipped(w, n).reshape(6, 2, 12, 16),
    ),
}


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("form", PRODUCTS)
def test_matrices_by_number(form: str, constant: bool) -> None:
    """Of any batch, with numbers out of range, which mean the first or the last matrix."""
    random = np.random.default_rng(7)
    x = random.integers(-3, 4, (6, 10, 24)).astype(np.float32)
    w = random.integers(-3, 4, (4, 24, 16)).astype(np.float32)
    numbers = np.array([3, 0, -5, 2, 9, 2], np.int32)
    if constant:
        lowered = check(lambda x, n: PRODUCTS[form](x, jnp.asarray(w), n), x, numbers)
    else:
        lowered = check(PRODUCTS[form], x, w, numbers)
    assert "index_cast" in str(lowered).split("contraction")[1]
    assert not re.search(r"tensor<6x24x16x|tensor<6x16x24x|tensor<2x3x24x16x", passed(lowered))


def test_matrices_that_others_read_are_copied() -> None:
    random = np.random.default_rng(8)
    x = random.integers(-3, 4, (6, 10, 24)).astype(np.float32)
    w = random.integers(-3, 4, (4, 24, 16)).astype(np.float32)

    def product(x: jax.Array, w: jax.Array, numbers: jax.Array) -> jax.Array:
        taken = clipped(w, numbers)
        return jnp.einsum("bmk,bkn->bmn", x, taken) + taken.sum(1, keepdims=True)

    lowered = check(product, x, w, np.array([3, 0, 1, 2, 2, 2], np.int32))
    assert "tensor<6x24x16x" in passed(lowered)


def test_two_products_with_one_constant() -> None:
    """Both read the matrices in panels, each as it is tiled."""
    x, w = arrays()
    sizes = np.array(SIZES["uneven"], np.int32)

    def product(x: jax.Array, y: jax.Array, sizes: jax.Array) -> jax.Array:
        first = lax.ragged_dot(x, jnp.asarray(w), sizes)
        return first + lax.ragged_dot(y, jnp.asarray(w), sizes[::-1])

    lowered = check(product, x, x[::-1].copy(), sizes)
    assert not re.search(rf"tensor<{TILES}x{DEPTH}x{WIDTH}x", passed(lowered))


def test_gradient_of_rows() -> None:
    """Its product is with transposed matrices."""

    def gradient(x: jax.Array, w: jax.Array, sizes: jax.Array, y: jax.Array) -> jax.Array:
        return jax.vjp(lambda x: lax.ragged_dot(x, w, sizes), x)[1](y)[0]

    y = np.random.default_rng(4).integers(-3, 4, (ROWS, WIDTH)).astype(np.float32)
    inputs = (arrays()[1], np.array(SIZES["uneven"], np.int32), y)

    def of_inputs(w: jax.Array, sizes: jax.Array, y: jax.Array) -> jax.Array:
        return gradient(jax.numpy.zeros((ROWS, DEPTH), np.float32), w, sizes, y)

    module = exported(of_inputs, *inputs)
    assert "batching_dims" in str(stepwell.lower(module).step("stablehlo"))
    (got,) = stepwell.compile(module)(*inputs)
    np.testing.assert_array_equal(got, np.asarray(jax.jit(of_inputs)(*inputs)))


@pytest.mark.parametrize("form", ["composite", "operation"])
def test_as_chlo(form: str) -> None:
    """As JAX exports it for TPUs, and as the operation that this stands for."""
    inputs = (*arrays(), np.array(SIZES["uneven"], np.int32))
    of_tpu = jax.export.export(jax.jit(lax.ragged_dot), platforms=["tpu"])(*inputs)
    module = str(of_tpu.mlir_module())
    if form == "operation":
        rows, matrices, result = (
            f"tensor<{'x'.join(map(str, shape))}xf32>"
            for shape in (inputs[0].shape, inputs[1].shape, (ROWS, WIDTH))
        )
        module = f"""func.func @main(%x: {rows}, %w: {matrices}, %g: tensor<8xi32>) -> {result} {{
          %r = "chlo.ragged_dot"(%x, %w, %g) <{{ragged_dot_dimension_numbers = #chlo.ragged_dot<
              lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1],
              lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>}}>
              : ({rows}, {matrices}, tensor<8xi32>) -> {result}
          return %r : {result} }}"""
    assert "batching_dims" in str(stepwell.lower(module).step("stablehlo"))
    (got,) = stepwell.compile(module)(*inputs)
    np.testing.assert_array_equal(got, np.asarray(jax.jit(lax.ragged_dot)(*inputs)))


def test_few_rows_are_multiplied_by_all() -> None:
    """They read each matrix once, which tiles do not."""
    assert ragged.tile_of(16, 8) is None
    assert ragged.tile_of(64, 8) is None
    assert ragged.tile_of(128, 8) == 16
    assert ragged.tile_of(4096, 8) == 128
    assert all(ragged.tile_of(rows, 1) is None for rows in (1, 100, 10000))
