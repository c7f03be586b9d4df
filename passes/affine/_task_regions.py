"""Which elements of its arguments each task of a kernel reads and writes.

A task's elements of an argument are bounded by the first and the last of them in memory: what is
found is never too little, and where accesses are not known it is the whole argument. Loops whose
bounds depend on the task, as those over the register tiles of a block are, are looked at iteration
by iteration; of other loops the range of the variable is what counts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from stepwell.kernels.builder import APART
from stepwell.mlir import ir
from stepwell.passes.buffers.plan_arena import VIEWS

_LOADS = ("affine.load", "affine.vector_load", "memref.load", "vector.load")
_STORES = ("affine.store", "affine.vector_store", "memref.store", "vector.store")
_HARMLESS = ("affine.prefetch", "memref.prefetch", "memref.dim")
_SAME_ORDER = ("memref.collapse_shape", "memref.expand_shape", "memref.cast")

_MOST_SAMPLES = 1 << 15
"""Iterations that are looked at one by one, of all tasks."""

_NOWHERE = 1 << 62
"""The first of no elements."""

Bounds = tuple[np.ndarray, np.ndarray]
"""Least and largest values, one each for every sample: an iteration of a task."""


@dataclass
class Region:
    """For each task, the first and the last element in memory; none where `last` is below."""

    first: np.ndarray
    last: np.ndarray

    @staticmethod
    def nothing(tasks: int) -> Region:
        """That of tasks that access no element."""
        return Region(np.full(tasks, _NOWHERE), np.full(tasks, -1))

    def joined(self, other: Region) -> Region:
        """What either of them has."""
        return Region(np.minimum(self.first, other.first), np.maximum(self.last, other.last))

    def bounds(self, begin: int, end: int) -> tuple[int, int]:
        """First and last element of tasks `begin` to `end` (exclusive)."""
        first = self.first[begin:end].min(initial=_NOWHERE)
        return int(first), int(self.last[begin:end].max(initial=-1))

    def tasks_between(self, first: int, last: int, run: tuple[int, int]) -> list[tuple[int, int]]:
        """The range [begin, end) of the tasks of a run that access any element from `first` to
        `last`, if there are any."""
        begin, end = run
        found = np.flatnonzero((self.first[begin:end] <= last) & (self.last[begin:end] >= first))
        return [(begin + int(found[0]), begin + int(found[-1]) + 1)] if len(found) else []


@dataclass
class TaskRegions:
    """Of a kernel: how many tasks it has, and what they read and write by number of argument. What
    the first task begins with and can be done alone (`kernel.apart`, `split-tasks`) is left out."""

    tasks: int
    reads: dict[int, Region] = field(default_factory=dict)
    writes: dict[int, Region] = field(default_factory=dict)

    @staticmethod
    def of(kernel: ir.Operation) -> TaskRegions:
        """Those of a kernel function of level affine."""
        block = kernel.regions[0].blocks[0]
        loop = _parallel_loop(block)
        tasks = _count(loop) if loop is not None else 1
        found = TaskRegions(tasks)
        walk = _Walk(found, list(block.arguments))
        samples = _Samples(np.arange(tasks), {})
        walk.block(block, samples)
        return found


@dataclass
class _Samples:
    """The iterations at hand: the task of each, and what is known of the index values there."""

    task: np.ndarray
    known: dict[ir.Value, Bounds]

    def chosen(self, which: np.ndarray) -> _Samples:
        """Those that `which` selects, a mask or positions."""
        return _Samples(
            self.task[which],
            {value: (low[which], high[which]) for value, (low, high) in self.known.items()},
        )


class _Walk:
    """Collects accesses in `found`."""

    def __init__(self, found: TaskRegions, arguments: list[ir.Value]) -> None:
        self.found = found
        self.roots: dict[ir.Value, int] = {
            value: number
            for number, value in enumerate(arguments)
            if isinstance(value.type, ir.MemRefType)
        }
        self.opaque: set[ir.Value] = {v for v in self.roots if not has_plain_layout(v)}

    def block(self, block: ir.Block, samples: _Samples) -> None:
        """Look at all operations of `block`."""
        for child in block.operations:
            self._operation(child.operation, samples)

    def _operation(self, op: ir.Operation, samples: _Samples) -> None:
        if op.name == "affine.parallel":
            numbers = samples.task
            self._inside(op, samples, {op.regions[0].blocks[0].arguments[0]: (numbers, numbers)})
        elif op.name == "affine.for":
            self._loop(op, samples)
        elif op.name == "affine.if":
            at_begin = op.parent is not None and op.parent.name == "affine.parallel"
            if APART not in op.attributes or not at_begin:
                self._branch(op, samples)
        elif op.name in ("affine.apply", "affine.min", "affine.max"):
            self._apply(op, samples)
        elif op.name == "arith.constant":
            if isinstance(op.results[0].type, ir.IndexType):
                value = np.full(len(samples.task), ir.IntegerAttr(op.attributes["value"]).value)
                samples.known[op.results[0]] = (value, value)
        elif op.name in VIEWS:
            self._view(op)
        elif op.name in _LOADS:
            self._access(op, 0, samples, self.found.reads)
        elif op.name in _STORES:
            self._access(op, 1, samples, self.found.writes)
        elif op.name not in _HARMLESS:
            for value in op.operands:
                if value in self.roots:
                    self._whole(value, samples, self.found.reads)
                    self._whole(value, samples, self.found.writes)
            for region in op.regions:
                for inner in region.blocks:
                    self.block(inner, samples)

    def _inside(self, op: ir.Operation, samples: _Samples, more: dict[ir.Value, Bounds]) -> None:
        if len(samples.task):
            self.block(op.regions[0].blocks[0], _Samples(samples.task, {**samples.known, **more}))

    def _loop(self, op: ir.Operation, samples: _Samples) -> None:
        variable = op.regions[0].blocks[0].arguments[0]
        lower, upper = (
            ir.AffineMapAttr(op.attributes[name]).value
            for name in ("lowerBoundMap", "upperBoundMap")
        )
        operands = list(op.operands)
        starts = _results(lower, operands[: lower.n_inputs], samples)
        ends = _results(upper, operands[lower.n_inputs :][: upper.n_inputs], samples)
        if starts is None or ends is None:
            self._inside(op, samples, {})
            return
        step = ir.IntegerAttr(op.attributes["step"]).value
        low = np.maximum.reduce([first for first, _ in starts])
        exact = all((a == b).all() for a, b in (*starts, *ends))
        end = np.minimum.reduce([last for _, last in ends])
        trips = np.maximum(0, -(-(end - low) // step))
        moving = bool(lower.n_inputs or upper.n_inputs)
        if exact and moving and trips.sum() <= _MOST_SAMPLES:
            each = np.repeat(np.arange(len(trips)), trips)
            iteration = np.arange(len(each)) - np.repeat(np.cumsum(trips) - trips, trips)
            value = low[each] + iteration * step
            self._inside(op, samples.chosen(each), {variable: (value, value)})
            return
        runs = trips > 0
        high = low + (trips - 1) * step
        self._inside(op, samples.chosen(runs), {variable: (low[runs], high[runs])})

    def _branch(self, op: ir.Operation, samples: _Samples) -> None:
        may, must = _holds(op.attributes["condition"], list(op.operands), samples)
        for region, which in zip(op.regions, (may, ~must), strict=True):
            for inner in region.blocks:
                self.block(inner, samples.chosen(which))

    def _apply(self, op: ir.Operation, samples: _Samples) -> None:
        found = _results(ir.AffineMapAttr(op.attributes["map"]).value, list(op.operands), samples)
        if found is None:
            return
        join = np.maximum if op.name == "affine.max" else np.minimum
        low, high = (join.reduce([bounds[side] for bounds in found]) for side in (0, 1))
        samples.known[op.results[0]] = (low, high)

    def _view(self, op: ir.Operation) -> None:
        source, result = op.operands[0], op.results[0]
        if source in self.roots:
            self.roots[result] = self.roots[source]
            if source in self.opaque or op.name not in _SAME_ORDER or not has_plain_layout(result):
                self.opaque.add(result)

    def _access(
        self, op: ir.Operation, buffer: int, samples: _Samples, into: dict[int, Region]
    ) -> None:
        memory = op.operands[buffer]
        if memory not in self.roots or not len(samples.task):
            return
        moved = (op.operands[0] if buffer else op.results[0]).type
        operands = list(op.operands)[buffer + 1 :]
        if "map" in op.attributes:
            places = _results(ir.AffineMapAttr(op.attributes["map"]).value, operands, samples)
        else:
            known = [samples.known.get(value) for value in operands]
            places = None if None in known else [bounds for bounds in known if bounds is not None]
        sizes = ir.MemRefType(memory.type).shape
        lanes = 1
        if isinstance(moved, ir.VectorType):
            lanes = ir.VectorType(moved).shape[-1] if ir.VectorType(moved).rank == 1 else 0
        if places is None or memory in self.opaque or not lanes:
            self._whole(memory, samples, into)
            return
        first, last = 0, 0
        for (low, high), size in zip(places, sizes, strict=True):
            first = first * size + np.clip(low, 0, size - 1)
            last = last * size + np.clip(high, 0, size - 1)
        self._add(memory, samples, np.asarray(first), np.asarray(last + lanes - 1), into)

    def _whole(self, memory: ir.Value, samples: _Samples, into: dict[int, Region]) -> None:
        last = math.prod(ir.MemRefType(memory.type).shape) - 1
        count = len(samples.task)
        self._add(memory, samples, np.zeros(count, np.int64), np.full(count, last), into)

    def _add(
        self,
        memory: ir.Value,
        samples: _Samples,
        first: np.ndarray,
        last: np.ndarray,
        into: dict[int, Region],
    ) -> None:
        region = into.setdefault(self.roots[memory], Region.nothing(self.found.tasks))
        np.minimum.at(region.first, samples.task, first)
        np.maximum.at(region.last, samples.task, last)


def has_plain_layout(value: ir.Value) -> bool:
    """Whether `value` is a buffer of static shape that lies in the order of its indices."""
    if not isinstance(value.type, ir.MemRefType):
        return False
    kind = ir.MemRefType(value.type)
    if not kind.has_static_shape:
        return False
    strides, offset = kind.get_strides_and_offset()
    expected = [math.prod(kind.shape[d + 1 :]) for d in range(kind.rank)]
    return offset == 0 and list(strides) == expected


def _parallel_loop(block: ir.Block) -> ir.Operation | None:
    for child in block.operations:
        if child.operation.name == "affine.parallel":
            return child.operation
    return None


def _count(loop: ir.Operation) -> int:
    upper = ir.AffineMapAttr(loop.attributes["upperBoundsMap"]).value
    return ir.AffineConstantExpr(next(iter(upper.results))).value


def _results(
    affine_map: ir.AffineMap, operands: Sequence[ir.Value], samples: _Samples
) -> list[Bounds] | None:
    """The results of a map at `operands`; None where one of these is not known."""
    known = [samples.known.get(value) for value in operands]
    point = [bounds for bounds in known if bounds is not None]
    if len(point) < len(known):
        return None
    dims, symbols = point[: affine_map.n_dims], point[affine_map.n_dims :]
    count = len(samples.task)
    return [_evaluate(expression, dims, symbols, count) for expression in affine_map.results]


def _evaluate(
    expression: ir.AffineExpr, dims: list[Bounds], symbols: list[Bounds], count: int
) -> Bounds:
    if isinstance(expression, ir.AffineConstantExpr):
        value = np.full(count, expression.value)
        return value, value
    if isinstance(expression, ir.AffineDimExpr):
        return dims[expression.position]
    if isinstance(expression, ir.AffineSymbolExpr):
        return symbols[expression.position]
    assert isinstance(expression, ir.AffineBinaryExpr)
    low, high = _evaluate(expression.lhs, dims, symbols, count)
    below, above = _evaluate(expression.rhs, dims, symbols, count)
    if isinstance(expression, ir.AffineAddExpr):
        return low + below, high + above
    if isinstance(expression, ir.AffineMulExpr):
        ends = (low * below, low * above, high * below, high * above)
        return np.minimum.reduce(ends), np.maximum.reduce(ends)
    divisor = below  # a constant above 0, as the affine dialect demands
    if isinstance(expression, ir.AffineFloorDivExpr):
        return low // divisor, high // divisor
    if isinstance(expression, ir.AffineCeilDivExpr):
        return -(-low // divisor), -(-high // divisor)
    turns = low // divisor != high // divisor
    return (
        np.where(turns, 0, low - low // divisor * divisor),
        np.where(turns, divisor - 1, high - high // divisor * divisor),
    )


_SET = re.compile(r"affine_set<(?P<inputs>.*?) : \((?P<constraints>.*)\)>")
_CONSTRAINT = re.compile(r"(?P<left>[^=]*?) (?P<relation>>=|==) 0")


def _holds(
    condition: ir.Attribute, operands: list[ir.Value], samples: _Samples
) -> tuple[np.ndarray, np.ndarray]:
    """For each sample, whether an `affine_set` may hold, and whether it does for certain."""
    count = len(samples.task)
    may, must = np.ones(count, bool), np.ones(count, bool)
    parts = _SET.fullmatch(str(condition))  # the bindings show a set's constraints as text alone
    if parts is None:
        return may, ~must
    for constraint in parts["constraints"].split(", "):
        found = _CONSTRAINT.fullmatch(constraint)
        results = None
        if found is not None:
            text = f"affine_map<{parts['inputs']} -> ({found['left']})>"
            results = _results(ir.AffineMapAttr(ir.Attribute.parse(text)).value, operands, samples)
        if found is None or results is None:
            must[:] = False
            continue
        ((low, high),) = results
        if found["relation"] == "==":
            may &= (low <= 0) & (high >= 0)
            must &= (low == 0) & (high == 0)
        else:
            may &= high >= 0
            must &= low >= 0
    return may, must
