"""`plan-arena`: put every buffer of the host at a fixed offset of one arena.

Lifetimes are counted in operations; buffers whose lifetimes do not overlap share memory. Buffers
are placed greedily, largest first, each at the lowest offset that is free during its lifetime. What
a loop uses and is made outside of it lives as long as the loop; what a loop's body makes and uses
lives there alone, the same memory in every iteration. Of a loop in parts (`block-batches`), which
threads run at the same time, each part has the memory of the body, and of the counter, for itself.
What a kernel of a chain (`chain-kernels`) uses lives as long as the chain.
At the arena's start lies what is to be zeros whenever a kernel takes it (kernels/workspace.py), for
all kernels the same.

    %0 = memref.alloc() : memref<64xf32>   ->   %0 = memref.view %arena[%c128][] : memref<64xf32>
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from stepwell.attributes import CHAIN, PARTS, PRIVATE, i64, i64_array
from stepwell.errors import LoweringError
from stepwell.kernels.structured import defining_op, source_name
from stepwell.kernels.workspace import ZEROED
from stepwell.mlir import dialect, ir
from stepwell.passes.base import Pass, State

arith = dialect("arith")
memref = dialect("memref")

VIEWS = ("memref.collapse_shape", "memref.expand_shape", "memref.cast", "memref.reinterpret_cast")
ARENA_BYTES = "stepwell.arena_bytes"
ZEROED_BYTES = "stepwell.zeroed_bytes"
"""Attribute of the host: how many bytes from the arena's start on are zeros before the first
call."""

_LOOPS = ("scf.while", "scf.for")


@dataclass
class _Buffer:
    op: ir.Operation
    size: int
    first: int
    last: int
    offset: int = 0
    within: list[_Buffer] = field(default_factory=list)
    """Of a loop in parts: the buffers that each part has for itself."""


@dataclass(frozen=True)
class PlanArena(Pass):
    """Replace `memref.alloc` by views of a last argument, the arena; its size becomes the attribute
    `stepwell.arena_bytes`. `alignment` is in bytes."""

    name: ClassVar[str] = "plan-arena"
    anchor: ClassVar[str] = "func.func"
    alignment: int = 64

    def run(self, op: ir.Operation, state: State) -> None:
        if not len(op.regions[0].blocks) or "kernel.kind" in op.attributes:
            return
        entry = op.regions[0].blocks[0]
        buffers = _lifetimes(entry)
        zeroed = max((b.size for b in buffers if ZEROED in b.op.attributes), default=0)
        first = -(-zeroed // self.alignment) * self.alignment
        others = [b for b in buffers if ZEROED not in b.op.attributes]
        apart = _of_parts_together(entry, others, self.alignment)
        total = _place(apart, self.alignment, first)
        byte = ir.IntegerType.get_signless(8)
        arena = entry.add_argument(ir.MemRefType.get([total], byte), ir.Location.unknown())
        for buffer in buffers:
            with ir.InsertionPoint(buffer.op), buffer.op.location:
                offset = arith.ConstantOp(ir.IndexType.get(), buffer.offset).result
                view = memref.ViewOp(buffer.op.results[0].type, arena, offset, []).result
            buffer.op.results[0].replace_all_uses_with(view)
            buffer.op.erase()
        for child in [op for op in _spans(entry) if op.name == "memref.dealloc"]:
            child.erase()
        kind = ir.FunctionType(ir.TypeAttr(op.attributes["function_type"]).value)
        inputs = [argument.type for argument in entry.arguments]
        op.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, kind.results))
        if "arg_attrs" in op.attributes:
            known = [*op.attributes["arg_attrs"], ir.DictAttr.get({})]
            op.attributes["arg_attrs"] = ir.ArrayAttr.get(known)
        op.attributes[ARENA_BYTES] = i64(total)
        if zeroed:
            op.attributes[ZEROED_BYTES] = i64(zeroed)


def _lifetimes(entry: ir.Block) -> list[_Buffer]:
    spans = _spans(entry)
    spans |= _chains(spans)
    buffers = []
    for op in list(spans):
        if op.name != "memref.alloc":
            continue
        kind = ir.MemRefType(op.results[0].type)
        if not kind.has_static_shape:
            raise LoweringError(f"{source_name(op)}: a buffer's size is known only at run time")
        uses = [_span_of_use(user, op.block, spans) for user in _users(op.results[0])]
        if uses:
            size = math.prod(kind.shape) * element_bytes(kind.element_type)
            first, last = min(start for start, _ in uses), max(end for _, end in uses)
            buffers.append(_Buffer(op, size, first, last))
    return buffers


def _of_parts_together(entry: ir.Block, buffers: list[_Buffer], alignment: int) -> list[_Buffer]:
    """`buffers`, with one for all that the parts of a loop have for themselves."""
    spans, apart = _spans(entry), []
    for loop in (op for op in spans if PARTS in op.attributes):
        counter = _counter(loop)
        within = [b for b in buffers if b.op == counter or loop in _ancestors(b.op)]
        size = _place(within, alignment)
        parts = ir.DenseI64ArrayAttr(loop.attributes[PARTS])[0]
        first = min([spans[loop][0], *(b.first for b in within)])
        apart.append(_Buffer(loop, size * parts, first, spans[loop][1], within=within))
    taken = [id(buffer) for part in apart for buffer in part.within]
    return [*apart, *(buffer for buffer in buffers if id(buffer) not in taken)]


def _counter(loop: ir.Operation) -> ir.Operation | None:
    """The allocation of what the condition of a loop in parts looks at."""
    before = loop.regions[0].blocks[0]
    calls = [child.operation for child in before.operations if child.operation.name == "func.call"]
    if len(calls) != 1:
        raise LoweringError("the condition of a loop in parts is one kernel that reads the counter")
    counter = calls[0].operands[0]
    while (op := defining_op(counter)) is not None and op.name in VIEWS:
        counter = op.operands[0]
    return op


def _spans(entry: ir.Block) -> dict[ir.Operation, tuple[int, int]]:
    """First and last position of each operation at any depth, with all that it holds."""
    spans: dict[ir.Operation, tuple[int, int]] = {}
    count = 0

    def walk(block: ir.Block) -> None:
        nonlocal count
        for child in block.operations:
            op = child.operation
            start = count
            count += 1
            spans[op] = (start, start)
            for region in op.regions:
                for inner in region.blocks:
                    walk(inner)
            spans[op] = (start, count - 1)

    walk(entry)
    return spans


def _chains(spans: dict[ir.Operation, tuple[int, int]]) -> dict[ir.Operation, tuple[int, int]]:
    """For each call of a chain, its first and last position."""
    chains: dict[int, list[ir.Operation]] = {}
    for op in spans:
        if CHAIN in op.attributes:
            chains.setdefault(ir.DenseI64ArrayAttr(op.attributes[CHAIN])[0], []).append(op)
    return {
        op: (spans[calls[0]][0], spans[calls[-1]][1]) for calls in chains.values() for op in calls
    }


def _users(value: ir.Value) -> list[ir.Operation]:
    """The operations that read or write `value`, through views."""
    found = []
    for use in value.uses:
        owner = use.owner.operation
        if owner.name in VIEWS:
            found += _users(owner.results[0])
        elif owner.name != "memref.dealloc":
            found.append(owner)
    return found


def _span_of_use(
    user: ir.Operation, home: ir.Block, spans: dict[ir.Operation, tuple[int, int]]
) -> tuple[int, int]:
    """When `user` needs a buffer that is made in `home`: throughout each loop around `user` that
    `home` is not in."""
    around = {op for op in _ancestors(home.owner.operation) if op in spans}
    start, end = spans[user]
    for op in _ancestors(user.parent.operation if user.parent is not None else None):
        if op not in spans or op in around:
            break
        if op.name in _LOOPS:
            start, end = spans[op]
    return start, end


def _ancestors(op: ir.Operation | None) -> Iterator[ir.Operation]:
    """`op`, then what holds it, outwards."""
    while op is not None:
        yield op
        op = op.parent.operation if op.parent is not None else None


def _place(buffers: list[_Buffer], alignment: int, first: int = 0) -> int:
    """Give each an offset, from `first` on; returns where the last one ends, aligned."""
    placed: list[_Buffer] = []
    total = first
    for buffer in sorted(buffers, key=lambda b: (-b.size, b.first)):
        busy = sorted(
            (other.offset, other.offset + other.size)
            for other in placed
            if other.first <= buffer.last and buffer.first <= other.last
        )
        offset = first
        for start, stop in busy:
            if offset + buffer.size <= start:
                break
            offset = max(offset, -(-stop // alignment) * alignment)
        buffer.offset = offset
        placed.append(buffer)
        total = max(total, offset + buffer.size)
    for buffer in placed:
        for inner in buffer.within:
            inner.offset += buffer.offset
        if PARTS in buffer.op.attributes:
            parts = ir.DenseI64ArrayAttr(buffer.op.attributes[PARTS])[0]
            private = [buffer.offset, buffer.size // parts]
            buffer.op.attributes[PRIVATE] = i64_array(private)
    return -(-total // alignment) * alignment


def element_bytes(kind: ir.Type) -> int:
    """Bytes of one element in memory."""
    if isinstance(kind, ir.IntegerType):
        return max(1, kind.width // 8)
    if isinstance(kind, ir.IndexType):
        return 8
    return {"f64": 8, "f32": 4, "f16": 2, "bf16": 2}[str(kind)]
