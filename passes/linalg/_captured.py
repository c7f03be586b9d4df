"""What the regions of an operation read from outside of it."""

from __future__ import annotations

from stepwell.mlir import ir


def captured(op: ir.Operation) -> list[ir.Value]:
    """Values that the regions of `op` read from outside."""
    inside: set[ir.Value] = set()

    def collect(regions: ir.RegionSequence) -> None:
        for region in regions:
            for block in region.blocks:
                inside.update(block.arguments)
                for child in block.operations:
                    inside.update(child.operation.results)
                    collect(child.operation.regions)

    collect(op.regions)
    return [v for _, _, v in nested_operands(op) if v not in inside]


def nested_operands(op: ir.Operation) -> list[tuple[ir.Operation, int, ir.Value]]:
    """(operation, operand number, operand) for all operations in the regions of `op`."""
    found = []
    for region in op.regions:
        for block in region.blocks:
            for child in block.operations:
                inner = child.operation
                found += [(inner, i, v) for i, v in enumerate(inner.operands)]
                found += nested_operands(inner)
    return found
