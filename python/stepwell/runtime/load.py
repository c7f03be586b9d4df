"""Artifacts into memory, onto the machine that each was compiled for."""

from __future__ import annotations

import os
from typing import TypeAlias

from stepwell import artifact
from stepwell.artifact import Artifact
from stepwell.runtime.cuda_executable import CudaExecutable
from stepwell.runtime.cuda_open_sizes import OpenSizeCudaExecutable
from stepwell.runtime.executable import Executable
from stepwell.runtime.open_sizes import OpenSizeExecutable

OpenLoaded: TypeAlias = OpenSizeExecutable | OpenSizeCudaExecutable
"""One with open sizes."""

Loaded: TypeAlias = Executable | CudaExecutable | OpenLoaded
"""A compiled model in memory."""


def load(path: str | os.PathLike[str], threads: int | None = None) -> Loaded:
    """Load an artifact file, onto the GPU if it was compiled for one. `threads` defaults to the
    physical cores at hand.

    Raises ArtifactError when the file is damaged or was made for another machine, Error when it
    needs a GPU and there is no driver.
    """
    return load_artifact(artifact.read(path), threads)


def load_artifact(source: Artifact, threads: int | None = None) -> Loaded:
    """Load an artifact in memory; arguments and errors as for `load`."""
    is_open = source.manifest.open_sizes is not None
    if source.manifest.cuda is not None:
        return OpenSizeCudaExecutable(source) if is_open else CudaExecutable(source)
    return OpenSizeExecutable(source, threads) if is_open else Executable(source, threads)
