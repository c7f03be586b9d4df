"""The inputs and outputs that an ONNX graph declares, and the tensors that they are made of."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import onnx

from stepwell import dtypes
from stepwell.errors import LoweringError, ModelError, OpenModelError
from stepwell.frontends import Shapes, TensorSpec
from stepwell.runtime.inputs import numpy_dtype
from stepwell.specialization import TENSOR, OpenSpec, Specialization, Structure


def graph_inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """The inputs that a call gives: those that no initializer gives."""
    initialized = {tensor.name for tensor in graph.initializer}
    initialized |= {tensor.values.name for tensor in graph.sparse_initializer}
    return [info for info in graph.input if info.name not in initialized]


def default_inputs(graph: onnx.GraphProto) -> tuple[OpenSpec, ...]:
    """The inputs that have an initializer, which a call may override, as it is shaped."""
    declared = {info.name for info in graph.input}
    tensors = [(tensor, tensor.dims) for tensor in graph.initializer]
    tensors += [(sparse.values, sparse.dims) for sparse in graph.sparse_initializer]
    return tuple(
        OpenSpec(
            tensor.name,
            element_dtype(tensor.data_type, f'the initializer "{tensor.name}"').name,
            tuple(dims),
        )
        for tensor, dims in tensors
        if (tensor.name or "") in declared
    )


def open_signature(graph: onnx.GraphProto) -> tuple[tuple[OpenSpec, ...], tuple[OpenSpec, ...]]:
    """Inputs and outputs as declared."""
    return (
        tuple(open_spec(info, f'input "{info.name}"') for info in graph_inputs(graph)),
        tuple(open_spec(info, "") for info in graph.output),
    )


def open_spec(info: onnx.ValueInfoProto, place: str) -> OpenSpec:
    """A declaration. Raises ModelError, for an input at `place`, when its type is not supported;
    outputs (no place) may lack a type."""
    kind, tensor = _kind(info.type)
    if kind is None or "map(" in kind:
        if place:
            raise ModelError(f"{place} is not a tensor; only tensors are supported")
        return OpenSpec(info.name, "?", None)
    if place:
        dtype = element_dtype(tensor.elem_type, place).name
    else:
        with contextlib.suppress(ModelError):
            return OpenSpec(
                info.name, element_dtype(tensor.elem_type, "").name, _sizes(tensor), kind
            )
        dtype = "?"
    return OpenSpec(info.name, dtype, _sizes(tensor), kind)


def host_spec(info: onnx.ValueInfoProto) -> OpenSpec:
    """A declaration in a model that the host has a part in: its strings and maps stand as well."""
    kind, tensor = _kind(info.type)
    if kind is None or not tensor.elem_type:
        return OpenSpec(info.name, "?", None, kind or TENSOR)
    strings = tensor.elem_type == onnx.TensorProto.STRING
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    return OpenSpec(info.name, "string" if strings else dtype.name, _sizes(tensor), kind)


def _kind(kind: onnx.TypeProto) -> tuple[str | None, onnx.TypeProto.Tensor]:
    """The structure of a type, and the type of its tensors."""
    if kind.HasField("tensor_type"):
        return TENSOR, kind.tensor_type
    for field, name, inner in (
        ("sequence_type", "seq", kind.sequence_type.elem_type),
        ("optional_type", "optional", kind.optional_type.elem_type),
    ):
        if kind.HasField(field):
            text, tensor = _kind(inner)
            return (None if text is None else f"{name}({text})"), tensor
    if kind.HasField("map_type"):
        key = onnx.TensorProto.DataType.Name(kind.map_type.key_type).lower()
        text, tensor = _kind(kind.map_type.value_type)
        return f"map({key}, {text})", tensor
    return None, kind.tensor_type


def _sizes(tensor: onnx.TypeProto.Tensor) -> tuple[int | str, ...] | None:
    if not tensor.HasField("shape"):
        return None
    return tuple(
        d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in tensor.shape.dim
    )


def element_dtype(kind: int, place: str) -> np.dtype:
    """The numpy dtype of an element type of ONNX. Raises ModelError, which names the place."""
    if kind in onnx.TensorProto.DataType.values() and kind not in (
        onnx.TensorProto.UNDEFINED,
        onnx.TensorProto.STRING,
    ):
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind))
        with contextlib.suppress(LoweringError):
            dtypes.to_mlir(dtype)
            return dtype
    name = onnx.TensorProto.DataType.Name(kind) if kind else "undefined"
    raise ModelError(f"{place} has element type {name}, which is not supported")


def input_tensors(
    spec: OpenSpec, shapes: Shapes, specialization: Specialization
) -> list[TensorSpec]:
    """The tensors of one input. Raises OpenModelError when their shapes or number are not known."""
    if spec.kind != TENSOR and spec.name not in specialization.structures:
        raise OpenModelError(
            f'input "{spec.name}" is {spec.kind}: what it holds is known when the model runs; '
            "stepwell.compile compiles it then"
        )
    structure = specialization.structures.get(spec.name, TENSOR)
    return [_input_tensor(spec, name, shapes.get(name)) for name in _leaves(spec.name, structure)]


def _leaves(name: str, structure: Structure) -> Iterator[str]:
    if structure == TENSOR:
        yield name
    elif isinstance(structure, list):
        for index, part in enumerate(structure):
            yield from _leaves(f"{name}[{index}]", part)


def _input_tensor(spec: OpenSpec, name: str, given: tuple[int, ...] | None) -> TensorSpec:
    dtype = numpy_dtype(spec.dtype)
    text = "..." if spec.shape is None else ", ".join(map(str, spec.shape))
    if given is None:
        if spec.shape is not None and not any(isinstance(n, str) for n in spec.shape):
            return TensorSpec(name, dtype, tuple(int(n) for n in spec.shape))
        example = tuple(1 if isinstance(n, str) else n for n in spec.shape or ())
        raise OpenModelError(
            f'input "{name}" has open dimensions [{text}]; '
            f'give its shape, for instance shapes={{"{name}": {example}}}, on the command line '
            f"--shape {name}={'x'.join(map(str, example))}"
        )
    given = tuple(int(n) for n in given)
    matches = spec.shape is None or (
        len(given) == len(spec.shape)
        and all(isinstance(d, str) or d == n for d, n in zip(spec.shape, given, strict=True))
    )
    if not matches:
        raise ModelError(
            f'input "{name}" is declared [{text}] in the model, but shapes= gives {given}'
        )
    return TensorSpec(name, dtype, given)
