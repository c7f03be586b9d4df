"""A loaded model that runs in steps, all of which are compiled."""

from __future__ import annotations

import os
from collections import defaultdict

from stepwell import artifact
from stepwell.errors import InputError
from stepwell.runtime.load_artifact import Loaded, OpenLoaded, load_artifact
from stepwell.runtime.open_model import OpenSizeModel
from stepwell.runtime.steps import Call, Step, SteppedModel
from stepwell.specialization import Key
from stepwell.stepped_artifact import SteppedArtifact


class SteppedExecutable(SteppedModel):
    """The steps of an artifact in memory; used as an `Executable` is.

    It takes calls for whose sizes, and values that shapes depend on, the artifact has code.
    """

    def __init__(self, source: SteppedArtifact, threads: int | None = None) -> None:
        codes = [load_artifact(part, threads) for part in source.artifacts]
        on_gpu = any(part.manifest.cuda is not None for part in source.artifacts)
        super().__init__(source.signature, on_gpu=on_gpu)
        self.artifact = source
        self._steps: dict[Key, Step] = {}
        self._for_any_size: dict[Key, list[tuple[Step, OpenLoaded]]] = defaultdict(list)
        for saved in source.steps:
            code: Loaded | None = None if saved.code is None else codes[saved.code]
            step = Step(code, saved.values, saved.sizes, saved.dropped, told=saved.told)
            if saved.any_size:
                assert isinstance(code, OpenSizeModel)
                self._for_any_size[saved.key].append((step, code))
            else:
                self._steps[saved.key] = step

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the artifact to `path`, which appears whole or not at all. Raises ArtifactError."""
        with artifact.replaced_file(path) as file:
            file.write(self.artifact.file)

    def _step(self, call: Call, number: int) -> Step:
        step = self._steps.get(call.key)
        if step is not None:
            return step
        for part, sizes in call.ways:
            for step, code in self._for_any_size.get(part, ()):
                if code.takes(sizes):
                    return step
        shapes = ", ".join(f"{name}: {list(shape)}" for name, shape in call.shapes(()).items())
        values = "".join(f", {name} = {array.tolist()}" for name, array in call.values.items())
        raise InputError(
            f"the artifact has no code for {shapes}{values}; of a model whose shapes depend on "
            "data, an artifact has what the calls before it was saved needed: compile the model "
            "again, with an example like this call"
        )

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, specs)) for specs in (self.inputs, self.outputs))
        return f"<stepwell.SteppedExecutable ({inputs}) -> ({outputs})>"
