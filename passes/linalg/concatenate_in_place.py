"""`concatenate-in-place`: kernels write their results where a concatenation has them.

    %a = call @kernel_0(%x, %e0) : .. -> tensor<1x8x8x16xf32>
    %b = call @kernel_1(%x, %e1) : .. -> tensor<1x8x8x32xf32>
    %c = call @kernel_2(%a, %b, %e2) : .. -> tensor<1x8x8x48xf32>     // tensor.concat dim(3)
      ->
    %0 = call @kernel_3(%x, %e2) : .. -> tensor<1x8x8x48xf32>         // channels 0 to 16
    %c = call @kernel_4(%x, %0) : .. -> tensor<1x8x8x48xf32>          // channels 16 to 48

Nothing is copied. Others that read a part read a slice of the whole, as it is by then: the parts
are written in the order of the host program, each into the same buffer. A part that is itself a
concatenation lies in the larger one with all of its parts, so that the growing blocks of a DenseNet
share one buffer. Where the concatenation is padded, its kernel stays, to write the halo alone.

A part stays a copy, made by the kernel of the concatenation, where nobody could write it in place:
an argument, a result of the model, what is in two concatenations or is computed in this one. So do
all parts of a whole that no cache holds, where each has short runs in it: kernels that read and
write these take longer than a copy of them.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import ClassVar

from stepwell.frontends.open_sizes import PREFIXES
from stepwell.kernels.structured import defining_op
from stepwell.mlir import dialect, ir
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg._fusion_graph import is_control
from stepwell.passes.linalg._slice_kernels import Concatenation, Form, SliceKernels

func = dialect("func")
tensor = dialect("tensor")

DISJOINT = "stepwell.disjoint"
"""Of a call: what it reads of a buffer that it changes lies elsewhere in it."""

_WRITERS = ("contraction", "outer-reduction", "elementwise", "transpose")
_READERS = (*_WRITERS, "concatenate", "pad")
"""Kinds of kernels that write to a slice, and that read one. Contractions do not read inside a
halo, where they could not walk all rows as one."""

_LEAST_RUN = 32
"""Bytes of a part that lie together at least: shorter runs are written faster by a copy, which has
them all at hand."""

_LONG_RUN, _CACHED = 1024, 4
"""Runs of so many bytes are streamed from memory like a whole; shorter ones cost no more from
cache, where a whole of so many times L2 mostly is. (U-Net's first level, 17 MB in runs of 128
bytes: 0.84 ms more in its kernels, 0.39 ms less in copies. At 2 MB: no more, and 0.09 ms less.)"""


@dataclass(frozen=True)
class ConcatenateInPlace(Pass):
    """Run on a module of a host function and outlined kernels, before their operands are packed.

    Programs of open sizes are left alone: what is in use of a part is not known of its whole.
    """

    name: ClassVar[str] = "concatenate-in-place"

    def run(self, op: ir.Operation, state: State) -> None:
        kernels = SliceKernels(op.regions[0].blocks[0])
        for function in kernels.functions():
            if "kernel.kind" not in function.attributes and PREFIXES not in function.attributes:
                for region in function.regions:
                    for block in region.blocks:
                        _run_on(block, kernels, _CACHED * state.target.l2_bytes)
        kernels.erase_uncalled()


def _run_on(block: ir.Block, kernels: SliceKernels, cached: int) -> None:
    for child in block.operations:
        if is_control(child.operation):
            for region in child.operation.regions:
                _run_on(region.blocks[0], kernels, cached)
    plan = _Plan(block, kernels, cached)
    if plan.concatenations:
        _Rewriter(block, kernels, plan).run()


@dataclass(eq=False)
class _Buffer:
    """What a concatenation that is no part of another writes, and what is in it by now."""

    kind: ir.RankedTensorType
    padded: bool
    current: ir.Value | None = None


@dataclass(frozen=True)
class _Slice:
    """Where a value lies: in `buffer`, from `offsets` on."""

    buffer: _Buffer
    offsets: tuple[int, ...]


@dataclass
class _Placed:
    """A concatenation in a buffer, and the numbers of the parts that its kernel still copies."""

    concatenation: Concatenation
    place: _Slice
    copied: list[int] = field(default_factory=list)


class _Plan:
    """Which values of a block lie in which buffers. Of one of more than `cached` bytes, only long
    runs are written in place."""

    def __init__(self, block: ir.Block, kernels: SliceKernels, cached: int) -> None:
        self.block = block
        self.kernels = kernels
        self.cached = cached
        self.slices: dict[ir.Value, _Slice] = {}
        self.concatenations: dict[ir.Operation, _Placed] = {}
        for child in reversed(list(block.operations)):
            concatenation = kernels.concatenation(child.operation)
            if concatenation is not None and child.operation not in self.concatenations:
                self._start(concatenation)

    def _start(self, concatenation: Concatenation) -> None:
        """Give `concatenation` a buffer if somebody else can write a part of it."""
        whole, low = concatenation.stored()
        slices: dict[ir.Value, _Slice] = {}
        inner: list[_Placed] = []
        buffer = _Buffer(whole, concatenation.form is Form.PADDED)
        placed = self._parts(concatenation, _Slice(buffer, low), slices, inner)
        written = len(placed.copied) < len(concatenation.parts)
        if written and not (placed.copied and concatenation.form is Form.BOTH):
            self.slices.update(slices)
            self.concatenations.update({p.concatenation.call: p for p in (placed, *inner)})

    def _parts(
        self,
        concatenation: Concatenation,
        place: _Slice,
        slices: dict[ir.Value, _Slice],
        inner: list[_Placed],
    ) -> _Placed:
        """Find places for all parts that can be written by others."""
        placed = _Placed(concatenation, place)
        bytes_each = _element_bytes(place.buffer.kind)
        is_cached = math.prod(place.buffer.kind.shape) * bytes_each <= self.cached
        least = _LEAST_RUN if is_cached else _LONG_RUN
        for number, part in enumerate(concatenation.parts):
            offsets = list(place.offsets)
            offsets[concatenation.axis] += part.offset
            there = _Slice(place.buffer, tuple(offsets))
            run = math.prod(part.shape[concatenation.axis :]) * bytes_each
            value = part.value
            maker = defining_op(value) if value is not None and run >= least else None
            if value is None or maker is None or not self._could_lie(there, value, maker, slices):
                placed.copied.append(number)
                continue
            nested = self.kernels.concatenation(maker)
            if nested is not None and nested.form is Form.PLAIN:
                slices[value] = there
                inner.append(self._parts(nested, there, slices, inner))
            elif self.kernels.writes(value, _WRITERS):
                slices[value] = there
            else:
                placed.copied.append(number)
        return placed

    def _could_lie(
        self, place: _Slice, value: ir.Value, maker: ir.Operation, slices: Collection[ir.Value]
    ) -> bool:
        """Whether `value` could be at `place` for the kernels of this block that make and read it,
        and no other result of `maker` is among `slices`: a call writes one slice of a buffer."""
        if maker.block != self.block or value in self.slices:
            return False
        if any(result in slices for result in maker.results):
            return False
        kinds = [k for k in _READERS if k != "contraction" or not place.buffer.padded]
        return all(
            use.owner.operation.block == self.block
            and self.kernels.reads(use.owner.operation, use.operand_number, kinds)
            for use in value.uses
        )


def _element_bytes(kind: ir.RankedTensorType) -> int:
    element = kind.element_type
    is_number = isinstance(element, ir.FloatType | ir.IntegerType)
    return element.width // 8 if is_number else 0


class _Rewriter:
    """Rewrites the calls of a block from top to bottom, with the buffers as they are by then."""

    def __init__(self, block: ir.Block, kernels: SliceKernels, plan: _Plan) -> None:
        self.block = block
        self.kernels = kernels
        self.plan = plan

    def run(self) -> None:
        replaced = []
        for op in [child.operation for child in self.block.operations]:
            placed = self.plan.concatenations.get(op)
            touched = any(v in self.plan.slices for v in (*op.operands, *op.results))
            if op.name != "func.call" or not (touched or placed is not None):
                continue
            replaced.append(op)
            self.kernels.replaced.add(ir.FlatSymbolRefAttr(op.attributes["callee"]).value)
            with ir.InsertionPoint(op), op.location:
                if placed is None:
                    self._call(op)
                else:
                    self._concatenate(op, placed)
        for op in reversed(replaced):
            op.erase()

    def _call(self, op: ir.Operation) -> None:
        """Let `op` read and write slices."""
        operands, reads = self._operands(op)
        count = len(op.operands) - len(op.results)
        writes = {}
        for number, result in enumerate(op.results):
            place = self.plan.slices.get(result)
            if place is not None:
                writes[number] = (place.buffer.kind, place.offsets)
                operands[count + number] = _contents(place.buffer)
        symbol, results = self.kernels.variant(op, reads, writes)
        new = func.CallOp(results, ir.FlatSymbolRefAttr.get(symbol), operands).operation
        if any(operands[n] in operands[count:] for n in reads):
            new.attributes[DISJOINT] = ir.UnitAttr.get()
        for old, result in zip(op.results, new.results, strict=True):
            place = self.plan.slices.get(old)
            if place is None:
                old.replace_all_uses_with(result)
            else:
                place.buffer.current = result

    def _concatenate(self, op: ir.Operation, placed: _Placed) -> None:
        """Write what is not written yet of a concatenation: parts, a halo, a padded copy."""
        form, place = placed.concatenation.form, placed.place
        buffer = place.buffer
        results = list(op.results)
        if form is Form.BOTH:
            plain = placed.concatenation.results.index(False)
            whole = _contents(buffer)
            results.pop(plain).replace_all_uses_with(whole)
            symbol = self.kernels.padding(placed.concatenation)
            empty = op.operands[len(op.operands) - 1 - plain]
            new = func.CallOp([results[0].type], ir.FlatSymbolRefAttr.get(symbol), [whole, empty])
            results[0].replace_all_uses_with(new.results[0])
            return
        if placed.copied or form is Form.PADDED:
            operands, reads = self._operands(op)
            symbol, kept = self.kernels.rest(
                placed.concatenation, reads, placed.copied, buffer.kind, place.offsets
            )
            arguments = [operands[number] for number in kept] + [_contents(buffer)]
            new = func.CallOp([buffer.kind], ir.FlatSymbolRefAttr.get(symbol), arguments).operation
            if arguments[-1] in arguments[:-1]:
                new.attributes[DISJOINT] = ir.UnitAttr.get()
            buffer.current = new.results[0]
        if results[0] not in self.plan.slices:
            results[0].replace_all_uses_with(_contents(buffer))

    def _operands(
        self, op: ir.Operation
    ) -> tuple[list[ir.Value], dict[int, tuple[ir.RankedTensorType, tuple[int, ...]]]]:
        """The operands of a call, and which of them are now read as slices of what."""
        operands, reads = list(op.operands), {}
        for number, value in enumerate(operands[: len(operands) - len(op.results)]):
            place = self.plan.slices.get(value)
            if place is not None:
                reads[number] = (place.buffer.kind, place.offsets)
                operands[number] = _contents(place.buffer)
        return operands, reads


def _contents(buffer: _Buffer) -> ir.Value:
    """What is in `buffer` by now; nothing yet before the first part."""
    if buffer.current is None:
        buffer.current = tensor.EmptyOp(list(buffer.kind.shape), buffer.kind.element_type).result
    return buffer.current
