"""Instructions that add several products to each sum of a vector.

    vpdpbusd   sum[i] += a[4 i] b[4 i] + ... + a[4 i + 3] b[4 i + 3]    a unsigned bytes, b signed
    vpmaddwd   a[2 i] b[2 i] + a[2 i + 1] b[2 i + 1]                    integers of 16 bits, in 32
    vpmaddubsw the same                                                 bytes, in 16 bits
    vdpbf16ps  sum[i] += a[2 i + 1] b[2 i + 1], then a[2 i] b[2 i]      bf16, summed in f32

The terms of a sum lie side by side, four or two to a word: in the lhs because its last reduced
dimension is its last, in the rhs because it is packed, or a panel of it copied, so. A word of the
lhs is broadcast as a number of f32 is. Sums of integers are exact, modulo 2^32: without vpdpbusd,
vpmaddubsw multiplies words whose signed bytes are so small that no two products saturate, and
vpmaddwd adds up its results. Sums of bf16 are rounded to nearest at each product, numbers that are
not normal being zero.

Where there are few columns, words are whole vectors of numbers, and an instruction has as many sums
of each row and column.
"""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.kernels.builder import arith, vector
from stepwell.kernels.cpu.contraction_strategy import (
    BFLOATS,
    BYTES,
    GATHERED_BYTES,
    SHORTS,
    SMALL_BYTES,
    ContractionShape,
    estimated_time,
    flat_lhs,
)
from stepwell.kernels.structured import (
    Structured,
    contraction_operands,
    element_type,
    extension,
    is_multiply_add,
)
from stepwell.mlir import ir
from stepwell.targets import Target

_MOST_LANES = 64
"""Columns of a panel at most."""


def terms_of(op: Structured, operands: tuple[int, int], target: Target, packed: bool) -> int:
    """How many products an instruction of `target` adds to each sum of the contraction `op`: 1
    where none does. An rhs that is not `packed` has to be small enough for copies of its panels."""
    if (target.byte_dot or SMALL_BYTES in op.op.attributes) and multiplies_bytes(op):
        terms = BYTES
    elif target.pair_dot and _multiplies_shorts(op):
        terms = SHORTS
    elif target.bfloat_dot and _multiplies_bfloats(op):
        terms = BFLOATS
    else:
        return _terms_along(op, operands, target) if packed else 1
    shape = ContractionShape.of(op, operands)
    flat, dims = flat_lhs(op, shape)
    last = shape.reduced[-1]
    if shape.sizes[last] % terms or flat.coefficient(dims[last]) != 1:
        return 1
    if not packed and shape.k * 4 // terms * _MOST_LANES > GATHERED_BYTES:
        return 1
    return terms


