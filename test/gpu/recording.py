"""Records what tests run on the emulator, for a machine that has a GPU and no compiler.

`STEPWELL_RECORD=FOLDER pytest test/gpu` keeps a file for each executable that a test calls: its
artifact, the inputs of its first call, and the results, which the test has looked at.
`python test/gpu/replay.py FOLDER` runs them on a GPU.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from stepwell.runtime.cuda_executable import CudaExecutable

FOLDER = Path(os.environ["STEPWELL_RECORD"]) if "STEPWELL_RECORD" in os.environ else None
"""Where records go; None where tests are just run."""

Call = Callable[..., tuple[np.ndarray, ...]]


def recorded(call: Call, folder: Path) -> Call:
    """`CudaExecutable.__call__` that leaves a record of the first call that gave results."""
    folder.mkdir(parents=True, exist_ok=True)
    seen: set[int] = set()

    def run(executable: CudaExecutable, *arrays: object) -> tuple[np.ndarray, ...]:
        results = call(executable, *arrays)
        file = executable.artifact.file
        inputs = [np.asarray(array) for array in arrays]
        shapes = [tuple(spec.shape) for spec in executable.inputs]
        whole = executable.results_are_arrays and [a.shape for a in inputs] == shapes
        if id(file) not in seen and whole:
            seen.add(id(file))
            kept.append(file)
            test = re.sub(r"\W+", "-", os.environ["PYTEST_CURRENT_TEST"].removesuffix(" (call)"))
            name = test.removeprefix("test-gpu-test_")[:120].strip("-")
            save(folder / f"{name}-{len(seen)}.zip", bytes(file), inputs, results)
        return results

    kept: list[memoryview] = []
    return run


def save(
    path: Path, artifact: bytes, inputs: list[np.ndarray], results: tuple[np.ndarray, ...]
) -> None:
    """Write a record; its arrays are bytes, of which the artifact tells types and shapes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("artifact", artifact)
        for kind, arrays in (("input", inputs), ("result", results)):
            for number, array in enumerate(arrays):
                file.writestr(f"{kind}{number}", np.ascontiguousarray(array).tobytes())
