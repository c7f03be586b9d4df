"""`Session`: the interface that users of onnxruntime know."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stepwell import artifact
from stepwell.artifact import TensorSpec
from stepwell.compiler import Shapes, compile
from stepwell.errors import InputError, UsageError
from stepwell.options import CompileOptions
from stepwell.runtime.executable import Executable, load
from stepwell.runtime.inputs import named_inputs
from stepwell.sources import Model

_ELEMENT_TYPES = {
    "float32": "float",
    "float64": "double",
}
"""numpy's names in ONNX's words; all others are the same."""


@dataclass(frozen=True)
class NodeArg:
    """An input or output: `type` as onnxruntime spells it, `tensor(float)`; `shape` a list."""

    name: str
    type: str
    shape: list[int]


class Session:
    """A model to run by names. `model` is what `stepwell.compile` takes, or an artifact's path.

    A model that is not an artifact is compiled again, once, for every new set of input shapes.
    """

    def __init__(
        self,
        model: Model,
        target: str = "cpu",
        threads: int | None = None,
        shapes: Shapes | None = None,
        options: CompileOptions | Mapping[str, object] | None = None,
    ) -> None:
        self._model = model
        self._settings = (target, threads)
        self._options = options
        self._by_shapes: dict[tuple[tuple[int, ...], ...], Executable] = {}
        is_path = isinstance(model, str | os.PathLike)
        self._is_artifact = is_path and artifact.is_artifact(Path(model))
        if self._is_artifact:
            self._latest = load(Path(str(model)), threads)
        else:
            self._latest = compile(model, target, threads, shapes, options)
        self._remember(self._latest)

    def run(
        self, output_names: Sequence[str] | None, feed: Mapping[str, object]
    ) -> list[np.ndarray]:
        """The outputs called `output_names` (None: all) for the inputs in `feed`.

        Raises InputError for wrong inputs and UsageError for an unknown output.
        """
        executable = self._executable(feed)
        outputs = executable.run(feed)
        names = list(outputs) if output_names is None else list(output_names)
        for name in names:
            if name not in outputs:
                raise UsageError(f"the model has no output {name!r}; it has: {', '.join(outputs)}")
        return [outputs[name] for name in names]

    def get_inputs(self) -> list[NodeArg]:
        """The inputs, with the shapes compiled last."""
        return [_node_arg(spec) for spec in self._latest.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """The outputs, with the shapes compiled last."""
        return [_node_arg(spec) for spec in self._latest.outputs]

    def _remember(self, executable: Executable) -> None:
        self._by_shapes[tuple(spec.shape for spec in executable.inputs)] = executable

    def _executable(self, feed: Mapping[str, object]) -> Executable:
        specs = self._latest.inputs
        shapes = tuple(_shape(value) for value in named_inputs(specs, feed))
        if shapes not in self._by_shapes:
            for spec, shape in zip(specs, shapes, strict=True):
                if self._is_artifact or len(shape) != len(spec.shape):
                    return self._latest  # which says what is wrong with the shape
            named = {spec.name: shape for spec, shape in zip(specs, shapes, strict=True)}
            try:
                self._latest = compile(self._model, *self._settings, named, self._options)
            except UsageError as error:
                raise InputError(str(error)) from error
            self._remember(self._latest)
        return self._by_shapes[shapes]


def _shape(value: object) -> tuple[int, ...]:
    return tuple(getattr(value, "shape", None) or np.asarray(value).shape)


def _node_arg(spec: TensorSpec) -> NodeArg:
    return NodeArg(
        spec.name, f"tensor({_ELEMENT_TYPES.get(spec.dtype, spec.dtype)})", list(spec.shape)
    )
