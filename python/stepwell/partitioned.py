"""A model of which some nodes run on the host: on strings, on maps, and decoders of images."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeAlias, cast

import numpy as np

from stepwell.errors import InputError, ModelError, UsageError
from stepwell.runtime.inputs import input_array
from stepwell.specialization import OpenSpec, check_names, check_shape

if TYPE_CHECKING:
    import onnx

    from stepwell.frontends.onnx.partition import Part

Shapes = Mapping[str, Sequence[int]]


class Runner(Protocol):
    """What runs a compiled part."""

    def run(self, feed: Mapping[str, object]) -> Mapping[str, object]: ...


CompilePart: TypeAlias = "Callable[[onnx.ModelProto, Shapes], Runner]"


class _HostRunner:
    """Runs a model by onnx's reference evaluator. Raises ModelError for operators it lacks."""

    def __init__(self, model: onnx.ModelProto) -> None:
        from onnx.reference import ReferenceEvaluator

        from stepwell.frontends.onnx.host_operators import OPERATORS
        from stepwell.frontends.onnx.node import node_name

        self.nodes = [f"{node_name(node)} ({node.op_type})" for node in model.graph.node]
        try:
            self._evaluator = ReferenceEvaluator(_with_initializers(model), new_ops=OPERATORS)
        except Exception as error:  # it has its own kinds for operators that it lacks
            raise ModelError(f"{', '.join(self.nodes)}: not supported: {error}") from error

    def run(self, feed: Mapping[str, object]) -> dict[str, object]:
        """Results by output name. Raises InputError, which names the nodes."""
        try:
            results = self._evaluator.run(None, dict(feed))
        except Exception as error:  # onnx's operators raise anything
            raise InputError(f"{', '.join(self.nodes)} (on the host): {error}") from error
        assert isinstance(results, list)
        names = map(str, self._evaluator.output_names)
        return dict(zip(names, map(_with_objects, results), strict=True))


def _with_initializers(model: onnx.ModelProto) -> onnx.ModelProto:
    """`model` with tensors in the place of its constants, which would be made in each run."""
    found = type(model)()
    found.CopyFrom(model)
    del found.graph.node[:]
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            found.graph.initializer.add().CopyFrom(node.attribute[0].t)
            found.graph.initializer[-1].name = node.output[0]
        else:
            found.graph.node.add().CopyFrom(node)
    return found


@dataclass(frozen=True)
class _Part:
    """`inputs` are names of values of the whole model."""

    runner: Runner
    inputs: tuple[str, ...]


class PartitionedExecutable:
    """Parts of a model, compiled and host by turns; used as an `Executable` is.

    Tensors of strings are arrays of objects, and arrays of str or lists of them as inputs; maps are
    dicts. The nodes on the host are run by onnx's reference evaluator.
    """

    def __init__(
        self, model: onnx.ModelProto, parts: Sequence[_Part], fixed: Mapping[str, tuple[int, ...]]
    ) -> None:
        from onnx import numpy_helper

        from stepwell.frontends.onnx import signature

        self.inputs: tuple[OpenSpec, ...] = tuple(
            signature.host_spec(info) for info in signature.graph_inputs(model.graph)
        )
        self.outputs: tuple[OpenSpec, ...] = tuple(map(signature.host_spec, model.graph.output))
        self._parts, self._fixed = parts, fixed
        names = {spec.name for spec in self.outputs}
        self._constants = {
            tensor.name: numpy_helper.to_array(tensor)
            for tensor in model.graph.initializer
            if tensor.name in names
        }

    def __call__(self, *values: object) -> tuple[np.ndarray, ...]:
        """Run on one value for each of `inputs`. Returns one for each of `outputs`.

        Raises InputError for values that do not fit, and what `stepwell.compile` raises.
        """
        if len(values) != len(self.inputs):
            raise InputError(
                f"the model takes {len(self.inputs)} inputs "
                f"({', '.join(map(str, self.inputs))}) and was given {len(values)}"
            )
        names = [spec.name for spec in self.inputs]
        return tuple(self.run(dict(zip(names, values, strict=True))).values())

    def run(self, feed: Mapping[str, object]) -> dict[str, np.ndarray]:
        """Run on values by input name; returns results by output name: arrays, lists of results for
        sequences, dicts for maps. Raises as a call does."""
        check_names(self.inputs, feed)
        values: dict[str, object] = {**self._constants}
        for spec in self.inputs:
            shape = self._fixed.get(spec.name, spec.shape)
            value = feed.get(spec.name)
            values[spec.name] = _input(spec.name, spec.kind, spec.dtype, shape, value)
        for part in self._parts:
            values |= part.runner.run({name: values[name] for name in part.inputs})
        results = {spec.name: values[spec.name] for spec in self.outputs}
        return cast("dict[str, np.ndarray]", results)

    def profile(self, *values: object) -> NoReturn:
        """Raises UsageError: kernels are timed in models that are compiled whole."""
        raise UsageError(f"the model cannot be profiled: {self._reason()}")

    def save(self, path: str | os.PathLike[str]) -> NoReturn:
        """Raises UsageError: an artifact holds compiled code alone."""
        raise UsageError(f"the model cannot be saved as an artifact: {self._reason()}")

    def _reason(self) -> str:
        hosts = [part.runner for part in self._parts if isinstance(part.runner, _HostRunner)]
        nodes = [name for host in hosts for name in host.nodes]
        return f"{', '.join(nodes)} {'runs' if len(nodes) == 1 else 'run'} on the host"

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, specs)) for specs in (self.inputs, self.outputs))
        return f"<stepwell.PartitionedExecutable ({inputs}) -> ({outputs}), {self._reason()}>"


