"""A program with open sizes while it is legalized: which part of each value is in use, what stands
in the rest, and the arguments that tell the sizes.

What stands beyond the part in use does not matter until an operation mixes elements along the
dimension. Then `masked` puts there what changes nothing: -inf for a maximum, 0 for a sum. What is
known to stand there is kept (`fills`), so that a softmax is masked once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.errors import LoweringError
from stepwell.extents import Atom, Extent, Limited
from stepwell.mlir import ir
from stepwell.open_dimensions import (
    Factor,
    Layout,
    closed,
    is_open,
    prefix,
)

Number = bool | int | float


class OpenProgram:
    """The function `main` with extents from which `scalars` and masks are made."""

    def __init__(self, main: ir.Operation, scalars: Sequence[Extent]) -> None:
        self.main = main
        self.entry = main.regions[0].blocks[0]
        self.done: set[ir.Value] = set()
        self.arguments = list(self.entry.arguments)
        self.layouts: dict[ir.Value, Layout] = {}
        self.extents: dict[ir.Value, Sequence[Extent]] = {}
        self.fills: dict[ir.Value, dict[int, Number]] = {}
        self.scalars = list(scalars)
        self.prefixes: dict[tuple[Extent, int], ir.Value] = {}
        kind = ir.RankedTensorType.get([len(self.scalars)], ir.IntegerType.get_signless(64))
        self._sizes = self.entry.add_argument(kind, ir.Location.unknown())
        with ir.InsertionPoint.at_block_begin(self.entry), ir.Location.name("sizes"):
            self._first = hlo.full(0, [], np.int64).owner.operation
        self._known: dict[Extent, ir.Value] = {}
        self._vectors: dict[tuple[Factor, ...], ir.Value] = {}

    # Layouts

    def layout(self, value: ir.Value) -> Layout:
        """Which part of `value` is in use."""
        known = self.layouts.get(value)
        if known is not None:
            return known
        if not isinstance(value.type, ir.RankedTensorType):
            return ()
        return tuple(map(closed, hlo.shape(value)))

    def settled(self, value: ir.Value, dimensions: Sequence[int] | None = None) -> Layout:
        """The layout of `value`, in which the first elements are in use of those dimensions (all,
        or of `dimensions`) whose elements are all the same."""
        extents = self.extents.get(value)
        shape = hlo.shape(value)
        found = tuple(
            prefix(size, extents[d] if extents else Extent.of(size))
            if dimension is None and (dimensions is None or d in dimensions)
            else dimension
            for d, (dimension, size) in enumerate(zip(self.layout(value), shape, strict=True))
        )
        self.layouts[value] = found
        return found

    # Sizes at run time

    @contextlib.contextmanager
    def at_top(self) -> Iterator[None]:
        """Build in front of the whole program."""
        with ir.InsertionPoint(self._first), ir.Location.name("sizes"):
            yield

    def scalar(self, extent: Extent) -> ir.Value:
        """The value of `extent`, a tensor<i64>."""
        if extent not in self._known:
            with self.at_top():
                self._known[extent] = self._scalar(extent)
        return self._known[extent]

    def _scalar(self, extent: Extent) -> ir.Value:
        if extent.is_constant:
            return hlo.full(extent.at(()), [], np.int64)
        if extent in self.scalars:
            number = self.scalars.index(extent)
            return hlo.reshape(hlo.slice(self._sizes, [number], [number + 1]), [])
        total = hlo.full(0, [], np.int64)
        for monomial, factor in extent.terms:
            product = hlo.full(factor, [], np.int64)
            for atom in monomial:
                product = hlo.multiply(product, self._atom(atom))
            total = hlo.add(total, product)
        return total

    def _atom(self, atom: Atom) -> ir.Value:
        if isinstance(atom, int):
            return self._scalar(Extent.size(atom))
        if isinstance(atom, Limited):
            return hlo.minimum(self._scalar(atom.extent), hlo.full(atom.limit, [], np.int64))
        divisor = hlo.full(atom.divisor, [], np.int64)
        return hlo.divide(self._scalar(atom.dividend), divisor)  # which is not negative

    def in_use(self, dimension: Sequence[Factor]) -> ir.Value:
        """A vector of booleans: which elements of `dimension` are in use."""
        factors = tuple(dimension)
        if factors not in self._vectors:
            if len(factors) == 1:
                self._vectors[factors] = self._prefix(factors[0])
            else:
                with self.at_top():
                    self._vectors[factors] = self._product(factors)
        return self._vectors[factors]

    def _prefix(self, factor: Factor) -> ir.Value:
        key = (factor.extent, factor.capacity)
        if key not in self.prefixes:
            kind = ir.RankedTensorType.get([factor.capacity], ir.IntegerType.get_signless(1))
            self.prefixes[key] = self.entry.add_argument(kind, ir.Location.unknown())
        return self.prefixes[key]

    def _product(self, factors: tuple[Factor, ...]) -> ir.Value:
        sizes = [factor.capacity for factor in factors]
        parts = [
            hlo.broadcast_in_dim(self._prefix(factor), sizes, [axis])
            for axis, factor in enumerate(factors)
            if factor.is_open
        ]
        both = parts[0]
        for part in parts[1:]:
            both = hlo.binary("and", both, part)
        count = 1
        for size in sizes:
            count *= size
        return hlo.reshape(both, [count])

    # What stands beyond the part in use

    @contextlib.contextmanager
    def _behind(self, value: ir.Value) -> Iterator[None]:
        """Build where `value` is made."""
        if isinstance(value, ir.OpResult):
            op = value.owner.operation
            with ir.InsertionPoint.after(op), op.location:
                yield
        elif value.owner == self.entry:
            with self.at_top():
                yield
        else:
            with ir.InsertionPoint.at_block_begin(value.owner):
                yield

    def fill(self, value: ir.Value, dimension: int) -> Number | None:
        """What is known to stand in `value` beyond the part of `dimension` in use."""
        return self.fills.get(value, {}).get(dimension)

    def _parts(self, value: ir.Value, dimensions: Sequence[int]) -> ir.Operation | None:
        """The concatenation that `value` is, if it is one along none of `dimensions` whose parts
        are in use alike there."""
        op = None if isinstance(value.owner, ir.Block) else value.owner.operation
        if op is None or op.name != "stablehlo.concatenate":
            return None
        alike = all(
            self.layout(operand)[number] == self.layout(value)[number]
            for operand in op.operands
            for number in dimensions
        )
        along = ir.IntegerAttr(op.attributes["dimension"]).value
        return op if alike and along not in dimensions else None

    def masked(self, value: ir.Value, dimensions: Sequence[int], fill: Number) -> ir.Value:
        """`value` with `fill` beyond the part of `dimensions` in use. All operations that are not
        done yet read that, too. What was joined of parts along another dimension is filled part by
        part, as the parts are where they are made."""
        shape = hlo.shape(value)
        layout = self.layout(value)
        parts = self._parts(value, dimensions)
        others = set(self.fills.get(value, {}).values()) - {fill}  # what readers that are done need
        if parts is not None and not others:
            for number in range(len(parts.operands)):
                part = self.masked(parts.operands[number], dimensions, fill)
                parts.operands[number] = part
            filled = [number for number in dimensions if is_open(layout[number])]
            self.fills.setdefault(value, {}).update(dict.fromkeys(filled, fill))
            return value
        for number in dimensions:
            dimension = layout[number]
            if dimension is None:
                raise LoweringError("a dimension of equal elements has no part in use")
            if not is_open(dimension) or self.fill(value, number) == fill:
                continue
            used = self.in_use(dimension)
            with self._behind(value):
                where = hlo.broadcast_in_dim(used, shape, [number])
                result = hlo.select(where, value, hlo.full_like(value, fill))
            self.done.add(result)
            for use in list(value.uses):
                user = use.owner.operation
                if not user.results or user.results[0] not in self.done:
                    user.operands[use.operand_number] = result
            self.layouts[result] = layout
            # What was known of other dimensions no longer holds where this one is filled.
            self.fills[result] = {number: fill}
            for other, known in self.fills.get(value, {}).items():
                if known == fill:
                    self.fills[result][other] = known
            value = result
        return value

    def filled(self, value: ir.Value, dimensions: Sequence[int], fill: ir.Value) -> ir.Value:
        """`value` with a scalar `fill` beyond the part of `dimensions` in use, which are open."""
        shape, layout = hlo.shape(value), self.layout(value)
        for number in dimensions:
            used = hlo.broadcast_in_dim(self.in_use(layout[number] or ()), shape, [number])
            value = hlo.select(used, value, hlo.broadcast_in_dim(fill, shape, []))
        self.layouts[value] = layout
        return value
