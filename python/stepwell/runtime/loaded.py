"""What models in memory have in common, on whatever machine they run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np

from stepwell import artifact
from stepwell.artifact import Artifact, KernelInfo, TensorSpec
from stepwell.runtime.checks import make_checks
from stepwell.runtime.inputs import named_inputs, numpy_dtype
from stepwell.runtime.results import arranged


class LoadedModel:
    """A compiled model: its signature, calls by name, its file.

    A result that is a sequence is a list, an empty optional is None; where a shape depends on data,
    `outputs` has the largest.
    """

    def __init__(self, source: Artifact) -> None:
        manifest = source.manifest
        self.artifact = source
        self.inputs: tuple[TensorSpec, ...] = manifest.inputs
        self.outputs: tuple[TensorSpec, ...] = manifest.visible_outputs
        self.kernels: tuple[KernelInfo, ...] = manifest.kernels
        self.result_names = list(manifest.results) or [spec.name for spec in self.outputs]
        self._expected = [(numpy_dtype(spec.dtype), spec.shape) for spec in manifest.inputs]
        self._results = [(numpy_dtype(spec.dtype), spec.shape) for spec in manifest.outputs]
        self._cuts, self._layouts = manifest.cuts, manifest.results
        self._checks = manifest.checks

    @property
    def place(self) -> str:
        """Where it runs, in words."""
        raise NotImplementedError

    def __call__(self, *arrays: object) -> tuple[np.ndarray, ...]:
        """Run on `arrays`, one for each of `inputs`. Raises InputError, and CheckError where the
        program has checks in it, one of which fails."""
        raise NotImplementedError

    def run(self, feed: Mapping[str, object]) -> dict[str, np.ndarray]:
        """Run on arrays by input name; returns arrays by output name. Raises InputError."""
        outputs = self(*named_inputs(self.inputs, feed))
        return dict(zip(self.result_names, outputs, strict=True))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the artifact to `path`, which appears whole or not at all. Raises ArtifactError."""
        with artifact.replaced_file(path) as file:
            file.write(self.artifact.file)

    def _arranged(self, outputs: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        if self._checks:
            make_checks(self._checks, outputs)
            outputs = outputs[: -2 * len(self._checks)]
        if self._cuts or self._layouts:
            return tuple(arranged(outputs, self._cuts, self._layouts))
        return tuple(outputs)

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.inputs))
        outputs = ", ".join(map(str, self.outputs))
        return f"<stepwell.{type(self).__name__} ({inputs}) -> ({outputs}) on {self.place}>"
