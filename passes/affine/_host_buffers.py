"""Gives every tensor of the host program a buffer: destinations of kernels, and what loops carry.

Calls pass memrefs. A loop carries nothing; each tensor that it carried has one buffer, which holds
the current value whenever the condition is looked at:

    %r = scf.while (%x = %init) {..condition(%c) %x} do { ^(%y): %z = call @k(%y, ..) yield %z }
      ->  %b = memref.alloc(); memref.copy %init, %b
          scf.while { .. } do { call @k(to_buffer(to_tensor %b), %t); memref.copy %t, %b }
          %r = to_tensor %b

Copies are left out where that changes nothing. A value that nothing reads any more gives its buffer
away: to the kernel that updates a slice of it, or to the loop that starts from it. A kernel writes
what the body yields straight into the loop's buffer once the old value was read for the last time.
"""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.kernels.structured import RESHAPES, defining_op, location_names
from stepwell.kernels.workspace import ZEROED, Workspace
from stepwell.mlir import ir
from stepwell.passes.affine._loop_buffers import drop_arguments
from stepwell.passes.buffers.bufferize_host import CARRIED, reinterpreted
from stepwell.passes.linalg._fusion_graph import is_control
from stepwell.passes.linalg.concatenate_in_place import DISJOINT

Scratch = dict[str, list[Workspace]]
Targets = dict[ir.Value, ir.Value]
"""Results of calls that are to be written to a certain buffer."""


def memref_type(kind: ir.Type) -> ir.Type:
    """The memref of a tensor type, row-major; other types as they are."""
    if not isinstance(kind, ir.RankedTensorType):
        return kind
    return ir.MemRefType.get(list(kind.shape), kind.element_type)


def give_host_buffers(host: ir.Operation, scratch: Scratch) -> None:
    """Rewrite the calls, loops and branches of `host`; `scratch` has the buffers that each
    kernel takes beside its results."""
    _Host(scratch).block(host.regions[0].blocks[0], {})


