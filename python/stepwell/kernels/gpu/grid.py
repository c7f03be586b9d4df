"""Writing kernels for a grid of blocks of threads.

A kernel is one `affine.parallel (%block, %thread)`; inside, `gpu.barrier` and `gpu.shuffle` work on
the block and the warp, and shared memory is an `alloca` in the workgroup's memory space. Blocks may
run in any order, threads of a block together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

from stepwell.attributes import i64
from stepwell.kernels.builder import AffineIf, Lanes, NestBuilder, affine, arith, memref, vector
from stepwell.kernels.gpu import approximate_math
from stepwell.kernels.index import Index, Variable, linearize
from stepwell.kernels.workspace import Workspace
from stepwell.mlir import dialect, ir
from stepwell.targets.nvidia import STATIC_SHARED_BYTES

scf = dialect("scf")

ACCESS_BYTES = 16
"""Every buffer starts at a multiple of this, the widest access of a thread."""

DYNAMIC_SHARED, TENSOR_MAPS = "kernel.shared_bytes", "kernel.tensor_maps"
"""Attributes of a kernel: the shared memory that its launch asks for, beside what it declares; and
what it takes after its buffers (kernels/gpu/tensor_map.py), for each map its fields as integers."""

RESIDENT = "kernel.resident_blocks"
"""Attribute of a kernel whose blocks walk the grid's places: of how many a multiprocessor runs a
launch makes no more, however many places there are."""

CLUSTER = "kernel.cluster"
"""Attribute of a kernel whose neighbouring blocks run together: how many."""

SHARED = "#gpu.address_space<workgroup>"
_SHUFFLE_BITS = 32
_BEYOND_BLOCKS = 1 << 31
"""More than the blocks of any grid."""

_LESS = 6
"""The predicate of `arith.cmpi` on numbers that are not negative."""


class GridBuilder(NestBuilder):
    """A `NestBuilder` whose kernel runs on blocks of threads. Quotients of floats are `exact`, as
    IEEE 754 rounds them, or within 2 ulp of f32."""

    shuffles: ClassVar[bool] = False
    keeps_nan: ClassVar[bool] = True

    def __init__(self, *, exact: bool = True) -> None:
        super().__init__()
        self.exact = exact
        self.shared_bytes = 0
        self.dynamic_shared_bytes = 0
        """What the launch is to ask for, beside the buffers of `shared`."""
        self.tensor_maps: list[ir.Attribute] = []
        """What the kernel takes after its buffers."""
        self.resident_blocks = 0
        """How many blocks a multiprocessor runs, where no more are launched; else 0."""
        self.cluster = 1
        """How many neighbouring blocks run together, and see each other's shared memory."""
        self.workspaces: list[Workspace] = []
        """What the kernel takes after its results."""
        self.states_alignment = False
        """Whether accesses of vectors say how they are aligned: for indices in which quotients nest
        deeper than LLVM looks."""

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
            ir.ArrayAttr.get([i64(1)] * 2),
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

    def walk_places(
        self,
        block: Index,
        count: int,
        initial: Sequence[ir.Value],
        body: Callable[[Index, list[ir.Value]], Sequence[ir.Value]],
        *,
        turning: bool = False,
    ) -> None:
        """Do `body(place, carried)` for the places block, block + n, block + 2 n, ... below
        `count`, where n are the blocks that were launched, which `resident_blocks` limits. Blocks
        of a cluster, whose size divides `count` and n, have neighbouring places. With `turning`
        every other round goes backwards: places that take less and less time then leave the blocks
        about as much work each."""
        own, together = block.mod(self.cluster), self.cluster
        block, count = block.floordiv(together), count // together
        if count == 1:
            body(own, list(initial))
            return
        index = ir.IndexType.get()
        with self.at_top():
            blocks = arith.IndexCastUIOp(index, special_register("nctaid")).result
            if together > 1:
                size = arith.ConstantOp(index, together).result
                blocks = arith.DivUIOp(blocks, size).result
            places = arith.ConstantOp(index, count).result
            rounds = arith.DivUIOp(places, blocks).result
            rest = arith.RemUIOp(places, blocks).result
            most = arith.SubIOp(blocks, arith.ConstantOp(index, 1).result).result
        more = Index.of(Variable("rest", 0, count - 1, rest)) - block + (-1)
        end = Index.of(Variable("rounds", 1, count, rounds)) + more.floordiv(_BEYOND_BLOCKS) + 1
        high, operands = self._map([end])
        op = affine.AffineForOp(0, high, 1, upper_bound_operands=operands, iter_args=list(initial))
        with ir.InsertionPoint(op.body):
            first = self.index_value(block, Lanes.of(1))
            if turning:
                number = Index.of(Variable("round", 0, count, op.induction_variable))
                left = Index.of(Variable("rounds", 1, count, rounds)) - number
                first = self._turned(left.mod(2), block, most)
            place = _linear(op.induction_variable, blocks, first)
            number = Index.of(Variable("place", 0, count - 1, place)) * together + own
            following = body(number, list(op.inner_iter_args))
            affine.AffineYieldOp(list(following))

    def _turned(self, odd: Index, first: Index, most: ir.Value) -> ir.Value:
        """`first`, or `most` less that where `odd` is 1, so that it is a variable of maps."""
        number, sign, turns = (
            self.index_value(index, Lanes.of(1)) for index in (first, odd * -2 + 1, odd)
        )
        none = self.index_value(Index(), Lanes.of(1))
        return _linear(turns, most, _linear(sign, number, none))

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

    @contextmanager
    def once(self, name: str, start: Index, stop: int) -> Iterator[Variable]:
        """A loop of one round, whose variable is the greater of 0 and `start`, which is below
        `stop`; it ranges over [0, stop)."""
        low, operands = self._map([start, Index()])
        op = affine.AffineForOp(
            low, ir.AffineMap.get_constant(stop), stop, lower_bound_operands=operands
        )
        with ir.InsertionPoint(op.body):
            yield Variable(name, 0, stop - 1, op.induction_variable)
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

    def reduce_until(
        self,
        name: str,
        ends: Sequence[Index],
        limit: int,
        initial: Sequence[ir.Value],
        body: Callable[[Variable, list[ir.Value]], Sequence[ir.Value]],
    ) -> list[ir.Value]:
        """`reduce_loop` from 0 to the least of `ends`, which differ by block, and `limit`, by steps
        of one."""
        ends = [end for end in ends if end.low < limit]
        if not ends:
            return self.reduce_loop(name, 0, limit, 1, initial, body)
        return self.reduce_within(name, [Index()], ends, limit, initial, body)

    def reduce_within(
        self,
        name: str,
        starts: list[Index],
        ends: list[Index],
        limit: int,
        initial: Sequence[ir.Value],
        body: Callable[[Variable, list[ir.Value]], Sequence[ir.Value]],
    ) -> list[ir.Value]:
        """`reduce_loop` from the greatest of `starts`, or 0 where that is less, to the least of
        `ends` and `limit`, by steps of one."""
        op = self._for_between(starts, [*ends, Index((), limit)], 1, initial)
        with ir.InsertionPoint(op.body):
            variable = Variable(name, 0, limit - 1, op.induction_variable)
            affine.AffineYieldOp(list(body(variable, list(op.inner_iter_args))))
        return list(op.results)

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

    @contextmanager
    def where(self, bounds: Sequence[tuple[Index, int]]) -> Iterator[None]:
        """`affine.if` all of the indices are below their bounds, and nothing where they always
        are."""
        if all(index.high < size for index, size in bounds):
            yield
            return
        with self.inside(bounds) as branch, branch.then():
            yield

    def below(self, bounds: Sequence[tuple[Index, int]]) -> ir.Value | None:
        """Whether all of the indices are below their bounds, as a value; None where they always
        are."""
        found = None
        for index, size in bounds:
            if index.high >= size:
                limit = arith.ConstantOp(ir.IndexType.get(), size).result
                value = self.index_value(index, Lanes.of(1))
                found = self.both(found, arith.CmpIOp(_LESS, value, limit).result)
        return found

    def both(self, one: ir.Value | None, other: ir.Value | None) -> ir.Value | None:
        """Whether two conditions hold, where None always does."""
        if one is None or other is None:
            return one if other is None else other
        return arith.AndIOp(one, other).result

    def choose(
        self, condition: ir.Value | None, value: Callable[[], ir.Value], other: ir.Value
    ) -> ir.Value:
        """What `value` computes where the condition holds, else `other`."""
        if condition is None:
            return value()
        branches = scf.IfOp(condition, [other.type], has_else=True)
        with ir.InsertionPoint(branches.then_block):
            scf.YieldOp([value()])
        with ir.InsertionPoint(branches.else_block):
            scf.YieldOp([other])
        return branches.results[0]

    def plus(self, value: ir.Value, other: ir.Value | int) -> ir.Value:
        """The sum of two values of type index. Unlike an `Index` it may hold any value, and is no
        subscript of affine loads."""
        if isinstance(other, int):
            if other == 0:
                return value
            other = arith.ConstantOp(ir.IndexType.get(), other).result
        return arith.AddIOp(value, other).result

    def times(self, value: ir.Value, factor: int) -> ir.Value:
        """`value`, of type index, times a constant."""
        return arith.MulIOp(value, arith.ConstantOp(ir.IndexType.get(), factor).result).result

    def exclusive_or(self, one: Index, other: Index) -> ir.Value:
        """The bits in which two indices differ, as a value of type index."""
        values = [self.index_value(index, Lanes.of(1)) for index in (one, other)]
        return arith.XOrIOp(*values).result

    def named(self, name: str, index: Index) -> Index:
        """`index` computed once, as a variable, so that addresses are linear in it."""
        if index.is_constant:
            return index
        value = self.index_value(index, Lanes.of(1))
        return Index.of(Variable(name, index.low, index.high, value, index.is_computed))

    def quotient(self, x: ir.Value, y: ir.Value) -> ir.Value | None:
        """x / y by the GPU's own instruction, where it need not be exact."""
        return None if self.exact else approximate_math.quotient(x, y)

    def barrier(self) -> None:
        """Wait for all threads of the block; what they wrote is seen from here on."""
        ir.Operation.create("gpu.barrier")

    def workspace(
        self, shape: Sequence[int], element: ir.Type, *, zeroed: bool = False
    ) -> ir.Value:
        """A buffer in global memory that all blocks share; `Workspace` says what is in it."""
        kind = ir.MemRefType.get(list(shape), element)
        self.workspaces.append(Workspace(kind, zeroed))
        return self.entry.add_argument(kind, ir.Location.unknown())

    def shared(self, shape: Sequence[int], element: ir.Type, element_bytes: int) -> ir.Value:
        """A buffer that the threads of a block share, 16-byte aligned."""
        kind = ir.MemRefType.get(list(shape), element, memory_space=ir.Attribute.parse(SHARED))
        size = element_bytes
        for extent in shape:
            size *= extent
        self.shared_bytes += -(-size // ACCESS_BYTES) * ACCESS_BYTES
        with self.at_top():
            return memref.AllocaOp(kind, [], [], alignment=ACCESS_BYTES).result

    @property
    def launch_shared_bytes(self) -> int:
        """What the launch is to ask for in all: also the buffers of `shared` where they are more
        than a kernel may declare."""
        if self.shared_bytes <= STATIC_SHARED_BYTES:
            return self.dynamic_shared_bytes
        return self.dynamic_shared_bytes + self.shared_bytes

    def _load_vector(self, buffer: ir.Value, indices: Sequence[Index], count: int) -> ir.Value:
        if not self.states_alignment:
            return super()._load_vector(buffer, indices, count)
        kind = ir.VectorType.get([count], buffer.type.element_type)
        at = [self.index_value(index, Lanes.of(1)) for index in indices]
        return vector.LoadOp(kind, buffer, at, alignment=_alignment(buffer, indices)).result

    def _store_vector(self, value: ir.Value, buffer: ir.Value, indices: Sequence[Index]) -> None:
        if not self.states_alignment:
            super()._store_vector(value, buffer, indices)
            return
        at = [self.index_value(index, Lanes.of(1)) for index in indices]
        vector.StoreOp(value, buffer, at, alignment=_alignment(buffer, indices))

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


def _linear(number: ir.Value, factor: ir.Value, rest: ir.Value) -> ir.Value:
    """`number` times `factor` plus `rest`, which is a variable of maps as they are."""
    dynamic = ir.ShapedType.get_dynamic_size()
    return affine.AffineLinearizeIndexOp(
        ir.IndexType.get(), [number, rest], [factor], [dynamic], disjoint=False
    ).result


def special_register(name: str) -> ir.Value:
    """The first part of a special register, as a value of type i32."""
    word = ir.IntegerType.get_signless(32)
    return ir.Operation.create(f"nvvm.read.ptx.sreg.{name}.x", results=[word]).results[0]


def _alignment(buffer: ir.Value, indices: Sequence[Index]) -> int:
    """Bytes that the address of an element is a multiple of, whatever the variables are."""
    flat = linearize(indices, buffer.type.shape)
    step = math.gcd(flat.constant, *(factor for _, factor in flat.terms))
    return math.gcd(step * _bits(buffer.type.element_type) // 8, ACCESS_BYTES)


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
    return {"f64": 64, "f32": 32, "f16": 16, "bf16": 16, "index": 64}.get(str(kind), 8)
