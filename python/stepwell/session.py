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
from stepwell.errors import UsageError
from stepwell.options import CompileOptions
from stepwell.runtime.load import load
from stepwell.sources import Model
from stepwell.specialization import TENSOR, OpenSpec

_ELEMENT_TYPES = {
    "float32": "float",
    "float64": "double",
}
"""numpy's names in ONNX's words; all others are the same."""


@dataclass(frozen=True)
class NodeArg:
    """An input or output: `type` as onnxruntime spells it, `tensor(float)`; in `shape`, open
    dimensions stand by name, and it is None where not even the rank is known."""

    name: str
    type: str
    shape: list[int | str] | None


class Session:
    """A model to run by names. `model` is what `stepwell.compile` takes, or an artifact's path.

    What the model leaves open is compiled as it comes, as `stepwell.compile` has it.
    Raises what `stepwell.compile` and `stepwell.load` raise.
    """

    def __init__(
        self,
        model: Model,
        target: str = "cpu",
        threads: int | None = None,
        shapes: Shapes | None = None,
        options: CompileOptions | Mapping[str, object] | None = None,
    ) -> None:
        if isinstance(model, str | os.PathLike) and artifact.is_artifact(model):
            self._executable = load(Path(str(model)), threads)
        else:
            self._executable = compile(model, target, threads, shapes, options)

    def run(
        self, output_names: Sequence[str] | None, feed: Mapping[str, object]
    ) -> list[np.ndarray]:
        """The outputs called `output_names` (None: all) for the inputs in `feed`.

        Raises InputError for wrong inputs and UsageError for an unknown output.
        """
        outputs = self._executable.run(feed)
        names = list(outputs) if output_names is None else list(output_names)
        for name in names:
            if name not in outputs:
                raise UsageError(f"the model has no output {name!r}; it has: {', '.join(outputs)}")
        return [outputs[name] for name in names]

    def get_inputs(self) -> list[NodeArg]:
        """The inputs as the model declares them."""
        return [_node_arg(spec) for spec in self._executable.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """The outputs as the model declares them."""
        return [_node_arg(spec) for spec in self._executable.outputs]


def _node_arg(spec: TensorSpec | OpenSpec) -> NodeArg:
    tensor = f"tensor({_ELEMENT_TYPES.get(spec.dtype, spec.dtype)})"
    kind = spec.kind.replace(TENSOR, tensor) if isinstance(spec, OpenSpec) else tensor
    return NodeArg(spec.name, kind, None if spec.shape is None else list(spec.shape))
