"""The driver shim: what it says when something is missing, and that its errors are sentences."""

from __future__ import annotations

import ctypes.util
import dataclasses
import os
import struct
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from emulator import Emulator
from models import Compiled, compile_for_gpu, load_on_emulator, needs_ptxas

import stepwell
from stepwell import artifact, ptxas
from stepwell.launch import LAUNCH
from stepwell.runtime.cuda import DRIVER_VARIABLE
from stepwell.runtime.cuda_executable import CudaExecutable

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return compile_for_gpu(str(jax.export.export(jax.jit(lambda x: x * 2 + 1))(X).mlir_module()))


def test_without_a_driver(compiled: Compiled, tmp_path: Path) -> None:
    """In a process of its own: a driver is loaded once."""
    path = tmp_path / "model.stepwell"
    path.write_bytes(compiled.artifact.file)
    for driver, sentence in (
        ("libnone.so.1", "there is no CUDA driver here: libnone.so.1"),
        (ctypes.util.find_library("m") or "libm.so.6", "is too old: it lacks cuInit"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", f"import stepwell; stepwell.load({str(path)!r})"],
            env={**os.environ, DRIVER_VARIABLE: driver},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 1
        assert sentence in done.stderr.splitlines()[-1]


def test_load_and_run(compiled: Compiled, emulator: Emulator, tmp_path: Path) -> None:
    first = load_on_emulator(compiled, emulator)
    first.save(tmp_path / "model.stepwell")
    loaded = stepwell.load(tmp_path / "model.stepwell")
    assert isinstance(loaded, CudaExecutable)
    (name,), (output,) = [s.name for s in loaded.inputs], [s.name for s in loaded.outputs]
    np.testing.assert_array_equal(loaded.run({name: X})[output], X * 2 + 1)
    assert loaded.device.name == "emulated GPU"
    assert loaded.device.capability == (9, 0)


def test_wrong_inputs(compiled: Compiled, emulator: Emulator) -> None:
    executable = load_on_emulator(compiled, emulator)
    with pytest.raises(stepwell.InputError, match="takes 1 input"):
        executable(X, X)
    with pytest.raises(stepwell.InputError, match="has shape"):
        executable(X.T.copy())


def test_failed_launch(compiled: Compiled, emulator: Emulator) -> None:
    executable = load_on_emulator(compiled, emulator)
    emulator.configure(broken=True)
    with pytest.raises(
        stepwell.Error, match=r"could not launch a kernel: .*CUDA_ERROR_LAUNCH_FAILED, error 719"
    ):
        executable(X)
    emulator.configure()
    np.testing.assert_array_equal(executable(X)[0], X * 2 + 1)


@pytest.mark.parametrize(
    ("gpu", "sentence"),
    [
        ({"devices": 0}, "the CUDA driver sees no GPU"),
        ({"capability": (8, 0)}, "compiled for sm_90a, compute capability 9.0, and emulated GPU "
         "has 8.0"),
        ({"capability": (10, 0)}, "has 10.0; compile the model again for it"),
    ],
)  # fmt: skip
def test_unfit_gpus(gpu: dict, sentence: str, compiled: Compiled, emulator: Emulator) -> None:
    emulator.configure(**gpu)
    with pytest.raises(stepwell.Error) as caught:
        load_on_emulator(compiled, emulator)
    assert sentence in str(caught.value)


def test_later_gpus_take_ptx(emulator: Emulator) -> None:
    """sm_80 runs on 9.0 by its PTX, which a driver that is too old does not take."""
    module = str(jax.export.export(jax.jit(lambda x: x - 3))(X).mlir_module())
    made = compile_for_gpu(module, "cuda:sm_80")
    np.testing.assert_array_equal(load_on_emulator(made, emulator)(X)[0], X - 3)
    emulator.configure(driver=11080)
    with pytest.raises(
        stepwell.ArtifactError, match=r"holds PTX of CUDA 12.0, and the driver .* CUDA 11.8"
    ):
        load_on_emulator(made, emulator)


def test_artifact_without_cubins(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no ptxas, an artifact has PTX alone, which drivers assemble."""
    monkeypatch.setattr(ptxas, "can_assemble", lambda target: False)
    module = str(jax.export.export(jax.jit(lambda x: x - 7))(X).mlir_module())
    made = compile_for_gpu(module)
    program = made.artifact.manifest.cuda
    assert program is not None
    assert all(image.cubin is None for image in program.images)
    assert all(bytes(part).startswith(b"//") for part in made.artifact.code_parts())
    np.testing.assert_array_equal(load_on_emulator(made, emulator)(X)[0], X - 7)


@pytest.mark.skipif(needs_ptxas(), reason="no ptxas to make cubins with")
def test_older_drivers_take_ptx(emulator: Emulator) -> None:
    """Cubins of CUDA 13 do not load in drivers of CUDA 12: these get PTX where they know it."""
    module = str(jax.export.export(jax.jit(lambda x: x - 5))(X).mlir_module())
    made = compile_for_gpu(module)
    emulator.configure(driver=12040)
    np.testing.assert_array_equal(load_on_emulator(made, emulator)(X)[0], X - 5)
    emulator.configure(driver=12020)
    with pytest.raises(stepwell.ArtifactError, match=r"load kernel_.* later CUDA release than 12"):
        load_on_emulator(made, emulator)


@pytest.mark.parametrize("code", [(LAUNCH, 7, 1, 1, 0), (LAUNCH, 0, 1, 1, 9), (99,)])
def test_damaged_program(code: tuple[int, ...], compiled: Compiled, emulator: Emulator) -> None:
    for text in compiled.kernels.values():
        emulator.add(text)
    program = compiled.artifact.manifest.cuda
    assert program is not None
    manifest = dataclasses.replace(
        compiled.artifact.manifest, cuda=dataclasses.replace(program, code=code)
    )
    with pytest.raises(stepwell.Error, match="the launch program is damaged at position 0"):
        CudaExecutable(dataclasses.replace(compiled.artifact, manifest=manifest))


def test_kernel_that_is_missing(compiled: Compiled, emulator: Emulator) -> None:
    emulator.reset()
    with pytest.raises(stepwell.Error, match="could not load kernel_"):
        CudaExecutable(compiled.artifact)


def test_older_launches(compiled: Compiled, tmp_path: Path) -> None:
    path = tmp_path / "model.stepwell"
    data = bytearray(compiled.artifact.file)
    data[8:12] = struct.pack("<I", 3)
    path.write_bytes(data)
    with pytest.raises(stepwell.ArtifactError, match=r"format 3, whose launches .* compile"):
        artifact.read(path)


def test_manifest_survives_the_file(compiled: Compiled, tmp_path: Path) -> None:
    path = tmp_path / "model.stepwell"
    path.write_bytes(compiled.artifact.file)
    again = artifact.read(path)
    assert again.manifest == compiled.artifact.manifest
    assert again.manifest.code_format == "cuda"
