"""Changes of elements in global memory that other threads may change at the same time.

What one instruction does is one: sums of floats and of integers, extrema of integers; several
neighbouring floats where the architecture has that (PTX ISA, "red"). Anything else computes the new
element from the old one until nobody else has changed it in between. None orders other accesses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from stepwell.attributes import i64
from stepwell.kernels.builder import arith, memref, vector
from stepwell.mlir import dialect, ir
from stepwell.targets.nvidia import NvidiaTarget

llvm = dialect("llvm")
scf = dialect("scf")

_RELAXED = 2
"""`monotonic` of LLVM: the change is atomic, and that is all."""

_SCOPE = "device"
_POINTER = "!llvm.ptr<1>"
_NOT_EQUAL = 1

_NATIVE = {"add": 1, "and": 3, "or": 5, "xor": 6, "max": 7, "min": 8, "maxu": 9, "minu": 10}
"""Of integers: `llvm.atomicrmw`'s numbers of them."""

_FLOAT_ADD = 11
_COMPUTED = {
    "add": ("arith.addf", "arith.addi"),
    "mul": ("arith.mulf", "arith.muli"),
    "max": ("arith.maximumf", "arith.maxsi"),
    "min": ("arith.minimumf", "arith.minsi"),
}
_PACKED = {"f16": "f16x2", "bf16": "bf16x2"}

WIDE = (90, 81)
"""Architecture and PTX version from which on one instruction adds 16 bytes of floats."""

PACKED_BFLOAT = (90, 78)
"""The same for two numbers of bf16."""


def widest_add(element: ir.Type, target: NvidiaTarget) -> int:
    """How many neighbouring elements one instruction adds to, at most."""
    name = str(element)
    if name not in ("f32", *_PACKED):
        return 1
    if _has(target, WIDE):
        return 4 if name == "f32" else 8
    return 2 if name == "f16" or (name == "bf16" and _has(target, PACKED_BFLOAT)) else 1


def _has(target: NvidiaTarget, since: tuple[int, int]) -> bool:
    major, minor = target.compute_capability
    return (10 * major + minor) >= since[0] and target.ptx >= since[1]


def address(buffer: ir.Value, at: Sequence[ir.Value]) -> ir.Value:
    """The address of the element at `at`, values of type index, in global memory."""
    kind = ir.MemRefType(buffer.type)
    flat = arith.ConstantOp(ir.IndexType.get(), 0).result
    for position, extent in zip(at, kind.shape, strict=True):
        size = arith.ConstantOp(ir.IndexType.get(), extent).result
        flat = arith.AddIOp(arith.MulIOp(flat, size).result, position).result
    start = memref.ExtractAlignedPointerAsIndexOp(buffer).result
    size = arith.ConstantOp(ir.IndexType.get(), element_bytes(kind.element_type)).result
    place = arith.AddIOp(start, arith.MulIOp(flat, size).result).result
    bits = arith.IndexCastOp(ir.IntegerType.get_signless(64), place).result
    pointer = ir.Type.parse(_POINTER)
    return ir.Operation.create("llvm.inttoptr", results=[pointer], operands=[bits]).results[0]


