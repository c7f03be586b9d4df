"""Operators that the ONNX standard defines by a function body: found in onnx's own schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, cast

import onnx
import onnx.inliner
from onnx import defs

from stepwell.errors import ModelError
from stepwell.frontends.onnx.node import Tensor

ONNX_DOMAINS = ("", "ai.onnx")
"""The names of the standard's own domain."""


class _Schema(Protocol):
    """What is used of `onnx.defs.OpSchema`; onnx's own stubs leave most of it out."""

    attributes: Mapping[str, defs.OpSchema.Attribute]
    has_function: bool
    has_context_dependent_function: bool
    function_opset_versions: Sequence[int]
    context_dependent_function_opset_versions: Sequence[int]

    def get_function_with_opset_version(self, version: int) -> bytes: ...

    def get_context_dependent_function_with_opset_version(
        self, version: int, node: bytes, types: list[bytes]
    ) -> bytes: ...


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """`model` with its own functions in the place of the nodes that call them, those of other
    versions of ONNX's operators converted to the model's. Raises ModelError for functions that
    cannot be, as those that call themselves."""
    if not model.functions:
        return model
    try:
        return onnx.inliner.inline_local_functions(model, convert_version=True)
    except Exception as error:  # onnx has a kind of its own for each problem
        raise ModelError(f"the model's functions cannot be inlined: {error}") from error


def schema_function(
    proto: onnx.NodeProto, opset: int, inputs: Sequence[Tensor | None]
) -> onnx.FunctionProto | None:
    """The standard's function body of `proto`, its attributes filled in; None when it has none."""
    if proto.domain not in ONNX_DOMAINS or not defs.has(proto.op_type):
        return None
    try:
        version = min(opset, defs.onnx_opset_version())
        schema = cast(_Schema, defs.get_schema(proto.op_type, version, ""))
    except defs.SchemaError:
        return None
    body = _body(schema, proto, opset, inputs)
    return None if body is None else _with_attributes(body, proto, schema)


def has_function(proto: onnx.NodeProto) -> bool:
    """Whether the standard defines the operator of `proto` by a function body."""
    if not defs.has(proto.op_type):
        return False
    schema = cast(_Schema, defs.get_schema(proto.op_type))
    return schema.has_function or schema.has_context_dependent_function


def _body(
    schema: _Schema, proto: onnx.NodeProto, opset: int, inputs: Sequence[Tensor | None]
) -> onnx.FunctionProto | None:
    if schema.has_context_dependent_function:
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
        if not versions:
            return None
        types = [_type(tensor).SerializeToString() for tensor in inputs]
        data = schema.get_context_dependent_function_with_opset_version(
            max(versions), proto.SerializeToString(), types
        )
    elif schema.has_function:
        versions = [v for v in schema.function_opset_versions if v <= opset]
        if not versions:
            return None
        data = schema.get_function_with_opset_version(max(versions))
    else:
        return None
    body = onnx.FunctionProto()
    body.ParseFromString(data)
    return body if body.node else None


def _type(tensor: Tensor | None) -> onnx.TypeProto:
    if tensor is None:
        return onnx.TypeProto()
    kind = onnx.helper.np_dtype_to_tensor_dtype(tensor.dtype)
    return onnx.helper.make_tensor_type_proto(kind, tensor.shape)


def _with_attributes(
    body: onnx.FunctionProto, proto: onnx.NodeProto, schema: _Schema
) -> onnx.FunctionProto:
    """Replace references to the function's attributes by the node's values or the defaults."""
    given = {name: a.default_value for name, a in schema.attributes.items() if a.default_value.name}
    given |= {attribute.name: attribute for attribute in proto.attribute}
    for node in body.node:
        kept: list[onnx.AttributeProto] = []
        for attribute in node.attribute:
            if not attribute.ref_attr_name:
                kept.append(attribute)
            elif attribute.ref_attr_name in given:
                value = onnx.AttributeProto()
                value.CopyFrom(given[attribute.ref_attr_name])
                value.name = attribute.name
                kept.append(value)
        del node.attribute[:]
        node.attribute.extend(kept)
    return body
