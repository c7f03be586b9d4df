"""Which part of an ONNX graph values depend on, and what of it is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx


def ancestors(graph: onnx.GraphProto, wanted: Sequence[str], present: set[str]) -> onnx.GraphProto:
    """The part of `graph` that the values called `wanted` depend on, down to those `present`: nodes
    that give these have no other outputs."""
    needed = set(wanted)
    kept: list[onnx.NodeProto] = []
    for proto in reversed(graph.node):
        inside = tuple(mark for name in proto.output if name for mark in (f"{name}/", f"{name}["))
        has_inner = any(name.startswith(inside) for name in wanted)
        read = needed.intersection(proto.output)
        if not read and not has_inner:
            continue
        if not has_inner and read <= present:
            given = onnx.NodeProto()
            given.CopyFrom(proto)
            given.output[:] = [name if name in read else "" for name in proto.output]
            proto = given
        else:
            needed.update(read_names(proto))
        kept.append(proto)
    part = onnx.GraphProto()
    part.node.extend(reversed(kept))
    part.initializer.extend(t for t in graph.initializer if t.name in needed)
    part.sparse_initializer.extend(t for t in graph.sparse_initializer if t.values.name in needed)
    return part


def depends_on_inputs(graph: onnx.GraphProto, name: str) -> bool:
    """Whether the value called `name` depends on the graph's inputs, or on their shapes."""
    read = {name}
    for proto in ancestors(graph, [name], set()).node:
        read |= read_names(proto)
    return not read.isdisjoint(info.name for info in graph.input)


def unread(graph: onnx.GraphProto, known: set[str], found: set[str]) -> Iterator[str]:
    """Those of the `known` values that nothing reads on the way to the graph's outputs once those
    `found` are known, too."""
    outputs = [info.name for info in graph.output]
    present = known | found
    read, inside = set(outputs), []
    for proto in ancestors(graph, outputs, present).node:
        if not present.issuperset(filter(None, proto.output)):
            read |= read_names(proto)
            inside += [f"{name}/" for name in proto.output if name]
    for name in sorted(known):
        is_read = not read.isdisjoint((name, name.rpartition("[")[0]))
        if not is_read and not name.startswith(tuple(inside)):
            yield name


def read_names(proto: onnx.NodeProto) -> set[str]:
    """The values that a node reads, those that its subgraphs capture among them."""
    names = set(proto.input)
    for attribute in proto.attribute:
        for graph in (attribute.g, *attribute.graphs):
            names.update(info.name for info in graph.output)
            for inner in graph.node:
                names |= read_names(inner)
    return names


def uses(proto: onnx.NodeProto) -> Iterator[str]:
    """The values of the graph around a node that it reads, those that its subgraphs capture among
    them; some more than once."""
    yield from filter(None, proto.input)
    for attribute in proto.attribute:
        for graph in (attribute.g, *attribute.graphs):
            own = {info.name for info in graph.input}
            own |= {tensor.name for tensor in graph.initializer}
            own |= {tensor.values.name for tensor in graph.sparse_initializer}
            own |= {name for inner in graph.node for name in inner.output}
            read = [name for inner in graph.node for name in uses(inner)]
            read += [info.name for info in graph.output]
            yield from (name for name in read if name not in own)
