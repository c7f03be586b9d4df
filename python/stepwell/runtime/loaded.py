"""What models in memory have in common, on whatever machine they run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np

from stepwell import artifact
from stepwell.artifact import Artifact, KernelInfo, TensorSpec
from stepwell.runtime.checks import make_checks
from stepwell.runtime.inputs import named_inputs, numpy_dtype
from stepwell.runtime.results import arranged
from stepwell.specialization import OpenSpec

Shape = tuple[int, ...]
Spec = TypeVar("Spec", TensorSpec, OpenSpec)


class NamedModel(Generic[Spec]):
    """A compiled model: its signature, calls by name, its file."""

    def __init__(
        self, source: Artifact, inputs: tuple[Spec, ...], outputs: tuple[Spec, ...]
    ) -> None:
        self.artifact = source
        self.inputs, self.outputs = inputs, outputs
        self.kernels: tuple[KernelInfo, ...] = source.manifest.kernels
        self.result_names = [spec.name for spec in outputs]

    @property
    def place(self) -> str:
        """Where it runs, in words."""
        raise NotImplementedError

    def __call__(self, *arrays: object) -> tuple[np.ndarray, ...]:
        """Run on `arrays`, one for each of `inputs`. Returns one array for each of `outputs`.

        Raises InputError for a wrong number, dtype or rank, and for sizes that do not fit; and
        CheckError where the program has checks in it, one of which fails.
        """
        raise NotImplementedError

    def run(self, feed: Mapping[str, object]) -> dict[str, np.ndarray]:
        """Run on arrays by input name; returns arrays by output name. Raises InputError."""
        outputs = self(*named_inputs(self.inputs, feed))
        return dict(zip(self.result_names, outputs, strict=True))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the artifact to `path`, which appears whole or not at all. Raises ArtifactError."""
        with artifact.replaced_file(path) as file:
            file.write(self.artifact.file)

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.inputs))
        outputs = ", ".join(map(str, self.outputs))
        return f"<stepwell.{type(self).__name__} ({inputs}) -> ({outputs}) on {self.place}>"


class LoadedModel(NamedModel[TensorSpec]):
    """A compiled model for known shapes.

    A result that is a sequence is a list, an empty optional is None; where a shape depends on data,
    `outputs` has the largest.
    """

    def __init__(self, source: Artifact) -> None:
        manifest = source.manifest
        super().__init__(source, manifest.inputs, manifest.visible_outputs)
        self.result_names = list(manifest.results) or self.result_names
        self._expected = [(numpy_dtype(spec.dtype), spec.shape) for spec in manifest.inputs]
        self._results = [(numpy_dtype(spec.dtype), spec.shape) for spec in manifest.outputs]
        self._cuts, self._layouts = manifest.cuts, manifest.results
        self._checks = manifest.checks

    def _arranged(self, outputs: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        if self._checks:
            make_checks(self._checks, outputs)
            outputs = outputs[: -2 * len(self._checks)]
        if self._cuts or self._layouts:
            return tuple(arranged(outputs, self._cuts, self._layouts))
        return tuple(outputs)
