"""What reductions need to know of their combiner: its identity and how lanes are combined."""

from __future__ import annotations

from dataclasses import dataclass

from stepwell.errors import LoweringError
from stepwell.kernels.builder import CONTRACT, vector
from stepwell.kernels.structured import Structured, defining_op, source_name
from stepwell.mlir import ir

_KINDS: dict[str, tuple[str, float | int | str]] = {
    "arith.addf": ("add", 0.0),
    "arith.mulf": ("mul", 1.0),
    "arith.maximumf": ("maximumf", float("-inf")),
    "arith.minimumf": ("minimumf", float("inf")),
    "arith.addi": ("add", 0),
    "arith.muli": ("mul", 1),
    "arith.maxsi": ("maxsi", "least"),
    "arith.minsi": ("minsi", "greatest"),
    "arith.andi": ("and", -1),
    "arith.ori": ("or", 0),
    "arith.xori": ("xor", 0),
}


@dataclass(frozen=True)
class Combiner:
    """The operation that joins a new element to the accumulator."""

    op_name: str
    kind: str
    identity: ir.Attribute

    @staticmethod
    def of(reduction: Structured) -> Combiner:
        """The combiner of `reduction`; raises LoweringError when its body has none."""
        accumulator = reduction.body.arguments[len(reduction.inputs)]
        operations = [child.operation for child in reduction.body.operations]
        last = defining_op(operations[-1].operands[0])
        uses = [use.owner.operation for use in accumulator.uses]
        if last is None or last.name not in _KINDS or uses != [last]:
            raise LoweringError(f"{source_name(reduction.op)}: the reduction has no known combiner")
        kind, identity = _KINDS[last.name]
        return Combiner(last.name, kind, _identity(identity, accumulator.type))

    def join(self, left: ir.Value, right: ir.Value) -> ir.Value:
        """Combine two accumulators (scalars or vectors)."""
        attributes = (
            {"fastmath": ir.Attribute.parse(CONTRACT)} if self.op_name == "arith.addf" else {}
        )
        return ir.Operation.create(
            self.op_name, results=[left.type], operands=[left, right], attributes=attributes
        ).results[0]

    def across_lanes(self, value: ir.Value) -> ir.Value:
        """Combine the lanes of a vector (in any order: float sums may be reassociated)."""
        if not isinstance(value.type, ir.VectorType):
            return value
        floating = self.op_name.endswith("f")
        return vector.ReductionOp(
            value.type.element_type,
            ir.Attribute.parse(f"#vector.kind<{self.kind}>"),
            value,
            fastmath=ir.Attribute.parse("#arith.fastmath<reassoc>") if floating else None,
        ).result

    def identity_of(self, kind: ir.Type) -> ir.Attribute:
        """The identity as a constant attribute of a scalar or vector type."""
        if isinstance(kind, ir.VectorType):
            return ir.DenseElementsAttr.get_splat(kind, self.identity)
        return self.identity


def _identity(value: float | int | str, kind: ir.Type) -> ir.Attribute:
    if isinstance(kind, ir.IntegerType):
        if value == "least":
            value = -(1 << (kind.width - 1))
        elif value == "greatest":
            value = (1 << (kind.width - 1)) - 1
        return ir.IntegerAttr.get(kind, int(value))
    return ir.FloatAttr.get(kind, float(value))
