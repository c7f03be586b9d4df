"""Scatters on a grid: neighbouring threads take neighbouring elements of an update's window.

Sums, extrema and the like are atomic (`atomics.py`), 16 bytes at a time where windows are
contiguous and the architecture adds vectors; the order in which floats are added is not fixed. What
replaces is stored, 16 bytes at a time; where updates may meet, the last one is stored alone: each
thread looks at the indices that follow, or, where those are many, another kernel has written down
which update is the last.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from stepwell.attributes import i64
from stepwell.kernels.builder import Lanes, arith, memref, vector
from stepwell.kernels.evaluate import storage_type
from stepwell.kernels.gpu import atomics
from stepwell.kernels.gpu.elementwise import ACCESS_BITS, MAX_BLOCKS, THREADS, element_bits
from stepwell.kernels.gpu.grid import GridBuilder
from stepwell.kernels.index import Index, Variable, delinearize, linearize
from stepwell.kernels.scatter import ATTRIBUTE, KIND, REPLACE, Scatter
from stepwell.mlir import dialect, ir
from stepwell.targets.nvidia import NvidiaTarget

func = dialect("func")
scf = dialect("scf")

_EQUAL, _LESS_UNSIGNED = 0, 6


def emit(kernel: ir.Operation, body: ir.Block, symbol: str, target: NvidiaTarget) -> ir.Operation:
    """Add `symbol` to `body`: the kernel of the declaration `kernel`."""
    kind = ir.FunctionType(ir.TypeAttr(kernel.attributes["function_type"]).value)
    types = [_memref(value) for value in kind.inputs]
    with ir.InsertionPoint(body):
        function = func.FuncOp(symbol, ir.FunctionType.get(types, []), visibility="private")
    function.attributes["kernel.kind"] = ir.StringAttr.get(KIND)
    function.attributes["kernel.results"] = i64(1)
    entry = function.add_entry_block()
    nest = GridBuilder()
    scatter = Scatter.from_attribute(kernel.attributes[ATTRIBUTE])
    with ir.InsertionPoint(entry):
        buffers = [_as_bytes(argument) for argument in entry.arguments]
        nest.start(entry)
        _Emitter(scatter, nest, buffers, target).emit()
        func.ReturnOp([])
    return function.operation


def _memref(kind: ir.Type) -> ir.MemRefType:
    tensor = ir.RankedTensorType(kind)
    return ir.MemRefType.get(list(tensor.shape), tensor.element_type)


def _as_bytes(buffer: ir.Value) -> ir.Value:
    """Booleans are bytes in memory."""
    kind = ir.MemRefType(buffer.type)
    stored = storage_type(kind.element_type)
    if stored == kind.element_type:
        return buffer
    return ir.Operation.create(
        "builtin.unrealized_conversion_cast",
        results=[ir.MemRefType.get(list(kind.shape), stored)],
        operands=[buffer],
    ).results[0]


class _Emitter:
    def __init__(
        self, scatter: Scatter, nest: GridBuilder, buffers: list[ir.Value], target: NvidiaTarget
    ) -> None:
        self.scatter = scatter
        self.nest = nest
        self.indices, self.updates, *owners, self.result = buffers
        self.owners = owners[0] if owners else None
        self.shape = list(self.result.type.shape)
        self.sizes = list(self.updates.type.shape)
        self.outer = scatter.scattered(len(self.sizes))
        self.lanes = self._lanes(target)

    def _lanes(self, target: NvidiaTarget) -> int:
        """Elements that a thread takes: neighbours in the updates and in the result."""
        if not self.shape or not self.sizes:
            return 1
        last = len(self.shape) - 1
        moves = last in self.scatter.targets or last in self.scatter.fixed
        if moves or len(self.sizes) - 1 not in self.scatter.window:
            return 1
        inner = math.gcd(self.sizes[-1], self.shape[-1])
        element = self.result.type.element_type
        if self.scatter.combiner == REPLACE:
            return math.gcd(inner, ACCESS_BITS // element_bits(element))
        return atomics.lanes_of(self.scatter.combiner, element, target, inner)

    def emit(self) -> None:
        count = math.prod(self.sizes) // self.lanes
        blocks = min(max(1, -(-count // THREADS)), MAX_BLOCKS)
        lanes = Lanes.of(self.lanes)
        with self.nest.grid(blocks, THREADS) as (block, thread):
            worker = block * THREADS + thread
            with self.nest.each("i", worker, count, blocks * THREADS) as i:
                point = delinearize(Index.of(i) * self.lanes + lanes.index, self.sizes)
                self._element(point, lanes)

    def _element(self, point: list[Index], lanes: Lanes) -> None:
        """Combine the updates at `point` where they lie inside the result."""
        first = [lanes.at(index, 0) for index in point]
        outer = [first[d] for d in self.outer]
        place = self._place(self._starts(outer), first)
        inside = self._all(self._below(p, n) for p, n in zip(place, self.shape, strict=True))
        with _when(inside):
            if self.scatter.combiner != REPLACE:
                value = self.nest.load(self.updates, point, lanes)
                pointer = atomics.address(self.result, place)
                atomics.combine(pointer, value, self.scatter.combiner)
                return
            with _when(self._is_last(outer, place)):
                self._store(self.nest.load(self.updates, point, lanes), place)

    def _starts(self, outer: Sequence[Index]) -> list[ir.Value | None]:
        """Where the window of the index at `outer` begins, in each dimension of the result; None
        for 0."""
        one = Lanes.of(1)
        starts: list[ir.Value | None] = [None] * len(self.shape)
        for component, dimension in enumerate(self.scatter.targets):
            at = list(outer)
            if self.scatter.vector < len(self.indices.type.shape):
                at.insert(self.scatter.vector, Index((), component))
            number = self.nest.load(self.indices, at, one)
            starts[dimension] = arith.IndexCastOp(ir.IndexType.get(), number).result
        for dimension, source in self.scatter.places.items():
            number = outer[source - (self.scatter.vector < source)]
            starts[dimension] = self.nest.index_value(number, one)
        return starts

    def _place(self, starts: Sequence[ir.Value | None], point: Sequence[Index]) -> list[ir.Value]:
        """The element of the result that is at `point` of the updates."""
        window = iter(self.scatter.window)
        place = []
        for dimension, start in enumerate(starts):
            value = start
            if dimension not in self.scatter.fixed:
                offset = self.nest.index_value(point[next(window)], Lanes.of(1))
                value = offset if start is None else arith.AddIOp(start, offset).result
            place.append(value if value is not None else _index(0))
        return place

    def _below(self, value: ir.Value, size: int) -> ir.Value:
        """Whether a position is not negative and less than `size`."""
        return arith.CmpIOp(_LESS_UNSIGNED, value, _index(size)).result

    def _all(self, conditions: Iterable[ir.Value]) -> ir.Value:
        found = None
        for condition in conditions:
            found = self.nest.both(found, condition)
        return _true() if found is None else found

    def _store(self, value: ir.Value, place: Sequence[ir.Value]) -> None:
        if isinstance(value.type, ir.VectorType):
            size = self.lanes * element_bits(self.result.type.element_type) // 8
            vector.StoreOp(value, self.result, list(place), alignment=size)
        else:
            memref.StoreOp(value, self.result, list(place))

    def _is_last(self, outer: Sequence[Index], place: Sequence[ir.Value]) -> ir.Value | None:
        """Whether no later update goes to `place`; None where none can."""
        if self.scatter.distinct:
            return None
        sizes = [self.sizes[d] for d in self.outer]
        number = linearize(outer, sizes)
        if self.owners is not None:
            whole = self.scatter.whole(self.shape, self.sizes)
            kept = [p for d, p in enumerate(place) if d not in whole]
            owner = memref.LoadOp(self.owners, kept).result
            owner = arith.IndexCastOp(ir.IndexType.get(), owner).result
            own = self.nest.index_value(number, Lanes.of(1))
            return arith.CmpIOp(_EQUAL, owner, own).result

        def look(later: Variable, carried: list[ir.Value]) -> list[ir.Value]:
            starts = self._starts(delinearize(Index.of(later), sizes))
            free = arith.XOrIOp(self._covers(starts, place), _true()).result
            return [arith.AndIOp(carried[0], free).result]

        count = math.prod(sizes)
        end = Index((), count)
        return self.nest.reduce_between("later", number + 1, end, count, 1, [_true()], look)[0]

    def _covers(self, starts: Sequence[ir.Value | None], place: Sequence[ir.Value]) -> ir.Value:
        """Whether the window that begins at `starts` has `place`."""
        window = iter(self.scatter.window)
        conditions = []
        for dimension, (start, position) in enumerate(zip(starts, place, strict=True)):
            size = 1 if dimension in self.scatter.fixed else self.sizes[next(window)]
            if start is None and size == self.shape[dimension]:
                continue
            offset = position if start is None else arith.SubIOp(position, start).result
            conditions.append(self._below(offset, size))
        return self._all(conditions)


def _index(value: int) -> ir.Value:
    return arith.ConstantOp(ir.IndexType.get(), value).result


def _true() -> ir.Value:
    return arith.ConstantOp(ir.IntegerType.get_signless(1), 1).result


@contextmanager
def _when(condition: ir.Value | None) -> Iterator[None]:
    """What is written inside is done where the condition holds, which None always does."""
    if condition is None:
        yield
        return
    branch = scf.IfOp(condition)
    with ir.InsertionPoint(branch.then_block):
        yield
        scf.YieldOp([])
