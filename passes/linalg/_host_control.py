"""Prepares loops and branches of the host for `form-fusion-groups`: what they start from, pass on
and test lies in tensors that kernels write, and their bodies read nothing but such tensors."""

from __future__ import annotations

from stepwell.kernels.structured import RESHAPES, Structured, defining_op
from stepwell.mlir import dialect, ir
from stepwell.passes.linalg._captured import captured, nested_operands
from stepwell.passes.linalg._fusion_graph import (
    RESULT,
    Role,
    is_control,
    role_of,
)

tensor = dialect("tensor")

TERMINATORS = ("func.return", "scf.yield", "scf.condition")
"""What ends a block of the host."""


def repeat_inline(block: ir.Block) -> None:
    """Copy the inline operations (constants, views, scalars) that `block` reads from outside to its
    beginning, so that they can be cloned into its kernels."""
    copies: dict[ir.Operation, ir.Operation] = {}
    first = block.operations[0].operation

    def repeated(value: ir.Value) -> ir.Value:
        op = defining_op(value)
        if op is None or _is_within(op, block) or not _is_inline(op):
            return value
        if op not in copies:
            operands = [repeated(operand) for operand in op.operands]
            inside = {old: repeated(old) for old in captured(op)}
            with ir.InsertionPoint(first):
                clone = op.clone()
            for number, operand in enumerate(operands):
                clone.operands[number] = operand
            for inner, number, old in nested_operands(clone):
                if old in inside:
                    inner.operands[number] = inside[old]
            copies[op] = clone
        number = next(i for i, result in enumerate(op.results) if result == value)
        return copies[op].results[number]

    for child in list(block.operations):
        op = child.operation
        uses = [(op, i, v) for i, v in enumerate(op.operands)] + nested_operands(op)
        for user, number, value in uses:
            new = repeated(value)
            if new != value:
                user.operands[number] = new


def _is_inline(op: ir.Operation) -> bool:
    return role_of(op, Structured.of(op)) is Role.INLINE


def _is_within(op: ir.Operation, block: ir.Block) -> bool:
    current: ir.Operation | None = op
    while current is not None:
        if current.block is not None and current.block == block:
            return True
        current = current.parent.operation if current.parent is not None else None
        if current is not None and current.name in ("func.func", "builtin.module"):
            return False
    return False


def materialize_operands(block: ir.Block) -> None:
    """Let an operation write what a loop starts from, an update changes or a call takes, where it
    is a constant or a view, and the condition of a loop or a branch, where it is a computed
    scalar."""
    for child in list(block.operations):
        op = child.operation
        if op.name == "arith.select" and isinstance(op.results[0].type, ir.RankedTensorType):
            _spread_choice(op)
            continue
        if op.name == "scf.condition" or (op.name == "scf.if" and is_control(op)):
            _materialize_condition(op)
        if op.name == "func.call" or (op.name == "scf.while" and is_control(op)):
            numbers = list(range(len(op.operands)))
        elif role_of(op, None) is Role.UPDATE:
            numbers = [1]
        else:
            continue
        for number in numbers:
            source = defining_op(_base(op.operands[number]))
            destination = source is not None and source.name == "tensor.empty"
            if source is not None and _is_inline(source) and not destination:
                with ir.InsertionPoint(op), op.location:
                    op.operands[number] = copy(op.operands[number])


def _materialize_condition(op: ir.Operation) -> None:
    read = defining_op(op.operands[0])
    if read is not None and read.name == "tensor.extract" and len(read.operands) == 1:
        source = defining_op(_base(read.operands[0]))
        if source is None or not _is_inline(source):
            return
    with ir.InsertionPoint(op), op.location:
        written = _generic([], ir.RankedTensorType.get([], op.operands[0].type), op.operands[0])
        op.operands[0] = tensor.ExtractOp(written, []).result


def _spread_choice(op: ir.Operation) -> None:
    """Make the choice of a whole tensor by a scalar one of elements: an operation like others."""
    if str(op.operands[0].type) != "i1":
        return
    condition, *values = op.operands
    with ir.InsertionPoint(op), op.location:
        new = _generic(values, ir.RankedTensorType(op.results[0].type), condition)
    op.results[0].replace_all_uses_with(new)
    op.erase()


def copy(value: ir.Value) -> ir.Value:
    """`linalg.generic` that copies a tensor."""
    return _generic([value], ir.RankedTensorType(value.type), None)


def _generic(
    inputs: list[ir.Value], kind: ir.RankedTensorType, scalar: ir.Value | None
) -> ir.Value:
    """A tensor whose elements are those of the input; or the captured scalar; or those of one of
    two inputs by the captured scalar."""
    identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(kind.rank))
    empty = tensor.EmptyOp(list(kind.shape), kind.element_type).result
    parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>")
    count = len(inputs)
    op = ir.Operation.create(
        "linalg.generic",
        results=[kind],
        operands=[*inputs, empty],
        attributes={
            "indexing_maps": ir.ArrayAttr.get([identity] * (count + 1)),
            "iterator_types": ir.ArrayAttr.get([parallel] * kind.rank),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([count, 1]),
            RESULT: ir.UnitAttr.get(),
        },
        regions=1,
    )
    block = op.regions[0].blocks.append(*[kind.element_type] * (count + 1))
    with ir.InsertionPoint(block):
        if count == 2:
            arguments = [scalar, *list(block.arguments)[:2]]
            yielded = ir.Operation.create(
                "arith.select", results=[kind.element_type], operands=arguments
            ).results[0]
        else:
            yielded = block.arguments[0] if scalar is None else scalar
        ir.Operation.create("linalg.yield", operands=[yielded])
    return op.results[0]


def _base(value: ir.Value) -> ir.Value:
    while (op := defining_op(value)) is not None and op.name in RESHAPES:
        value = op.operands[0]
    return value
