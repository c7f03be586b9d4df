"""Transposes that the kernel before them does, on GPUs: it writes its results where they are read.

    attention [b, h, n, d] -> transpose [b, n, h, d] -> collapse [b n, h d] -> product

A product that reads such an operand where it lies finds neighbours along its sums in pieces, which
no tensor map describes. The kernel before writes rows of d, to whichever place.
"""

from __future__ import annotations

from stepwell.kernels.index import Index, Variable, apply_map, linearize
from stepwell.kernels.structured import elements, shape_of
from stepwell.mlir import ir
from stepwell.passes.linalg._fusion_graph import ANCHORED, FusionGraph, Node, Role, inline_source


def leave_to_producer(graph: FusionGraph, node: Node) -> None:
    """Make `node` an operation of the kernel before it, if it is a transpose of what a contraction
    makes for it alone, and all that reads it are contractions to which places of the original are
    no linear form."""
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
    if not all(reader is not None and _reads_apart(graph, reader, bases[0]) for reader in readers):
        return
    node.role = Role.ELEMENTWISE
    if not graph.can_join(node, maker.group):
        node.role = Role.INLINE


def _reads_apart(graph: FusionGraph, reader: Node, source: ir.Value) -> bool:
    """Whether `reader` is a contraction that reads `source` at places that are no linear form."""
    if reader.role is not Role.CONTRACTION or reader.structured is None:
        return False
    sizes = reader.structured.loop_sizes()
    point = [Index.of(Variable(f"d{i}", 0, size - 1)) for i, size in enumerate(sizes)]
    for value, affine_map in zip(reader.structured.inputs, reader.structured.maps, strict=False):
        pulled = graph.pull(value, apply_map(affine_map, point))
        if pulled is not None and pulled[0] == source:
            return not linearize(pulled[1], shape_of(source)).is_linear
    return False
