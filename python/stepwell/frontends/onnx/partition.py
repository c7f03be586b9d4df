"""A model with strings or maps, cut into parts that are compiled and parts that run on the host.

    x -> Normalizer -> TreeEnsembleClassifier (labels are strings) -> label, scores
                                                              scores -> ZipMap -> maps

    compiled: Normalizer, TreeEnsembleClassifier (labels are numbers)   -> number, scores
    host:     LabelEncoder (number -> string), ZipMap                   -> label, maps

Parts follow each other, compiled and host by turns: a node stands in the first part of its kind
that comes after all it needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx
import onnx.shape_inference
from onnx import helper

from stepwell.errors import ModelError
from stepwell.frontends.onnx.checking import check_model
from stepwell.frontends.onnx.dependencies import uses
from stepwell.frontends.onnx.functions import inlined
from stepwell.frontends.onnx.host_operators import ALWAYS_ON_HOST, is_host_type
from stepwell.frontends.onnx.node import node_name
from stepwell.frontends.onnx.sorting import with_sorted_nodes

_NUMBERED = {
    "LinearClassifier": "classlabels_ints",
    "SVMClassifier": "classlabels_ints",
    "TreeEnsembleClassifier": "classlabels_int64s",
}
"""Classifiers of ai.onnx.ml, and their attribute of labels that are numbers."""


@dataclass(frozen=True)
class Part:
    """A model of its own: its inputs are inputs of the whole model, or outputs of earlier parts."""

    model: onnx.ModelProto
    on_host: bool


def partition(model: onnx.ModelProto, more: frozenset[str] = frozenset()) -> list[Part]:
    """The parts in the order in which they run; none when nothing has to run on the host, nor is
    one of the operators `more`, which do.

    Raises ModelError for a graph that makes no sense, and where the type of a value that one part
    hands to another is not known.
    """
    model = with_sorted_nodes(inlined(model))
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    _number_labels(whole.graph)
    whole = _inferred(whole)
    graph = whole.graph
    types = _types(graph)
    values = {name for name, kind in types.items() if is_host_type(kind)}
    numbers = _part_numbers(graph, values, ALWAYS_ON_HOST | more)
    if not any(number % 2 for number in numbers):
        return []
    check_model(model)
    count = max(numbers) + 1
    groups = [
        [n for n, at in zip(graph.node, numbers, strict=True) if at == i] for i in range(count)
    ]
    parts: list[Part] = []
    for number, nodes in enumerate(groups):
        later = [node for group in groups[number + 1 :] for node in group]
        wanted = {name for node in later for name in uses(node)}
        wanted |= {info.name for info in graph.output}
        if nodes:
            parts.append(Part(_model(whole, nodes, wanted, types), number % 2 == 1))
    return parts


def _part_numbers(
    graph: onnx.GraphProto, on_host: set[str], operators: frozenset[str]
) -> list[int]:
    """Of each node its part: even ones are compiled, odd ones run on the host, for a value that is
    `on_host` or as one of the `operators`."""
    ready: dict[str, int] = {}
    numbers: list[int] = []
    for node in graph.node:
        names = [*uses(node), *node.output]
        host = any(child.op_type in operators for child in _nested(node))
        host = host or any(name in on_host for name in names)
        number = max((ready.get(name, 0) for name in uses(node)), default=0)
        number += number % 2 != host
        numbers.append(number)
        ready |= dict.fromkeys(node.output, number)
    return numbers


def _nested(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    yield node
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for child in graph.node:
                yield from _nested(child)


def _number_labels(graph: onnx.GraphProto) -> None:
    """Let classifiers whose labels are strings give their numbers, which a LabelEncoder names."""
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        nodes.append(node)
        attribute = _NUMBERED.get(node.op_type)
        named = next((a for a in node.attribute if a.name == "classlabels_strings"), None)
        if attribute is None or named is None or not named.strings:
            continue
        labels = [label.decode() for label in named.strings]
        node.attribute.remove(named)
        node.attribute.append(helper.make_attribute(attribute, range(len(labels))))
        label = node.output[0]
        if label:
            node.output[0] = f"{label}/number"
            nodes.append(
                helper.make_node(
                    "LabelEncoder",
                    [node.output[0]],
                    [label],
                    f"{node_name(node)}/labels",
                    domain="ai.onnx.ml",
                    keys_int64s=range(len(labels)),
                    values_strings=labels,
                )
            )
    del graph.node[:]
    graph.node.extend(nodes)


def _inferred(model: onnx.ModelProto) -> onnx.ModelProto:
    try:
        return onnx.shape_inference.infer_shapes(model)
    except Exception:  # inference raises anything on what it does not know; compiling names it
        return model


def _types(graph: onnx.GraphProto) -> dict[str, onnx.TypeProto]:
    """The types of all values that are known, those of subgraphs among them."""
    types = {i.name: i.type for i in (*graph.input, *graph.value_info, *graph.output)}
    types |= {
        tensor.name: helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
        for tensor in graph.initializer
    }
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                types |= _types(inner)
    return types


def _model(
    whole: onnx.ModelProto,
    nodes: Sequence[onnx.NodeProto],
    wanted: set[str],
    types: Mapping[str, onnx.TypeProto],
) -> onnx.ModelProto:
    graph = whole.graph
    made = {name for node in nodes for name in node.output if name}
    needed = dict.fromkeys(name for node in nodes for name in uses(node) if name not in made)
    initializers = {tensor.name: tensor for tensor in graph.initializer if tensor.name in needed}
    sparse = [tensor for tensor in graph.sparse_initializer if tensor.values.name in needed]
    constants = {*initializers, *(tensor.values.name for tensor in sparse)}
    inputs = [name for name in needed if name not in constants]
    outputs = [name for node in nodes for name in node.output if name in wanted]
    for name in (*inputs, *outputs):
        if name not in types:
            raise ModelError(f'the type of "{name}" is not known, which strings or maps depend on')
    part = helper.make_graph(
        nodes,
        graph.name or "part",
        [helper.make_value_info(name, types[name]) for name in inputs],
        [helper.make_value_info(name, types[name]) for name in outputs],
        list(initializers.values()),
        sparse_initializer=sparse,
    )
    model = helper.make_model(part, opset_imports=whole.opset_import)
    model.ir_version = whole.ir_version
    return model
