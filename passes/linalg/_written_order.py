"""Transposes that the kernel before them does: it writes its results where they are read.

    attention [b, h, n, d] -> transpose [b, n, h, d] -> collapse [b n, h d] -> product

On GPUs, a product that reads such an operand where it lies finds neighbours along its sums in
pieces, which no tensor map describes. The kernel before writes rows of d, to whichever place.

    convolution [h, w, 2, 2, c] -> transpose [h, 2, w, 2, c] -> collapse [2h, 2w, c] -> padding

On CPUs, what is moved again, or padded, is not written in another order first.
"""

from __future__ import annotations

from stepwell.kernels.index import Index, Variable, apply_map, linearize
from stepwell.kernels.structured import elements, map_dims, shape_of
from stepwell.mlir import ir
from stepwell.passes.linalg._fusion_graph import (
    ANCHORED,
    FusionGraph,
    Group,
    Node,
    Role,
    inline_source,
)
from stepwell.targets import Target
from stepwell.targets.nvidia import NvidiaTarget

_MOVERS = (Role.TRANSPOSE, Role.PAD, Role.ELEMENTWISE)
"""What moves elements, or may do so: a result of the model."""


def leave_to_producer(graph: FusionGraph, node: Node, target: Target) -> None:
    """Make `node` an operation of the kernel before it, if it is a transpose of what a contraction
    makes for it alone, in whole vectors, and to all that read it, contractions on GPUs and what
    moves elements on CPUs, places of the original are no linear form."""
    structured = node.structured
    if node.role is not Role.INLINE or structured is None or structured.copied_input() is None:
        return
    source, result = inline_source(node), node.op.results[0]
    bases, readers = graph.bases(source), graph.reading_nodes(result)
    maker = graph.by_value.get(bases[0]) if len(bases) == 1 else None
    if maker is None or maker.group is None or maker.group.kind not in ANCHORED:
        return
    is_whole = elements(source) == elements(result) == elements(bases[0])
    if not is_whole or graph.reading_nodes(bases[0]) != readers or not readers:
        return
    on_gpu = isinstance(target, NvidiaTarget)
    if not on_gpu and (shape_of(result)[-1] % target.vector_lanes or not _is_alone(maker.group)):
        return
    roles = (Role.CONTRACTION,) if on_gpu else _MOVERS
    for reader in readers:
        if reader is None or reader.role not in roles:
            return
        if not _reads_apart(graph, reader, bases[0]):
            return
    node.role = Role.ELEMENTWISE
    if not graph.can_join(node, maker.group):
        node.role = Role.INLINE


def _is_alone(group: Group) -> bool:
    """Whether a group has a product without a batch: one of a batch may be attention, whose kernel
    has an order of its own."""
    product = next((node for node in group.nodes if node.role is Role.CONTRACTION), None)
    if product is None or product.structured is None:
        return False
    first, second = (map_dims(affine_map) for affine_map in product.structured.maps[:2])
    sizes = product.structured.loop_sizes()
    output = map_dims(product.structured.output_map)
    return not any(sizes[d] > 1 for d in first & second & output)


def _reads_apart(graph: FusionGraph, reader: Node, source: ir.Value) -> bool:
    """Whether `reader` reads `source` at places that are no linear form."""
    if reader.role is Role.PAD:
        return not _is_linear(graph, reader.op.operands[0], source)
    if reader.structured is None:
        return False
    sizes = reader.structured.loop_sizes()
    point = [Index.of(Variable(f"d{i}", 0, size - 1)) for i, size in enumerate(sizes)]
    for value, affine_map in zip(reader.structured.inputs, reader.structured.maps, strict=False):
        pulled = graph.pull(value, apply_map(affine_map, point))
        if pulled is not None and pulled[0] == source:
            return not linearize(pulled[1], shape_of(source)).is_linear
    return False


def _is_linear(graph: FusionGraph, value: ir.Value, source: ir.Value) -> bool:
    """Whether the place in `source` that an element of `value` comes from is a linear form."""
    sizes = shape_of(value)
    point = [Index.of(Variable(f"d{i}", 0, size - 1)) for i, size in enumerate(sizes)]
    pulled = graph.pull(value, point)
    assert pulled is not None
    return linearize(pulled[1], shape_of(source)).is_linear
