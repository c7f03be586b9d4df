"""`plan-arena`: put every buffer of the host at a fixed offset of one arena.

Lifetimes are counted in kernel calls; buffers whose lifetimes do not overlap share memory. Buffers
are placed greedily, largest first, each at the lowest offset that is free during its lifetime.

    %0 = memref.alloc() : memref<64xf32>   ->   %0 = memref.view %arena[%c128][] : memref<64xf32>
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from stepwell.errors import LoweringError
from stepwell.kernels.structured import source_name
from stepwell.mlir import dialect, ir
from stepwell.passes.base import Pass, State

arith = dialect("arith")
memref = dialect("memref")

VIEWS = ("memref.collapse_shape", "memref.expand_shape", "memref.cast", "memref.reinterpret_cast")
ARENA_BYTES = "stepwell.arena_bytes"


@dataclass
class _Buffer:
    op: ir.Operation
    size: int
    first: int
    last: int
    offset: int = 0


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
        total = _place(buffers, self.alignment)
        byte = ir.IntegerType.get_signless(8)
        arena = entry.add_argument(ir.MemRefType.get([total], byte), ir.Location.unknown())
        for buffer in buffers:
            with ir.InsertionPoint(buffer.op), buffer.op.location:
                offset = arith.ConstantOp(ir.IndexType.get(), buffer.offset).result
                view = memref.ViewOp(buffer.op.results[0].type, arena, offset, []).result
            buffer.op.results[0].replace_all_uses_with(view)
            buffer.op.erase()
        for child in list(entry.operations):
            if child.operation.name == "memref.dealloc":
                child.operation.erase()
        kind = ir.FunctionType(ir.TypeAttr(op.attributes["function_type"]).value)
        inputs = [argument.type for argument in entry.arguments]
        op.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, kind.results))
        if "arg_attrs" in op.attributes:
            known = [*op.attributes["arg_attrs"], ir.DictAttr.get({})]
            op.attributes["arg_attrs"] = ir.ArrayAttr.get(known)
        op.attributes[ARENA_BYTES] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), total)


def _lifetimes(entry: ir.Block) -> list[_Buffer]:
    order = {child.operation: i for i, child in enumerate(entry.operations)}
    buffers = []
    for child in entry.operations:
        op = child.operation
        if op.name != "memref.alloc":
            continue
        kind = ir.MemRefType(op.results[0].type)
        if not kind.has_static_shape:
            raise LoweringError(f"{source_name(op)}: a buffer's size is known only at run time")
        uses = _uses(op.results[0], order)
        if uses:
            size = math.prod(kind.shape) * element_bytes(kind.element_type)
            buffers.append(_Buffer(op, size, min(uses), max(uses)))
    return buffers


def _uses(value: ir.Value, order: dict[ir.Operation, int]) -> list[int]:
    """Positions of the operations that read or write `value`, through views."""
    found = []
    for use in value.uses:
        owner = use.owner.operation
        if owner.name in VIEWS:
            found += _uses(owner.results[0], order)
        elif owner.name != "memref.dealloc":
            while owner not in order:
                owner = owner.parent.operation
            found.append(order[owner])
    return found


def _place(buffers: list[_Buffer], alignment: int) -> int:
    placed: list[_Buffer] = []
    total = 0
    for buffer in sorted(buffers, key=lambda b: (-b.size, b.first)):
        busy = sorted(
            (other.offset, other.offset + other.size)
            for other in placed
            if other.first <= buffer.last and buffer.first <= other.last
        )
        offset = 0
        for start, stop in busy:
            if offset + buffer.size <= start:
                break
            offset = max(offset, -(-stop // alignment) * alignment)
        buffer.offset = offset
        placed.append(buffer)
        total = max(total, offset + buffer.size)
    return -(-total // alignment) * alignment


def element_bytes(kind: ir.Type) -> int:
    """Bytes of one element in memory."""
    if isinstance(kind, ir.IntegerType):
        return max(1, kind.width // 8)
    if isinstance(kind, ir.IndexType):
        return 8
    return {"f64": 8, "f32": 4, "f16": 2, "bf16": 2}[str(kind)]
