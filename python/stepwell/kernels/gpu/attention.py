"""Attention on a grid: scores, softmax and weighed values of a block of queries in one walk over
the keys (T. Dao, "FlashAttention-2", 2023).

    for each tile of keys:
        scores  = queries * keys             in registers; scale, mask and bias as the group says
        maximum, sum and output so far are scaled to the new maximum
        output += exp(scores - maximum) * values
    output / sum

Tiles of keys that no query of the block sees, as a causal mask has them, are left out.

`attention_wgmma` and `attention_mma` multiply on tensor cores, `attention_simt` in f32; this file
has what they share.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Protocol, TypeVar

from stepwell.errors import LoweringError
from stepwell.kernels.builder import Lanes, arith
from stepwell.kernels.cpu.attention import products
from stepwell.kernels.cpu.contraction_strategy import ContractionShape
from stepwell.kernels.expressions import constant_of
from stepwell.kernels.gpu import mma_tile
from stepwell.kernels.gpu.approximate_math import power_of_two
from stepwell.kernels.gpu.grid import GridBuilder
from stepwell.kernels.gpu.tensor_core import F32Products, MatrixType
from stepwell.kernels.group import KernelGroup, accesses
from stepwell.kernels.index import Index, Variable, apply_map, delinearize
from stepwell.kernels.online_softmax import OEQ, UEQ, OnlineSoftmax
from stepwell.kernels.rows import loop_point
from stepwell.kernels.structured import Structured, element_type, shape_of
from stepwell.kernels.used_elements import ToldKeys, told_keys
from stepwell.mlir import ir
from stepwell.targets.nvidia import STATIC_SHARED_BYTES, NvidiaTarget

DIAGONAL = "kernel.diagonal"
"""Attribute of a kernel, [c, p]: of each p queries, query r sees no key beyond r + c."""

WINDOW = "kernel.window"
"""Attribute of a kernel, [w, p]: of each p queries, query r sees no key before r + w. The last one
of them has keys from there on, and so has, if there is a diagonal, every other one."""

PARTS = "kernel.key_parts"
"""Attribute of a kernel whose blocks see only a part of the keys: how many parts there are. It
writes the outputs, maxima and sums of each part, for another kernel to join."""

_MOST_PARTS = 64
_LEAST_KEYS_OF_PART = 256
"""Fewer take less time than one more kernel."""

_BLOCKS_OF_MULTIPROCESSOR = 4
"""Blocks of an attention in parts: each copies 16 KB at a time, and memory takes as much as all of
them to be busy, also while some multiply."""

LOG2_E = 1.4426950408889634


@dataclass(frozen=True)
class AttentionParts:
    """The two products of an attention and the softmax between them; `kind` is what tensor cores
    multiply the operands as, None where f32 is multiplied without them."""

    scores: Structured
    scores_shape: ContractionShape
    values: Structured
    values_shape: ContractionShape
    softmax: OnlineSoftmax
    kind: MatrixType | None
    diagonal: tuple[int, int] | None = None
    """(c, p) where of each p queries, query r sees no key beyond r + c (`DIAGONAL`)."""
    window: tuple[int, int] | None = None
    """(w, p) where of each p queries, query r sees no key before r + w (`WINDOW`)."""
    key_parts: int = 1
    """Into how many parts the keys are split (`PARTS`)."""
    used_keys: ToldKeys | None = None
    """Which keys are in use, in a program with open sizes; None where all may be."""

    @property
    def zero_where(self) -> int | None:
        """Where an output of a block is 0, as `OnlineSoftmax` has it; a part of the keys may be
        none that is seen."""
        return self.softmax.zero_where if self.key_parts == 1 else UEQ

    @staticmethod
    def of(
        operations: list[ir.Operation], target: NvidiaTarget, f32: F32Products
    ) -> AttentionParts | None:
        """Those of a group; None for what no kernel here takes: sums in other types than f32, a
        softmax that cannot be taken piece by piece, products of mixed types."""
        found = products(operations, widening=True)
        if len(found) != 2:
            return None
        (scores, first), (values, second) = found
        shapes = ContractionShape.of(scores, first), ContractionShape.of(values, second)
        structured = [s for s in map(Structured.of, operations) if s is not None]
        rows = [s for s in structured if "reduction" in s.iterators]
        rows = [s for s in rows if s.op not in (scores.op, values.op)]
        softmax = OnlineSoftmax.of(rows, values.inputs[second[0]])
        sums = {str(element_type(product.op.results[0])) for product in (scores, values)}
        starts_at_zero = constant_of(scores.outputs[0]) == 0
        if softmax is None or sums != {"f32"} or not starts_at_zero:
            return None
        kinds = [
            mma_tile.matrix_type(op, shape, target, f32)
            for op, shape in zip((scores, values), shapes, strict=True)
        ]
        if kinds[0] is not kinds[1] or (kinds[0] is not None and kinds[0].bytes == 1):
            return None
        operands = {str(element_type(v)) for v in (*scores.inputs, *values.inputs)}
        if kinds[0] is None and operands != {"f32"}:
            return None
        return AttentionParts(scores, shapes[0], values, shapes[1], softmax, kinds[0])

    @property
    def batch(self) -> int:
        """How many matrices of queries there are."""
        return self.scores_shape.extent(self.scores_shape.batch)

    @property
    def queries(self) -> int:
        return self.scores_shape.m

    @property
    def keys(self) -> int:
        return self.scores_shape.n

    def blocks_of(self, queries: int) -> int:
        """How many blocks of `queries` queries there are in a matrix."""
        return -(-self.queries // queries)

    def tiles_of_part(self, keys: int) -> int:
        """How many tiles of `keys` are a part of the keys; the last part may have fewer."""
        return -(-self.keys // (keys * self.key_parts))


def takes(parts: AttentionParts, target: NvidiaTarget) -> bool:
    """Whether an attention can be one kernel."""
    from stepwell.kernels.gpu import attention_mma, attention_simt

    form = attention_simt if parts.kind is None else attention_mma
    return form.choose(parts, target) is not None


def emit(group: KernelGroup, nest: GridBuilder, target: NvidiaTarget, f32: F32Products) -> None:
    """Write an attention group that `takes` has taken."""
    from stepwell.kernels.gpu import (
        attention_mma,
        attention_simt,
        attention_wgmma,
        attention_wgmma_tile,
    )

    parts = AttentionParts.of(group.operations, target, f32)
    if parts is None:
        raise LoweringError(f"{group.name}: this attention has no kernel for GPUs")
    for name, field in ((DIAGONAL, "diagonal"), (WINDOW, "window")):
        if name in group.function.attributes:
            offset, period = ir.DenseI64ArrayAttr(group.function.attributes[name])
            parts = dataclasses.replace(parts, **{field: (offset, period)})
    if PARTS in group.function.attributes:
        count = ir.IntegerAttr(group.function.attributes[PARTS]).value
        parts = dataclasses.replace(parts, key_parts=count)
    used = told_keys(group, parts.softmax.maximum.inputs[0], parts.keys)
    parts = dataclasses.replace(parts, used_keys=used)
    tile = attention_wgmma_tile.choose(parts, target)
    maps = None if tile is None else attention_wgmma.find_maps(group, nest, parts, tile)
    if tile is not None and maps is not None:
        attention_wgmma.WarpgroupAttention(group, nest, parts, tile, maps).emit()
        return
    form = attention_simt if parts.kind is None else attention_mma
    form.emit(group, nest, parts, target)


class BlockTile(Protocol):
    """What a block takes at a time."""

    @property
    def queries(self) -> int:
        """Queries of the block."""
        ...

    @property
    def shared_bytes(self) -> int:
        """Shared memory that it needs."""
        ...

    @property
    def keys(self) -> int:
        """Keys of a tile."""
        ...


_Tile = TypeVar("_Tile", bound=BlockTile)


def key_parts(parts: AttentionParts, target: NvidiaTarget) -> int:
    """Into how many parts the keys are best split, so that there are blocks for all
    multiprocessors; each part is of some tiles."""
    from stepwell.kernels.gpu import attention_mma, attention_simt, attention_wgmma_tile

    form = attention_simt if parts.kind is None else attention_mma
    tile = form.choose(parts, target)
    if tile is None or attention_wgmma_tile.choose(parts, target) is not None:
        return 1
    blocks = parts.batch * parts.blocks_of(tile.queries)
    most = min(_MOST_PARTS, target.multiprocessors * _BLOCKS_OF_MULTIPROCESSOR // blocks)
    if most < 2:
        return 1
    tiles = -(-parts.keys // tile.keys)
    each = max(-(-tiles // most), -(-_LEAST_KEYS_OF_PART // tile.keys))
    return -(-tiles // each)


def first_filling(tiles: list[_Tile], parts: AttentionParts, target: NvidiaTarget) -> _Tile | None:
    """Of `tiles`, those of more queries first, and of as many those of more keys, the first that
    shared memory takes and that leaves a block for every multiprocessor; where none leaves one, the
    first of the fewest queries, if any."""
    fitting = [tile for tile in tiles if tile.shared_bytes <= STATIC_SHARED_BYTES]
    for tile in fitting:
        if parts.batch * parts.blocks_of(tile.queries) >= target.multiprocessors:
            return tile
    least = min((tile.queries for tile in fitting), default=0)
    return next((tile for tile in fitting if tile.queries == least), None)


class Scores:
    """What the group makes of the raw scores: the values that the softmax is taken of."""

    def __init__(self, group: KernelGroup, nest: GridBuilder, parts: AttentionParts) -> None:
        self.nest = nest
        self.evaluator = group.evaluator
        self.parts = parts
        self.raw = parts.scores.op.results[0]
        reduction = parts.softmax.maximum
        self.value = reduction.inputs[0]
        row = Variable("row", 0, parts.batch * parts.queries - 1)
        column = Variable("column", 0, parts.keys - 1)
        at = self._place(Index.of(row) * parts.keys + Index.of(column))
        leaves = set(self.evaluator.buffers) | {self.raw}
        reads = [i for leaf, i in accesses(self.value, at, leaves) if leaf != self.raw]
        gathers = any(_gathers(op) for op in group.operations)
        self.reads_row, self.reads_column = (
            gathers or any(index.depends_on(v) for at in reads for index in at)
            for v in (row, column)
        )
        """Whether memory is read at places that differ by query, or by key."""

    def _place(self, flat: Index) -> list[Index]:
        """Where the maximum reads the element `flat` of all scores."""
        reduction = self.parts.softmax.maximum
        return apply_map(reduction.maps[0], loop_point(reduction, flat))

    def at(self, which: Index, row: Index, column: Index, raw: ir.Value, lanes: Lanes) -> ir.Value:
        """The scores, in f32, of query `row` of matrix `which` and the keys from `column` on, whose
        products are `raw`; -inf for keys that there are not. Rows beyond the last give any number.
        With several lanes, their number divides that of the keys, and `column`."""
        parts, nest = self.parts, self.nest
        has_row, has_column = row.high < parts.queries, column.high < parts.keys
        tests = [] if has_row or not self.reads_row else [(row, parts.queries)]
        tests += [] if has_column or not self.reads_column else [(column, parts.keys)]
        low = nest.splat_like(raw, float("-inf"))
        if not has_row:
            value = nest.index_value(row, Lanes.of(1))
            row = Index.of(Variable("query", 0, parts.queries - 1, value))
        place = column
        if not has_column:
            count = lanes.count
            group = nest.index_value(column.floordiv(count), Lanes.of(1))
            place = Index.of(Variable("key", 0, parts.keys // count - 1, group)) * count

        def compute() -> ir.Value:
            flat = (which * parts.queries + row) * parts.keys + place + lanes.index
            with self.evaluator.scope():
                self.evaluator.bind(self.raw, delinearize(flat, shape_of(self.raw)), raw)
                found = self.evaluator.at(self.value, self._place(flat), lanes)
                return nest.as_vector(_in_f32(found), lanes)

        value = nest.choose(nest.below(tests), compute, low)
        if has_column or self.reads_column:
            return value
        inside = nest.below([(column, parts.keys)])
        return value if inside is None else arith.SelectOp(inside, value, low).result


def shift_of(nest: GridBuilder, maximum: ir.Value) -> ir.Value:
    """What is taken from scores before their exponentials: the maximum, and 0 where no key was
    seen, so that there the exponentials are zeros."""
    none = arith.CmpFOp(OEQ, maximum, nest.splat_like(maximum, float("-inf"))).result
    return arith.SelectOp(none, nest.splat_like(maximum, 0.0), maximum).result


def exponential(nest: GridBuilder, score: ir.Value, shift: ir.Value) -> ir.Value:
    """exp(score - shift), of scalars, by the instruction for powers of two; its error is within
    2^-22 of the result and half a unit in the last place of the power."""
    return power_of_two(nest.scaled(nest.subtract(score, shift), LOG2_E))


def maximum(a: ir.Value, b: ir.Value) -> ir.Value:
    """The larger one; a NaN where one is."""
    return arith.MaximumFOp(a, b).result


def normalized(
    nest: GridBuilder, values: list[ir.Value], total: ir.Value, zero_where: int | None
) -> list[ir.Value]:
    """`values`, scalars or vectors, by the sum of their weights; 0 where the predicate `zero_where`
    holds of that and 0."""
    inverse = arith.DivFOp(nest.splat_like(total, 1.0), total).result
    found = []
    for value in values:
        wide = nest.as_vector(inverse, Lanes.of(lane_count(value)))
        product = arith.MulFOp(value, wide).result
        if zero_where is not None:
            none = arith.CmpFOp(zero_where, total, nest.splat_like(total, 0.0)).result
            product = arith.SelectOp(none, nest.splat_like(value, 0.0), product).result
        found.append(product)
    return found


def lane_count(value: ir.Value) -> int:
    """Lanes of a vector; 1 for a scalar."""
    return value.type.shape[0] if isinstance(value.type, ir.VectorType) else 1


def _in_f32(value: ir.Value) -> ir.Value:
    kind = value.type
    element = kind.element_type if isinstance(kind, ir.VectorType) else kind
    if str(element) == "f32":
        return value
    wide: ir.Type = ir.F32Type.get()
    if isinstance(kind, ir.VectorType):
        wide = ir.VectorType.get(list(kind.shape), wide)
    return arith.ExtFOp(wide, value).result


def _gathers(op: ir.Operation) -> bool:
    structured = Structured.of(op)
    return structured is not None and any(
        child.operation.name == "tensor.extract" for child in structured.body.operations
    )
