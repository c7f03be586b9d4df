"""Groups that one other group alone reads, computed there: nothing of them is written to memory.

An operation joins one of the groups it reads (`FusionGraph.place`); the others are merged into that
one here. In `a * b - c * d` the subtraction has joined the second product, and the first follows.
Several groups that read one, and need nothing of each other, become one that computes it too. A
concatenation takes the elementwise operations that make its parts, each computed where it is
written; a reduction over outer dimensions those that make what it reads once. Numbers that one
group makes of bytes for another to read are made there, and the bytes are what is written.
"""

from __future__ import annotations

import math

from stepwell.kernels.rows import is_costly
from stepwell.kernels.structured import alternates, element_type, elements
from stepwell.mlir import ir
from stepwell.passes.base import State
from stepwell.passes.linalg._fusion_graph import ANCHORED, RESULT, FusionGraph, Group, Node, Role
from stepwell.targets.nvidia import NvidiaTarget

LEAST_RESULTS = 1024
"""A reduction over outer dimensions to fewer results keeps few threads busy: what is costly to
compute stays in a kernel of its own."""


def absorb_producers(graph: FusionGraph, state: State) -> None:
    """Merge every group into the one that reads it, where that is the only one and computes at the
    same elements."""
    with graph.unchanged():
        _absorb(graph, together=not isinstance(state.target, NvidiaTarget))


def _absorb(graph: FusionGraph, *, together: bool) -> None:
    latest_first = sorted(graph.groups, key=lambda group: -group.last)
    for reader in latest_first:
        if reader.kind is not Role.CONCATENATE:
            _absorb_all(graph, reader)
    for group in latest_first:
        readers = _joinable_readers(graph, group)
        if readers:
            for other in readers[1:]:
                graph.absorb(other, readers[0])
            _absorb_all(graph, readers[0])
    for reader in latest_first:
        if reader.kind is Role.CONCATENATE:
            _absorb_parts(graph, reader, together=together and alternates(reader.nodes[0].op))
    for reader in graph.groups:
        while (nodes := _made_of_bytes(graph, reader)) is not None:
            graph.move(nodes, reader)


def _absorb_all(graph: FusionGraph, reader: Group) -> None:
    while (group := _absorbable(graph, reader)) is not None:
        graph.absorb(group, reader)


def _joinable_readers(graph: FusionGraph, group: Group) -> list[Group]:
    """The groups that read `group`, where they are several, need nothing of each other, and could
    each compute it: as one they compute it once."""
    values = [result for node in group.nodes for result in node.op.results]
    readers = {reader for value in values for reader in graph.readers(value)} - {group}
    found = [reader for reader in readers if reader is not None]
    if len(found) < 2 or len(found) < len(readers) or group.rows is not None:
        return []
    found.sort(key=lambda reader: -reader.last)
    plain = all(r.kind is Role.ELEMENTWISE and r.rows is None and not r.padded for r in found)
    if not plain or not all(_computes(graph, group, reader) for reader in found):
        return []
    if any(graph.needs(reader, set(found)) for reader in found):
        return []
    together = [node for g in (group, *found) for node in g.nodes]
    return [] if graph.is_too_deep(together) else found


def _made_of_bytes(graph: FusionGraph, reader: Group) -> list[Node] | None:
    """Operations of another group whose last one `reader` alone reads, once an element."""
    if reader.kind not in (*ANCHORED, Role.ELEMENTWISE) or reader.rows is not None:
        return None
    for member in reader.nodes:
        if member.role is not Role.ELEMENTWISE or graph.gathered(member):
            continue
        for node in graph.producers(member):
            if node.group is None or node.group is reader or node.group.kind not in ANCHORED:
                continue
            if elements(node.op.results[0]) == reader.domain:
                nodes = _behind_bytes(graph, node, reader)
                if nodes is not None:
                    return nodes
    return None


def _behind_bytes(graph: FusionGraph, last: Node, reader: Group) -> list[Node] | None:
    """`last` and what stands between it and bytes of its group; None where others read of it, or
    where some of it is not made of bytes."""
    moved, pending, size = {last: None}, [last], elements(last.op.results[0])
    while pending:
        node = pending.pop()
        result = node.op.results[0]
        if node.role is not Role.ELEMENTWISE or RESULT in node.op.attributes or _is_bytes(result):
            return None
        if not all(n in moved or n in reader.nodes for n in graph.reading_nodes(result)):
            return None
        for producer in graph.producers(node):
            value = producer.op.results[0]
            if producer.group is not last.group or producer in moved:
                continue
            if not (_is_bytes(value) and elements(value) == size):
                moved[producer] = None
                pending.append(producer)
    return list(moved)


def _is_bytes(value: ir.Value) -> bool:
    return str(element_type(value)) == "i8"


def _absorbable(graph: FusionGraph, reader: Group) -> Group | None:
    """A group that `reader` can compute by itself."""
    producers = {p.group: None for node in reader.nodes for p in graph.producers(node)}
    for group in producers:
        if group is not None and group is not reader and _can_absorb(graph, group, reader):
            return group
    return None


def _can_absorb(graph: FusionGraph, group: Group, reader: Group) -> bool:
    if not _is_only_reader(graph, group, reader):
        return False
    read_once = reader.kind is Role.OUTER_REDUCTION and _is_read_once(graph, group, reader)
    if not read_once and not _computes(graph, group, reader):
        return False
    return not graph.is_too_deep([*group.nodes, *reader.nodes])


