"""Finding attention among fusion groups: scores, a softmax over their rows, and what it weighs.

    contraction (query, key) -> scores,  rows: scores -> weights,  contraction (weights, value)

become one group when nobody else reads the scores and the weights. Two linear layers around a
normalization are none: their weights are packed, which kernels of attention do not look for.
"""

from __future__ import annotations

import math

from stepwell.kernels.cpu.contraction_strategy import ContractionShape
from stepwell.kernels.gpu import attention
from stepwell.kernels.group import accesses
from stepwell.kernels.index import Index, Variable, apply_map, linearize
from stepwell.kernels.structured import (
    Structured,
    contraction_operands,
    element_type,
    elements,
    shape_of,
)
from stepwell.mlir import ir
from stepwell.passes.base import State
from stepwell.passes.linalg._diagonal import band_of
from stepwell.passes.linalg._fusion_graph import FusionGraph, Group, Node, Role
from stepwell.passes.linalg._split_keys import can_split, split_keys
from stepwell.passes.linalg.hoist_constants import PARAMETER, WEIGHT, has_attribute
from stepwell.targets.nvidia import NvidiaTarget

LEAST_QUERIES = 4
"""With fewer, on CPUs, the scores are few, and keys are read as for a matrix times a vector."""

MOST_KEYS = 16384
"""With more, on CPUs, the scores of a block of queries would not stay in the cache."""


def fuse_attention(graph: FusionGraph, state: State) -> None:
    """Join the three groups of every attention in `graph` that the target has a kernel for."""
    for values in list(graph.groups):
        if values.kind is not Role.CONTRACTION or values.padded:
            continue
        product = _Product.of(values)
        weights = graph.by_value.get(_base(graph, product.weights)) if product else None
        rows = weights.group if weights is not None else None
        if product is None or rows is None or rows.rows is None or rows.padded:
            continue
        scores = _scores_of(graph, rows)
        if scores is None or not _belong(graph, scores, rows, values, product):
            continue
        nodes = [*scores.nodes, *rows.nodes, *values.nodes]
        if not isinstance(state.target, NvidiaTarget):
            shape = product.shape
            if shape.m >= LEAST_QUERIES and shape.k <= MOST_KEYS:
                graph.merge([scores, rows, values], Role.ATTENTION)
            continue
        parts = _parts_on_gpu(nodes, state, state.target)
        if parts is not None:
            groups = [scores, rows, values]
            band = band_of(parts, state.weights)
            count = attention.key_parts(parts, state.target)
            if count > 1 and can_split(graph, groups, parts):
                group = split_keys(graph, groups, parts, count)
            else:
                group = graph.merge(groups, Role.ATTENTION)
            bounds = {attention.DIAGONAL: band.diagonal, attention.WINDOW: band.window}
            for name, found in bounds.items():
                if found is not None:
                    group.attributes[name] = ir.DenseI64ArrayAttr.get(list(found))


def _parts_on_gpu(
    nodes: list[Node], state: State, target: NvidiaTarget
) -> attention.AttentionParts | None:
    """The attention that `nodes` are, if there is a kernel for it."""
    operations = [node.op for node in nodes]
    parts = attention.AttentionParts.of(operations, target, state.f32_products)
    return parts if parts is not None and attention.takes(parts, target) else None


class _Product:
    """The contraction of a group, and the place in the order of (batch, row, column) or (batch,
    row, reduced) of what it writes and of the elements of its lhs."""

    def __init__(self, op: Structured, operands: tuple[int, int]) -> None:
        self.op = op
        self.shape = ContractionShape.of(op, operands)
        self.result = op.op.results[0]
        self.weights = op.inputs[self.shape.lhs]
        sizes = self.shape.sizes
        self.dims = [Index.of(Variable(f"d{i}", 0, max(n, 1) - 1)) for i, n in enumerate(sizes)]

    @staticmethod
    def of(group: Group) -> _Product | None:
        """That of `group`, unless it is a convolution, or makes its operands before it."""
        first = group.nodes[0]
        anchor = first.structured if first.role is Role.CONTRACTION else None
        operands = contraction_operands(anchor) if anchor is not None else None
        if anchor is None or operands is None:
            return None
        shape = ContractionShape.of(anchor, operands)
        simple = all(isinstance(e, ir.AffineDimExpr) for m in anchor.maps for e in m.results)
        return _Product(anchor, operands) if simple and shape.rows else None

    def place(self, last: tuple[int, ...]) -> Index:
        """The number of a point in the order (batch, row, `last`)."""
        order = (*self.shape.batch, *self.shape.rows, *last)
        return linearize([self.dims[d] for d in order], [self.shape.sizes[d] for d in order])


def _base(graph: FusionGraph, value: ir.Value) -> ir.Value:
    bases = graph.bases(value)
    return bases[0] if bases else value


def _scores_of(graph: FusionGraph, rows: Group) -> Group | None:
    """The one contraction that `rows` works on."""
    found = {
        producer.group
        for node in rows.nodes
        for producer in graph.producers(node)
        if producer.group is not None
        and producer.group.kind is Role.CONTRACTION
        and elements(producer.op.results[0]) == rows.domain
    }
    return found.pop() if len(found) == 1 else None


def _belong(
    graph: FusionGraph, scores: Group, rows: Group, values: Group, product: _Product
) -> bool:
    """Whether the groups are an attention that can be one kernel."""
    first = _Product.of(scores)
    if first is None or scores.padded:
        return False
    shape, second = first.shape, product.shape
    floats = all(isinstance(element_type(p.result), ir.FloatType) for p in (first, product))
    return (
        floats
        and (shape.m, shape.extent(shape.batch)) == (second.m, second.extent(second.batch))
        and second.k == shape.n
        and rows.rows == rows.domain // shape.n
        and rows.domain == math.prod(shape_of(first.result))
        and _readers(graph, scores) == {rows}
        and _readers(graph, rows) == {values}
        and _in_order(graph, scores, first, product)
        and not _is_weight(graph, product.op.inputs[second.rhs])
    )


def _is_weight(graph: FusionGraph, value: ir.Value) -> bool:
    """Whether `value` is constant, or an argument that is a weight."""
    return all(
        isinstance(base, ir.BlockArgument)
        and any(
            has_attribute(base.owner.owner, base.arg_number, name) for name in (WEIGHT, PARAMETER)
        )
        for base in graph.bases(value)
    )


def _readers(graph: FusionGraph, group: Group) -> set[Group | None]:
    """What reads values of `group`, itself left out; None stands for the host."""
    found = {g for n in group.nodes for r in n.op.results for g in graph.readers(r)}
    return found - {group}


def _in_order(graph: FusionGraph, scores: Group, first: _Product, second: _Product) -> bool:
    """Whether scores and weights lie in the order (batch, query, key), so that those of a block of
    queries are one piece."""
    written = linearize(apply_map(first.op.output_map, first.dims), shape_of(first.result))
    if written != first.place((first.shape.column,)):
        return False
    for node in scores.nodes[1:]:
        shape = shape_of(node.op.results[0])
        here = [Index.of(Variable(f"d{i}", 0, max(n, 1) - 1)) for i, n in enumerate(shape)]
        for _, there in accesses(node.op.results[0], here, {first.result}):
            if linearize(there, shape_of(first.result)) != linearize(here, shape):
                return False
    at = apply_map(second.op.maps[second.shape.lhs], second.dims)
    pulled = graph.pull(second.weights, at)
    place = second.place(second.shape.reduced)
    return (
        pulled is not None
        and linearize(at, shape_of(second.weights)) == place
        and linearize(pulled[1], shape_of(pulled[0])) == place
    )
