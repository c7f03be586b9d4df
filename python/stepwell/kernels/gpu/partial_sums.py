"""Sums of a part of a tile's steps, on their way from one block to another.

Each warpgroup of a block has a slot in global memory and a flag, for the one tile of which it hands
over sums. A thread writes its own four at a time, and the thread of the same number in the other
block reads them: neighbours in a warp access 16 bytes side by side. They are added share by share,
in the order of the steps, so that the result is the same in every launch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stepwell.kernels.builder import Lanes, arith, vector
from stepwell.kernels.gpu import atomics, flags, hopper
from stepwell.kernels.gpu.hopper import WARPGROUP
from stepwell.kernels.gpu.step_shares import Share, StepShares
from stepwell.kernels.index import Index
from stepwell.mlir import dialect, ir

scf = dialect("scf")

_WIDTH, _ACCESS_BYTES = 4, 16
"""Sums of an access, of 32 bits each."""


class PartialSums:
    """The slots and flags of `shares` of up to `blocks` blocks of `groups` warpgroups that
    multiply, whose threads have `count` sums of type `element` each."""

    def __init__(
        self, shares: StepShares, blocks: int, groups: int, count: int, element: ir.Type
    ) -> None:
        self.nest = nest = shares.nest
        self.own = shares.own_index
        self.groups = nest.cluster * groups
        """Of a share."""
        self.accesses = count // _WIDTH
        self.kind = ir.VectorType.get([_WIDTH], element)
        shape = [blocks * groups, self.accesses, WARPGROUP, _WIDTH]
        self.slots = nest.workspace(shape, element)
        word = ir.IntegerType.get_signless(32)
        self.flags = nest.workspace([blocks * groups], word, zeroed=True)

    def prepare(self, group: Index, thread: Index, barrier: ir.Value) -> None:
        """What is the same for all tiles of a thread: `group` is the number of its warpgroup among
        those of the cluster that multiply, `thread` its own in the block, `barrier` (a word) that
        of a barrier for the warpgroup."""
        self.barrier = barrier
        self.group = self._value(group)
        self.thread = self._value(thread.mod(WARPGROUP))
        self.leads = hopper.is_equal(hopper.as_word(self.thread), 0)

    @contextmanager
    def all_of(self, share: Share, sums: list[ir.Value]) -> Iterator[list[ir.Value]]:
        """Hand `sums` over where another block has begun the tile; else do what is written inside
        with those of all its steps. All threads of the warpgroup take part."""
        branches = scf.IfOp(share.is_begun, has_else=True)
        with ir.InsertionPoint(branches.then_block):
            self._hand_over(sums)
            scf.YieldOp([])
        with ir.InsertionPoint(branches.else_block):
            yield self._added(share, sums)
            scf.YieldOp([])

    def _hand_over(self, sums: list[ir.Value]) -> None:
        slot = self._slot(self.own)
        for number in range(self.accesses):
            some = sums[number * _WIDTH :][:_WIDTH]
            value = vector.FromElementsOp(self.kind, some).result
            vector.StoreOp(value, self.slots, self._at(slot, number), alignment=_ACCESS_BYTES)
        hopper.group_barrier(self.barrier, WARPGROUP)
        with hopper.when(self.leads):
            flags.raise_flag(self._flag(slot))

    def _added(self, share: Share, sums: list[ir.Value]) -> list[ir.Value]:
        """`sums` and those of the other shares that have a part of the tile."""
        one = _constant(1)
        first = arith.AddIOp(self.own, one).result
        last = arith.AddIOp(first, share.others).result
        loop = scf.ForOp(first, last, one, list(sums))
        with ir.InsertionPoint(loop.body):
            slot = self._slot(loop.induction_variable)
            with hopper.when(self.leads):
                flag = self._flag(slot)
                flags.wait_for_flag(flag)
                flags.lower_flag(flag)
            hopper.group_barrier(self.barrier, WARPGROUP)
            total = []
            for number in range(self.accesses):
                at = self._at(slot, number)
                value = vector.LoadOp(self.kind, self.slots, at, alignment=_ACCESS_BYTES).result
                for lane in range(_WIDTH):
                    before = loop.inner_iter_args[number * _WIDTH + lane]
                    other = vector.ExtractOp(value, [], [lane]).result
                    total.append(self.nest.add(before, other))
            scf.YieldOp(total)
        return list(loop.results)

    def _slot(self, share: ir.Value) -> ir.Value:
        """The number of the slot and flag that a share has for this warpgroup."""
        return self.nest.plus(self.nest.times(share, self.groups), self.group)

    def _at(self, slot: ir.Value, number: int) -> list[ir.Value]:
        return [slot, _constant(number), self.thread, _constant(0)]

    def _flag(self, slot: ir.Value) -> ir.Value:
        return atomics.address(self.flags, [slot])

    def _value(self, index: Index) -> ir.Value:
        return self.nest.index_value(index, Lanes.of(1))


def _constant(value: int) -> ir.Value:
    return arith.ConstantOp(ir.IndexType.get(), value).result