def _computes(graph: FusionGraph, group: Group, reader: Group) -> bool:
    """Whether `reader` reads the elements of `group` where it could compute them."""
    if not _fits(group, reader):
        return False
    rows = reader.rows if reader.rows is not None else group.rows
    readers = [n for n in reader.nodes if any(p.group is group for p in graph.producers(n))]
    return all(_agrees(graph, node, group, reader, rows) for node in readers)


def _fits(group: Group, reader: Group) -> bool:
    """Whether the elements of `group` are those of `reader`, or its rows."""
    if group.kind is not Role.ELEMENTWISE or group.padded:
        return False
    if reader.kind in (*ANCHORED, Role.SCAN):
        return group.rows is None and group.domain == reader.domain
    if reader.kind is not Role.ELEMENTWISE:
        return False
    if group.rows is None:
        return group.domain in (reader.domain, reader.rows)
    same_rows = reader.rows is None or reader.rows == group.rows
    return group.domain == reader.domain and same_rows and not reader.padded


def _is_read_once(graph: FusionGraph, group: Group, reader: Group) -> bool:
    """Whether the reduction of `reader`, and nothing else of it, reads each element of `group`
    once, as its main operand."""
    if group.kind is not Role.ELEMENTWISE or group.padded or group.rows is not None:
        return False
    anchor, *others = (n for n in reader.nodes if any(p.group is group for p in graph.producers(n)))
    if others or anchor.role is not Role.OUTER_REDUCTION or anchor.structured is None:
        return False
    if math.prod(anchor.structured.loop_sizes()) != group.domain:
        return False
    read = [v for v in anchor.structured.inputs if elements(v) == group.domain]
    reads_group = [v for v in graph.operands(anchor) if _leads_to(graph, v, group)]
    if len(read) != 1 or reads_group != read or graph.gathered(anchor) & set(group.nodes):
        return False
    return elements(anchor.op.results[0]) >= LEAST_RESULTS or not is_costly(read[0])


def _leads_to(graph: FusionGraph, value: ir.Value, group: Group) -> bool:
    bases = (graph.by_value.get(base) for base in graph.bases(value))
    return any(node is not None and node.group is group for node in bases)


def _is_only_reader(graph: FusionGraph, group: Group, reader: Group) -> bool:
    values = [result for node in group.nodes for result in node.op.results]
    return all(graph.readers(value) <= {group, reader} for value in values)


def _agrees(graph: FusionGraph, node: Node, group: Group, reader: Group, rows: int | None) -> bool:
    if reader.kind in ANCHORED and node.role is not Role.ELEMENTWISE:
        return False
    return node.structured is not None and graph.reads_agree(node, group, rows)


def _absorb_parts(graph: FusionGraph, reader: Group, *, together: bool) -> None:
    """Move the elementwise operations that only the concatenation `reader` reads into it. Parts
    that are computed `together` may share some."""
    while (nodes := _part(graph, reader, together)) is not None:
        graph.move(nodes, reader)


def _part(graph: FusionGraph, reader: Group, together: bool) -> list[Node] | None:
    """Operations whose last ones only `reader` reads, at most once an element or from a table."""
    found: dict[Group | None, list[Node]] = {}
    for node, times in _times_read(graph, reader).items():
        if node.group is None or node.group is reader:
            continue
        if times <= elements(node.op.results[0]) or _looks_up(node):
            found.setdefault(node.group, []).append(node)
    gathered = {node for member in reader.nodes for node in graph.gathered(member)}
    for ends in found.values():
        for last in [[node] for node in ends] + [ends] * together:
            nodes = _movable(graph, last, reader, gathered)
            if nodes is not None:
                return nodes
    return None


def _looks_up(node: Node) -> bool:
    """Whether an element of `node` is one of a table: no more to read there than from a copy."""
    if node.structured is None:
        return False
    names = [child.operation.name for child in node.structured.body.operations]
    simple = all(n.startswith(("arith.", "linalg.", "tensor.")) for n in names)
    return simple and "tensor.extract" in names and not any(n.endswith("f") for n in names)


def _times_read(graph: FusionGraph, reader: Group) -> dict[Node, int]:
    """How many elements of each node the operations of `reader` read."""
    counts: dict[Node, int] = {}
    for member in reader.nodes:
        for value in graph.operands(member):
            whole = value if member.role is Role.CONCATENATE else member.op.results[0]
            for base in graph.bases(value):
                node = graph.by_value.get(base)
                if node is not None:
                    counts[node] = counts.get(node, 0) + elements(whole)
    return counts


def _movable(
    graph: FusionGraph, ends: list[Node], reader: Group, gathered: set[Node]
) -> list[Node] | None:
    """`ends`, nodes of one group, and those of it that they alone need; None where something would
    have to be written that is not now, or where `reader` does not compute elements one by one, as
    those that it reads `gathered`."""
    group = ends[0].group
    moved = set(ends)
    reached = list(ends)
    for node in reached:
        if node.role is not Role.ELEMENTWISE or RESULT in node.op.attributes or node in gathered:
            return None
        for producer in graph.producers(node):
            stays = graph.readers(producer.op.results[0]) - {group}
            if producer.group is group and producer not in moved and not stays:
                moved.add(producer)
                reached.append(producer)
    readers = {n for node in moved for n in graph.reading_nodes(node.op.results[0])}
    if not all(n in moved or n in reader.nodes for n in readers):
        return None
    return None if graph.is_too_deep([*reached, *reader.nodes]) else reached
