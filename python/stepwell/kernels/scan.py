"""Cumulative reductions as one operation on tensors, `linalg.generic` with carried totals.

    %r, %t = linalg.generic {kernel.scan = "forward", iterators = [parallel, reduction, parallel]}
        ins(%x : [outer, length, inner]) outs(%r : [outer, length, inner], %t : [outer, inner])

The body takes an element and the totals of those before it along the second dimension, and yields a
result and the next totals. `%t` begins with the initial value; what it is at the end nobody reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stepwell.kernels.structured import Structured, element_type, shape_of
from stepwell.mlir import dialect, ir

tensor = dialect("tensor")

SCAN = "kernel.scan"
"""Attribute of such an operation: in which direction it goes."""

_FORWARD, _BACKWARD = "forward", "backward"

Body = Callable[[list[ir.Value], list[ir.Value]], tuple[Sequence[ir.Value], Sequence[ir.Value]]]
"""Scalars of the operands and of the totals before, to those of the results and totals."""


def scan(
    operands: Sequence[ir.Value],
    totals: Sequence[ir.Value],
    kinds: Sequence[ir.Type],
    body: Body,
    *,
    backward: bool,
) -> list[ir.Value]:
    """The results, of the element types `kinds`, for operands of [outer, length, inner] and initial
    totals of [outer, inner]; `backward` begins with the last elements."""
    whole = ir.AffineMap.get_identity(3)
    rest = whole.get_submap([0, 2])
    results = [tensor.EmptyOp(list(shape_of(operands[0])), kind).result for kind in kinds]
    iterators = [
        ir.Attribute.parse(f"#linalg.iterator_type<{kind}>")
        for kind in ("parallel", "reduction", "parallel")
    ]
    maps = [whole] * (len(operands) + len(results)) + [rest] * len(totals)
    generic = ir.Operation.create(
        "linalg.generic",
        results=[value.type for value in (*results, *totals)],
        operands=[*operands, *results, *totals],
        attributes={
            "indexing_maps": ir.ArrayAttr.get(list(map(ir.AffineMapAttr.get, maps))),
            "iterator_types": ir.ArrayAttr.get(iterators),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get(
                [len(operands), len(results) + len(totals)]
            ),
            SCAN: ir.StringAttr.get(_BACKWARD if backward else _FORWARD),
        },
        regions=1,
    )
    scalars = [element_type(value) for value in (*operands, *results, *totals)]
    block = generic.regions[0].blocks.append(*scalars)
    with ir.InsertionPoint(block):
        arguments = list(block.arguments)
        first, last = len(operands), len(operands) + len(results)
        new, carried = body(arguments[:first], arguments[last:])
        ir.Operation.create("linalg.yield", operands=[*new, *carried])
    return list(generic.results)[: len(results)]


def is_scan(op: ir.Operation) -> bool:
    """Whether `op` is one."""
    return SCAN in op.attributes


def is_backward(op: ir.Operation) -> bool:
    """Whether it begins with the last elements."""
    return ir.StringAttr(op.attributes[SCAN]).value == _BACKWARD


def totals_of(op: Structured) -> int:
    """The number of the first output that is a total."""
    rank = len(shape_of(op.outputs[0]))
    return next(n for n, value in enumerate(op.outputs) if len(shape_of(value)) < rank)


def go_forward(op: ir.Operation) -> None:
    """Let loops over `op` in their order do what it says: one that is backward indexes its operands
    from their ends. Since no such map says how long a loop is, there is one result more, unused."""
    structured = Structured.of(op)
    if structured is None or not is_backward(op):
        return
    row, element, column = (ir.AffineDimExpr.get(i) for i in range(3))
    _, length, _ = structured.loop_sizes()
    turned = ir.AffineMap.get(3, 0, [row, element * -1 + (length - 1), column])
    totals = len(structured.inputs) + totals_of(structured)
    maps = [turned if n < totals else known for n, known in enumerate(structured.maps)]
    maps.append(ir.AffineMap.get(3, 0, [element]))
    byte = ir.IntegerType.get_signless(8)
    with ir.InsertionPoint(op), op.location:
        extent = tensor.EmptyOp([length], byte).result
        forward = ir.Operation.create(
            op.name,
            results=[*(result.type for result in op.results), extent.type],
            operands=[*op.operands, extent],
            attributes={
                "indexing_maps": ir.ArrayAttr.get(list(map(ir.AffineMapAttr.get, maps))),
                "iterator_types": op.attributes["iterator_types"],
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get(
                    [len(structured.inputs), len(structured.outputs) + 1]
                ),
                SCAN: ir.StringAttr.get(_FORWARD),
            },
            regions=1,
        )
    structured.body.append_to(forward.regions[0])
    body = forward.regions[0].blocks[0]
    unused = body.add_argument(byte, op.location)
    end = list(body.operations)[-1].operation
    with ir.InsertionPoint(end):
        ir.Operation.create("linalg.yield", operands=[*end.operands, unused])
    end.erase()
    for old, new in zip(op.results, forward.results, strict=False):
        old.replace_all_uses_with(new)
    op.erase()