class _Host:
    def __init__(self, scratch: Scratch) -> None:
        self.scratch = scratch
        self.owned: dict[ir.Value, tuple[ir.Value, ir.Block]] = {}
        """Buffers that may be overwritten when the tensor in them is dead, and its block."""

    def block(self, block: ir.Block, targets: Targets) -> None:
        for op in [child.operation for child in block.operations]:
            with ir.InsertionPoint(op), op.location:
                if op.name == "func.call" and _callee(op) in self.scratch:
                    self._call(op, targets)
                elif op.name == "scf.while" and is_control(op):
                    self._while(op)
                elif op.name == "scf.if" and is_control(op):
                    self._if(op)

    def _call(self, call: ir.Operation, targets: Targets) -> None:
        callee = _callee(call)
        count = len(call.operands) - len(call.results)
        operands = list(call.operands)
        buffers = [
            self._destination(call, result, operands[count + number], targets)
            for number, result in enumerate(call.results)
        ]
        temporaries = [_temporary(workspace) for workspace in self.scratch[callee]]
        names = [ir.StringAttr.get(name) for name in location_names(call.location)]
        ir.Operation.create(
            "func.call",
            operands=[*map(_to_buffer, operands[:count]), *buffers, *temporaries],
            attributes={
                "callee": ir.FlatSymbolRefAttr.get(callee),
                "kernel.names": ir.ArrayAttr.get(names),
            },
        )
        for result, buffer in zip(call.results, buffers, strict=True):
            self._replace(result, buffer, call.block)
        call.erase()

    def _destination(
        self, call: ir.Operation, result: ir.Value, destination: ir.Value, targets: Targets
    ) -> ir.Value:
        """The buffer for a result; with the old contents in it where the kernel updates them."""
        old = None if _is_empty(destination) else destination
        if old is not None and self._dies(old, call):
            return reinterpreted(self.owned.pop(_base(old))[0], memref_type(result.type))
        if result in targets:
            buffer = reinterpreted(targets[result], memref_type(result.type))
        else:
            buffer = _allocate(memref_type(result.type))
        if old is not None:
            _copy(_to_buffer(old), buffer)
        return buffer

    def _dies(self, value: ir.Value, op: ir.Operation) -> bool:
        """Whether the buffer of `value` may be overwritten by `op`, which reads it last."""
        base = _base(value)
        if base not in self.owned or self.owned[base][1] != op.block:
            return False
        order = _order(op.block)
        last = [p for p in _positions(base, order) if p >= order[op]]
        return last == [order[op]] or (DISJOINT in op.attributes and {*last} == {order[op]})

    def _while(self, op: ir.Operation) -> None:
        before, after = (region.blocks[0] for region in op.regions)
        condition, end = _last(before), _last(after)
        buffers = self._carried(op)
        forwarded = list(condition.operands)[1:]
        numbers = {argument: number for number, argument in enumerate(before.arguments)}
        places: list[ir.Value | None] = []
        for value in forwarded:
            if value in numbers:
                places.append(buffers[numbers[value]])
            else:
                inside = _is_inside(value, op)
                places.append(_allocate(memref_type(value.type)) if inside else None)
        with ir.InsertionPoint.at_block_begin(before):
            for argument, buffer in zip(before.arguments, buffers, strict=True):
                if buffer is not None:
                    argument.replace_all_uses_with(_to_tensor(buffer))
        self.block(before, {})
        with ir.InsertionPoint(condition):
            for value, now, place in zip(
                forwarded, list(condition.operands)[1:], places, strict=True
            ):
                if place is not None and value not in numbers:
                    _copy(_to_buffer(now), place)
        passed = list(condition.operands)[1:]
        readers: dict[ir.Value, list[ir.Value]] = {}
        for argument, place, value in zip(after.arguments, places, passed, strict=True):
            if place is None:
                argument.replace_all_uses_with(value)
                continue
            with ir.InsertionPoint.at_block_begin(after):
                tensor = _to_tensor(place)
            argument.replace_all_uses_with(tensor)
            readers.setdefault(place, []).append(tensor)
            self.owned[tensor] = (place, after)
        for tensors in readers.values():
            for tensor in tensors if len(tensors) > 1 else ():
                del self.owned[tensor]
        self.block(after, self._carried_targets(after, buffers, readers))
        with ir.InsertionPoint(end):
            _assign(list(end.operands), buffers)
        drop_arguments(op, condition, end)
        taken: list[ir.Value] = []
        for result, place, value in zip(op.results, places, passed, strict=True):
            if not any(True for _ in result.uses):
                continue
            if place is None or place in taken:
                source = _to_buffer(value) if place is None else place
                place = _allocate(memref_type(result.type))
                _copy(source, place)
            taken.append(place)
            self._replace(result, place, op.block)
        op.erase()

    def _replace(self, value: ir.Value, buffer: ir.Value, block: ir.Block) -> None:
        """Let readers of `value` read `buffer`, which `block` may overwrite when they are done."""
        tensor = _to_tensor(buffer)
        value.replace_all_uses_with(tensor)
        self.owned[tensor] = (buffer, block)

    def _carried(self, op: ir.Operation) -> list[ir.Value | None]:
        """The buffer of each tensor that the loop carries, with the first value in it; None for one
        that never changes, whose readers then read the first value."""
        before, after = (region.blocks[0] for region in op.regions)
        forwarded = list(_last(before).operands)[1:]
        buffers: list[ir.Value | None] = []
        for argument, start, following in zip(
            list(before.arguments), list(op.operands), list(_last(after).operands), strict=True
        ):
            if any(
                following == passed and argument == value
                for passed, value in zip(after.arguments, forwarded, strict=True)
            ):
                argument.replace_all_uses_with(start)
                buffers.append(None)
            elif self._dies(start, op):
                owned = self.owned.pop(_base(start))[0]
                buffers.append(reinterpreted(owned, memref_type(start.type)))
            else:
                buffers.append(_allocate(memref_type(start.type)))
                if not _is_empty(start):
                    _copy(_to_buffer(start), buffers[-1])
        return buffers

    def _carried_targets(
        self,
        after: ir.Block,
        buffers: list[ir.Value | None],
        readers: dict[ir.Value, list[ir.Value]],
    ) -> Targets:
        """The results of calls in the body that may be written straight into a carried buffer: each
        comes after the last read of the old value."""
        targets: Targets = {}
        order = _order(after)
        for value, buffer in zip(_last(after).operands, buffers, strict=True):
            if buffer is None or not _is_fresh(value, after) or _base(value) in targets:
                continue
            call = defining_op(_base(value))
            tensors = readers.get(buffer, [])
            reads = [p for tensor in tensors for p in _positions(tensor, order)]
            if not any(map(_gives_away, tensors)) and all(p < order[call] for p in reads):
                targets[_base(value)] = buffer
        return targets

    def _if(self, op: ir.Operation) -> None:
        places: list[ir.Value | None] = [_allocate(memref_type(r.type)) for r in op.results]
        branch = ir.Operation.create("scf.if", operands=[op.operands[0]], results=[], regions=2)
        for source, target in zip(op.regions, branch.regions, strict=True):
            block = source.blocks[0]
            targets: Targets = {}
            for value, place in zip(_last(block).operands, places, strict=True):
                if place is not None and _is_fresh(value, block):
                    targets.setdefault(_base(value), place)
            self.block(block, targets)
            end = _last(block)
            with ir.InsertionPoint(end):
                _assign(list(end.operands), places)
                ir.Operation.create("scf.yield", operands=[])
            end.erase()
            block.append_to(target)
        for result, place in zip(op.results, places, strict=True):
            assert place is not None
            self._replace(result, place, op.block)
        op.erase()


