"""What `stepwell-reduce` has worker processes do beside compiling: entries of `worker.Request`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from stepwell import artifact
from stepwell.errors import ArtifactError
from stepwell.frontends import load
from stepwell.inspection.program import Program
from stepwell.inspection.random_inputs import random_array
from stepwell.inspection.reductions import Strategy, make_constants_arguments, splat_constants
from stepwell.mlir import ir
from stepwell.options import CompileOptions
from stepwell.pipeline import compile_to_artifact
from stepwell.runtime.load_artifact import load_artifact
from stepwell.worker import Progress

REFERENCE = "reference"
"""The step of `run_both` in which something else than the model's code is made and run."""

LAST_DIGITS = 1e-6
"""By how much, relatively, `run_both` changes inputs to see how well-conditioned a program is."""

_SEED = 0

Shapes = Mapping[str, tuple[int, ...]]
Arrays = Sequence[np.ndarray]


def write_with_splats(source: Path, result: Path, *, shapes: Shapes | None, **_: object) -> None:
    """Write the model at `source` as StableHLO text, one value in each constant."""
    _write(_import(source, shapes), result, splat_constants)


def write_with_arguments(source: Path, result: Path, *, shapes: Shapes | None, **_: object) -> None:
    """The same with arguments in place of constants of several values."""
    _write(_import(source, shapes), result, make_constants_arguments)


def write_with_data(source: Path, result: Path, *, shapes: Shapes | None, **_: object) -> None:
    """The same with the constants as they are."""
    _write(_import(source, shapes), result, lambda program, take: None)


IMPORTS = (write_with_splats, write_with_arguments, write_with_data)
"""Ways to import a model, the one that is easiest to go on with first."""


def _import(source: Path, shapes: Shapes | None) -> Program:
    imported = load(source, shapes)
    return Program(imported.context, imported.module, imported.weights)


def _write(program: Program, result: Path, strategy: Strategy) -> None:
    with program.context, ir.Location.unknown():
        strategy(program, lambda: True)
        program.tidy()
    result.write_text(program.text())


def run_both(
    source: Path,
    result: Path,
    *,
    target: str,
    threads: int,
    shapes: Shapes | None,
    options: CompileOptions,
    progress: Progress,
) -> None:
    """Compile and run the model on random inputs; do the same without optimizations, and again with
    inputs changed in their last digits. The outputs of all three are written as `found0`, ..,
    `expected0`, .. and `moved0`, .. of an .npz file, nothing where this machine does not run code
    for `target`."""
    compile_to_artifact(
        source,
        result,
        target=target,
        threads=threads,
        shapes=shapes,
        options=options,
        progress=progress,
    )
    try:
        exe = load_artifact(artifact.read(result), threads)
    except ArtifactError:
        result.write_bytes(b"")
        return
    progress("run", None)
    generator = np.random.default_rng(_SEED)
    inputs = [
        random_array(generator, spec.dtype, tuple(map(int, spec.shape or ())))
        for spec in exe.inputs
    ]
    found = exe(*inputs)
    progress("run", 0.0)
    progress(REFERENCE, None)
    plain = dataclasses.replace(options, opt_level=0, precision="strict", tuning=None)
    compile_to_artifact(
        source, result, target=target, threads=threads, shapes=shapes, options=plain
    )
    reference = load_artifact(artifact.read(result), threads)
    moved = [_moved(generator, array) for array in inputs]
    outputs = {"found": found, "expected": reference(*inputs), "moved": reference(*moved)}
    with result.open("wb") as file:
        np.savez(file, allow_pickle=False, **_numbered(outputs))
    progress(REFERENCE, 0.0)


def _moved(generator: np.random.Generator, array: np.ndarray) -> np.ndarray:
    if array.dtype.kind not in "fcV":
        return array
    noise = 1 + LAST_DIGITS * generator.standard_normal(array.shape)
    return (array * noise).astype(array.dtype)


def _numbered(outputs: Mapping[str, Arrays]) -> dict[str, np.ndarray]:
    """Each array under its own name, floats that numpy's files have not as wider ones."""
    return {
        f"{kind}{number}": array.astype(np.float32) if array.dtype.kind == "V" else array
        for kind, arrays in outputs.items()
        for number, array in enumerate(arrays)
    }
