"""Non-maximum suppression (`stepwell.kernels.suppression`), a group a task: greedy, without a sort.

Boxes are taken by score, and each is compared with those chosen so far, a vector of them at a time.
The next score is the maximum of the maxima of blocks; only the block that a box was taken from has
to be looked at again. Scores are integers in the order of the floats, and the least one where a box
is gone.

    scf.while %best is not gone {
      %i = first box whose score is %best; scores[%i] = gone; maxima[%i / 64] = that of its block
      if no chosen box overlaps it { chosen[%count++] = %i }
      %best = maximum of the maxima }
"""

from __future__ import annotations

import functools
import math

import numpy as np

from stepwell.attributes import i64
from stepwell.kernels.arithmetic import ssa
from stepwell.kernels.builder import NestBuilder
from stepwell.kernels.cpu.masks import any_lane, bits_of, lowest_bit
from stepwell.kernels.cpu.selection_keys import choose, compare, key, splat
from stepwell.kernels.scf_loops import (
    Values,
    add,
    each,
    index,
    loop,
    multiply,
    repeat,
    when,
)
from stepwell.kernels.selection import NUMBER, Selection
from stepwell.kernels.suppression import KIND
from stepwell.mlir import dialect, ir
from stepwell.targets import Target

arith = dialect("arith")
func = dialect("func")
memref = dialect("memref")
vector = dialect("vector")

_BLOCK = 64
"""Boxes whose scores have a maximum of their own: the bits of a word."""

_GONE = -(1 << 31)
_ORDER = Selection(NUMBER, descends=True)


def emit(kernel: ir.Operation, body: ir.Block, symbol: str, target: Target) -> ir.Operation:
    """Add `symbol` to `body`: the kernel of the declaration `kernel`."""
    declared = ir.FunctionType(ir.TypeAttr(kernel.attributes["function_type"]).value)
    tensors = map(ir.RankedTensorType, declared.inputs)
    types = [ir.MemRefType.get(list(t.shape), t.element_type) for t in tensors]
    with ir.InsertionPoint(body):
        function = func.FuncOp(symbol, ir.FunctionType.get(types, []), visibility="private")
    function.attributes["kernel.kind"] = ir.StringAttr.get(KIND)
    function.attributes["kernel.results"] = i64(1)
    entry = function.add_entry_block()
    nest = NestBuilder()
    with ir.InsertionPoint(entry):
        nest.start(entry)
        _Suppression(nest, list(entry.arguments), target.vector_lanes).emit()
        func.ReturnOp([])
    return function.operation