def _order(block: ir.Block) -> dict[ir.Operation, int]:
    """The position of each operation in its block. Operations hash by what they are: look them up
    before any of them is changed."""
    return {child.operation: number for number, child in enumerate(block.operations)}


def _positions(value: ir.Value, order: dict[ir.Operation, int]) -> list[int]:
    """Positions of the operations in a block that read `value`, or hold one that does."""
    found = []
    for use in value.uses:
        owner: ir.Operation | None = use.owner.operation
        if owner is not None and owner.name in RESHAPES:
            found += _positions(owner.results[0], order)
            continue
        while owner is not None and owner not in order:
            owner = owner.parent.operation if owner.parent is not None else None
        if owner is not None:
            found.append(order[owner])
    return found


def _assign(values: Sequence[ir.Value], buffers: Sequence[ir.Value | None]) -> None:
    """Copy values into their buffers, all at once: one that lies in a buffer which is overwritten
    goes through a temporary."""
    copies = [
        (_to_buffer(value), buffer)
        for value, buffer in zip(values, buffers, strict=True)
        if buffer is not None and _memory(value) != _memory(buffer)
    ]
    overwritten = [_memory(buffer) for _, buffer in copies]
    for number, (source, buffer) in enumerate(copies):
        if _memory(source) in overwritten:
            temporary = _allocate(source.type)
            _copy(source, temporary)
            copies[number] = (temporary, buffer)
    for source, buffer in copies:
        _copy(source, buffer)


def _memory(buffer: ir.Value) -> ir.Value:
    """The buffer behind casts, and behind the tensors that name it."""
    while (op := defining_op(buffer)) is not None and op.name in _ALIASES:
        buffer = op.operands[0]
    return buffer


_ALIASES = (
    "memref.reinterpret_cast",
    "bufferization.to_buffer",
    "bufferization.to_tensor",
    *RESHAPES,
)


def _base(value: ir.Value) -> ir.Value:
    """The tensor that `value` is, in another shape."""
    while (op := defining_op(value)) is not None and op.name in RESHAPES:
        value = op.operands[0]
    return value


def _is_fresh(value: ir.Value, block: ir.Block) -> bool:
    """Whether a call in `block` makes `value` and writes all of it."""
    base = _base(value)
    call = defining_op(base)
    if call is None or call.name != "func.call" or call.block != block:
        return False
    number = next(i for i, result in enumerate(call.results) if result == base)
    return _is_empty(call.operands[len(call.operands) - len(call.results) + number])


def _is_empty(value: ir.Value) -> bool:
    op = defining_op(value)
    return op is not None and op.name == "tensor.empty"


def _gives_away(value: ir.Value) -> bool:
    """Whether some reader of `value` may take over its buffer."""
    for use in value.uses:
        owner = use.owner.operation
        if owner.name in RESHAPES and _gives_away(owner.results[0]):
            return True
        if owner.name == "scf.while":
            return True
        inputs = len(owner.operands) - len(owner.results)
        if owner.name == "func.call" and use.operand_number >= inputs:
            return True
    return False


def _is_inside(value: ir.Value, op: ir.Operation) -> bool:
    """Whether `value` is made in a region of `op`."""
    maker = defining_op(value)
    owner = maker.parent if maker is not None else value.owner.owner
    while owner is not None:
        if owner.operation == op:
            return True
        owner = owner.operation.parent
    return False


def _last(block: ir.Block) -> ir.Operation:
    return list(block.operations)[-1].operation


def _callee(call: ir.Operation) -> str:
    return ir.FlatSymbolRefAttr(call.attributes["callee"]).value


def _allocate(kind: ir.Type) -> ir.Value:
    return ir.Operation.create(
        "memref.alloc",
        results=[kind],
        attributes={"operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 0])},
    ).results[0]


def _temporary(workspace: Workspace) -> ir.Value:
    buffer = _allocate(workspace.kind)
    op = defining_op(buffer)
    if workspace.zeroed and op is not None:
        op.attributes[ZEROED] = ir.UnitAttr.get()
    return buffer


def _copy(source: ir.Value, target: ir.Value) -> None:
    ir.Operation.create(
        "memref.copy", operands=[source, target], attributes={CARRIED: ir.UnitAttr.get()}
    )


def _to_tensor(buffer: ir.Value) -> ir.Value:
    kind = ir.MemRefType(buffer.type)
    return ir.Operation.create(
        "bufferization.to_tensor",
        results=[ir.RankedTensorType.get(list(kind.shape), kind.element_type)],
        operands=[buffer],
        attributes={"restrict": ir.UnitAttr.get(), "writable": ir.UnitAttr.get()},
    ).results[0]


def _to_buffer(value: ir.Value) -> ir.Value:
    if not isinstance(value.type, ir.RankedTensorType):
        return value
    return ir.Operation.create(
        "bufferization.to_buffer",
        results=[memref_type(value.type)],
        operands=[value],
        attributes={"read_only": ir.UnitAttr.get()},
    ).results[0]
