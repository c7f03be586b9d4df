"""Weights that a product reads as they are stored and widens itself, as structured operations.

    w[k, n] = (codes[k, n] - zeros[k // block, n]) * scales[k // block, n]

is one or two elementwise `linalg.generic` that bear `kernel.widened`: constants lie behind all that
they read, so that they are repeated wherever they are read, and a kernel evaluates them where it
loads the weights. Sums of products are scaled a block at a time where they are taken in such parts.
In panels (`pack-operands`), codes of 4 bits are eight rows to a word of 32 bits:

    (codes[n // panel, k // 8, n % panel] >> 4 * (k % 8)) & 15      codes, less the least of them
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from stepwell.kernels.index import Index
from stepwell.kernels.structured import Structured, defining_op, element_type, shape_of
from stepwell.mlir import dialect, ir
from stepwell.packing import CODE_BITS, WORD_CODES

arith = dialect("arith")
linalg = dialect("linalg")
tensor = dialect("tensor")

WIDENED = "kernel.widened"
"""Marks the operations; says what is subtracted from all codes."""


@dataclass(frozen=True, eq=False)
class WidenedWeights:
    """Weights that a kernel widens: `unscaled`, made of codes less zeros, by the scales."""

    codes: ir.Value
    zeros: ir.Value | None
    zero: float
    """Subtracted from all codes."""
    unscaled: ir.Value
    scales: ir.Value | None

    @staticmethod
    def of(value: ir.Value) -> WidenedWeights | None:
        """What makes `value`, if it is such an operation."""
        structured = _widened(value)
        if structured is None:
            return None
        first, *others = structured.inputs
        inner = _widened(first)
        if inner is not None:
            found = WidenedWeights.of(first)
            assert found is not None
            return replace(found, scales=others[0])
        zero = ir.FloatAttr(structured.op.attributes[WIDENED]).value
        return WidenedWeights(first, others[0] if others else None, zero, value, None)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns, of a matrix."""
        rows, columns = shape_of(self.unscaled)
        return rows, columns

    @property
    def bytes(self) -> float:
        """Of a code; of a word, its share."""
        kind = element_type(self.codes)
        width = kind.width if isinstance(kind, ir.IntegerType) else ir.FloatType(kind).width
        return width / 8 / (WORD_CODES if width == 32 else 1)

    @property
    def block(self) -> int:
        """How many rows share a scale, and a zero."""
        shared = self.zeros if self.scales is None else self.scales
        rows = shape_of(self.unscaled)[-2]
        return rows if shared is None else rows // shape_of(shared)[-2]

    def scales_at(self, point: Sequence[Index]) -> list[Index]:
        """Where the scale of a weight is."""
        *before, row, column = point
        return [*before, row.floordiv(self.block), column]


def _widened(value: ir.Value) -> Structured | None:
    op = defining_op(value)
    return None if op is None or WIDENED not in op.attributes else Structured.of(op)


def widened(
    shape: Sequence[int],
    codes: ir.Value,
    scales: ir.Value | None,
    zeros: ir.Value | None,
    block: int,
    zero: float,
    least: int | None = None,
) -> ir.Value:
    """The operations for weights of `shape`, [k, n] or panels [panel, k, n]: codes less `zero` and
    zeros, by scales. Of the latter there is a row for `block` rows of codes. Of codes of 4 bits in
    words, `least` is the least one."""
    inputs = [codes] if zeros is None else [codes, zeros]
    row = len(shape) - 2

    def unscaled(code: ir.Value, *zeros: ir.Value) -> ir.Value:
        wide = _as_float(code if least is None else _code_in_word(code, row))
        offset = zero - (least or 0)
        if offset:
            wide = arith.SubFOp(wide, arith.ConstantOp(ir.F32Type.get(), offset)).result
        return arith.SubFOp(wide, *zeros).result if zeros else wide

    together = [1 if least is None else WORD_CODES, block][: len(inputs)]
    value = _elementwise(shape, inputs, together, zero, unscaled)
    if scales is None:
        return value

    def scaled(value: ir.Value, scale: ir.Value) -> ir.Value:
        return arith.MulFOp(value, scale).result

    return _elementwise(shape, [value, scales], [1, block], zero, scaled)


def _elementwise(
    shape: Sequence[int],
    inputs: Sequence[ir.Value],
    together: Sequence[int],
    zero: float,
    compute: Callable[..., ir.Value],
) -> ir.Value:
    """A marked operation; so many rows meet one row of each input."""
    rank, f32 = len(shape), ir.F32Type.get()

    def rows_of(count: int) -> ir.AffineMapAttr:
        places = [ir.AffineExpr.get_dim(d) for d in range(rank)]
        if count > 1:
            places[-2] = ir.AffineExpr.get_floor_div(places[-2], count)
        return ir.AffineMapAttr.get(ir.AffineMap.get(rank, 0, places))

    parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>")
    generic = ir.Operation.create(
        "linalg.generic",
        results=[ir.RankedTensorType.get(list(shape), f32)],
        operands=[*inputs, tensor.EmptyOp(list(shape), f32).result],
        attributes={
            "indexing_maps": ir.ArrayAttr.get([*map(rows_of, together), rows_of(1)]),
            "iterator_types": ir.ArrayAttr.get([parallel] * rank),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs), 1]),
            WIDENED: ir.FloatAttr.get_f32(zero),
        },
        regions=1,
    )
    body = generic.regions[0].blocks.append(*map(element_type, inputs), f32)
    with ir.InsertionPoint(body):
        linalg.YieldOp([compute(*list(body.arguments)[:-1])])
    return generic.results[0]


def _code_in_word(word: ir.Value, row: int) -> ir.Value:
    """The code of a row, as an integer of 32 bits."""
    index, i32 = ir.IndexType.get(), ir.IntegerType.get_signless(32)
    place = arith.RemUIOp(linalg.IndexOp(row).result, arith.ConstantOp(index, WORD_CODES)).result
    bits = arith.MulIOp(place, arith.ConstantOp(index, CODE_BITS)).result
    shifted = arith.ShRUIOp(word, arith.IndexCastOp(i32, bits)).result
    return arith.AndIOp(shifted, arith.ConstantOp(i32, (1 << CODE_BITS) - 1)).result


def _as_float(code: ir.Value) -> ir.Value:
    f32 = ir.F32Type.get()
    if isinstance(code.type, ir.IntegerType):
        return arith.SIToFPOp(f32, code).result
    return arith.ExtFOp(f32, code).result
