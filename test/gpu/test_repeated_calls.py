"""One model called again and again, with arrays of the host and, at changing addresses, of the GPU:
launches, their recording as a graph, and its replay."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from emulator import Emulator
from models import Compiled, compile_for_gpu, load_on_emulator
from test_models import exported, normal

import stepwell
from stepwell.runtime.device_arrays import DeviceArray

WEIGHT = normal(64, 64, seed=1) / 8
INPUTS = [normal(40, 64, seed=seed).astype(np.float16) for seed in range(3)]


def layers(x: jax.Array) -> jax.Array:
    return jax.nn.softmax(x @ WEIGHT.astype(x.dtype)) @ WEIGHT.astype(x.dtype)


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return compile_for_gpu(exported(layers, INPUTS[0]))


@pytest.fixture(scope="module")
def expected() -> list[np.ndarray]:
    on_host = stepwell.compile(exported(layers, INPUTS[0]))
    return [on_host(x)[0] for x in INPUTS]


def assert_near(got: np.ndarray, expected: np.ndarray) -> None:
    """Results below 1 of f16, of which both sides round some in between."""
    np.testing.assert_allclose(got.astype(np.float32), expected.astype(np.float32), atol=2e-3)


def test_arrays(compiled: Compiled, expected: list[np.ndarray], emulator: Emulator) -> None:
    executable = load_on_emulator(compiled, emulator)
    for _ in range(4):
        for x, want in zip(INPUTS, expected, strict=True):
            assert_near(executable(x)[0], want)
    on_device = [DeviceArray.copy_of(x) for x in INPUTS]
    for _ in range(4):
        for x, want in zip(on_device, expected, strict=True):
            assert_near(executable(x)[0], want)
            assert_near(executable.run_on_device(x)[0].numpy(), want)


def test_tensors_of_torch(
    compiled: Compiled, expected: list[np.ndarray], emulator: Emulator
) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    executable = load_on_emulator(compiled, emulator)
    for x, want in zip(INPUTS, expected, strict=True):
        tensor = 0.5 * torch.from_numpy(2 * x).cuda()  # still under way when the call begins
        (result,) = executable.run_on_device(tensor)
        assert_near(torch.from_dlpack(result).cpu().numpy(), want)


def test_time(compiled: Compiled, emulator: Emulator) -> None:
    executable = load_on_emulator(compiled, emulator)
    assert executable.time(INPUTS[0], calls=3) >= 0
    with pytest.raises(stepwell.UsageError, match="calls is 0; it must be 1 or more"):
        executable.time(INPUTS[0], calls=0)
