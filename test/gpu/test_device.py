"""Models and kernels on a real GPU against the CPU target: `make test-gpu`.

A process loads one driver, so these tests do not share one with those of the emulator.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import jax
import numpy as np
import programs
import pytest
import test_kernels
import test_models
import test_onnx_models
from jax import lax
from jax import numpy as jnp
from products import SUMS, matrices
from programs import Arrays, Batch, Case

import stepwell

pytestmark = pytest.mark.skipif(
    "STEPWELL_TEST_GPU" not in os.environ, reason="needs an NVIDIA GPU; run it by make test-gpu"
)


def assert_same(model: object, inputs: list[np.ndarray], tolerance: float = 1e-4) -> None:
    """Assert that GPU and CPU agree, relative to the greater of 1 and the result."""
    got = stepwell.compile(model, target="cuda")(*inputs)
    for result, expected in zip(got, stepwell.compile(model)(*inputs), strict=True):
        np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)


def test_convolution_network() -> None:
    assert_same(test_models.convolution_network(), [test_models.normal(2, 3, 12, 12)])


def test_transformer_block() -> None:
    normal = test_models.normal
    arrays = [normal(20, 64), *(normal(64, n, seed=n) / 8 for n in (192, 64, 96))]
    assert_same(test_models.exported(test_models.transformer_block, *arrays), arrays)


def test_loop_of_the_host() -> None:
    weight = test_models.normal(96, 96, seed=1) / 12

    def converge(x: jax.Array) -> jax.Array:
        return lax.while_loop(lambda x: jnp.abs(x).max() > 0.3, lambda x: jnp.tanh(x @ weight), x)

    x = test_models.normal(64, 96)
    assert_same(test_models.exported(converge, x), [x])


@pytest.mark.parametrize("path", test_onnx_models.paths(), ids=lambda path: path.stem)
def test_light_model(path) -> None:
    model = test_onnx_models.seeded(path)
    given = {tensor.name for tensor in model.graph.initializer}
    (image,) = (i for i in model.graph.input if i.name not in given)
    sizes = [d.dim_value for d in image.type.tensor_type.shape.dim]
    assert_same(model, [test_models.normal(*sizes)])


@pytest.mark.parametrize("dtype", SUMS, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("layout", ["kk", "kn", "mk", "mn"])
@pytest.mark.parametrize(
    "sizes", [(1, 2048, 4096, 1536), (3, 1000, 1016, 776), (2, 77, 333, 51)],
    ids=["large", "chunks", "odd"],
)  # fmt: skip
def test_product(dtype: type, layout: str, sizes: tuple[int, ...]) -> None:
    """Products on tensor cores, by warpgroups where there are any: exact on integers."""
    model, inputs, expected = matrices(layout, sizes, dtype)
    options = {"precision": "tf32"}
    (got,) = stepwell.compile(str(model), target="cuda", options=options)(*inputs)
    np.testing.assert_array_equal(got.astype(expected.dtype), expected)


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let batches run on the GPU, with 64-bit types in jax."""

    def run(cases: Sequence[Case], **options: object) -> list[Arrays]:
        module = programs.export(cases).mlir_module()
        executable = stepwell.compile(module, target="cuda", options=options)
        return programs.results_of(cases, executable)

    monkeypatch.setattr(programs, "run", run)
    with jax.enable_x64(True):
        yield


BATCHES: dict[str, Batch] = {
    name.lower(): batch for name, batch in vars(test_kernels).items() if isinstance(batch, Batch)
}


@pytest.mark.usefixtures("on_gpu")
@pytest.mark.parametrize(
    ("batch", "name"), [(batch, name) for batch in BATCHES for name in BATCHES[batch].cases]
)
def test_kernel(batch: str, name: str) -> None:
    BATCHES[batch].check(name)
