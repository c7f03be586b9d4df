"""`stepwell.load`: the file of a compiled model into memory."""

from __future__ import annotations

import os

from stepwell import stepped_artifact
from stepwell.artifact import Artifact
from stepwell.runtime.load_artifact import Loaded, load_artifact
from stepwell.runtime.stepped_executable import SteppedExecutable


def load(path: str | os.PathLike[str], threads: int | None = None) -> Loaded | SteppedExecutable:
    """Load an artifact file, onto the GPU if it was compiled for one. `threads` defaults to the
    physical cores at hand.

    Raises ArtifactError when the file is damaged or was made for another machine, Error when it
    needs a GPU and there is no driver.
    """
    source = stepped_artifact.read(path)
    if isinstance(source, Artifact):
        return load_artifact(source, threads)
    return SteppedExecutable(source, threads)
