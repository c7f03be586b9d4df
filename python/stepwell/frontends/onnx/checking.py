"""What can be wrong with an ONNX model whatever its shapes are, each in one sentence."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Protocol, cast

import numpy as np
import onnx
from onnx import defs

from stepwell.errors import ModelError
from stepwell.frontends.onnx.functions import ONNX_DOMAINS

_TYPE = onnx.AttributeProto.AttributeType


class _Schema(Protocol):
    """What is used of `onnx.defs.OpSchema`; onnx's own stubs leave most of it out."""

    min_input: int
    max_input: int
    max_output: int
    attributes: dict[str, defs.OpSchema.Attribute]
    inputs: Sequence[_Parameter]
    type_constraints: Sequence[defs.OpSchema.TypeConstraintParam]


class _Parameter(Protocol):
    """What is used of `onnx.defs.OpSchema.FormalParameter`."""

    type_str: str
    option: object
    is_homogeneous: bool


def check_model(model: onnx.ModelProto) -> None:
    """Raise ModelError for values computed twice or never, for wrong numbers of inputs or outputs,
    and for attributes that are missing or of a wrong type."""
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    _check_graph(model.graph, set(), opsets)


def _check_graph(graph: onnx.GraphProto, outer: set[str], opsets: dict[str, int]) -> None:
    initialized = [tensor.name for tensor in graph.initializer]
    initialized += [tensor.values.name for tensor in graph.sparse_initializer]
    inputs = [info.name for info in graph.input]
    _check_unique(inputs, "input")
    _check_initializers(graph)
    known = {*outer, *inputs, *initialized}
    inside = {*inputs, *initialized}
    later = {name for proto in graph.node for name in proto.output}
    for proto in graph.node:
        place = _place(proto)
        for name in proto.input:
            if name and name not in known:
                why = (
                    "before any node computes it: the graph has a cycle or is not sorted"
                    if name in later
                    else "which no node computes, and which is no input or initializer"
                )
                raise ModelError(f'{place} reads "{name}" {why}')
        _check_node(proto, place, opsets)
        for attribute in proto.attribute:
            for subgraph in _subgraphs(attribute):
                _check_graph(subgraph, known, opsets)
        for name in filter(None, proto.output):
            if name in inside:
                raise ModelError(f'{place} computes "{name}", which has a value already')
            inside.add(name)
            known.add(name)
    for info in graph.output:
        if info.name not in known:
            raise ModelError(f'the output "{info.name}" is computed by no node')


def _check_unique(names: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ModelError(f'the {what} "{name}" is declared twice')
        seen.add(name)


def _check_initializers(graph: onnx.GraphProto) -> None:
    """The same tensor twice does no harm."""
    seen: dict[str, onnx.TensorProto] = {}
    for tensor in graph.initializer:
        if seen.setdefault(tensor.name, tensor) != tensor:
            raise ModelError(f'the initializer "{tensor.name}" is given twice, with different data')


def _check_node(proto: onnx.NodeProto, place: str, opsets: dict[str, int]) -> None:
    domain = "" if proto.domain in ONNX_DOMAINS else proto.domain
    newest = max((opsets[d] for d in ONNX_DOMAINS if d in opsets), default=1)
    version = opsets.get(domain, newest)
    if not defs.has(proto.op_type, domain):
        return
    try:
        schema = cast(_Schema, defs.get_schema(proto.op_type, version, domain))
    except defs.SchemaError:
        return
    given = len(proto.input)
    if not schema.min_input <= given <= schema.max_input:
        wanted = _range(schema.min_input, schema.max_input)
        raise ModelError(f"{place} has {given} inputs; the operator takes {wanted}")
    if len(proto.output) > schema.max_output:
        raise ModelError(
            f"{place} has {len(proto.output)} outputs; the operator gives {schema.max_output}"
        )
    attributes = {attribute.name: attribute for attribute in proto.attribute}
    for name, declared in schema.attributes.items():
        attribute = attributes.get(name)
        if attribute is None:
            if declared.required:
                raise ModelError(f'{place} lacks the attribute "{name}"')
        elif attribute.type and not attribute.ref_attr_name:
            found, wanted = _TYPE.Name(attribute.type), str(declared.type).rpartition(".")[2]
            if found != wanted:
                raise ModelError(
                    f'{place} has an attribute "{name}" of type {found}; it should be {wanted}'
                )


def mixed_types(
    proto: onnx.NodeProto, opset: int, inputs: Sequence[tuple[str, np.dtype] | None]
) -> str | None:
    """A sentence where inputs (name and type) that the operator wants of one type have several."""
    variables, last_repeats = _type_variables(proto.op_type, opset, proto.domain)
    first: dict[str, tuple[str, np.dtype]] = {}
    for number, given in enumerate(inputs):
        index = min(number, len(variables) - 1) if last_repeats else number
        variable = variables[index] if index < len(variables) else None
        if given is None or variable is None:
            continue
        name, dtype = first.setdefault(variable, given)
        if dtype != given[1]:
            return (
                f'its inputs "{name}" ({dtype}) and "{given[0]}" ({given[1]}) should be of one type'
            )
    return None


@functools.cache
def _type_variables(operator: str, opset: int, domain: str) -> tuple[tuple[str | None, ...], bool]:
    """The type variable of each input, and whether the last stands for all that follow."""
    domain = "" if domain in ONNX_DOMAINS else domain
    try:
        schema = cast(_Schema, defs.get_schema(operator, opset, domain))
    except defs.SchemaError:
        return (), False
    known = {constraint.type_param_str for constraint in schema.type_constraints}
    repeats = False
    variables: list[str | None] = []
    for parameter in schema.inputs:
        repeats = parameter.option == defs.OpSchema.FormalParameterOption.Variadic
        alike = parameter.type_str in known and (parameter.is_homogeneous or not repeats)
        variables.append(parameter.type_str if alike else None)
    return tuple(variables), repeats


def _range(least: int, most: int) -> str:
    if least == most:
        return str(least)
    return f"{least} or more" if most > 1 << 20 else f"{least} to {most}"


def _place(proto: onnx.NodeProto) -> str:
    first = next((output for output in proto.output if output), "")
    return f'node "{proto.name or f"{proto.op_type}_{first}"}" ({proto.op_type})'


def _subgraphs(attribute: onnx.AttributeProto) -> list[onnx.GraphProto]:
    single = [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else []
    return [*single, *attribute.graphs]
