"""Compilers with a fault, for worker processes: STEPWELL_TEST_FAULT says which. It shows with
programs that have a cosine."""

from __future__ import annotations

import os
import time
from pathlib import Path

from stepwell import pipeline
from stepwell.errors import LoweringError
from stepwell.inspection import reduction_worker
from stepwell.mlir import ir, nested_operations, replace_operation

_run_step = pipeline._run_step


def compile_to_artifact(source: Path, artifact: Path, **arguments: object) -> None:
    """The pipeline's, with the fault in a step that -O0 leaves out."""
    pipeline._run_step = _faulty_step
    pipeline.compile_to_artifact(source, artifact, **arguments)  # pyright: ignore[reportArgumentType]


def run_both(source: Path, result: Path, **arguments: object) -> None:
    """So for programs that are run."""
    pipeline._run_step = _faulty_step
    reduction_worker.run_both(source, result, **arguments)  # pyright: ignore[reportArgumentType]


def _faulty_step(walk: pipeline.Walk, step: pipeline.Step, progress: pipeline.Progress) -> None:
    def run(name: str, seconds: float | None) -> None:
        progress(name, seconds)
        if name == "hoist-products" and seconds is None:
            for op in nested_operations(walk.module.operation):
                if op.name == "stablehlo.cosine":
                    _FAULTS[os.environ["STEPWELL_TEST_FAULT"]](op)

    _run_step(walk, step, run if progress is not None else None)


def _refuse(op: ir.Operation) -> None:
    raise LoweringError(f"{op.results[0].type}: cosine 17 has no lowering")


def _abort(op: ir.Operation) -> None:
    os.abort()


def _hang(op: ir.Operation) -> None:
    time.sleep(60)


def _replace(op: ir.Operation) -> None:
    replace_operation(op, "stablehlo.sine", {})


_FAULTS = {"error": _refuse, "crash": _abort, "timeout": _hang, "mismatch": _replace}
