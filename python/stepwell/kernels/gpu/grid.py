"""Writing kernels for a grid of blocks of threads.

A kernel is one `affine.parallel (%block, %thread)`; inside, `gpu.barrier` and `gpu.shuffle` work on
the block and the warp, and shared memory is an `alloca` in the workgroup's memory space. Blocks may
run in any order, threads of a block together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from stepwell.kernels.builder import AffineIf, Lanes, NestBuilder, affine, arith, memref
from stepwell.kernels.index import Index, Variable
from stepwell.mlir import ir

SHARED = "#gpu.address_space<workgroup>"
_SHUFFLE_BITS = 32


class GridBuilder(NestBuilder):
    """A `NestBuilder` whose kernel runs on blocks of threads."""

    def __init__(self) -> None:
        super().__init__()
        self.shared_bytes = 0

    @contextmanager
    def grid(self, blocks: int, threads: int) -> Iterator[tuple[Index, Index]]:
        """The kernel's `blocks` blocks of `threads` threads: the numbers of both."""
        op = affine.AffineParallelOp(
            [],
            ir.ArrayAttr.get([]),
            ir.AffineMap.get(0, 0, [ir.AffineExpr.get_constant(0)] * 2),
            ir.Attribute.parse("dense<1> : tensor<2xi32>"),
            ir.AffineMap.get(0, 0, [ir.AffineExpr.get_constant(n) for n in (blocks, threads)]),
            ir.Attribute.parse("dense<1> : tensor<2xi32>"),
            ir.ArrayAttr.get([ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 1)] * 2),
            [],
        )
        index = ir.IndexType.get()
        body = op.regions[0].blocks.append(index, index)
        with ir.InsertionPoint(body):
            block, thread = body.arguments
            yield (
                Index.of(Variable("block", 0, blocks - 1, block)),
                Index.of(Variable("thread", 0, threads - 1, thread)),
            )
            affine.AffineYieldOp([])

    @contextmanager
    def each(self, name: str, start: Index, stop: int, step: int) -> Iterator[Variable]:
        """`affine.for name = start to stop step step` from a start that differs by thread; the
        variable ranges over [0, stop)."""
        if start.is_constant and start.constant + step >= stop > start.constant:
            yield Variable(name, start.constant, start.constant)
            return
        low, operands = self._map([start])
        op = affine.AffineForOp(
            low, ir.AffineMap.get_constant(stop), step, lower_bound_operands=operands
        )
        with ir.InsertionPoint(op.body):
            yield Variable(name, 0, max(stop - 1, 0), op.induction_variable)
            affine.AffineYieldOp([])

    def reduce_each(
        self,
        start: Index,
        stop: int,
        step: int,
        initial: ir.Value,
        body: Callable[[Variable, ir.Value], ir.Value],
    ) -> ir.Value:
        """A loop as `each` makes that carries one value: `body(variable, carried)` gives the next
        one."""
        low, operands = self._map([start])
        op = affine.AffineForOp(
            low,
            ir.AffineMap.get_constant(stop),
            step,
            lower_bound_operands=operands,
            iter_args=[initial],
        )
        with ir.InsertionPoint(op.body):
            variable = Variable("i", 0, max(stop - 1, 0), op.induction_variable)
            affine.AffineYieldOp([body(variable, op.inner_iter_args[0])])
        return op.results[0]

    @contextmanager
    def inside(
        self, bounds: Sequence[tuple[Index, int]], *, otherwise: bool = False
    ) -> Iterator[AffineIf]:
        """`affine.if` all of the indices are below their bounds; those that always are, are left
        out (with none left, the condition is a constant)."""
        needed = [(index, size) for index, size in bounds if index.high >= size]
        variables = list(dict.fromkeys(v for index, _ in needed for v in index.variables()))
        expressions = [
            (index * -1 + (size - 1)).to_affine(variables.index) for index, size in needed
        ] or [ir.AffineExpr.get_constant(0)]
        integer_set = ir.IntegerSet.get(len(variables), 0, expressions, [False] * len(expressions))
        values = [v.value for v in variables]
        yield AffineIf(affine.AffineIfOp(integer_set, cond_operands=values, has_else=otherwise))

    def named(self, name: str, index: Index) -> Index:
        """`index` computed once, as a variable, so that addresses are linear in it."""
        if index.is_constant:
            return index
        value = self.index_value(index, Lanes.of(1))
        return Index.of(Variable(name, index.low, index.high, value))

    def barrier(self) -> None:
        """Wait for all threads of the block; what they wrote is seen from here on."""
        ir.Operation.create("gpu.barrier")

    def shared(self, shape: Sequence[int], element: ir.Type, element_bytes: int) -> ir.Value:
        """A buffer that the threads of a block share, 16-byte aligned."""
        kind = ir.MemRefType.get(list(shape), element, memory_space=ir.Attribute.parse(SHARED))
        size = element_bytes
        for extent in shape:
            size *= extent
        self.shared_bytes += -(-size // 16) * 16
        with self.at_top():
            return memref.AllocaOp(kind, [], [], alignment=16).result

    def shuffle_xor(self, value: ir.Value, offset: int) -> ir.Value:
        """The value that the thread of the warp has whose number differs by the bits of `offset`;
        all threads of the warp take part. `value` is a scalar of 8 to 64 bits."""
        kind = value.type
        width = _bits(kind)
        word = ir.IntegerType.get_signless(_SHUFFLE_BITS)
        if width == _SHUFFLE_BITS:
            return _shuffle(value, offset)
        integer = ir.IntegerType.get_signless(width)
        bits = value if isinstance(kind, ir.IntegerType) else arith.BitcastOp(integer, value).result
        if width < _SHUFFLE_BITS:
            moved = arith.TruncIOp(integer, _shuffle(arith.ExtUIOp(word, bits).result, offset))
        else:
            half = arith.ConstantOp(integer, _SHUFFLE_BITS).result
            low = arith.TruncIOp(word, bits).result
            high = arith.TruncIOp(word, arith.ShRUIOp(bits, half).result).result
            low, high = (arith.ExtUIOp(integer, _shuffle(v, offset)).result for v in (low, high))
            moved = arith.OrIOp(low, arith.ShLIOp(high, half).result)
        if isinstance(kind, ir.IntegerType):
            return moved.result
        return arith.BitcastOp(kind, moved.result).result


def _shuffle(value: ir.Value, offset: int) -> ir.Value:
    word = ir.IntegerType.get_signless(32)
    operands = [value, *(arith.ConstantOp(word, number).result for number in (offset, 32))]
    return ir.Operation.create(
        "gpu.shuffle",
        results=[value.type, ir.IntegerType.get_signless(1)],
        operands=operands,
        attributes={"mode": ir.Attribute.parse("#gpu<shuffle_mode xor>")},
    ).results[0]


def _bits(kind: ir.Type) -> int:
    if isinstance(kind, ir.IntegerType):
        return kind.width
    return {"f64": 64, "f32": 32, "f16": 16, "bf16": 16}[str(kind)]
