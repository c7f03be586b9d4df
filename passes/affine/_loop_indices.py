"""Where the memory accesses of a kernel lie, as functions of its loop variables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stepwell.kernels.index import Index, Quotient, Variable, apply_map, constant
from stepwell.mlir import ir

LOOPS = ("affine.for", "affine.parallel")
STORES = ("affine.store", "affine.vector_store", "vector.store")


class LoopIndices:
    """A variable with its range for each loop of a function."""

    def __init__(self, function: ir.Operation) -> None:
        self.variables: dict[ir.Value, Variable] = {}
        self._known: dict[ir.Value, Index | None] = {}
        for loop in _loops(function):
            for value, (low, high) in zip(
                loop.regions[0].blocks[0].arguments, self._ranges(loop), strict=False
            ):
                self.variables[value] = Variable("i", low, high, value)

    def at(self, affine_map: ir.AffineMap, operands: Sequence[ir.Value]) -> list[Index] | None:
        """The results of a map at loop variables and what affine maps make of them; None where an
        operand is something else."""
        point = [found for value in operands if (found := self._index(value)) is not None]
        if affine_map.n_symbols or len(point) != len(operands):
            return None
        return list(map(_with_remainders, apply_map(affine_map, point)))

    def _index(self, value: ir.Value) -> Index | None:
        if value in self.variables:
            return Index.of(self.variables[value])
        if value not in self._known:
            self._known[value] = self._applied(value)
        return self._known[value]

    def _applied(self, value: ir.Value) -> Index | None:
        if isinstance(value.owner, ir.Block):
            return None
        op = value.owner.operation
        if op.name == "arith.constant":
            return constant(ir.IntegerAttr(op.attributes["value"]).value)
        if op.name != "affine.apply":
            return None
        found = self.at(ir.AffineMapAttr(op.attributes["map"]).value, list(op.operands))
        return found[0] if found is not None else None

    def accessed(self, op: ir.Operation) -> list[Index] | None:
        """The element that a load, or a store with its value left out, accesses first."""
        first = 2 if op.name in STORES else 1
        operands = list(op.operands)[first:]
        if op.name == "vector.store":
            return self.at(ir.AffineMap.get_identity(len(operands)), operands)
        return self.at(ir.AffineMapAttr(op.attributes["map"]).value, operands)

    def _ranges(self, loop: ir.Operation) -> list[tuple[int, int]]:
        if loop.name == "affine.parallel":
            upper = ir.AffineMapAttr(loop.attributes["upperBoundsMap"]).value
            return [(0, ir.AffineConstantExpr(end).value - 1) for end in upper.results]
        return [self._range(loop)]

    def _range(self, loop: ir.Operation) -> tuple[int, int]:
        lower, upper = (
            ir.AffineMapAttr(loop.attributes[name]).value
            for name in ("lowerBoundMap", "upperBoundMap")
        )
        first = lower.n_inputs
        operands = list(loop.operands)
        low = self.at(lower, operands[:first]) or [Index()]
        high = self.at(upper, operands[first : first + upper.n_inputs])
        ends = [index.high for index in high] if high is not None else _constants(upper)
        least = max(index.low for index in low)
        most = max(min(ends, default=1 << 40) - 1, least)
        step = ir.IntegerAttr(loop.attributes["step"]).value
        if all(factor % step == 0 for index in low for _, factor in index.terms):
            starts = {index.constant % step for index in low}
            most -= (most - starts.pop()) % step if len(starts) == 1 else 0
        return least, most


def _with_remainders(index: Index) -> Index:
    """With `x mod c` for `x - c * (x floordiv c)`, as MLIR writes it: its range is known."""
    for atom, factor in index.terms:
        if not isinstance(atom, Quotient) or atom.remainder or factor % atom.divisor:
            continue
        by = factor // atom.divisor
        terms = atom.dividend.terms
        if terms and all(index.coefficient(inner) == -by * f for inner, f in terms):
            rest = index - Index.of(atom) * factor + atom.dividend * by
            return _with_remainders(rest) - atom.dividend.mod(atom.divisor) * by
    return index


def _constants(affine_map: ir.AffineMap) -> list[int]:
    return [e.value for e in affine_map.results if isinstance(e, ir.AffineConstantExpr)]


def _loops(function: ir.Operation) -> Iterator[ir.Operation]:
    """All loops, outer ones first."""

    def walk(block: ir.Block) -> Iterator[ir.Operation]:
        for child in block.operations:
            op = child.operation
            if op.name in LOOPS:
                yield op
            for region in op.regions:
                for inner in region.blocks:
                    yield from walk(inner)

    return walk(function.regions[0].blocks[0])