def _terms_along(op: Structured, operands: tuple[int, int], target: Target) -> int:
    """How many terms a vector takes of a row and of a column, with few of these, where that is
    faster than vectors of columns; else 1."""
    shape = ContractionShape.of(op, operands)
    kinds = {str(element_type(value)) for value in (*op.inputs, op.op.results[0])}
    if kinds not in ({"f32"}, {"f64"}) or not shape.m:
        return 1
    if shape.n >= 2 * target.vector_lanes or shape.n % target.vector_lanes == 0:
        return 1
    flat, dims = flat_lhs(op, shape)
    last = shape.reduced[-1]
    if flat.coefficient(dims[last]) != 1:
        return 1
    counts = [target.vector_lanes, target.vector_lanes // 2]
    return min(
        (1, *(n for n in counts if n > BYTES and shape.sizes[last] % n == 0)),
        key=lambda terms: estimated_time(op, ContractionShape.of(op, operands, terms), target),
    )


def multiplies_bytes(op: Structured) -> bool:
    """Whether `op` sums products of unsigned bytes by signed ones in 32 bits."""
    kinds = {_extension_name(op, number) for number in range(2)}
    values = [str(element_type(value)) for value in (*op.inputs[:2], op.op.results[0])]
    return kinds == {"arith.extui", "arith.extsi"} and values == ["i8", "i8", "i32"]


def _multiplies_shorts(op: Structured) -> bool:
    """Whether `op` sums products of signed integers of 16 bits in 32."""
    kinds = {_extension_name(op, number) for number in range(2)}
    values = [str(element_type(value)) for value in (*op.inputs[:2], op.op.results[0])]
    return kinds == {"arith.extsi"} and values == ["i16", "i16", "i32"]


def _multiplies_bfloats(op: Structured) -> bool:
    """Whether `op` sums products of bf16 in f32."""
    values = [str(element_type(value)) for value in (*op.inputs[:2], op.op.results[0])]
    return values == ["bf16", "bf16", "f32"]


def bfloat_time(op: Structured, target: Target) -> float | None:
    """The estimated time of a convolution of f32 if its operands were bf16; None where they would
    not come in words of two terms, or for something else."""
    values = (*op.inputs, op.op.results[0])
    if not target.bfloat_dot or any(str(element_type(value)) != "f32" for value in values):
        return None
    if not is_multiply_add(op) or contraction_operands(op) != (0, 1):
        return None
    shape = ContractionShape.of(op, (0, 1))
    flat, dims = flat_lhs(op, shape)
    channels = shape.reduced[-1]
    if shape.batch or len(shape.reduced) < 2 or shape.sizes[channels] % BFLOATS:
        return None
    if flat.coefficient(dims[channels]) != 1:
        return None
    return estimated_time(op, ContractionShape.of(op, (0, 1), BFLOATS), target)


def _extension_name(op: Structured, number: int) -> str | None:
    found = extension(op, number)
    return None if found is None else found.name


def broadcast(word: ir.Value, lanes: int) -> ir.Value:
    """The terms of one word in each of `lanes` words."""
    i32 = ir.IntegerType.get_signless(32)
    one = vector.BitCastOp(ir.VectorType.get([1], i32), word).result
    everywhere = vector.BroadcastOp(ir.VectorType.get([lanes], i32), one).result
    count = lanes * word.type.shape[0]
    return vector.BitCastOp(ir.VectorType.get([count], word.type.element_type), everywhere).result


def interleave(terms: Sequence[ir.Value]) -> ir.Value:
    """One vector of words of what two or four vectors, or numbers, have at each place."""
    first = terms[0].type
    if not isinstance(first, ir.VectorType):
        return vector.FromElementsOp(ir.VectorType.get([len(terms)], first), list(terms)).result
    if len(terms) == BFLOATS:
        return vector.InterleaveOp(*terms).result
    even, odd = (vector.InterleaveOp(terms[n], terms[n + 2]).result for n in range(2))
    return vector.InterleaveOp(even, odd).result


def multiply_add(op: Structured, inputs: Sequence[ir.Value], total: ir.Value) -> ir.Value:
    """`total` and the products of two vectors of words, which are of the inputs of `op`."""
    bits = 32 * total.type.shape[0]
    if _multiplies_bfloats(op):
        return _called(f"llvm.x86.avx512bf16.dpbf16ps.{bits}", total.type, [total, *inputs])
    if _multiplies_shorts(op):
        return arith.AddIOp(total, _called(_SHORT_PAIRS[bits], total.type, inputs)).result
    is_first = _extension_name(op, 0) == "arith.extui"
    factors = list(inputs if is_first else reversed(inputs))
    if SMALL_BYTES not in op.op.attributes:
        return _called(f"llvm.x86.avx512.vpdpbusd.{bits}", total.type, [total, *factors])
    shorts = ir.VectorType.get([bits // 16], ir.IntegerType.get_signless(16))
    one = ir.DenseElementsAttr.get_splat(shorts, ir.IntegerAttr.get(shorts.element_type, 1))
    ones = arith.ConstantOp(shorts, one).result
    pairs = _called(_BYTE_PAIRS[bits], shorts, factors)
    return arith.AddIOp(total, _called(_SHORT_PAIRS[bits], total.type, [pairs, ones])).result


_SHORT_PAIRS = {
    128: "llvm.x86.sse2.pmadd.wd",
    256: "llvm.x86.avx2.pmadd.wd",
    512: "llvm.x86.avx512.pmaddw.d.512",
}
_BYTE_PAIRS = {
    128: "llvm.x86.ssse3.pmadd.ub.sw.128",
    256: "llvm.x86.avx2.pmadd.ub.sw",
    512: "llvm.x86.avx512.pmaddubs.w.512",
}


def _called(intrinsic: str, result: ir.Type, operands: Sequence[ir.Value]) -> ir.Value:
    return ir.Operation.create(
        "llvm.call_intrinsic",
        results=[result],
        operands=list(operands),
        attributes={
            "intrin": ir.StringAttr.get(intrinsic),
            "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(operands), 0]),
        },
    ).results[0]
