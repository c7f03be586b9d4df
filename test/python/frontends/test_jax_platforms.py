"""Functions that JAX exported for several platforms, of which one is compiled."""

from __future__ import annotations

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import stepwell

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def _distinct(x):
    """One more on CPUs, two more on NVIDIA's GPUs, three more elsewhere."""
    return jax.lax.platform_dependent(
        x, cpu=lambda x: x + 1, cuda=lambda x: x + 2, default=lambda x: x + 3
    )


def _export(function, platforms, *arguments):
    return jax.export.export(jax.jit(function), platforms=platforms)(*arguments)


@pytest.mark.parametrize(
    ("platforms", "more"),
    [
        (("cpu", "cuda", "tpu"), 1),
        (("cuda", "tpu", "cpu"), 1),
        (("tpu", "cpu"), 1),
        (("cuda", "tpu"), 2),
        (("tpu", "rocm"), 3),
        (("cuda",), 2),
    ],
)
def test_the_one_of_cpus_is_compiled(platforms, more, tmp_path):
    exported = _export(_distinct, platforms, X)
    path = tmp_path / "exported.jax"
    path.write_bytes(exported.serialize())
    for model in (exported, path, bytes(exported.serialize())):
        executable = stepwell.compile(model)
        assert [spec.shape for spec in executable.inputs] == [X.shape]
        np.testing.assert_array_equal(executable(X)[0], X + more)
    np.testing.assert_array_equal(stepwell.lower(exported).compile()(X)[0], X + more)


def test_routines_of_platforms_in_functions_that_are_called():
    """Those of GPUs, which no lowering knows, are left out."""

    def function(x):
        product = x @ x.T + jnp.eye(2)
        return jnp.linalg.cholesky(product), jax.lax.fori_loop(0, 3, lambda _, v: _distinct(v), x)

    exported = _export(function, ("cuda", "cpu"), X)
    for found, expected in zip(stepwell.compile(exported)(X), function(X), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_open_sizes():
    (rows,) = jax.export.symbolic_shape("b")
    exported = _export(_distinct, ("cuda", "cpu"), jax.ShapeDtypeStruct((rows, 3), np.float32))
    for model in (exported, bytes(exported.serialize())):
        np.testing.assert_array_equal(stepwell.compile(model)(X)[0], X + 1)
    np.testing.assert_array_equal(stepwell.compile(exported, max_sizes={"b": 8})(X)[0], X + 1)


def test_a_module_that_does_not_say_which():
    """Text has no names of platforms, so that their number is an input."""
    executable = stepwell.compile(_export(_distinct, ("cuda", "cpu"), X).mlir_module())
    for number, more in enumerate((2, 1)):
        np.testing.assert_array_equal(executable(np.int32(number), X)[0], X + more)
