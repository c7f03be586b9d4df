"""The order of a graph's nodes: each after those it reads, which not every tool heeds."""

from __future__ import annotations

import heapq

import onnx


def with_sorted_nodes(model: onnx.ModelProto) -> onnx.ModelProto:
    """`model`, or a copy whose main graph has each node after those that compute what it or its
    subgraphs read; nodes that need not move keep their order. A cycle is left as it is."""
    nodes = model.graph.node
    maker = {name: number for number, node in enumerate(nodes) for name in node.output if name}
    needs = [
        {maker[name] for name in _read(node) if name in maker} - {number}
        for number, node in enumerate(nodes)
    ]
    if all(max(before, default=-1) < number for number, before in enumerate(needs)):
        return model
    readers: list[list[int]] = [[] for _ in nodes]
    for number, before in enumerate(needs):
        for other in before:
            readers[other].append(number)
    left = [len(before) for before in needs]
    ready = [number for number, count in enumerate(left) if not count]
    order: list[int] = []
    while ready:
        order.append(heapq.heappop(ready))
        for reader in readers[order[-1]]:
            left[reader] -= 1
            if not left[reader]:
                heapq.heappush(ready, reader)
    if len(order) < len(nodes):
        return model
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:]
    result.graph.node.extend(nodes[number] for number in order)
    return result


def _read(node: onnx.NodeProto) -> set[str]:
    """The names that `node` and its subgraphs read."""
    found = set(node.input)
    for attribute in node.attribute:
        for graph in [attribute.g, *attribute.graphs]:
            found.update(name for inner in graph.node for name in _read(inner))
            found.update(info.name for info in graph.output)
    return found
