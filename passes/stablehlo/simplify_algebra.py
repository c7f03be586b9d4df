"""simplify-algebra: identities that hold for every input, up to the sign of a float zero.

    %t = stablehlo.transpose %x, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
    %u = stablehlo.transpose %t, dims = [1, 0] : (tensor<3x2xf32>) -> tensor<2x3xf32>
    %one = stablehlo.constant dense<1.0> : tensor<2x3xf32>
    %y = stablehlo.multiply %u, %one : tensor<2x3xf32>

becomes `%x`. A division by a power of two becomes a multiplication, `power(x, 2)` a product, a
dot_general without contracting dimensions a multiplication of its operands, and broadcasts lose the
size-1 dimensions of theirs. `x * 0` and `x - x` are zero for integers only. `power(x, 0.5)` becomes
`sqrt(x)`, the powers 0.25, 0.75 and 1.5 of f32 and f64 products of square roots, within 2.2 ulp:
they differ for -inf and -0.0 alone. tanh(softplus(x)) takes one exponential (`_softplus.py`).
Gathers and scatters of elements become those of slices (`_gathered_components.py`,
`_whole_slices.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stepwell import dtypes
from stepwell.dialects import stablehlo as hlo
from stepwell.errors import LoweringError
from stepwell.mlir import ir
from stepwell.mlir import stablehlo as bindings
from stepwell.passes.base import Pass, State
from stepwell.passes.stablehlo import _gathered_components, _pieces, _softplus, _whole_slices
from stepwell.passes.stablehlo._rules import Rules, fused
from stepwell.passes.stablehlo._values import (
    ELEMENTWISE,
    constant_attribute,
    has_one_use,
    i64_pairs,
    integer,
    integers,
    optional_integers,
    padding,
    producer,
    rebuild,
    reverses_window,
    splat,
)
from stepwell.weights import WeightTable

RULES = Rules()
RULES.on("tanh")(_softplus.tanh_of_softplus)
RULES.on("gather")(_gathered_components.by_components)
RULES.on("gather")(_whole_slices.gather_slices)
RULES.on("scatter")(_whole_slices.scatter_slices)


def _is_float(value: ir.Value) -> bool:
    return isinstance(hlo.element_type(value), ir.FloatType)


# --- Arithmetic ----------------------------------------------------------------------------------

NEUTRAL_RIGHT = {"add": 0, "subtract": 0, "multiply": 1, "divide": 1, "power": 1, "or": 0, "xor": 0}
"""x op n is x. For floats adding +0.0 changes -0.0 to +0.0, which compares equal."""


@RULES.on(*NEUTRAL_RIGHT)
def neutral_operand(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """x + 0, x - 0, x * 1, x / 1, power(x, 1)."""
    lhs, rhs = op.operands
    name = op.name[10:]
    number = NEUTRAL_RIGHT[name]
    if splat(rhs) == number:
        return lhs
    return rhs if name in ("add", "multiply", "or", "xor") and splat(lhs) == number else None


@RULES.on("multiply", "and")
def integer_zero(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """x * 0 and x & 0 of integers."""
    if _is_float(op.results[0]) or not isinstance(hlo.element_type(op.results[0]), ir.IntegerType):
        return None
    return next((value for value in op.operands if splat(value) == 0), None)


@RULES.on("subtract", "xor")
def integer_self(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """x - x and x ^ x of integers."""
    lhs, rhs = op.operands
    if lhs != rhs or not isinstance(hlo.element_type(lhs), ir.IntegerType):
        return None
    return hlo.full_like(lhs, 0)


@RULES.on("maximum", "minimum", "and", "or")
def idempotent(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """maximum(x, x)."""
    lhs, rhs = op.operands
    return lhs if lhs == rhs else None


@RULES.on("maximum", "minimum")
def repeated_limit(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """maximum(maximum(x, c), c), relu after relu."""
    inner = producer(op.operands[0], op.name[10:])
    return inner.results[0] if inner and inner.operands[1] == op.operands[1] else None


@RULES.on("negate", "not", "reverse")
def involution(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """negate(negate(x)), not(not(x)), and reverse twice along the same dimensions."""
    inner = producer(op.operands[0], op.name[10:])
    if inner is None or (
        op.name == "stablehlo.reverse"
        and sorted(integers(op, "dimensions")) != sorted(integers(inner, "dimensions"))
    ):
        return None
    return inner.operands[0]


@RULES.on("divide")
def divide_by_power_of_two(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """x / 8 of floats: the reciprocal is exact."""
    lhs, rhs = op.operands
    divisor = splat(rhs) if _is_float(rhs) else None
    if divisor is None or not math.isfinite(divisor) or abs(math.frexp(divisor)[0]) != 0.5:
        return None
    kind = hlo.dtype(rhs)
    reciprocal = np.asarray(1.0 / divisor).astype(kind)
    # A reciprocal that is subnormal or overflows would not be exact, or slow.
    if not 2.0**-14 <= abs(float(reciprocal)) <= 2.0**14:
        return None
    return hlo.multiply(lhs, hlo.full_like(rhs, float(reciprocal)))


@RULES.on("power")
def small_power(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """power(x, 2), power(x, 3), power(x, 0.5); -1, 0.25, 0.75 and 1.5, where these stay exact."""
    base, exponent = op.operands
    number = splat(exponent)
    if number == 2:
        return hlo.multiply(base, base)
    if number == 3:
        return hlo.multiply(hlo.multiply(base, base), base)
    if number == 0.5:
        return hlo.sqrt(base)
    if str(hlo.element_type(base)) not in ("f32", "f64"):
        return None
    if number == -1:
        return hlo.divide(hlo.full_like(base, 1.0), base)
    if number == 1.5:
        return hlo.multiply(base, hlo.sqrt(base))
    if number not in (0.25, 0.75):
        return None
    root = hlo.sqrt(base)
    return hlo.sqrt(root) if number == 0.25 else hlo.multiply(root, hlo.sqrt(root))


@RULES.on("add")
def add_negated(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """x + (-y) is x - y."""
    lhs, rhs = op.operands
    negated = producer(rhs, "negate")
    return hlo.subtract(lhs, negated.operands[0]) if negated else None


@RULES.on("add", "multiply", "maximum", "minimum", "and", "or")
def constant_to_the_right(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """Constants become the second operand of commutative ops, so that rules need one form."""
    lhs, rhs = op.operands
    if not _is_constant_like(lhs) or _is_constant_like(rhs):
        return None
    return hlo.binary(op.name[10:], rhs, lhs)


def _is_constant_like(value: ir.Value) -> bool:
    while (op := producer(value, "broadcast_in_dim", "reshape")) is not None:
        value = op.operands[0]
    return producer(value, "constant") is not None


# --- Choice and conversion -----------------------------------------------------------------------


@RULES.on("select")
def known_choice(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """select with a constant predicate, or with two equal operands."""
    predicate, on_true, on_false = op.operands
    if on_true == on_false:
        return on_true
    choice = splat(predicate)
    return None if choice is None else on_true if choice else on_false


@RULES.on("dynamic_iota")
def known_iota(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """Places counted in a known shape."""
    if not hlo.tensor_type(op.results[0]).has_static_shape:
        return None
    axis, kind = integer(op, "iota_dimension"), hlo.dtype(op.results[0])
    return hlo.iota(hlo.shape(op.results[0]), axis, kind)


@RULES.on("convert")
def identity_convert(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """convert to the type the operand has."""
    return op.operands[0] if op.operands[0].type == op.results[0].type else None


@RULES.on("convert")
def exact_convert_chain(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """convert of convert where the first loses nothing."""
    inner = producer(op.operands[0], "convert")
    if inner is None:
        return None
    source = inner.operands[0]
    try:
        first, middle, last = (
            hlo.dtype(source),
            hlo.dtype(inner.results[0]),
            hlo.dtype(op.results[0]),
        )
    except LoweringError:
        return None
    if middle.kind not in "iuf" or not np.can_cast(first, middle, "safe"):
        return None
    if last.kind == "b" or (middle.kind == "f" and last.kind in "iu" and first.kind in "iu"):
        return None
    with fused(op, inner):
        return hlo.convert(source, last)


@RULES.on("convert")
def clamped_convert(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """convert to integers of numbers clamped to what these hold: it does that itself."""
    clamp = producer(op.operands[0], "clamp")
    kind = hlo.element_type(op.results[0])
    if clamp is None or not isinstance(kind, ir.IntegerType) or kind.width not in (8, 16):
        return None
    if str(hlo.element_type(op.operands[0])) != "f32":
        return None
    low, high = splat(clamp.operands[0]), splat(clamp.operands[2])
    limits = np.iinfo(hlo.dtype(op.results[0]))
    if low is None or high is None or low > limits.min or high < limits.max:
        return None
    with fused(op, clamp):
        return hlo.convert(clamp.operands[1], hlo.dtype(op.results[0]))


# --- Shapes --------------------------------------------------------------------------------------


@RULES.on("reshape", "slice", "pad", "transpose", "broadcast_in_dim", "concatenate", "reduce")
def identity_shape(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """Ops that leave every element where it is."""
    operand = op.operands[0]
    if operand.type != op.results[0].type or op.name not in _IDENTITY:
        return None
    return operand if _IDENTITY[op.name](op) else None


def _ascending(op: ir.Operation, attribute: str) -> bool:
    numbers = integers(op, attribute)
    return numbers == sorted(numbers)


_IDENTITY = {
    "stablehlo.reshape": lambda op: True,
    "stablehlo.slice": lambda op: True,
    "stablehlo.pad": lambda op: (
        not any(integers(op, "edge_padding_low") + integers(op, "edge_padding_high"))
    ),
    "stablehlo.transpose": lambda op: _ascending(op, "permutation"),
    "stablehlo.broadcast_in_dim": lambda op: _ascending(op, "broadcast_dimensions"),
    "stablehlo.concatenate": lambda op: len(op.operands) == 1,
}


@RULES.on("reshape")
def reshape_chain(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """reshape of reshape."""
    inner = producer(op.operands[0], "reshape")
    if inner is None:
        return None
    with fused(op, inner):
        return hlo.reshape(inner.operands[0], hlo.shape(op.results[0]))


@RULES.on("transpose")
def transpose_chain(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """transpose of transpose."""
    inner = producer(op.operands[0], "transpose")
    if inner is None:
        return None
    first = integers(inner, "permutation")
    with fused(op, inner):
        return hlo.transpose(inner.operands[0], [first[d] for d in integers(op, "permutation")])


@RULES.on("transpose")
def transpose_of_product(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """A transpose that puts what is left of a product's lhs last: the operands change places, so
    that the product is written in that order (the weighed values of an attention in JAX)."""
    change = operands_changed(op.operands[0])
    permutation = integers(op, "permutation")
    if change is None or not change.right or permutation[-1] not in change.left:
        return None
    with fused(op, change.dot):
        return hlo.transpose(change.build(), [change.order.index(d) for d in permutation])


@dataclass(frozen=True)
class OperandsChanged:
    """A product with its operands in each other's place. `left` and `right` are the dimensions of
    its result that are left of the lhs and of the rhs; the new result has dimension `order[d]`
    where the old one has d."""

    dot: ir.Operation
    left: range
    right: range

    @property
    def order(self) -> list[int]:
        return [*range(self.left.start), *self.right, *self.left]

    def build(self) -> ir.Value:
        """The product."""
        dot = self.dot
        numbers = bindings.DotDimensionNumbers(dot.attributes["dot_dimension_numbers"])
        attributes: dict[str, ir.Attribute | None] = {
            "dot_dimension_numbers": bindings.DotDimensionNumbers.get(
                list(numbers.rhs_batching_dimensions),
                list(numbers.lhs_batching_dimensions),
                list(numbers.rhs_contracting_dimensions),
                list(numbers.lhs_contracting_dimensions),
            )
        }
        if "precision_config" in dot.attributes:
            both = list(ir.ArrayAttr(dot.attributes["precision_config"]))
            attributes["precision_config"] = ir.ArrayAttr.get(both[::-1])
        sizes = hlo.shape(dot.results[0])
        return rebuild(dot, list(dot.operands)[::-1], [sizes[d] for d in self.order], attributes)


def operands_changed(value: ir.Value) -> OperandsChanged | None:
    """How the product that makes `value`, for one reader, may be written; not with weights, which
    stay on the right, where they are packed."""
    dot = producer(value, "dot_general")
    if dot is None or not has_one_use(value) or "algorithm" in dot.attributes:
        return None
    if constant_attribute(dot.operands[1]) is not None:
        return None
    numbers = bindings.DotDimensionNumbers(dot.attributes["dot_dimension_numbers"])
    batch = len(numbers.lhs_batching_dimensions)
    summed = len(numbers.lhs_contracting_dimensions)
    left, right = (len(hlo.shape(v)) - batch - summed for v in dot.operands)
    return OperandsChanged(
        dot, range(batch, batch + left), range(batch + left, batch + left + right)
    )


@RULES.on("dot_general")
def product_without_sums(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """A product that contracts nothing, `ij` of `i` and `j`, is a multiplication of its operands
    broadcast, in the result's type, where that holds both operands exactly, or where all three are
    integers, whose products wrap around as those of wrapped operands do."""
    numbers = bindings.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    if list(numbers.lhs_contracting_dimensions) or "algorithm" in op.attributes:
        return None
    lhs, rhs = op.operands
    try:
        kind = hlo.dtype(op.results[0])
        kinds = [hlo.dtype(value) for value in op.operands]
    except LoweringError:
        return None
    wraps = all(dtypes.is_integer(each) for each in (kind, *kinds))
    if not wraps and not all(np.can_cast(each, kind, "safe") for each in kinds):
        return None
    sizes = hlo.shape(op.results[0])

    def spread(value: ir.Value, batch: list[int], free: range) -> ir.Value:
        rest = iter(free)
        shared = {d: place for place, d in enumerate(batch)}
        places = [shared[d] if d in shared else next(rest) for d in range(len(hlo.shape(value)))]
        return hlo.convert(hlo.broadcast_in_dim(value, sizes, places), kind)

    batch = list(numbers.lhs_batching_dimensions)
    between = len(hlo.shape(lhs))
    return hlo.multiply(
        spread(lhs, batch, range(len(batch), between)),
        spread(rhs, list(numbers.rhs_batching_dimensions), range(between, len(sizes))),
    )


@RULES.on("reshape")
def split_batch_of_product(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """A product whose batch dimension is split after it, and was merged before it: the product of
    what was not merged. PyTorch has products of three dimensions only, where transposes around them
    would not meet."""
    dot = producer(op.operands[0], "dot_general")
    if dot is None or not has_one_use(op.operands[0]):
        return None
    numbers = bindings.DotDimensionNumbers(dot.attributes["dot_dimension_numbers"])
    batches = (list(numbers.lhs_batching_dimensions), list(numbers.rhs_batching_dimensions))
    shape, rest = hlo.shape(op.results[0]), hlo.shape(op.operands[0])[1:]
    batch = shape[: len(shape) - len(rest)]
    if batches != ([0], [0]) or len(batch) < 2 or shape[len(batch) :] != rest:
        return None
    before = [_before_merging(value, batch) for value in dot.operands]
    found = [each for each in before if each is not None]
    if len(found) < len(before):
        return None
    leading = list(range(len(batch)))
    summed = [
        [d + len(batch) - 1 for d in dimensions]
        for dimensions in (numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions)
    ]
    dimensions = bindings.DotDimensionNumbers.get(leading, leading, *summed)
    with fused(op, dot):
        operands = [hlo.transpose(source, order) for source, order in found]
        return rebuild(dot, operands, shape, {"dot_dimension_numbers": dimensions})


def _before_merging(
    value: ir.Value, batch: tuple[int, ...]
) -> tuple[ir.Value, Sequence[int]] | None:
    """What `value` was, and the order of its dimensions, before a reshape that merged `batch` into
    its first dimension, if it was."""
    move = producer(value, "transpose")
    if move is not None:
        first, *permutation = integers(move, "permutation")
        found = _before_merging(move.operands[0], batch) if first == 0 else None
        if found is None:
            return None
        source, order = found
        later = [d + len(batch) - 1 for d in permutation]
        return source, [order[d] for d in (*range(len(batch)), *later)]
    merged = producer(value, "reshape")
    wanted = (*batch, *hlo.shape(value)[1:])
    if merged is None or hlo.shape(merged.operands[0]) != wanted:
        return None
    return merged.operands[0], range(len(wanted))


@RULES.on("transpose")
def transpose_of_unit_dimensions(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """A transpose that moves only dimensions of size 1 is a reshape."""
    sizes = hlo.shape(op.operands[0])
    moved = [d for d in integers(op, "permutation") if sizes[d] != 1]
    return hlo.reshape(op.operands[0], hlo.shape(op.results[0])) if moved == sorted(moved) else None


@RULES.on("transpose", "reshape")
def moved_splat(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """transpose or reshape of a value that is the same number everywhere."""
    attribute = constant_attribute(op.operands[0])
    if not isinstance(attribute, ir.DenseElementsAttr) or splat(op.operands[0]) is None:
        return None
    return hlo.full_like(op.results[0], splat(op.operands[0]) or 0)


@RULES.on("broadcast_in_dim")
def broadcast_chain(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """broadcast of broadcast."""
    inner = producer(op.operands[0], "broadcast_in_dim")
    if inner is None:
        return None
    outer = integers(op, "broadcast_dimensions")
    dimensions = [outer[d] for d in integers(inner, "broadcast_dimensions")]
    with fused(op, inner):
        return hlo.broadcast_in_dim(inner.operands[0], hlo.shape(op.results[0]), dimensions)


@RULES.on("broadcast_in_dim")
def broadcast_without_unit_dimensions(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """Operand dimensions of size 1 say nothing: the operand loses them."""
    operand, shape = op.operands[0], hlo.shape(op.operands[0])
    kept = [d for d, size in enumerate(shape) if size != 1]
    if len(kept) == len(shape):
        return None
    dimensions = integers(op, "broadcast_dimensions")
    if hlo.shape(op.results[0]) == shape and dimensions == sorted(dimensions):
        return None
    squeezed = hlo.reshape(operand, [shape[d] for d in kept])
    return hlo.broadcast_in_dim(squeezed, hlo.shape(op.results[0]), [dimensions[d] for d in kept])


@RULES.on("broadcast_in_dim")
def broadcast_as_reshape(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """A broadcast that only adds dimensions of size 1 is a reshape."""
    operand, dimensions = op.operands[0], integers(op, "broadcast_dimensions")
    same = math.prod(hlo.shape(operand)) == math.prod(hlo.shape(op.results[0]))
    if not same or dimensions != sorted(dimensions) or splat(operand) is not None:
        return None
    return hlo.reshape(operand, hlo.shape(op.results[0]))


@RULES.on("convolution")
def terms_in_padding(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """The outer terms of a filter that meet padding alone go: of a window of three over an axis of
    length one, two (filters are taken to be finite)."""
    numbers = bindings.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    image, filters = op.operands
    rank = len(hlo.shape(image)) - 2
    pads = padding(op, rank)
    strides = optional_integers(op, "window_strides", rank, 1)
    dilations = optional_integers(op, "rhs_dilation", rank, 1)
    if optional_integers(op, "lhs_dilation", rank, 1) != [1] * rank or reverses_window(op):
        return None
    start, stop = [0] * (rank + 2), list(hlo.shape(filters))
    spatial = zip(
        numbers.input_spatial_dimensions,
        numbers.kernel_spatial_dimensions,
        numbers.output_spatial_dimensions,
        strict=True,
    )
    for axis, (of_image, of_filter, of_result) in enumerate(spatial):
        stride, dilation, (low, _) = strides[axis], dilations[axis], pads[axis]
        rows, size = hlo.shape(op.results[0])[of_result], hlo.shape(image)[of_image]
        inside = [
            term
            for term in range(stop[of_filter])
            if any(low <= row * stride + term * dilation < low + size for row in range(rows))
        ]
        if not inside:
            continue
        start[of_filter], stop[of_filter] = inside[0], inside[-1] + 1
        low -= inside[0] * dilation
        reach = (rows - 1) * stride + (inside[-1] - inside[0]) * dilation + 1
        pads[axis] = (low, reach - low - size)
    sizes = [b - a for a, b in zip(start, stop, strict=True)]
    if sizes == list(hlo.shape(filters)):
        return None
    kept = hlo.slice(filters, start, stop)
    return rebuild(op, [image, kept], hlo.shape(op.results[0]), {"padding": i64_pairs(pads)})


RULES.on("concatenate")(_pieces.nested_concatenate)
RULES.on("concatenate")(_pieces.neighbouring_slices)
RULES.on("transpose")(_pieces.transpose_of_stack)
RULES.on("slice")(_pieces.slice_of_concatenate)
RULES.on(*sorted(ELEMENTWISE))(_pieces.join_after_arithmetic)
RULES.on("slice")(_pieces.slice_chain)
RULES.on("slice")(_pieces.slice_of_reverse)


@RULES.on("reduce")
def reduce_of_unit_dimensions(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """A reduction over dimensions of size 1 from its neutral element is a reshape."""
    if len(op.operands) != 2:
        return None
    operand, init = op.operands
    body = [child.operation for child in op.regions[0].blocks[0].operations]
    combine = body[0].name.removeprefix("stablehlo.")
    shape, start = hlo.shape(operand), splat(init)
    if len(body) != 2 or combine not in hlo.COMBINERS or start is None:
        return None
    if start != hlo.identity(combine, hlo.dtype(operand)):
        return None
    if any(shape[d] != 1 for d in integers(op, "dimensions")):
        return None
    return hlo.reshape(operand, hlo.shape(op.results[0]))


@dataclass(frozen=True)
class SimplifyAlgebra(Pass):
    """Remove ops that compute nothing, and put others into their simplest form."""

    name: ClassVar[str] = "simplify-algebra"

    def run(self, op: ir.Operation, state: State) -> None:
        """Apply the rules until none matches."""
        RULES.apply(op, state.weights)
