"""Slices of an array that contractions read where they lie.

In `z[b] = x[b] @ w[index[b]]` the matrices of a batch are a gather from an array. Alone in a kernel
it would copy each of them; here every contraction that reads it computes it for itself, which
emitters take for an address (`kernels/slices.py`).
"""

from __future__ import annotations

from stepwell.kernels.cpu.contraction_strategy import ContractionShape
from stepwell.kernels.index import Index, Variable, apply_map, reshaped
from stepwell.kernels.slices import TakenSlices
from stepwell.kernels.structured import (
    RESHAPES,
    contraction_operands,
    defining_op,
    shape_of,
)
from stepwell.mlir import ir
from stepwell.passes.linalg._fusion_graph import FusionGraph, Node, Role


def read_slices_in_place(graph: FusionGraph) -> None:
    """Repeat each gather of slices in the contractions that read it, where nothing else does and
    each of their tiles reads one slice."""
    for node in graph.nodes:
        slices = TakenSlices.of(node.structured) if node.structured is not None else None
        alone = node.group is not None and node.group.nodes == [node]
        if slices is None or not alone or node.role is not Role.ELEMENTWISE:
            continue
        readers = graph.reading_nodes(node.op.results[0])
        if readers and all(_reads_one_slice(reader, slices) for reader in readers):
            graph.repeat(node)


def _reads_one_slice(reader: Node | None, slices: TakenSlices) -> bool:
    """Whether `reader` is a contraction whose slice its batch alone tells."""
    if reader is None or reader.group is None or reader.structured is None:
        return False
    if reader.group.kind is not Role.CONTRACTION or reader.role is not Role.CONTRACTION:
        return False
    op = reader.structured
    operands = contraction_operands(op)
    if operands is None or len(op.inputs) != 2:
        return False
    shape = ContractionShape.of(op, operands)
    dims = [Variable(f"d{i}", 0, max(n, 1) - 1) for i, n in enumerate(shape.sizes)]
    batch = [dims[d] for d in shape.batch]
    result = slices.op.op.results[0]
    reads = [
        _read_through_reshapes(value, apply_map(map, [Index.of(d) for d in dims]), result)
        for value, map in zip(op.inputs, op.maps, strict=False)
    ]
    found = [place for place in reads if place is not None]
    return bool(found) and all(
        variable in batch
        for place in found
        for index in place[: slices.lead]
        for variable in index.variables()
    )


def _read_through_reshapes(
    value: ir.Value, indices: list[Index], source: ir.Value
) -> list[Index] | None:
    """Where `source` is read for `value` at `indices`; None where that is no reshape of it."""
    while value != source:
        op = defining_op(value)
        if op is None or op.name not in RESHAPES:
            return None
        indices = reshaped(indices, shape_of(value), shape_of(op.operands[0]))
        value = op.operands[0]
    return indices
