"""Rules for `stablehlo.rng`, what upstream has no lowering for: normal numbers and integers.

%y = stablehlo.rng %low, %high, %shape, distribution = UNIFORM : .. -> tensor<8xi32>
  ->
%_, %bits = stablehlo.rng_bit_generator %state, algorithm = THREE_FRY : .. tensor<8xui64>
%r = stablehlo.remainder %bits, %width
%y = stablehlo.add %r, %low
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepwell import dtypes
from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir
from stepwell.passes.stablehlo._rules import Rules
from stepwell.weights import WeightTable

RULES = Rules()


@RULES.on("rng")
def uniform_integers(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """Integers in [low, high): the remainders of random words."""
    kind = hlo.dtype(op.results[0])
    if "UNIFORM" not in str(op.attributes["rng_distribution"]) or kind.kind not in "iu":
        return None
    low, high, _ = op.operands
    shape, word = hlo.shape(op.results[0]), np.dtype(np.uint64)
    wide = np.dtype(np.int64 if kind.kind == "i" else np.uint64)
    width = hlo.convert(hlo.subtract(hlo.convert(high, wide), hlo.convert(low, wide)), word)
    offsets = hlo.remainder(
        _random_bits(shape, word, weights), hlo.broadcast_in_dim(width, shape, [])
    )
    return hlo.add(hlo.convert(offsets, kind), hlo.broadcast_in_dim(low, shape, []))


@RULES.on("rng")
def normal_numbers(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """Normal numbers from two uniform ones each (Box and Muller, "A note on the generation of
    random normal deviates", 1958), which are the upper bits of Threefry's."""
    if "NORMAL" not in str(op.attributes["rng_distribution"]):
        return None
    mean, deviation, _ = op.operands
    shape, kind = hlo.shape(op.results[0]), hlo.dtype(op.results[0])
    wide = np.dtype(np.float64 if kind == np.float64 else np.float32)
    first, second = _uniform_numbers(shape, wide, weights)
    positive = hlo.subtract(hlo.full_like(first, 1), first)
    radius = hlo.sqrt(hlo.multiply(hlo.log(positive), hlo.full_like(first, -2)))
    angle = hlo.cosine(hlo.multiply(second, hlo.full_like(second, 2 * np.pi)))
    normal = hlo.convert(hlo.multiply(radius, angle), kind)
    scaled = hlo.multiply(normal, hlo.broadcast_in_dim(deviation, shape, []))
    return hlo.add(scaled, hlo.broadcast_in_dim(mean, shape, []))


def _uniform_numbers(
    shape: Sequence[int], kind: np.dtype, weights: WeightTable
) -> tuple[ir.Value, ir.Value]:
    """Two tensors of numbers in [0, 1), the same for a shape each time."""
    digits, word = (24, np.dtype(np.uint32)) if kind == np.float32 else (53, np.dtype(np.uint64))
    bits = _random_bits([2, *shape], word, weights)
    upper = hlo.shift_right_logical(bits, hlo.full_like(bits, 8 * word.itemsize - digits))
    uniform = hlo.multiply(hlo.convert(upper, kind), hlo.full(2.0**-digits, [2, *shape], kind))
    zeros = [0] * len(shape)
    first = hlo.slice(uniform, [0, *zeros], [1, *shape])
    second = hlo.slice(uniform, [1, *zeros], [2, *shape])
    return hlo.reshape(first, shape), hlo.reshape(second, shape)


def _random_bits(shape: Sequence[int], word: np.dtype, weights: WeightTable) -> ir.Value:
    """Threefry's, the same for a shape each time."""
    state = hlo.constant(np.array([0x9E3779B97F4A7C15, 0], np.uint64), weights)
    generator = ir.Operation.create(
        "stablehlo.rng_bit_generator",
        [state.type, dtypes.tensor_type(list(shape), word)],
        [state],
        {"rng_algorithm": ir.Attribute.parse("#stablehlo<rng_algorithm THREE_FRY>")},
    )
    return generator.results[1]
