"""Writing affine loop nests: loops, branches, loads and stores at `Index`es.

`NestBuilder` is what kernel emitters share. A loop is a context manager that gives its variable:

    with nest.loop("i", 0, 128, step=6) as i:
        x = nest.load(buffer, [Index.of(i), Index.of(lane)], lane)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

from stepwell.attributes import i64
from stepwell.kernels.arithmetic import Arithmetic, Lanes, ssa
from stepwell.kernels.index import Index, Variable, linearize
from stepwell.mlir import dialect, ir

affine = dialect("affine")
arith = dialect("arith")
memref = dialect("memref")
scf = dialect("scf")
vector = dialect("vector")

_L1, _L2 = 3, 2
"""Locality hints of a prefetch: into the first or the second level of the cache."""

APART = "kernel.apart"
"""Of a branch at the begin of a task: what is written there has nothing to do with the rest."""

SHUFFLED_STRIDES = (2, 3, 4)
"""Elements so far apart are read by whole vectors and shuffled."""

REWRITTEN = "kernel.rewritten"
"""Marks scratch of which no block reads what another has written."""


class NestBuilder(Arithmetic):
    """Emits affine, vector and arith operations at the current insertion point."""

    shuffles: ClassVar[bool] = True
    """Whether vectors may be read from any address and shuffled."""

    keeps_nan: ClassVar[bool] = False
    """Whether a maximum that is NaN where an element is costs no more than another."""

    alone: bool = False
    """Whether one thread runs all tasks of the kernel."""

    def __init__(self) -> None:
        super().__init__()
        self._flat: dict[ir.Value, ir.Value] = {}

    # Loops

    @contextmanager
    def parallel(self, name: str, count: int) -> Iterator[Variable]:
        """`affine.parallel (name) = 0 to count`: the tasks of a kernel, in any order; of one that
        runs alone, one task with a loop."""
        if self.alone and count > 1:
            with self.parallel(name, 1), self.loop(name, 0, count) as variable:
                yield variable
            return
        op = affine.AffineParallelOp(
            [],
            ir.ArrayAttr.get([]),
            ir.AffineMap.get_constant(0),
            ir.Attribute.parse("dense<1> : tensor<1xi32>"),
            ir.AffineMap.get_constant(count),
            ir.Attribute.parse("dense<1> : tensor<1xi32>"),
            ir.ArrayAttr.get([i64(1)]),
            [],
        )
        block = op.regions[0].blocks.append(ir.IndexType.get())
        with ir.InsertionPoint(block):
            yield Variable(name, 0, count - 1, block.arguments[0])
            affine.AffineYieldOp([])

    @contextmanager
    def loop(self, name: str, start: int, stop: int, step: int = 1) -> Iterator[Variable]:
        """`affine.for name = start to stop step step`; the variable counts elements."""
        op = affine.AffineForOp(start, stop, step)
        with ir.InsertionPoint(op.body):
            last = start + (max(stop - start, 1) - 1) // step * step
            yield Variable(name, start, last, op.induction_variable)
            affine.AffineYieldOp([])

    @contextmanager
    def loop_between(
        self,
        name: str,
        start: Index,
        stop: Index,
        limit: int,
        step: int = 1,
        other: Index | None = None,
    ) -> Iterator[Variable]:
        """A loop from `start` to min(`stop`, `limit`), and at most to `other`; its variable ranges
        over [0, limit)."""
        stops = [stop, Index((), limit), *([other] if other is not None else [])]
        op = self._for_between([start], stops, step)
        with ir.InsertionPoint(op.body):
            yield Variable(name, start.low, limit - 1, op.induction_variable)
            affine.AffineYieldOp([])

    def reduce_between(
        self,
        name: str,
        start: Index,
        stop: Index,
        limit: int,
        step: int,
        initial: Sequence[ir.Value],
        body: Callable[[Variable, list[ir.Value]], Sequence[ir.Value]],
    ) -> list[ir.Value]:
        """`reduce_loop` from max(`start`, 0) to min(`stop`, `limit`), known at run time."""
        op = self._for_between([start], [stop, Index((), limit)], step, initial)
        with ir.InsertionPoint(op.body):
            low = max(start.low, 0)
            variable = Variable(name, low, max(limit - step, low), op.induction_variable)
            affine.AffineYieldOp(list(body(variable, list(op.inner_iter_args))))
        return list(op.results)

    def _for_between(
        self, starts: list[Index], stops: list[Index], step: int, carried: Sequence[ir.Value] = ()
    ) -> ir.OpView:
        """`affine.for` from the greatest of `starts`, or 0 where that is less, to the least of
        `stops`."""
        least = [Index()] if all(start.low < 0 for start in starts) else []
        low_map, low_operands = self._map([*starts, *least])
        high_map, high_operands = self._map(stops)
        return affine.AffineForOp(
            low_map,
            high_map,
            step,
            iter_args=list(carried),
            lower_bound_operands=low_operands,
            upper_bound_operands=high_operands,
        )

    def reduce_loop(
        self,
        name: str,
        start: int,
        stop: int,
        step: int,
        initial: Sequence[ir.Value],
        body: Callable[[Variable, list[ir.Value]], Sequence[ir.Value]],
    ) -> list[ir.Value]:
        """A loop that carries values: `body(variable, carried)` returns the next ones. A loop of
        one iteration is not made; its body is emitted in place."""
        count = -(-(stop - start) // step)
        if count <= 0:
            return list(initial)
        if count == 1:
            return list(body(Variable(name, start, start), list(initial)))
        op = affine.AffineForOp(start, start + count * step, step, iter_args=list(initial))
        with ir.InsertionPoint(op.body):
            variable = Variable(name, start, start + (count - 1) * step, op.induction_variable)
            affine.AffineYieldOp(list(body(variable, list(op.inner_iter_args))))
        return list(op.results)

    def reduce_range(
        self,
        name: str,
        start: ir.Value,
        stop: ir.Value,
        limit: int,
        step: int,
        initial: Sequence[ir.Value],
        body: Callable[[Variable, list[ir.Value]], Sequence[ir.Value]],
    ) -> list[ir.Value]:
        """`scf.for` from `start` to `stop`, numbers up to `limit` that were read in memory."""
        step_value = arith.ConstantOp(ir.IndexType.get(), step).result
        op = scf.ForOp(start, stop, step_value, list(initial))
        with ir.InsertionPoint(op.body):
            high = max(limit - step, 0)
            variable = Variable(name, 0, high, op.induction_variable, computed=True)
            scf.YieldOp(list(body(variable, list(op.inner_iter_args))))
        return list(op.results)

    def reduce_steps(
        self,
        name: str,
        start: int,
        stop: int,
        initial: Sequence[ir.Value],
        body: Callable[[Index, list[ir.Value]], list[ir.Value]],
        unroll: int = 1,
        before: Callable[[Index], None] | None = None,
    ) -> list[ir.Value]:
        """`reduce_loop` by steps of one, `unroll` of them to an iteration, in front of which
        `before` is called; the last few have a loop of their own."""

        def several(count: int) -> Callable[[Variable, list[ir.Value]], list[ir.Value]]:
            def run(k: Variable, carried: list[ir.Value]) -> list[ir.Value]:
                if before is not None:
                    before(Index.of(k))
                for number in range(count):
                    carried = body(Index.of(k) + number, carried)
                return carried

            return run

        whole = stop - (stop - start) % unroll
        carried = self.reduce_loop(name, start, whole, unroll, initial, several(unroll))
        return self.reduce_loop(name, whole, stop, 1, carried, several(1))

    @contextmanager
    def when(self, condition: Index, *, equals: int, otherwise: bool = False) -> Iterator[AffineIf]:
        """`affine.if condition == equals`; use the result's `then()` and `otherwise()`."""
        variables = condition.variables()
        expression = (condition + -equals).to_affine(variables.index)
        integer_set = ir.IntegerSet.get(len(variables), 0, [expression], [True])
        op = affine.AffineIfOp(
            integer_set, cond_operands=[ssa(v) for v in variables], has_else=otherwise
        )
        yield AffineIf(op)

    def last_apart(self, index: Index, last: int, body: Callable[[Index, bool], None]) -> None:
        """`body` of `index`, and whether it is `last`: of that number where it is, and of what is
        known to be less where not, as forms that have it inside may be simpler for that."""
        with self.when(index, equals=last, otherwise=True) as branch:
            with branch.then():
                body(Index((), last), True)
            with branch.otherwise():
                known = index.known_below(last)
                if known.high < last:
                    body(known, False)
                    return
                with self.loop_between("index", index, index + 1, last) as variable:
                    body(Index.of(variable), False)

    @contextmanager
    def when_last(self, index: Index, count: int) -> Iterator[None]:
        """`affine.if index == count - 1`; no condition when that is certain."""
        if count == 1:
            yield
            return
        with self.when(index, equals=count - 1) as branch, branch.then():
            yield

    @contextmanager
    def when_below(self, bounds: Sequence[tuple[Index, int]]) -> Iterator[AffineIf]:
        """`affine.if` all of the indices are below their bounds."""
        variables = list(dict.fromkeys(v for index, _ in bounds for v in index.variables()))
        expressions = [
            (index * -1 + (size - 1)).to_affine(variables.index) for index, size in bounds
        ]
        integer_set = ir.IntegerSet.get(len(variables), 0, expressions, [False] * len(bounds))
        yield AffineIf(affine.AffineIfOp(integer_set, cond_operands=[ssa(v) for v in variables]))

    @contextmanager
    def when_all_below(self, bounds: Sequence[tuple[Index, int]]) -> Iterator[None]:
        """What is written inside is done if all of the indices are below their bounds; no condition
        where there are none."""
        if not bounds:
            yield
        elif self._affine([index for index, _ in bounds]) is None:
            with ir.InsertionPoint(scf.IfOp(self._all_below(bounds)).then_block):
                yield
                scf.YieldOp([])
        else:
            with self.when_below(bounds) as branch, branch.then():
                yield

    def unless_outside(
        self,
        bounds: Sequence[tuple[Index, int]],
        inside: Callable[[], list[ir.Value]],
        outside: list[ir.Value],
    ) -> list[ir.Value]:
        """What `inside` computes where all of the indices are below their bounds, or `outside`."""
        if not bounds:
            return inside()
        kinds = [value.type for value in outside]
        branch = scf.IfOp(self._all_below(bounds), kinds, has_else=True)
        with ir.InsertionPoint(branch.then_block):
            scf.YieldOp(inside())
        with ir.InsertionPoint(branch.else_block):
            scf.YieldOp(outside)
        return list(branch.results)

    def _all_below(self, bounds: Sequence[tuple[Index, int]]) -> ir.Value:
        """Whether indices are below their bounds, as a value."""
        below = [
            arith.CmpIOp(
                arith.CmpIPredicate.slt, self._apply(index), self._index_constant(size)
            ).result
            for index, size in bounds
        ]
        return functools.reduce(lambda a, b: arith.AndIOp(a, b).result, below)

    # Memory

    def _place(
        self, buffer: ir.Value, indices: Sequence[Index]
    ) -> tuple[ir.Value, tuple[Index, ...]]:
        """The buffer and indices to use: flattened where that turns quotients into linear forms."""
        if all(index.is_linear for index in indices):
            return buffer, tuple(indices)
        flat = linearize(indices, buffer.type.shape)
        if not flat.is_linear:
            return buffer, tuple(indices)
        return self.flattened(buffer), (flat,)

    def flattened(self, buffer: ir.Value) -> ir.Value:
        """The 1-D view of a contiguous buffer."""
        if buffer not in self._flat:
            kind = ir.MemRefType(buffer.type)
            if kind.rank == 1:
                self._flat[buffer] = buffer
            else:
                flat = ir.MemRefType.get([math.prod(kind.shape)], kind.element_type)
                axes = [ir.IntegerAttr.get(_i64(), i) for i in range(kind.rank)]
                with self.at_top():
                    self._flat[buffer] = memref.CollapseShapeOp(
                        flat, buffer, ir.ArrayAttr.get([ir.ArrayAttr.get(axes)] if axes else [])
                    ).result
        return self._flat[buffer]

    def collapsed(self, buffer: ir.Value, shape: Sequence[int], merged: ir.ArrayAttr) -> ir.Value:
        """The view of a contiguous buffer whose dimensions are the groups of `merged` ones."""
        if len(shape) == 1:
            return self.flattened(buffer)
        kind = ir.MemRefType.get(list(shape), buffer.type.element_type)
        with self.at_top():
            return memref.CollapseShapeOp(kind, buffer, merged).result

    def expanded(self, buffer: ir.Value, shape: Sequence[int], split: ir.ArrayAttr) -> ir.Value:
        """The view of a contiguous buffer whose dimensions are split in the groups of `split`."""
        kind = ir.MemRefType.get(list(shape), buffer.type.element_type)
        with self.at_top():
            return memref.ExpandShapeOp(kind, buffer, split, [], list(shape)).result

    def load(self, buffer: ir.Value, indices: Sequence[Index], lanes: Lanes) -> ir.Value:
        """The elements at `indices` for all lanes: a vector; a scalar when no index moves with the
        lane. Contiguous lanes become one vector load, others one load a lane."""
        buffer, placed = self._place(buffer, indices)
        strides = [lanes.stride(index) for index in placed]
        base = [lanes.at(index, 0) for index in placed]
        if lanes.count == 1 or all(stride == 0 for stride in strides):
            return self.load_scalar(buffer, base)
        if strides[-1] == 1 and all(stride == 0 for stride in strides[:-1]):
            return self._load_vector(buffer, base, lanes.count)
        flat = linearize(placed, buffer.type.shape)
        stride = lanes.stride(flat)
        if stride == 1:
            return self._load_vector(self.flattened(buffer), [lanes.at(flat, 0)], lanes.count)
        if stride is not None and stride in SHUFFLED_STRIDES and self.shuffles:
            return self._load_strided(buffer, lanes.at(flat, 0), lanes.count, stride)
        parts = [
            self.load_scalar(buffer, [lanes.at(index, lane) for index in placed])
            for lane in range(lanes.count)
        ]
        return vector.FromElementsOp(ir.VectorType.get([lanes.count], parts[0].type), parts).result

    def _load_strided(self, buffer: ir.Value, start: Index, count: int, stride: int) -> ir.Value:
        """`count` elements from flat position `start` on, each `stride` behind the one before: of
        as many vectors, the last of which ends with the last element, so that nothing behind it is
        read."""
        flat = self.flattened(buffer)
        result = self._load_vector(flat, [start], count)
        for number in range(1, stride):
            begin = min(number * count, (count - 1) * (stride - 1))
            following = self._load_vector(flat, [start + begin], count)
            mask = []
            for lane in range(count):
                if lane * stride < number * count:
                    mask.append(lane * stride if number == 1 else lane)
                else:  # or of one of the vectors to come
                    mask.append(count + min(lane * stride - begin, count - 1))
            result = vector.ShuffleOp(result, following, mask).result
        return result

    def quotient(self, x: ir.Value, y: ir.Value) -> ir.Value | None:
        """x / y in another way than by a division; None where there is none."""
        return None

    def gather(
        self, buffer: ir.Value, indices: Sequence[ir.Value | Index], lanes: Lanes
    ) -> ir.Value:
        """Elements at indices that were computed: each an `Index`, a scalar or a vector of index.
        One vector load when only a symbolic last index moves, by one element, with the lane."""
        *outer, last = indices
        contiguous = isinstance(last, Index) and lanes.stride(last) == 1
        if contiguous and all(self.is_uniform(index, lanes) for index in outer):
            base = [self.lane(index, 0, lanes) for index in indices]
            kind = ir.VectorType.get([lanes.count], buffer.type.element_type)
            if lanes.count == 1:
                return memref.LoadOp(buffer, base).result
            return vector.LoadOp(kind, buffer, base).result
        if lanes.count == 1 or all(self.is_uniform(index, lanes) for index in indices):
            return memref.LoadOp(buffer, [self.lane(i, 0, lanes) for i in indices]).result
        parts = [
            memref.LoadOp(buffer, [self.lane(index, lane, lanes) for index in indices]).result
            for lane in range(lanes.count)
        ]
        return vector.FromElementsOp(ir.VectorType.get([lanes.count], parts[0].type), parts).result

    def is_uniform(self, index: ir.Value | Index, lanes: Lanes) -> bool:
        """Whether all lanes have the same index."""
        if isinstance(index, Index):
            return not index.depends_on(lanes.variable)
        return not isinstance(index.type, ir.VectorType)

    def lane(self, index: ir.Value | Index, lane: int, lanes: Lanes) -> ir.Value:
        """The index that `lane` has, as a scalar."""
        if isinstance(index, Index):
            return self._apply(lanes.at(index, lane))
        if isinstance(index.type, ir.VectorType):
            return vector.ExtractOp(index, [], [lane]).result
        return index

    def load_scalar(self, buffer: ir.Value, indices: Sequence[Index]) -> ir.Value:
        """The element at `indices`."""
        found = self._affine(indices)
        if found is None:
            return memref.LoadOp(buffer, [self._apply(index) for index in indices]).result
        affine_map, operands = found
        element = buffer.type.element_type
        stored = affine.AffineLoadOp(
            element, buffer, operands, ir.AffineMapAttr.get(affine_map)
        ).result
        return stored

    def _load_vector(self, buffer: ir.Value, indices: Sequence[Index], count: int) -> ir.Value:
        kind = ir.VectorType.get([count], buffer.type.element_type)
        found = self._affine(indices)
        if found is None:
            return vector.LoadOp(kind, buffer, [self._apply(index) for index in indices]).result
        affine_map, operands = found
        return affine.AffineVectorLoadOp(
            kind, buffer, operands, ir.AffineMapAttr.get(affine_map)
        ).result

    def store(
        self, value: ir.Value, buffer: ir.Value, indices: Sequence[Index], lanes: Lanes
    ) -> None:
        """Write a vector (or a scalar for all lanes) at `indices`."""
        buffer, placed = self._place(buffer, indices)
        value = self.as_vector(value, lanes)
        strides = [lanes.stride(index) for index in placed]
        base = [lanes.at(index, 0) for index in placed]
        if lanes.count == 1:
            self._store_scalar(value, buffer, base)
        elif strides[-1] == 1 and all(stride == 0 for stride in strides[:-1]):
            self._store_vector(value, buffer, base)
        else:
            flat = linearize(placed, buffer.type.shape)
            if lanes.stride(flat) == 1:
                self._store_vector(value, self.flattened(buffer), [lanes.at(flat, 0)])
                return
            for lane in range(lanes.count):
                part = vector.ExtractOp(value, [], [lane]).result
                self._store_scalar(part, buffer, [lanes.at(index, lane) for index in placed])

    def _store_scalar(self, value: ir.Value, buffer: ir.Value, indices: Sequence[Index]) -> None:
        found = self._affine(indices)
        if found is None:
            memref.StoreOp(value, buffer, [self._apply(index) for index in indices])
            return
        affine_map, operands = found
        affine.AffineStoreOp(value, buffer, operands, map=ir.AffineMapAttr.get(affine_map))

    def _store_vector(self, value: ir.Value, buffer: ir.Value, indices: Sequence[Index]) -> None:
        found = self._affine(indices)
        if found is None:
            vector.StoreOp(value, buffer, [self._apply(index) for index in indices])
            return
        affine_map, operands = found
        affine.AffineVectorStoreOp(value, buffer, operands, map=ir.AffineMapAttr.get(affine_map))

    def prefetch(
        self, buffer: ir.Value, indices: Sequence[Index], *, write: bool = False, near: bool = False
    ) -> None:
        """Ask the L2 cache, or the L1 cache (`near`), for the line at `indices`, to be read or
        written soon."""
        buffer, placed = self._place(buffer, indices)
        hint = _L1 if near else _L2
        attributes: dict[str, ir.Attribute] = {
            "isWrite": ir.BoolAttr.get(write),
            "isDataCache": ir.BoolAttr.get(True),
            "localityHint": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), hint),
        }
        found = self._affine(placed)
        if found is None:
            name, operands = "memref.prefetch", [self._apply(index) for index in placed]
        else:
            name, operands = "affine.prefetch", found[1]
            attributes["map"] = ir.AffineMapAttr.get(found[0])
        ir.Operation.create(name, operands=[buffer, *operands], attributes=attributes)

    def scratch(
        self, shape: Sequence[int], element: ir.Type, *, rewritten: bool = False
    ) -> ir.Value:
        """A buffer on the stack of the running thread, 64-byte aligned. With `rewritten`, each
        block of code that reads it has written what it reads."""
        kind = ir.MemRefType.get(list(shape), element)
        with self.at_top():
            op = memref.AllocaOp(kind, [], [], alignment=64)
        if rewritten:
            op.operation.attributes[REWRITTEN] = ir.UnitAttr.get()
        return op.result


class AffineIf:
    """The two branches of an `affine.if`."""

    def __init__(self, op: ir.OpView) -> None:
        self._op = op

    def set_apart(self) -> None:
        """Mark it `APART`."""
        self._op.operation.attributes[APART] = ir.UnitAttr.get()

    @contextmanager
    def then(self) -> Iterator[None]:
        with ir.InsertionPoint(self._op.then_block):
            yield
            affine.AffineYieldOp([])

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        block = self._op.else_block
        assert block is not None
        with ir.InsertionPoint(block):
            yield
            affine.AffineYieldOp([])


def _i64() -> ir.Type:
    return ir.IntegerType.get_signless(64)
