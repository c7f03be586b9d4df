"""mark-exact-arguments: which arguments of a program are accessed no further than they are in use.

In a program with open sizes, an argument has room for its capacity. Where no kernel reads or writes
more of it than `stepwell.extents` says is in use, an array of just that size does, too, and a call
has to copy nothing:

    func.func @main(%x: memref<512x8xf32>, ...)
        attributes {stepwell.extents = ["s0, 8"], ..., stepwell.exact_inputs = array<i64: 0>}

and `stepwell.exact_results` likewise. Of such an argument the first dimension that is not 1, and it
alone, may be open. A kernel's access at row r is known to be in use where it stands in a branch for
r < s0 (`skip-unused-elements`), or in a loop that ends at the number of rows in use, which was
counted (`kernel.counted`). On GPUs no argument is marked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from stepwell.extents import Extent
from stepwell.frontends.open_sizes import (
    EXACT_INPUTS,
    EXACT_RESULTS,
    EXTENTS,
    RESULT_EXTENTS,
    SCALARS,
    read_extents,
)
from stepwell.kernels.index import Index, Variable, delinearize, linearize
from stepwell.kernels.used_elements import COUNTED, KERNEL_SIZES
from stepwell.mlir import ir
from stepwell.passes.affine._loop_indices import LoopIndices
from stepwell.passes.base import Pass, State
from stepwell.passes.buffers.plan_arena import VIEWS
from stepwell.targets.nvidia import NvidiaTarget

_ACCESSES = ("affine.load", "affine.vector_load", "affine.store", "affine.vector_store")
_HARMLESS = ("affine.prefetch",)
_VIEWS = (*VIEWS, "builtin.unrealized_conversion_cast")

_Fact = tuple[Extent, Index]
"""The index is known to be below the extent."""


@dataclass(frozen=True)
class MarkExactArguments(Pass):
    """Run on a module of buffers: a host function and kernels."""

    name: ClassVar[str] = "mark-exact-arguments"

    def run(self, op: ir.Operation, state: State) -> None:
        if isinstance(state.target, NvidiaTarget):  # threads read 16 bytes at a time
            return
        functions = {
            ir.StringAttr(child.operation.attributes["sym_name"]).value: child.operation
            for child in op.regions[0].blocks[0].operations
        }
        for host in functions.values():
            if SCALARS in host.attributes:
                _mark(host, functions)


def _mark(host: ir.Operation, functions: dict[str, ir.Operation]) -> None:
    arguments = list(host.regions[0].blocks[0].arguments)
    inputs, results = (read_extents(host, name) or [] for name in (EXTENTS, RESULT_EXTENTS))
    kernels = {
        name: _Kernel(function)
        for name, function in functions.items()
        if function != host and len(function.regions[0].blocks)
    }
    first = len(arguments) - len(results)
    for name, some, extents in (
        (EXACT_INPUTS, arguments[: len(inputs)], inputs),
        (EXACT_RESULTS, arguments[first:], results),
    ):
        found = [
            number
            for number, (argument, shape) in enumerate(zip(some, extents, strict=True))
            if _is_exact(argument, _in_memory(argument, shape), kernels)
        ]
        host.attributes[name] = ir.DenseI64ArrayAttr.get(found)


def _in_memory(argument: ir.Value, extents: tuple[Extent, ...]) -> tuple[Extent, ...]:
    """The extents of a buffer: one of complex numbers has both parts in a last dimension."""
    parts = ir.MemRefType(argument.type).rank - len(extents)
    return (*extents, *[Extent.of(2)] * parts)


def _is_exact(argument: ir.Value, extents: tuple[Extent, ...], kernels: dict[str, _Kernel]) -> bool:
    """Whether of an argument of the host no more is accessed than its first elements, in use."""
    shape = tuple(ir.MemRefType(argument.type).shape)
    return _begins_in_use(shape, extents) and all(
        name in kernels and kernels[name].is_exact(operand, shape, extents)
        for name, operand in _calls(argument)
    )


def _begins_in_use(shape: tuple[int, ...], extents: tuple[Extent, ...]) -> bool:
    """Whether what is in use are the first elements in memory, and not all."""
    moving = [extent for size, extent in zip(shape, extents, strict=True) if size != 1]
    is_open = [not extent.is_constant for extent in moving]
    return is_open[:1] == [True] and not any(is_open[1:])


def _calls(value: ir.Value) -> Iterator[tuple[str, int]]:
    """The kernels that take `value`, through views, and as which operand; "" for other uses."""
    for use in value.uses:
        user = use.owner.operation
        if user.name in VIEWS:
            yield from _calls(user.results[0])
        elif user.name == "func.call":
            yield ir.FlatSymbolRefAttr(user.attributes["callee"]).value, use.operand_number
        else:
            yield "", 0


class _Kernel:
    """A kernel, and the sizes that it is told, if it is."""

    def __init__(self, function: ir.Operation) -> None:
        self.loops = LoopIndices(function)
        self.arguments = list(function.regions[0].blocks[0].arguments)
        self.extents: list[Extent] = []
        self.sizes: ir.Value | None = None
        if KERNEL_SIZES in function.attributes:
            texts = function.attributes[KERNEL_SIZES]
            self.extents = [Extent.parse(ir.StringAttr(text).value) for text in texts]
            results = ir.IntegerAttr(function.attributes["kernel.results"]).value
            self.sizes = self.arguments[-results - 1]

    def is_exact(self, operand: int, shape: tuple[int, ...], extents: tuple[Extent, ...]) -> bool:
        """Whether all accesses of argument number `operand`, a tensor of `shape`, are in use."""
        return all(
            op.name in _HARMLESS
            or (op.name in _ACCESSES and self._in_use(op, kind, shape, extents))
            for op, kind in _accesses(self.arguments[operand])
        )

    def _in_use(
        self,
        op: ir.Operation,
        kind: ir.MemRefType,
        shape: tuple[int, ...],
        extents: tuple[Extent, ...],
    ) -> bool:
        indices = self.loops.accessed(op)
        if not indices or not kind.has_static_shape or math.prod(kind.shape) != math.prod(shape):
            return False
        stores = op.name in ("affine.store", "affine.vector_store")
        moved = (op.operands[0] if stores else op.results[0]).type
        lanes = ir.VectorType(moved).shape[-1] if isinstance(moved, ir.VectorType) else 1
        indices[-1] = indices[-1] + Index.of(Variable("lane", 0, lanes - 1))
        if tuple(kind.shape) != shape:
            indices = delinearize(linearize(indices, tuple(kind.shape)), shape)
        facts = list(self._facts(op))
        return all(
            any(known == extent and (index - below).high <= 0 for known, below in facts)
            for index, extent in zip(indices, extents, strict=True)
            if not extent.is_constant
        )

    def _facts(self, op: ir.Operation) -> Iterator[_Fact]:
        """What is known where `op` stands."""
        block = op.block
        while (owner := block.owner.operation).name != "func.func":
            if owner.name == "scf.if" and block == owner.regions[0].blocks[0]:
                yield from self._condition(owner.operands[0])
            elif owner.name == "affine.for":
                yield from self._bound(owner)
            block = owner.block

    def _condition(self, flag: ir.Value) -> Iterator[_Fact]:
        """Of a branch that is taken where indices are below sizes."""
        both = _defining(flag, "arith.andi")
        if both is not None:
            for operand in both.operands:
                yield from self._condition(operand)
            return
        op = _defining(flag, "arith.cmpi")
        is_below = op is not None and ir.IntegerAttr(op.attributes["predicate"]).value == 2
        if op is None or not is_below:
            return
        place, size = (op.operands[0], op.operands[1])
        apply, number = _defining(place, "affine.apply"), self._size(size)
        if apply is None or number is None:
            return
        affine_map = ir.AffineMapAttr(apply.attributes["map"]).value
        indices = self.loops.at(affine_map, list(apply.operands))
        if indices is not None:
            yield self.extents[number], indices[0]

    def _size(self, value: ir.Value) -> int | None:
        """Which of the sizes is `value`."""
        cast = _defining(value, "arith.index_cast")
        load = _defining(cast.operands[0], "memref.load") if cast is not None else None
        if self.sizes is None or load is None or load.operands[0] != self.sizes:
            return None
        place = _defining(load.operands[1], "arith.constant")
        return ir.IntegerAttr(place.attributes["value"]).value if place is not None else None

    def _bound(self, loop: ir.Operation) -> Iterator[_Fact]:
        """Of a loop that ends at a number that was counted."""
        lower, upper = (
            ir.AffineMapAttr(loop.attributes[name]).value
            for name in ("lowerBoundMap", "upperBoundMap")
        )
        operands = list(loop.operands)[lower.n_inputs : lower.n_inputs + upper.n_inputs]
        variable = self.loops.variables[loop.regions[0].blocks[0].arguments[0]]
        for end in upper.results:
            if isinstance(end, ir.AffineSymbolExpr):
                operand = operands[upper.n_dims + end.position]
            elif isinstance(end, ir.AffineDimExpr):
                operand = operands[end.position]
            else:
                continue
            counted = _defining(operand, "affine.for")
            if counted is not None and COUNTED in counted.attributes:
                text = ir.StringAttr(counted.attributes[COUNTED]).value
                yield Extent.parse(text), Index.of(variable)


def _accesses(value: ir.Value) -> Iterator[tuple[ir.Operation, ir.MemRefType]]:
    """What uses `value`, through views, and as what type."""
    for use in value.uses:
        user = use.owner.operation
        if user.name in _VIEWS:
            yield from _accesses(user.results[0])
        else:
            yield user, ir.MemRefType(value.type)


def _defining(value: ir.Value, name: str) -> ir.Operation | None:
    """The operation called `name` that makes `value`; None where it is another."""
    if isinstance(value.owner, ir.Block):
        return None
    op = value.owner.operation
    return op if op.name == name else None
