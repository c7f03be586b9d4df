"""Bodies on scalars, applied to whole tensors at once."""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir

_ELEMENTWISE = frozenset(
    f"stablehlo.{name}"
    for name in (
        "abs", "add", "and", "compare", "convert", "divide", "is_finite", "maximum", "minimum",
        "multiply", "negate", "not", "or", "select", "sign", "subtract", "xor",
    )
)  # fmt: skip


def lifted(block: ir.Block, arguments: Sequence[ir.Value]) -> list[ir.Value] | None:
    """What the region `block` on tensors of rank 0 returns for each element of `arguments`, which
    are of one shape; None where it has other than simple elementwise operations."""
    operations = [child.operation for child in block.operations]
    if not is_liftable(block):
        return None
    shape = hlo.shape(arguments[0])
    known = dict(zip(block.arguments, arguments, strict=True))
    for op in operations[:-1]:
        if op.name == "stablehlo.constant":
            clone = op.clone()
            known[op.results[0]] = hlo.broadcast_in_dim(clone.results[0], shape, ())
            continue
        kind = ir.RankedTensorType.get(list(shape), hlo.element_type(op.results[0]))
        made = ir.Operation.create(
            op.name,
            results=[kind],
            operands=[known[value] for value in op.operands],
            attributes={name: op.attributes[name] for name in op.attributes},
        )
        known[op.results[0]] = made.results[0]
    return [known[value] for value in operations[-1].operands]


def is_liftable(block: ir.Block) -> bool:
    """Whether `lifted` takes `block`: it has known operations alone, on values of its own."""
    known = set(block.arguments)
    *operations, end = [child.operation for child in block.operations]
    for op in operations:
        if op.name not in _ELEMENTWISE and op.name != "stablehlo.constant":
            return False
        if any(value not in known for value in op.operands) or len(op.results) != 1:
            return False
        known.add(op.results[0])
    return all(value in known for value in end.operands)
