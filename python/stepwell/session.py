"""`Session`: the interface that users of onnxruntime know."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stepwell import artifact
from stepwell.artifact import TensorSpec
from stepwell.compiler import Shapes, compile
from stepwell.errors import InputError, ModelError, UsageError
from stepwell.options import CompileOptions
from stepwell.runtime.executable import Executable, load
from stepwell.sources import Model

_ELEMENT_TYPES = {
    "float32": "float",
    "float64": "double",
}
"""numpy's names in ONNX's words; all others are the same."""


@dataclass(frozen=True)
class NodeArg:
    """An input or output: `type` as onnxruntime spells it, `tensor(float)`; in `shape`, open
    dimensions of a model that is not compiled yet stand by name."""

    name: str
    type: str
    shape: list[int | str]


class Session:
    """A model to run by names. `model` is what `stepwell.compile` takes, or an artifact's path.

    A model that is not an artifact is compiled again, once, for every new set of input shapes;
    an ONNX model with open dimensions, and no `shapes`, for the first time when it first runs.
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
        self._compile = functools.partial(compile, model, target, threads, options=options)
        self._by_shapes: dict[tuple[tuple[int, ...], ...], Executable] = {}
        is_path = isinstance(model, str | os.PathLike)
        self._is_artifact = is_path and artifact.is_artifact(model)
        declared = None if self._is_artifact or shapes else onnx_signature(model)
        if declared is not None and any(isinstance(n, str) for i in declared[0] for n in i.shape):
            self._inputs, self._outputs = declared
            return
        if self._is_artifact:
            self._remember(load(Path(str(model)), threads))
        else:
            self._remember(self._compile(shapes))

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
        return self._inputs

    def get_outputs(self) -> list[NodeArg]:
        """The outputs, with the shapes compiled last."""
        return self._outputs

    def _remember(self, executable: Executable) -> Executable:
        self._by_shapes[tuple(spec.shape for spec in executable.inputs)] = executable
        self._inputs = [_node_arg(spec) for spec in executable.inputs]
        self._outputs = [_node_arg(spec) for spec in executable.outputs]
        return executable

    def _executable(self, feed: Mapping[str, object]) -> Executable:
        names = [item.name for item in self._inputs]
        shapes = tuple(_shape(feed[name]) for name in names if name in feed)
        if shapes in self._by_shapes:
            return self._by_shapes[shapes]
        if self._by_shapes:
            latest = list(self._by_shapes.values())[-1]
            same_ranks = [len(s) for s in shapes] == [len(spec.shape) for spec in latest.inputs]
            if self._is_artifact or not same_ranks:
                return latest  # which says what is wrong with the inputs
        elif len(shapes) < len(names):
            missing = next(name for name in names if name not in feed)
            raise InputError(f"the input {missing!r} was not given")
        try:
            return self._remember(self._compile(dict(zip(names, shapes, strict=True))))
        except ModelError as error:  # the shapes do not fit the model
            raise InputError(str(error)) from error


def onnx_signature(model: Model) -> tuple[list[NodeArg], list[NodeArg]] | None:
    """Inputs and outputs as an ONNX file declares them; None when `model` is not such a file."""
    if not isinstance(model, str | os.PathLike) or Path(model).suffix != ".onnx":
        return None
    import onnx

    from stepwell.frontends.onnx import reader

    graph = reader.read_file(Path(model)).graph
    constants = {tensor.name for tensor in graph.initializer}

    def node_arg(info: onnx.ValueInfoProto) -> NodeArg:
        tensor = info.type.tensor_type
        sizes = [d.dim_value if d.HasField("dim_value") else d.dim_param for d in tensor.shape.dim]
        dtype = str(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        return _node_arg_of(info.name, dtype, list(sizes))

    inputs = [node_arg(info) for info in graph.input if info.name not in constants]
    return inputs, [node_arg(info) for info in graph.output]


def _node_arg(spec: TensorSpec) -> NodeArg:
    return _node_arg_of(spec.name, spec.dtype, list(spec.shape))


def _node_arg_of(name: str, dtype: str, shape: list[int | str]) -> NodeArg:
    return NodeArg(name, f"tensor({_ELEMENT_TYPES.get(dtype, dtype)})", shape)


def _shape(value: object) -> tuple[int, ...]:
    return tuple(getattr(value, "shape", None) or np.asarray(value).shape)
