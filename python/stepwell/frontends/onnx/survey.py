"""Every node of an ONNX model that cannot be compiled, found without compiling anything.

Importing stops looking behind a node that it cannot import, and does not begin with inputs that it
cannot take. A survey looks at every node by itself: whether its operator is known in the version
that the model imports, and whether it touches strings. What the import finds besides (attributes,
types, shapes) is added by the caller.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

import onnx
import onnx.shape_inference

from stepwell.errors import Unsupported
from stepwell.frontends.onnx import registry
from stepwell.frontends.onnx.functions import ONNX_DOMAINS, inlined
from stepwell.frontends.onnx.gradient import is_gradient
from stepwell.frontends.onnx.host_operators import ALWAYS_ON_HOST
from stepwell.frontends.onnx.importer import is_known, opset_versions, version_of
from stepwell.frontends.onnx.node import node_name
from stepwell.frontends.onnx.sorting import with_sorted_nodes


def survey(model: onnx.ModelProto, imported: tuple[Unsupported, ...] = ()) -> list[Unsupported]:
    """All findings, in the order of the nodes; `imported` are those of an import of `model`."""
    model = _inferred(with_sorted_nodes(inlined(model)))
    opsets = opset_versions(model)
    types = dict(_types(model.graph))
    reasons = {(f.node, f.operator): f.reason for f in imported}
    findings: list[Unsupported] = []
    for proto in _nodes(model.graph):
        version = version_of(proto, opsets)
        reason = reasons.pop((node_name(proto), proto.op_type), "")
        if proto.op_type in ALWAYS_ON_HOST or _on_host(proto, types):
            reason = (
                "it works on strings, maps or image files: stepwell.compile runs it on the host, "
                "and no artifact can hold it"
            )
        elif not is_known(proto, version) and not is_gradient(proto):
            reason = "the operator is not supported"
        if reason:
            described = tuple(f"{name}: {types.get(name, '?')}" for name in proto.input if name)
            findings.append(
                Unsupported(
                    node_name(proto),
                    proto.op_type,
                    reason,
                    "" if proto.domain in ONNX_DOMAINS else proto.domain,
                    version,
                    described,
                    "" if "on the host" in reason else _nearest(proto, version),
                )
            )
    rest = [Unsupported(*place, reason) for place, reason in reasons.items()]
    return findings + rest


def _inferred(model: onnx.ModelProto) -> onnx.ModelProto:
    try:
        return onnx.shape_inference.infer_shapes(model)
    except Exception:  # inference raises anything on what it does not know; it only adds words
        return model


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """All nodes, those of subgraphs after the node that holds them."""
    for proto in graph.node:
        yield proto
        for attribute in proto.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner)


def _types(graph: onnx.GraphProto) -> Iterator[tuple[str, str]]:
    for info in (*graph.input, *graph.value_info, *graph.output):
        yield info.name, _described(info.type)
    for tensor in graph.initializer:
        dims = [onnx.TensorShapeProto.Dimension(dim_value=n) for n in tensor.dims]
        yield tensor.name, _tensor(tensor.data_type, dims)
    for proto in graph.node:
        for attribute in proto.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _types(inner)


def _described(kind: onnx.TypeProto) -> str:
    if kind.HasField("tensor_type"):
        tensor = kind.tensor_type
        return _tensor(
            tensor.elem_type, list(tensor.shape.dim) if tensor.HasField("shape") else None
        )
    if kind.HasField("sequence_type"):
        return f"sequence of {_described(kind.sequence_type.elem_type)}"
    if kind.HasField("optional_type"):
        return f"optional {_described(kind.optional_type.elem_type)}"
    return "map" if kind.HasField("map_type") else "?"


def _tensor(kind: int, dims: list[onnx.TensorShapeProto.Dimension] | None) -> str:
    name = onnx.TensorProto.DataType.Name(kind).lower() if kind else "?"
    if dims is None:
        return name
    sizes = [str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?" for d in dims]
    return f"{name}[{', '.join(sizes)}]"


def _on_host(proto: onnx.NodeProto, types: dict[str, str]) -> bool:
    kinds = [types.get(name, "").partition("[")[0] for name in (*proto.input, *proto.output)]
    return any("string" in kind or "map" in kind for kind in kinds)


def _nearest(proto: onnx.NodeProto, version: int) -> str:
    """What comes nearest of what is registered: another version, another domain, another name."""
    domain = "" if proto.domain in ONNX_DOMAINS else proto.domain
    entries = registry.registered()
    same = [entry for entry in entries if entry.name == proto.op_type]
    newer = [entry.since for entry in same if entry.domain == domain and entry.since > version]
    if newer:
        return f"{proto.op_type} from version {min(newer)} of the domain on"
    others = [entry.domain or "ai.onnx" for entry in same if entry.domain != domain]
    if others:
        return f"{proto.op_type} of domain {others[0]}"
    names = sorted({entry.name for entry in entries if entry.domain == domain})
    close = difflib.get_close_matches(proto.op_type, names, 1, 0.8)
    return close[0] if close and not same else ""
