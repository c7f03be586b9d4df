"""Compiled code in memory, on the machine that each artifact was compiled for."""

from __future__ import annotations

from typing import TypeAlias

from stepwell.artifact import Artifact
from stepwell.runtime.cuda_executable import CudaExecutable
from stepwell.runtime.cuda_open_sizes import OpenSizeCudaExecutable
from stepwell.runtime.executable import Executable
from stepwell.runtime.open_sizes import OpenSizeExecutable

OpenLoaded: TypeAlias = OpenSizeExecutable | OpenSizeCudaExecutable
"""One with open sizes."""

Loaded: TypeAlias = Executable | CudaExecutable | OpenLoaded
"""A compiled model in memory."""


def load_artifact(source: Artifact, threads: int | None = None) -> Loaded:
    """Load an artifact in memory, onto the GPU if it was compiled for one. `threads` defaults to
    the physical cores at hand.

    Raises ArtifactError when it was made for another machine, Error when it needs a GPU and there
    is no driver.
    """
    is_open = source.manifest.open_sizes is not None
    if source.manifest.cuda is not None:
        return OpenSizeCudaExecutable(source) if is_open else CudaExecutable(source)
    return OpenSizeExecutable(source, threads) if is_open else Executable(source, threads)
