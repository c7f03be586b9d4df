"""Slices of an array that numbers in memory choose: `z[b, k, n] = w[index[b], k, n]`.

A gather of whole leading slices, as StableHLO's becomes: who reads such a slice finds it in the
array, once the number is known. Products with the matrix of a group read their matrices so.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepwell.kernels.structured import Structured, defining_op, element_type, shape_of
from stepwell.mlir import dialect, ir

tensor = dialect("tensor")


@dataclass(frozen=True, eq=False)
class TakenSlices:
    """An elementwise operation that copies slices of `source`: the first `lead` of its loops tell
    which, by what the body computes as `number`; the others go through the slice."""

    op: Structured
    source: ir.Value
    number: ir.Value
    lead: int

    @property
    def count(self) -> int:
        """How many slices there are."""
        return shape_of(self.source)[0]

    @staticmethod
    def of(op: Structured) -> TakenSlices | None:
        """`op` as such an operation; None where it does anything else."""
        operations = [child.operation for child in op.body.operations]
        if op.inputs or not op.is_elementwise or len(operations) < 2:
            return None
        read = operations[-2]
        if read.name != "tensor.extract" or operations[-1].operands[0] != read.results[0]:
            return None
        source, number, *inner = read.operands
        sizes = shape_of(op.op.results[0])
        lead = len(sizes) - len(inner)
        if lead < 1 or sizes[lead:] != shape_of(source)[1:]:
            return None
        if [_loop(place) for place in inner] != list(range(lead, len(sizes))):
            return None
        loops = _loops_behind(number, op.body)
        computed = loops is not None and loops and max(loops) < lead
        return TakenSlices(op, source, number, lead) if computed else None

    def number_operations(self) -> list[ir.Operation]:
        """The operations of the body that `number` is computed by, in order."""
        operations = [child.operation for child in list(self.op.body.operations)[:-2]]
        loops = [_loop(operation.results[0]) for operation in operations]
        return [
            operation
            for operation, loop in zip(operations, loops, strict=True)
            if loop is None or loop < self.lead
        ]

    def taking(self, source: ir.Value) -> ir.Value:
        """The slices of `source` of the same numbers: one more operation, at the insertion point.
        Nothing else of `source` has to be as it was."""
        old = self.op.op
        shape = [*shape_of(old.results[0])[: self.lead], *shape_of(source)[1:]]
        kind = element_type(source)
        result = ir.RankedTensorType.get(shape, kind)
        identity = ir.AffineMap.get_identity(len(shape))
        parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>")
        made = ir.Operation.create(
            old.name,
            results=[result],
            operands=[tensor.EmptyOp(shape, kind).result],
            attributes={
                "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(identity)]),
                "iterator_types": ir.ArrayAttr.get([parallel] * len(shape)),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 1]),
            },
            regions=1,
        )
        block = made.regions[0].blocks.append(kind)
        known: dict[ir.Value, ir.Value] = {}
        with ir.InsertionPoint(block):
            for operation in self.number_operations():
                known.update(_copied(operation, known))
            places = [_index(loop) for loop in range(self.lead, len(shape))]
            element = ir.Operation.create(
                "tensor.extract",
                results=[kind],
                operands=[source, known.get(self.number, self.number), *places],
            ).results[0]
            ir.Operation.create("linalg.yield", operands=[element])
        return made.results[0]


def slices_behind(value: ir.Value) -> TakenSlices | None:
    """The operation that takes the slices `value`, if one does."""
    op = defining_op(value)
    structured = Structured.of(op) if op is not None else None
    return None if structured is None else TakenSlices.of(structured)


def _loop(value: ir.Value) -> int | None:
    """The loop whose variable is `value`."""
    op = defining_op(value)
    if op is None or op.name != "linalg.index":
        return None
    return ir.IntegerAttr(op.attributes["dim"]).value


def _loops_behind(value: ir.Value, body: ir.Block) -> set[int] | None:
    """The loops that `value` depends on; None where the body reads more than captured values."""
    if isinstance(value.owner, ir.Block):
        return None if value.owner == body else set()
    op = value.owner.operation
    if op.block != body:
        return set()
    loop = _loop(value)
    if loop is not None:
        return {loop}
    behind = [_loops_behind(operand, body) for operand in op.operands]
    if op.regions or any(loops is None for loops in behind):
        return None
    return set().union(*(loops for loops in behind if loops is not None))


def _copied(op: ir.Operation, known: dict[ir.Value, ir.Value]) -> dict[ir.Value, ir.Value]:
    """What the results of `op` are, in a copy that reads what is `known` of its operands."""
    clone = op.clone()
    for number, operand in enumerate(list(clone.operands)):
        clone.operands[number] = known.get(operand, operand)
    return dict(zip(op.results, clone.results, strict=True))


def _index(loop: int) -> ir.Value:
    attribute = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), loop)
    return ir.Operation.create(
        "linalg.index", results=[ir.IndexType.get()], attributes={"dim": attribute}
    ).results[0]
