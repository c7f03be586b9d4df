"""What reductions need to know of their combiner: its identity and how lanes are combined."""

from __future__ import annotations

from dataclasses import dataclass

from stepwell.errors import LoweringError
from stepwell.kernels.arithmetic import CONTRACT, NO_SIGNED_ZEROS, vector
from stepwell.kernels.structured import Structured, defining_op, source_name
from stepwell.mlir import ir

_IDENTITIES: dict[str, float | int | str] = {
    "arith.addf": 0.0,
    "arith.mulf": 1.0,
    "arith.maximumf": float("-inf"),
    "arith.minimumf": float("inf"),
    "arith.addi": 0,
    "arith.muli": 1,
    "arith.maxsi": "least",
    "arith.minsi": "greatest",
    "arith.maxui": 0,
    "arith.minui": -1,
    "arith.andi": -1,
    "arith.ori": 0,
    "arith.xori": 0,
}

_FLAGS = {
    "arith.addf": CONTRACT,
    "arith.maximumf": NO_SIGNED_ZEROS,
    "arith.minimumf": NO_SIGNED_ZEROS,
}


@dataclass(frozen=True)
class Combiner:
    """The operation that joins a new element to the accumulator."""

    op_name: str
    identity: ir.Attribute

    @staticmethod
    def of(reduction: Structured) -> Combiner:
        """The combiner of `reduction`; raises LoweringError when its body has none."""
        accumulator = reduction.body.arguments[len(reduction.inputs)]
        operations = [child.operation for child in reduction.body.operations]
        last = defining_op(operations[-1].operands[0])
        uses = [use.owner.operation for use in accumulator.uses]
        if last is None or last.name not in _IDENTITIES or uses != [last]:
            raise LoweringError(f"{source_name(reduction.op)}: the reduction has no known combiner")
        return Combiner(last.name, _identity(_IDENTITIES[last.name], accumulator.type))

    def join(self, left: ir.Value, right: ir.Value) -> ir.Value:
        """Combine two accumulators (scalars or vectors)."""
        flags = _FLAGS.get(self.op_name)
        attributes = {"fastmath": ir.Attribute.parse(flags)} if flags else {}
        return ir.Operation.create(
            self.op_name, results=[left.type], operands=[left, right], attributes=attributes
        ).results[0]

    def across_lanes(self, value: ir.Value) -> ir.Value:
        """Combine the lanes of a vector, its halves first; in a sum of integers, all at once, since
        LLVM mistakes halves of products of bytes for others (docs/bindings.md)."""
        if not isinstance(value.type, ir.VectorType):
            return value
        (count,), element = value.type.shape, value.type.element_type
        if self.op_name == "arith.addi":
            return vector.ReductionOp(element, vector.CombiningKind.ADD, value).result
        while count > 1:
            half = count // 2
            kind = ir.VectorType.get([half], element)
            value = self.join(
                *(
                    vector.ExtractStridedSliceOp(kind, value, [begin], [half], [1]).result
                    for begin in (0, half)
                )
            )
            count = half
        return vector.ExtractOp(value, [], [0]).result

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