def element_bytes(element: ir.Type) -> int:
    """Bytes of one element in memory."""
    return max(1, element.width // 8)


def combine(pointer: ir.Value, value: ir.Value, combiner: str) -> None:
    """Let the element at `pointer` be what `combiner` makes of it and `value`: a scalar, or a
    vector of floats to add, no wider than `widest_add` says."""
    if isinstance(value.type, ir.VectorType):
        _add_vector(pointer, value)
        return
    integral = isinstance(value.type, ir.IntegerType)
    if integral and combiner in _NATIVE:
        _modify(pointer, value, _NATIVE[combiner])
    elif combiner == "add":
        _modify(pointer, value, _FLOAT_ADD)
    else:
        name = _COMPUTED[combiner][integral]

        def changed(old: ir.Value) -> ir.Value:
            made = ir.Operation.create(name, results=[old.type], operands=[old, value])
            return made.results[0]

        _exchange(pointer, value.type, changed)


def _modify(pointer: ir.Value, value: ir.Value, number: int) -> None:
    ir.Operation.create(
        "llvm.atomicrmw",
        results=[value.type],
        operands=[pointer, value],
        attributes={
            "bin_op": i64(number),
            "ordering": i64(_RELAXED),
            "syncscope": ir.StringAttr.get(_SCOPE),
        },
    )


def _add_vector(pointer: ir.Value, value: ir.Value) -> None:
    """`red.add` of a vector: f32 as it is, 16-bit floats two a register."""
    kind = ir.VectorType(value.type)
    name, (count,) = str(kind.element_type), kind.shape
    operand, letter, rounding = name, "f", ""
    if name in _PACKED:
        count //= 2
        word = ir.IntegerType.get_signless(32)
        value = vector.BitCastOp(ir.VectorType.get([count], word), value).result
        operand, letter, rounding = _PACKED[name], "r", ".noftz"
    parts = [vector.ExtractOp(value, [], [i]).result for i in range(count)]
    registers = ", ".join(f"${i + 1}" for i in range(count))
    width = f".v{count}" if count > 1 else ""
    registers = f"{{{registers}}}" if count > 1 else registers
    llvm.inline_asm(
        None,
        [pointer, *parts],
        f"red.relaxed.gpu.global.add{rounding}{width}.{operand} [$0], {registers};",
        ",".join(["l", *[letter] * count, "~{memory}"]),
        has_side_effects=True,
        asm_dialect=0,
    )


def _exchange(pointer: ir.Value, kind: ir.Type, changed: Callable[[ir.Value], ir.Value]) -> None:
    """Write what `changed` makes of the element, until nobody else has changed it in between; an
    element that stays as it is, is not written."""
    word = ir.IntegerType.get_signless(8 * element_bytes(kind))
    relaxed = {"ordering": i64(_RELAXED), "syncscope": ir.StringAttr.get(_SCOPE)}
    first = ir.Operation.create(
        "llvm.load",
        results=[word],
        operands=[pointer],
        attributes={**relaxed, "alignment": i64(element_bytes(kind))},
    ).results[0]
    loop = scf.WhileOp([word], [first])
    before, after = (region.blocks.append(word) for region in loop.regions)
    with ir.InsertionPoint(before):
        expected = before.arguments[0]
        new = _bits(changed(_value(expected, kind)), word)
        differs = arith.CmpIOp(_NOT_EQUAL, new, expected).result
        branch = scf.IfOp(differs, [word, ir.IntegerType.get_signless(1)], has_else=True)
        with ir.InsertionPoint(branch.then_block):
            pair = ir.Operation.create(
                "llvm.cmpxchg",
                results=[ir.Type.parse(f"!llvm.struct<(i{word.width}, i1)>")],
                operands=[pointer, expected, new],
                attributes={
                    "success_ordering": i64(_RELAXED),
                    "failure_ordering": i64(_RELAXED),
                    "syncscope": ir.StringAttr.get(_SCOPE),
                },
            ).results[0]
            found = llvm.extractvalue(word, pair, [0])
            scf.YieldOp([found, arith.CmpIOp(_NOT_EQUAL, found, expected).result])
        with ir.InsertionPoint(branch.else_block):
            scf.YieldOp([expected, arith.ConstantOp(ir.IntegerType.get_signless(1), 0).result])
        scf.ConditionOp(branch.results[1], [branch.results[0]])
    with ir.InsertionPoint(after):
        scf.YieldOp([after.arguments[0]])


def _value(bits: ir.Value, kind: ir.Type) -> ir.Value:
    return bits if kind == bits.type else arith.BitcastOp(kind, bits).result


def _bits(value: ir.Value, word: ir.Type) -> ir.Value:
    return value if value.type == word else arith.BitcastOp(word, value).result


def lanes_of(combiner: str, element: ir.Type, target: NvidiaTarget, inner: int) -> int:
    """How many neighbouring elements, of `inner` that lie together, one access combines."""
    return math.gcd(inner, widest_add(element, target)) if combiner == "add" else 1
