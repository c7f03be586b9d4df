"""f32 on tensor cores, in full: operands as sums of two numbers of tf32, of which three products
are added (H. Ootomo, R. Yokota, "Recovering single precision accuracy from Tensor Cores while
surpassing the FP32 theoretical peak performance", 2022).

    a = high(a) + low(a)        10 bits of fraction each: all that tensor cores look at
    a * b = high * high + (low * high + high * low)         low * low is below 2^-20 of it

The high part is the number itself, of which tensor cores take the upper 19 bits. They cut sums,
too, where f32 rounds them: a sum begins anew every few places of k, and is added to those before by
an addition of f32. Where the parts of a product that is infinite are not finite, they are left out,
so that infinities come out as f32 has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stepwell.kernels.builder import arith, vector
from stepwell.kernels.gpu import tensor_core
from stepwell.kernels.gpu.tensor_core import MatrixType
from stepwell.mlir import dialect, ir

math = dialect("math")

STEPS = 2
"""Instructions along k between two additions of f32."""

_HIGH_BITS = -(1 << 13)
"""The bits of f32 that tensor cores take."""

_HALF_OF_LAST = 1 << 12
"""Added to the bits, it rounds what is cut."""

_ORDERED_LESS = 4


@dataclass(frozen=True)
class Parts:
    """A fragment and its low part."""

    whole: ir.Value
    low: ir.Value

    @staticmethod
    def of(fragment: ir.Value) -> Parts:
        return Parts(fragment, low_part(fragment))

    def half(self, number: int) -> Parts:
        """Two of the four registers, as `tensor_core.half`."""
        return Parts(tensor_core.half(self.whole, number), tensor_core.half(self.low, number))


def low_part(numbers: ir.Value) -> ir.Value:
    """What tensor cores do not see of `numbers` of f32, a vector, to be cut by them in turn."""
    kind = ir.VectorType(numbers.type)
    bits_type = ir.VectorType.get(list(kind.shape), ir.IntegerType.get_signless(32))

    def words(value: int) -> ir.Value:
        word = ir.IntegerAttr.get(bits_type.element_type, value)
        splat = ir.DenseElementsAttr.get_splat(bits_type, word)
        return arith.ConstantOp(bits_type, splat).result

    bits = vector.BitCastOp(bits_type, numbers).result
    high = vector.BitCastOp(kind, arith.AndIOp(bits, words(_HIGH_BITS)).result).result
    low = vector.BitCastOp(bits_type, arith.SubFOp(numbers, high).result).result
    return vector.BitCastOp(kind, arith.AddIOp(low, words(_HALF_OF_LAST)).result).result


def finite_or_zero(numbers: ir.Value) -> ir.Value:
    """`numbers` of f32, and 0 for those that are not finite."""
    kind = numbers.type

    def splat(value: float) -> ir.Value:
        number = ir.FloatAttr.get(ir.F32Type.get(), value)
        if isinstance(kind, ir.VectorType):
            number = ir.DenseElementsAttr.get_splat(kind, number)
        return arith.ConstantOp(kind, number).result

    magnitude = math.AbsFOp(numbers).result
    finite = arith.CmpFOp(_ORDERED_LESS, magnitude, splat(float("inf"))).result
    return arith.SelectOp(finite, numbers, splat(0.0)).result


def multiply(
    rows: Sequence[Parts],
    columns: Sequence[Sequence[Parts]],
    sums: Sequence[ir.Value],
    kind: MatrixType,
) -> list[ir.Value]:
    """`sums`, and the products of the fragments `rows`, one a step along k, and those of each of
    the `columns`. All threads of the warp take part."""
    parts = [tensor_core.no_sums(kind)] * len(columns)
    for step, left in enumerate(rows):
        for a_low in (True, False):
            a = left.low if a_low else left.whole
            for at, right in enumerate(columns):
                b = right[step].whole if a_low else right[step].low
                parts[at] = tensor_core.multiply(a, b, parts[at], kind)
    parts = [finite_or_zero(part) for part in parts]
    for step, left in enumerate(rows):
        for at, right in enumerate(columns):
            parts[at] = tensor_core.multiply(left.whole, right[step].whole, parts[at], kind)
    return [arith.AddFOp(total, part).result for total, part in zip(sums, parts, strict=True)]
