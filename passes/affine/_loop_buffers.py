"""Gives the tensors that `scf.while` carries a fixed buffer each, before bufferization.

    %r = scf.while (%x = %init) {..condition(%c) %x} do { ^(%y): .. scf.yield %next }

becomes a loop that carries nothing:

    %buffer = memref.alloc(); write %init to %buffer
    scf.while : () -> () { %x = to_tensor %buffer .. } do { %y = to_tensor %buffer .. write %next }
    %r = to_tensor %buffer

Upstream's bufferization would allocate in every iteration. A value that may lie in the buffer of
another carried tensor goes through a buffer of its own, so that exchanged tensors stay apart.
"""

from __future__ import annotations

from stepwell.attributes import PARTS
from stepwell.kernels.structured import defining_op
from stepwell.mlir import ir, nested_operations
from stepwell.passes.linalg._captured import captured

_FRESH = (
    "tensor.empty",
    "tensor.splat",
    "tensor.from_elements",
    "tensor.generate",
    "tensor.pad",
    "tensor.concat",
    "arith.constant",
)
_VIEWS = ("tensor.extract_slice", "tensor.collapse_shape", "tensor.expand_shape", "tensor.cast")


def give_loops_buffers(function: ir.Operation) -> None:
    """Rewrite every `scf.while` inside `function`, inner ones first."""
    found = [op for op in nested_operations(function) if op.name == "scf.while"]
    for op in found:
        with ir.InsertionPoint(op), op.location:
            _rewrite(op)


def _rewrite(op: ir.Operation) -> None:
    before, after = (region.blocks[0] for region in op.regions)
    condition, end = _last(before), _last(after)
    forwarded, yielded = list(condition.operands)[1:], list(end.operands)
    if not all(isinstance(v.type, ir.RankedTensorType) for v in (*op.operands, *forwarded)):
        return
    buffers: list[ir.Value | None] = []
    for argument, start, following in zip(before.arguments, op.operands, yielded, strict=True):
        if any(
            following == passed and argument == value
            for passed, value in zip(after.arguments, forwarded, strict=True)
        ):
            argument.replace_all_uses_with(start)
            buffers.append(None)
            continue
        buffer = _allocate(start.type)
        _write(start, buffer)
        buffers.append(buffer)
        with ir.InsertionPoint.at_block_begin(before):
            argument.replace_all_uses_with(_read(buffer, writable=False))
    _forward(op, condition, after, forwarded, buffers)
    with ir.InsertionPoint(end):
        _carry(after, end, buffers)
    drop_arguments(op, condition, end)
    op.erase()


def _forward(
    op: ir.Operation,
    condition: ir.Operation,
    after: ir.Block,
    forwarded: list[ir.Value],
    buffers: list[ir.Value | None],
) -> None:
    """Make the body and the results read what the condition passes on."""
    before = op.regions[0].blocks[0]
    numbers = {argument: number for number, argument in enumerate(before.arguments)}
    sources = list(condition.operands)[1:]
    for number, (old, value) in enumerate(zip(forwarded, sources, strict=True)):
        place = buffers[numbers[old]] if old in numbers else _allocate(value.type)
        if place is None:
            after.arguments[number].replace_all_uses_with(value)
            op.results[number].replace_all_uses_with(value)
            continue
        if old not in numbers:
            with ir.InsertionPoint(condition):
                _write(value, place)
        with ir.InsertionPoint.at_block_begin(after):
            after.arguments[number].replace_all_uses_with(_read(place))
        result = op.results[number]
        if any(True for _ in result.uses):
            with _after(op):
                result.replace_all_uses_with(_read(place))


def _carry(after: ir.Block, end: ir.Operation, buffers: list[ir.Value | None]) -> None:
    """Write what the body yields into the buffers."""
    reads = {
        child.operation.results[0]: child.operation.operands[0]
        for child in after.operations
        if child.operation.name == "bufferization.to_tensor"
    }
    apart: list[tuple[ir.Value, ir.Value]] = []
    direct: list[tuple[ir.Value, ir.Value]] = []
    for value, buffer in zip(end.operands, buffers, strict=True):
        if buffer is None:
            continue
        others = [v for v, place in reads.items() if place != buffer and v in _origins(value)]
        (apart if others else direct).append((value, buffer))
    copies = []
    for value, buffer in apart:
        temporary = _allocate(value.type)
        _write(value, temporary)
        copies.append((temporary, buffer))
    for value, buffer in direct:
        _write(value, buffer)
    for temporary, buffer in copies:
        ir.Operation.create("memref.copy", operands=[temporary, buffer])


def _origins(value: ir.Value) -> set[ir.Value]:
    """Values in whose buffer `value` may lie, itself included."""
    found: set[ir.Value] = set()
    pending = [value]
    while pending:
        current = pending.pop()
        if current in found:
            continue
        found.add(current)
        op = defining_op(current)
        if op is None or op.name in _FRESH:
            continue
        if op.name.startswith("linalg."):
            pending += list(op.operands)[-len(op.results) :]
        elif op.name in _VIEWS:
            pending.append(op.operands[0])
        elif op.name in ("tensor.insert_slice", "tensor.insert"):
            pending.append(op.operands[1])
        elif op.name != "bufferization.to_tensor":
            pending += [*op.operands, *captured(op)]
    return found


def drop_arguments(op: ir.Operation, condition: ir.Operation, end: ir.Operation) -> None:
    """Make the loop anew, carrying nothing, at the insertion point; `op` is left without bodies."""
    marks = {PARTS: op.attributes[PARTS]} if PARTS in op.attributes else {}
    loop = ir.Operation.create("scf.while", operands=[], results=[], attributes=marks, regions=2)
    with ir.InsertionPoint(condition):
        ir.Operation.create("scf.condition", operands=[condition.operands[0]])
    with ir.InsertionPoint(end):
        ir.Operation.create("scf.yield", operands=[])
    condition.erase()
    end.erase()
    for source, target in zip(op.regions, loop.regions, strict=True):
        source.blocks[0].append_to(target)
        while len(target.blocks[0].arguments):
            target.blocks[0].erase_argument(len(target.blocks[0].arguments) - 1)


def _last(block: ir.Block) -> ir.Operation:
    return list(block.operations)[-1].operation


def _after(op: ir.Operation) -> ir.InsertionPoint:
    operations = list(op.block.operations)
    position = next(i for i, child in enumerate(operations) if child.operation == op)
    return ir.InsertionPoint(operations[position + 1])


def _allocate(kind: ir.Type) -> ir.Value:
    tensor = ir.RankedTensorType(kind)
    return ir.Operation.create(
        "memref.alloc",
        results=[ir.MemRefType.get(list(tensor.shape), tensor.element_type)],
        attributes={"operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 0])},
    ).results[0]


def _write(value: ir.Value, buffer: ir.Value) -> None:
    ir.Operation.create(
        "bufferization.materialize_in_destination",
        operands=[value, buffer],
        attributes={"restrict": ir.UnitAttr.get(), "writable": ir.UnitAttr.get()},
    )


def _read(buffer: ir.Value, *, writable: bool = True) -> ir.Value:
    kind = ir.MemRefType(buffer.type)
    attributes: dict[str, ir.Attribute] = {"restrict": ir.UnitAttr.get()}
    if writable:
        attributes["writable"] = ir.UnitAttr.get()
    return ir.Operation.create(
        "bufferization.to_tensor",
        results=[ir.RankedTensorType.get(list(kind.shape), kind.element_type)],
        operands=[buffer],
        attributes=attributes,
    ).results[0]