def split(
    model: object, shapes: Shapes, on_host: frozenset[str] = frozenset()
) -> tuple[onnx.ModelProto, list[Part]] | None:
    """`model`, with its weights, and its parts in the order in which they run; None when it is not
    an ONNX model with nodes for the host. The operators `on_host` are some, too.

    Raises ModelError, also for `shapes` of what is no input.
    """
    from stepwell.frontends.onnx import reader

    whole = reader.find_model(model)
    if whole is None:
        return None
    from stepwell.frontends.onnx.partition import partition

    parts = partition(whole, on_host)
    if not parts:
        return None
    if isinstance(model, (str, os.PathLike)):
        for proto in (whole, *(part.model for part in parts)):
            reader.load_weights(proto, Path(os.fspath(model)).parent)
    inputs = {info.name for info in whole.graph.input}
    for name in shapes:
        if name not in inputs:
            raise ModelError(f'shapes= names "{name}", which is no input of the model')
    return whole, parts


def partitioned(
    model: object,
    shapes: Shapes,
    compile_part: CompilePart,
    on_host: frozenset[str] = frozenset(),
) -> PartitionedExecutable | None:
    """`model` in parts; None when it is not an ONNX model with nodes for the host. The operators
    `on_host` are some, too.

    Raises ModelError and what `compile_part` raises.
    """
    found = split(model, shapes, on_host)
    if found is None:
        return None
    whole, parts = found
    runners: list[_Part] = []
    for part in parts:
        names = tuple(info.name for info in part.model.graph.input)
        here = {name: shape for name, shape in shapes.items() if name in names}
        runner = _HostRunner(part.model) if part.on_host else compile_part(part.model, here)
        runners.append(_Part(runner, names))
    fixed = {name: tuple(int(n) for n in shape) for name, shape in shapes.items()}
    return PartitionedExecutable(whole, runners, fixed)


def _input(
    name: str, kind: str, dtype: str, shape: tuple[int | str, ...] | None, value: object
) -> object:
    """`value` as the parts take it. Raises InputError when it is not of the declared kind."""
    if kind.startswith("optional("):
        return None if value is None else _input(name, kind[9:-1], dtype, shape, value)
    if kind.startswith("seq("):
        if not isinstance(value, (list, tuple)):
            raise InputError(f"input {name!r} is a {type(value).__name__}; the model takes a list")
        return [_input(f"{name}[{i}]", kind[4:-1], dtype, shape, v) for i, v in enumerate(value)]
    if kind.startswith("map("):
        if not isinstance(value, Mapping):
            raise InputError(f"input {name!r} is a {type(value).__name__}; the model takes a dict")
        return dict(value)
    array = _strings(name, value) if dtype == "string" else input_array(name, value, dtype)
    if shape is not None:
        check_shape(name, array.shape, shape)
    return array


def _strings(name: str, value: object) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    result = array.astype(object)
    for element in result.flat:
        if not isinstance(element, str):
            raise InputError(
                f"input {name!r} holds a {type(element).__name__}; the model takes strings"
            )
    return result


def _with_objects(value: object) -> object:
    """A result of the reference evaluator, its strings as objects."""
    if isinstance(value, np.ndarray):
        return value.astype(object) if value.dtype.kind == "U" else value
    if isinstance(value, str):
        return np.array(value, object)
    if isinstance(value, np.generic):
        return np.asarray(value)
    return [_with_objects(part) for part in value] if isinstance(value, list) else value
