"""What a worker is asked to do, and what a peer gives back."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Job:
    """One model for one peer.

    `path` is the file that the peer reads, `data` the .npz of inputs and references, `folder` one
    for the peer's own files, `cpus` the ones to run on, `precision` that of products of float32.
    """

    peer: str
    module: str
    model: str
    path: str
    data: str
    folder: str
    threads: int
    cpus: tuple[int, ...]
    starts_pinned: bool = False
    precision: str = "f32"

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def from_json(text: str) -> Job:
        fields = json.loads(text)
        return Job(**fields | {"cpus": tuple(fields["cpus"])})

    def inputs(self) -> dict[str, np.ndarray]:
        """Input arrays by name, in signature order."""
        return {key[3:]: array for key, array in self._arrays("in:").items()}

    def references(self) -> list[np.ndarray]:
        """The outputs to be reached, in order."""
        return list(self._arrays("out:").values())

    def _arrays(self, prefix: str) -> dict[str, np.ndarray]:
        with np.load(Path(self.data)) as data:
            return {key: data[key] for key in data.files if key.startswith(prefix)}


@dataclass(frozen=True)
class Prepared:
    """A model ready to run: `call` runs it once on the job's inputs and returns its outputs.
    `artifact_bytes` is the size of what would be deployed, weights included, where that is known;
    `building_s` seconds went into making the module anew, which is no part of compiling it.
    """

    call: Callable[[], Sequence[np.ndarray]]
    artifact_bytes: int | None = None
    building_s: float = 0.0
