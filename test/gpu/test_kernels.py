"""Kernel families on the emulated GPU: every so many of the programs that test the CPU's kernels.

All of them were run once; the stride keeps the suite short and touches every family.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import jax
import models
import programs
import pytest
import test_contraction_kernels as contraction
import test_convolution_kernels as convolution
import test_data_movement_kernels as movement
import test_elementwise_kernels as elementwise
import test_reduction_kernels as reduction
from emulator import Emulator
from programs import Arrays, Batch, Case


@pytest.fixture(autouse=True)
def on_emulator(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let batches run on the emulator, with 64-bit types in jax."""

    def run(cases: Sequence[Case], **options: object) -> list[Arrays]:
        exported = programs.export(cases)
        compiled = models.compile_for_gpu(exported.mlir_module(), **options)
        return programs.results_of(cases, models.load_on_emulator(compiled, emulator))

    monkeypatch.setattr(programs, "run", run)
    with jax.enable_x64(True):
        yield


def every(stride: int, module: object) -> Batch:
    """A batch of every `stride`-th case of a module's batches."""
    found = [b for b in vars(module).values() if isinstance(b, Batch)]
    cases = [case for batch in found for case in batch.cases.values()]
    known = programs.EXPECTED_FAILURES
    return Batch([case for case in cases[::stride] if case.name not in known])


ELEMENTWISE = every(9, elementwise)
REDUCTION = every(8, reduction)
MOVEMENT = every(5, movement)
CONTRACTION = every(14, contraction)
CONVOLUTION = every(9, convolution)


@ELEMENTWISE.parametrize()
def test_elementwise(name: str) -> None:
    ELEMENTWISE.check(name)


@REDUCTION.parametrize()
def test_reduction(name: str) -> None:
    REDUCTION.check(name)


@MOVEMENT.parametrize()
def test_data_movement(name: str) -> None:
    MOVEMENT.check(name)


@CONTRACTION.parametrize()
def test_contraction(name: str) -> None:
    CONTRACTION.check(name)


@CONVOLUTION.parametrize()
def test_convolution(name: str) -> None:
    CONVOLUTION.check(name)
