"""keep-weights-narrow: products read weights of 4, 8 and 16 bits as they are stored.

    %a = stablehlo.convert dense_resource<w> : (tensor<4096x16xi8>) -> tensor<4096x16xf32>
    %b = stablehlo.multiply %a, (broadcast of %s, a number a column) : tensor<4096x16xf32>
    %z = stablehlo.dot_general %x, %b : .. -> tensor<1x16xf32>
      ->
    %b = stablehlo.custom_call @stepwell.widen(%w, %s) : .. -> tensor<4096x16xf32>
    %z = stablehlo.dot_general %x, %b : .. -> tensor<1x16xf32>

for constants of bytes (also those that hold numbers of 4 bits) less a zero point times a scale,
both of one number, one a column, or one a column of each block of rows, and for constants of f16
and bf16. fold-constants would make float32 of them, and reading that is what a product of few rows
takes its time for; run this before it. What moves elements in between is done here. A weight that
several products read is widened in each. Left to be folded are small weights, which stay in the
cache, those that are one number everywhere, those of 16 bits that meet many rows (their products
take longer than reading them) or that `keep-weights-sparse` takes, and those that meet more than a
few rows in a product that `round-products` makes one of bf16.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import ml_dtypes
import numpy as np

from stepwell.dialects import narrow_weights
from stepwell.dialects import stablehlo as hlo
from stepwell.dialects.narrow_weights import ROUNDABLE
from stepwell.mlir import ir
from stepwell.mlir import stablehlo as bindings
from stepwell.passes.base import Pass, State
from stepwell.passes.stablehlo._evaluate import EVALUATORS, known_array
from stepwell.passes.stablehlo._rules import Rules
from stepwell.passes.stablehlo._values import constant_attribute, producer, readable, resource_name
from stepwell.passes.stablehlo.keep_weights_sparse import part_kept, pays
from stepwell.targets.nvidia import NvidiaTarget
from stepwell.weights import WeightTable, is_splat

_BYTES = (np.dtype(np.int8), np.dtype(np.uint8))
_HALVES = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))

_FLOATS = {"f32", "f16", "bf16"}

_MOST_ROWS_OF_FLOATS = 8
"""Rows that a product has at most if it stays one of f32 where bf16 would do."""

_MOST_ROWS_OF_HALVES = 32
"""Rows that a weight of 16 bits meets at most."""

_LEAST_BLOCK = 8
"""Rows that share a scale at least."""

_MOVES = ("transpose", "reshape", "slice")


@dataclass(frozen=True)
class KeepWeightsNarrow(Pass):
    """Run on a module; nothing on GPUs."""

    name: ClassVar[str] = "keep-weights-narrow"

    least_elements: int = 1 << 16
    """Of a weight that is worth it."""

    def run(self, op: ir.Operation, state: State) -> None:
        if isinstance(state.target, NvidiaTarget):
            return
        rules = Rules()
        rules.on("dot_general")(_Products(state, self.least_elements).rewrite)
        rules.apply(op, state.weights)


@dataclass(frozen=True)
class _Products:
    """The rewriting of products; `made` has what was made of weights and of their transposes."""

    state: State
    least_elements: int
    made: dict[tuple[ir.Value, bool], ir.Value] = field(default_factory=dict)

    def rewrite(self, op: ir.Operation, weights: WeightTable) -> ir.Value | None:
        """One operand is a matrix made of a narrow constant, as a rule the right one. Products of
        16 bits, whose weights would be rounded to that, become those of f32, as they do anyway."""
        numbers = bindings.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
        contracted = [
            list(numbers.lhs_contracting_dimensions),
            list(numbers.rhs_contracting_dimensions),
        ]
        kinds = {str(hlo.element_type(value)) for value in (*op.operands, op.results[0])}
        if len(numbers.lhs_batching_dimensions) or "algorithm" in op.attributes:
            return None
        if not kinds <= _FLOATS or len(contracted[0]) != 1:
            return None
        for side in (1, 0):
            other, matrix = op.operands[1 - side], op.operands[side]
            (dimension,) = contracted[side]
            rows = math.prod(hlo.shape(other)) // max(1, hlo.shape(matrix)[dimension])
            if kinds == {"f32"} and self._will_be_rounded(op, rows):
                continue
            wide = self._widened(matrix, dimension == 1, rows, weights)
            if wide is None:
                continue
            source = hlo.convert(other, np.float32)
            product = hlo.dot_general(source, wide, (contracted[1 - side], [0]))
            if side == 0:
                rank = len(hlo.shape(product))
                product = hlo.transpose(product, [rank - 1, *range(rank - 1)])
            return hlo.convert(product, hlo.dtype(op.results[0]))
        return None

    def _widened(
        self, matrix: ir.Value, transposed: bool, rows: int, weights: WeightTable
    ) -> ir.Value | None:
        """What widens the weights that `matrix` is, [k, n] of them or transposed; None where they
        are no narrow constant, or should be folded."""
        sizes = hlo.shape(matrix)
        if len(sizes) != 2 or math.prod(sizes) < self.least_elements:
            return None
        found = _narrow(matrix, weights)
        if found is None:
            return None
        if found.codes.dtype in _HALVES and not self._keeps_halves(
            found.codes.T if transposed else found.codes, rows, scaled=found.is_scaled
        ):
            return None
        if (matrix, transposed) not in self.made:
            with ir.InsertionPoint(matrix.owner.operation):
                parameters = (found.moved(np.transpose) if transposed else found).parameters(
                    weights
                )
                if parameters is None:
                    return None
                self.made[matrix, transposed] = narrow_weights.widen(parameters)
        return self.made[matrix, transposed]

    def _keeps_halves(self, codes: np.ndarray, rows: int, *, scaled: bool) -> bool:
        """Whether weights [K, N] of 16 bits that meet so many rows stay so."""
        if scaled or rows > _MOST_ROWS_OF_HALVES:
            return False
        if self.state.precision == "strict":
            return True
        inner, columns = codes.shape
        return not pays(part_kept(codes), (columns, inner), rows, self.state.target)

    def _will_be_rounded(self, op: ir.Operation, rows: int) -> bool:
        """Whether `round-products` makes it a product of bf16, and that is faster than to read
        less: for more than a few rows."""
        asked = self.state.precision == "bf16"
        asked |= ROUNDABLE in op.attributes and self.state.precision != "strict"
        return asked and self.state.target.bfloat_dot and rows > _MOST_ROWS_OF_FLOATS


@dataclass(frozen=True)
class _Narrow:
    """`(codes - zeros) * scales`, arrays of one shape; views where numbers repeat."""

    codes: np.ndarray
    name: str
    scales: np.ndarray | None = None
    zeros: np.ndarray | None = None

    @property
    def is_scaled(self) -> bool:
        return self.scales is not None or self.zeros is not None

    def moved(self, move: Callable[[np.ndarray], np.ndarray]) -> _Narrow:
        """With `move` done to each of them."""
        scales, zeros = (None if a is None else move(a) for a in (self.scales, self.zeros))
        return _Narrow(move(self.codes), self.name, scales, zeros)

    def parameters(self, weights: WeightTable) -> list[ir.Value] | None:
        """Codes [K, N] as signed numbers, scales and zeros [B, N]; None where scales differ from
        row to row."""
        codes, zeros, scales = self.codes, self.zeros, self.scales
        if codes.dtype == np.uint8:
            codes = (codes ^ np.uint8(128)).view(np.int8)
            low = np.broadcast_to(np.float32(-128), codes.shape)
            zeros = low if zeros is None else zeros - np.float32(128)
        if zeros is not None and scales is None:
            scales = np.broadcast_to(np.float32(1), codes.shape)
        shared = [array for array in (scales, zeros) if array is not None]
        block = math.gcd(*map(_block, shared)) if shared else codes.shape[0]
        if block < _LEAST_BLOCK:
            return None
        small = [np.ascontiguousarray(array[::block]) for array in shared]
        return [
            hlo.constant(np.ascontiguousarray(codes), weights, self.name),
            *(hlo.constant(array, weights, "scales") for array in small),
        ]


def _block(array: np.ndarray) -> int:
    """How many rows of a matrix at a time are the same, a divisor of all."""
    count = array.shape[0]
    if array.strides[0] == 0 or count == 1:
        return count
    differs = np.flatnonzero((array[1:] != array[:-1]).any(axis=1)) + 1
    return math.gcd(count, *differs.tolist())


def _narrow(value: ir.Value, weights: WeightTable) -> _Narrow | None:
    """What `value`, a float, is made of; it may have been rounded in the end."""
    op = producer(value, "convert", "multiply", "subtract", *_MOVES)
    if op is None:
        return None
    name = op.name.removeprefix("stablehlo.")
    if name in _MOVES:
        inner = _narrow(op.operands[0], weights)
        return None if inner is None else inner.moved(lambda array: _move(op, array))
    if name == "convert":
        return _converted(op, weights)
    inner = _narrow(op.operands[0], weights)
    if inner is None or inner.scales is not None or inner.codes.dtype in _HALVES:
        return None
    array = known_array(op.operands[1], weights)
    if array is None or not np.isfinite(array).all():
        return None
    array = array.astype(np.float32, copy=False)
    if name == "multiply":
        return replace(inner, scales=array)
    return replace(inner, zeros=array) if inner.zeros is None else None


def _converted(op: ir.Operation, weights: WeightTable) -> _Narrow | None:
    """A narrow constant as a float; or what is a float already, and scaled."""
    source = op.operands[0]
    if isinstance(hlo.element_type(source), ir.F32Type):
        return _narrow(source, weights)
    if not isinstance(hlo.element_type(op.results[0]), ir.F32Type):
        return None
    moves = []
    while (move := producer(source, *_MOVES)) is not None:
        moves.append(move)
        source = move.operands[0]
    attribute = constant_attribute(source)
    codes = None if attribute is None else readable(attribute, weights)
    if codes is None or codes.dtype not in (*_BYTES, *_HALVES) or is_splat(codes):
        return None
    found = _Narrow(codes, resource_name(source))
    for move in reversed(moves):
        found = found.moved(lambda array, move=move: _move(move, array))
    return found


def _move(op: ir.Operation, array: np.ndarray) -> np.ndarray:
    moved = EVALUATORS[op.name](op, [array])
    assert moved is not None
    return moved
