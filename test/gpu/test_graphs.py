"""Repeated calls as CUDA graphs, and times by events, on the emulated driver."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from emulator import Emulator
from jax import lax
from jax import numpy as jnp
from models import Compiled, compile_for_gpu, load_on_emulator
from test_models import exported, normal

from stepwell.launch import timed_kernels
from stepwell.runtime.cuda_executable import CudaExecutable

WEIGHT = normal(24, 24, seed=9) / 5


def layers(x: jax.Array) -> jax.Array:
    return jax.nn.softmax(jnp.tanh(x @ WEIGHT) @ WEIGHT)


def expected(x: np.ndarray) -> np.ndarray:
    return np.asarray(jax.jit(layers)(x))


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return compile_for_gpu(exported(layers, normal(5, 24)))


def graphs(emulator: Emulator) -> int:
    return emulator.library.emulator_graph_launches()


def test_the_second_call_records_a_graph(compiled: Compiled, emulator: Emulator) -> None:
    executable = load_on_emulator(compiled, emulator)
    program = compiled.artifact.manifest.cuda
    assert program is not None
    launches = len(timed_kernels(program.code))
    for call in range(4):
        x = normal(5, 24, seed=call)
        # Sums of 24 and a softmax: some units in the last place.
        np.testing.assert_allclose(executable(x)[0], expected(x), rtol=1e-5, atol=1e-6)
        assert graphs(emulator) == call
        assert emulator.library.emulator_launches() == (call + 1) * launches


def test_graphs_of_other_addresses(compiled: Compiled, emulator: Emulator) -> None:
    """Inputs on the GPU stand in the graph: each set of addresses has one, of few kept."""
    executable = load_on_emulator(compiled, emulator)
    x = normal(5, 24)
    on_device = [load_on_emulator(compiled, emulator).run_on_device(x)[0] for _ in range(6)]
    for tensor in on_device * 3:
        np.testing.assert_allclose(
            executable(tensor)[0], expected(tensor.numpy()), rtol=1e-5, atol=1e-6
        )
    before = graphs(emulator)
    for _ in range(3):
        (result,) = executable(on_device[0])
    assert graphs(emulator) == before + 2
    np.testing.assert_allclose(result, expected(on_device[0].numpy()), rtol=1e-5, atol=1e-6)


def test_a_driver_without_graphs(compiled: Compiled, emulator: Emulator) -> None:
    emulator.configure(graphs=False)
    executable = load_on_emulator(compiled, emulator)
    for seed in range(3):
        x = normal(5, 24, seed=seed)
        np.testing.assert_allclose(executable(x)[0], expected(x), rtol=1e-5, atol=1e-6)
    assert graphs(emulator) == 0
    check_profile(executable, normal(5, 24))


def check_profile(executable: CudaExecutable, x: np.ndarray) -> None:
    profile = executable.profile(x)
    assert [kernel for kernel, _ in profile] == list(executable.kernels)
    assert all(time > 0 for _, time in profile)


def test_profile(compiled: Compiled, emulator: Emulator) -> None:
    check_profile(load_on_emulator(compiled, emulator), normal(5, 24))


def test_conditions_are_not_recorded(emulator: Emulator) -> None:
    """A loop on the host: kernels run one by one, and times and work of its rounds are added up."""

    def halve(x: jax.Array) -> jax.Array:
        return lax.while_loop(lambda x: jnp.abs(x).max() > 1, lambda x: jnp.tanh(x) @ WEIGHT, x)

    x = normal(24, 24) * 8
    executable = load_on_emulator(compile_for_gpu(exported(halve, x)), emulator)
    for _ in range(3):
        np.testing.assert_allclose(executable(x)[0], np.asarray(halve(x)), rtol=1e-4, atol=1e-5)
    assert graphs(emulator) == 0
    rounds, y = 0, x
    while np.abs(y).max() > 1:
        rounds, y = rounds + 1, np.tanh(y) @ np.asarray(WEIGHT)
    assert rounds > 1
    for (kernel, time), once in zip(executable.profile(x), executable.kernels, strict=True):
        assert time > 0
        runs = [rounds] if once.strategy == "contraction" else [rounds, rounds + 1]
        assert kernel in map(once.repeated, runs)
