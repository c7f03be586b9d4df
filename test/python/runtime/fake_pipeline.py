"""Stands in for the pipeline in tests of the worker: what the model file says happens."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

from handmade import WEIGHT, manifest

from stepwell import artifact
from stepwell.errors import LoweringError, Unsupported, UnsupportedError
from stepwell.options import CompileOptions
from stepwell.worker import Progress


def compile_to_artifact(
    source: Path,
    artifact_path: Path,
    *,
    target: str,
    threads: int,
    shapes: dict[str, tuple[int, ...]] | None,
    options: CompileOptions,
    progress: Progress,
) -> None:
    """The first line of the model is `behaviour argument`."""
    behaviour, _, argument = source.read_text().splitlines()[0][2:].strip().partition(" ")
    progress("first-step", None)
    progress("first-step", 0.25)
    if options.dump_phases_to is not None:
        Path(options.dump_phases_to).mkdir(exist_ok=True)
        (Path(options.dump_phases_to) / "first-step.mlir").write_text("module {}\n")
    progress("second-step", None)
    _BEHAVIOURS[behaviour](argument)
    code = Path(os.environ["STEPWELL_TEST_CODE"]).read_bytes()
    artifact.write(artifact_path, manifest(threads=threads), code, [(0, WEIGHT)])


def _count(path: str) -> None:
    with open(path, "a") as file:
        file.write("compiled\n")


def _segfault(children: str) -> None:
    for _ in range(int(children or 0)):
        if os.fork() == 0:
            time.sleep(60)
    ctypes.string_at(0)


def _allocate(size: str) -> None:
    held = bytearray(int(size))
    held[-1] = 1


def _unsupported(_: str) -> None:
    raise UnsupportedError(
        [Unsupported("node_1", "Einsum", "not yet"), Unsupported("n2", "X", "y")]
    )


def _lowering_error(text: str) -> None:
    raise LoweringError(text)


def _bug(text: str) -> None:
    raise TypeError(text)


def _wait(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    time.sleep(60)


def _tell(path: str) -> None:
    Path(path).write_text(f"{os.getcwd()} {os.environ['TOLD']} {sorted(os.sched_getaffinity(0))}")


_BEHAVIOURS = {
    "tell": _tell,
    "count": _count,
    "segfault": _segfault,
    "allocate": _allocate,
    "unsupported": _unsupported,
    "lowering-error": _lowering_error,
    "bug": _bug,
    "wait": _wait,
}