class _Suppression:
    """Writes the loops; `lanes` are those of a vector of float32."""

    def __init__(self, nest: NestBuilder, buffers: Values, lanes: int) -> None:
        self.nest, self.lanes = nest, lanes
        corners, scores, overlap, least, chosen = buffers
        _, self.classes, self.boxes = scores.type.shape
        self.groups, self.most = chosen.type.shape
        self.overlap, self.least = overlap, least
        self.corners, self.scores, self.chosen = map(nest.flattened, (corners, scores, chosen))
        float_, word = ir.F32Type.get(), ir.IntegerType.get_signless(32)
        self.floats, self.words = (ir.VectorType.get([lanes], kind) for kind in (float_, word))
        blocks = math.ceil(self.boxes / _BLOCK)
        self.maxima_count = math.ceil(blocks / lanes) * lanes
        self.left = nest.scratch([blocks * _BLOCK], word, rewritten=True)
        self.maxima = nest.scratch([self.maxima_count], word, rewritten=True)
        room = math.ceil(self.most / lanes) * lanes
        self.kept = [nest.scratch([room], float_, rewritten=True) for _ in range(5)]
        """Corners of the boxes chosen, and their areas."""

    def emit(self) -> None:
        """Write the loops."""
        with self.nest.parallel("group", self.groups) as group:
            batch = arith.DivUIOp(ssa(group), index(self.classes)).result
            self.first_corner = multiply(batch, 4 * self.boxes)
            self.first_chosen = multiply(ssa(group), self.most)
            self.limit = memref.LoadOp(self.overlap, [index(0)]).result
            self._begin(multiply(ssa(group), self.boxes))
            repeat([index(0), self._best()], self._goes_on, self._take)

    def _begin(self, first_score: ir.Value) -> None:
        """No box is chosen; the scores of those that may be, and the maxima of their blocks."""
        none = splat(ir.IntegerType.get_signless(64), -1)
        each(
            self.most,
            lambda at: _store(none, self.chosen, add(self.first_chosen, at)),
        )
        gone, zero = splat(self.words, _GONE), self._zeros()
        for at in range(0, self.maxima_count, self.lanes):
            vector.StoreOp(gone, self.maxima, [index(at)])
        for part in self.kept:
            for at in range(0, part.type.shape[0], self.lanes):
                vector.StoreOp(zero, part, [index(at)])
        least = memref.LoadOp(self.least, [index(0)]).result

        def score(at: ir.Value) -> None:
            found = memref.LoadOp(self.scores, [add(first_score, at)]).result
            is_above = arith.CmpFOp(arith.CmpFPredicate.OGT, found, least).result
            kind = self.words.element_type
            _store(choose(is_above, key(found, _ORDER), splat(kind, _GONE)), self.left, at)

        each(self.boxes, score)
        for at in range(self.boxes, self.left.type.shape[0]):
            _store(splat(self.words.element_type, _GONE), self.left, index(at))
        each(
            self.left.type.shape[0] // _BLOCK,
            lambda block: _store(self._maximum(self._block(block)), self.maxima, block),
        )

    def _goes_on(self, carried: Values) -> ir.Value:
        count, best = carried
        is_room = compare("slt", count, index(self.most))
        return arith.AndIOp(is_room, compare("ne", best, splat(best.type, _GONE))).result

    def _take(self, carried: Values) -> Values:
        """Take the first box with the best score, and choose it or not."""
        count, best = carried
        block = self._block_of(best)
        scores = self._block(block)
        same = [compare("eq", part, self._all(best)) for part in scores]
        place = lowest_bit(bits_of(same))
        number = add(multiply(block, _BLOCK), place)
        gone = splat(self.words, _GONE)
        rest = [choose(self._is_lane(place, n), gone, part) for n, part in enumerate(scores)]
        _store(splat(best.type, _GONE), self.left, number)
        _store(self._maximum(rest), self.maxima, block)
        box = self._box(number)
        overlaps = self._overlaps(box, count)
        is_free = arith.XOrIOp(overlaps, splat(overlaps.type, 1)).result
        when(is_free, lambda: self._choose(number, box, count))
        return [choose(is_free, add(count, 1), count), self._best()]

    def _best(self) -> ir.Value:
        """The best score left."""

        def step(at: ir.Value, carried: Values) -> Values:
            part = vector.LoadOp(self.words, self.maxima, [at]).result
            return [arith.MaxSIOp(part, carried[0]).result]

        bounds = (0, self.maxima_count, self.lanes)
        return self._maximum(loop(bounds, [splat(self.words, _GONE)], step))

    def _block_of(self, best: ir.Value) -> ir.Value:
        """The first block whose maximum is `best`; there is one."""

        def same(at: ir.Value) -> ir.Value:
            part = vector.LoadOp(self.words, self.maxima, [at]).result
            return bits_of([compare("eq", part, self._all(best))])

        def is_missing(carried: Values) -> ir.Value:
            return compare("eq", carried[1], splat(carried[1].type, 0))

        def step(carried: Values) -> Values:
            following = add(carried[0], self.lanes)
            return [following, same(following)]

        start = index(0)
        at, bits = repeat([start, same(start)], is_missing, step)
        return add(at, lowest_bit(bits))

    def _block(self, block: ir.Value) -> Values:
        """The scores left of a block."""
        first = multiply(block, _BLOCK)
        return [
            vector.LoadOp(self.words, self.left, [add(first, at)]).result
            for at in range(0, _BLOCK, self.lanes)
        ]

    def _maximum(self, parts: Values) -> ir.Value:
        highest = functools.reduce(lambda a, b: arith.MaxSIOp(a, b).result, parts)
        kind = self.words.element_type
        return vector.ReductionOp(kind, vector.CombiningKind.MAXSI, highest).result

    def _is_lane(self, place: ir.Value, part: int) -> ir.Value:
        """True in the lane of `place`, a box of a block, if it lies in this part of it."""
        numbers = np.arange(self.lanes, dtype=np.int32) + part * self.lanes
        numbers = self.nest.constant(ir.DenseElementsAttr.get(numbers, type=self.words))
        word = arith.IndexCastOp(self.words.element_type, place).result
        return compare("eq", numbers, self._all(word))

    def _box(self, number: ir.Value) -> Values:
        """The corners of a box, and its area, in all lanes."""
        corners = [
            memref.LoadOp(
                self.corners, [add(add(self.first_corner, part * self.boxes), number)]
            ).result
            for part in range(4)
        ]
        low_a, low_b, high_a, high_b = map(self._all, corners)
        area = arith.MulFOp(self._extent(low_a, high_a), self._extent(low_b, high_b)).result
        return [low_a, low_b, high_a, high_b, area]

    def _overlaps(self, box: Values, count: ir.Value) -> ir.Value:
        """Whether one of the `count` boxes chosen overlaps `box` by more than the limit."""
        limit = self._all(self.limit)
        no = splat(ir.IntegerType.get_signless(1), 0)

        def goes_on(carried: Values) -> ir.Value:
            at, found = carried
            is_left = compare("slt", at, count)
            return choose(found, no, is_left)

        def step(carried: Values) -> Values:
            at, _ = carried
            kept = [vector.LoadOp(self.floats, part, [at]).result for part in self.kept]
            over = arith.CmpFOp(arith.CmpFPredicate.OGT, self._overlap(box, kept), limit).result
            return [add(at, self.lanes), any_lane(over)]

        return repeat([index(0), no], goes_on, step)[1]

    def _overlap(self, box: Values, kept: Values) -> ir.Value:
        """Intersection over union, 0 for empty boxes."""
        low_a, low_b = (_greater(box[i], kept[i]) for i in (0, 1))
        high_a, high_b = (_less(box[i], kept[i]) for i in (2, 3))
        common = arith.MulFOp(self._extent(low_a, high_a), self._extent(low_b, high_b)).result
        union = arith.SubFOp(arith.AddFOp(kept[4], box[4]).result, common).result
        is_positive = arith.CmpFOp(arith.CmpFPredicate.OGT, union, self._zeros()).result
        return choose(is_positive, arith.DivFOp(common, union).result, self._zeros())

    def _extent(self, low: ir.Value, high: ir.Value) -> ir.Value:
        return _greater(arith.SubFOp(high, low).result, self._zeros())

    def _choose(self, number: ir.Value, box: Values, count: ir.Value) -> None:
        """Make a box the last of those chosen."""
        for part, value in zip(self.kept, box, strict=True):
            _store(vector.ExtractOp(value, [], [0]).result, part, count)
        stored = arith.IndexCastOp(self.chosen.type.element_type, number).result
        _store(stored, self.chosen, add(self.first_chosen, count))

    def _all(self, scalar: ir.Value) -> ir.Value:
        """A scalar in all lanes."""
        return vector.BroadcastOp(ir.VectorType.get([self.lanes], scalar.type), scalar).result

    def _zeros(self) -> ir.Value:
        return self.nest.zero(self.floats.element_type, self.lanes)


def _greater(lhs: ir.Value, rhs: ir.Value) -> ir.Value:
    return choose(arith.CmpFOp(arith.CmpFPredicate.OGT, lhs, rhs).result, lhs, rhs)


def _less(lhs: ir.Value, rhs: ir.Value) -> ir.Value:
    return choose(arith.CmpFOp(arith.CmpFPredicate.OLT, lhs, rhs).result, lhs, rhs)


def _store(value: ir.Value, buffer: ir.Value, place: ir.Value) -> None:
    memref.StoreOp(value, buffer, [place])
