"""StableHLO ops in numpy: a table from op name to a function of the op and its operands' data.

A function returns None where it declines: the case is undefined, or numpy's answer would differ
from the StableHLO specification. Arithmetic is done in the element type of the op.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from stepwell import dtypes
from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir
from stepwell.mlir import stablehlo as bindings
from stepwell.passes.stablehlo._values import (
    broadcast_view,
    compact,
    constant_attribute,
    integer,
    integers,
    readable,
)
from stepwell.weights import WeightTable

Arrays = Sequence[np.ndarray]
Evaluator = Callable[[ir.Operation, Arrays], np.ndarray | None]

MAX_DOT_PRODUCTS, MAX_FLOAT_DOT_PRODUCTS = 10_000_000, 10_000_000_000
"""Multiplications that a folded dot_general may cost; of matrices of floats, for which numpy is
fast."""

MAX_GATHERED_ELEMENTS = 1 << 22
"""Elements that a folded gather may copy."""

EVALUATORS: dict[str, Evaluator] = {}
"""The functions by full op name."""

ROUNDED = frozenset(
    f"stablehlo.{name}"
    for name in (
        "add", "atan2", "cbrt", "cosine", "divide", "dot_general", "exponential",
        "exponential_minus_one", "log", "log_plus_one", "logistic", "multiply", "power", "reduce",
        "rsqrt", "sine", "sqrt", "subtract", "tan", "tanh",
    )
)  # fmt: skip
"""Ops whose results in floats depend on how they are computed."""


def _evaluates(*names: str) -> Callable[[Evaluator], Evaluator]:
    def enter(function: Evaluator) -> Evaluator:
        EVALUATORS.update({f"stablehlo.{name}": function for name in names})
        return function

    return enter


# --- Elementwise ---------------------------------------------------------------------------------


def _logistic(x: np.ndarray) -> np.ndarray:
    one = x.dtype.type(1)
    return one / (one + np.exp(-x))


def _rsqrt(x: np.ndarray) -> np.ndarray:
    return x.dtype.type(1) / np.sqrt(x)


def _sign(x: np.ndarray) -> np.ndarray:
    return np.where(x == 0, x, np.sign(x))


def _round_half_away(x: np.ndarray) -> np.ndarray:
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(x.dtype.type(1), x), whole)


def _divide(x: np.ndarray, y: np.ndarray) -> np.ndarray | None:
    if _is_float(x):
        return x / y
    if not y.all():
        return None
    quotient = x // y
    return quotient + ((x % y != 0) & ((x < 0) != (y < 0))) if x.dtype.kind == "i" else quotient


def _remainder(x: np.ndarray, y: np.ndarray) -> np.ndarray | None:
    return np.fmod(x, y) if _is_float(x) or y.all() else None


def _power(x: np.ndarray, y: np.ndarray) -> np.ndarray | None:
    return np.power(x, y) if _is_float(x) or (y >= 0).all() else None


def _shift(function: Callable[[np.ndarray, np.ndarray], np.ndarray], unsigned: bool) -> Callable:
    def shift(x: np.ndarray, y: np.ndarray) -> np.ndarray | None:
        if (y < 0).any() or (y >= x.dtype.itemsize * 8).any():
            return None
        if not unsigned:
            return function(x, y)
        raw = np.dtype(f"u{x.dtype.itemsize}")
        return function(x.astype(raw), y.astype(raw)).astype(x.dtype)

    return shift


def _is_float(x: np.ndarray) -> bool:
    return x.dtype.kind in "fV"


_FUNCTIONS: dict[str, Callable[..., np.ndarray | None]] = {
    "abs": np.abs,
    "add": np.add,
    "and": np.bitwise_and,
    "atan2": np.arctan2,
    "cbrt": np.cbrt,
    "ceil": np.ceil,
    "clamp": lambda low, x, high: np.minimum(np.maximum(low, x), high),
    "cosine": np.cos,
    "divide": _divide,
    "exponential": np.exp,
    "exponential_minus_one": np.expm1,
    "floor": np.floor,
    "is_finite": np.isfinite,
    "log": np.log,
    "log_plus_one": np.log1p,
    "logistic": _logistic,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "negate": lambda x: None if x.dtype.kind == "b" else np.negative(x),
    "not": np.invert,
    "or": np.bitwise_or,
    "popcnt": lambda x: np.bitwise_count(x.view(f"u{x.dtype.itemsize}")),
    "power": _power,
    "remainder": _remainder,
    "round_nearest_afz": _round_half_away,
    "round_nearest_even": np.rint,
    "rsqrt": _rsqrt,
    "select": np.where,
    "shift_left": _shift(np.left_shift, unsigned=False),
    "shift_right_arithmetic": _shift(np.right_shift, unsigned=False),
    "shift_right_logical": _shift(np.right_shift, unsigned=True),
    "sign": _sign,
    "sine": np.sin,
    "sqrt": np.sqrt,
    "subtract": lambda x, y: None if x.dtype.kind == "b" else np.subtract(x, y),
    "tan": np.tan,
    "tanh": np.tanh,
    "xor": np.bitwise_xor,
}


def _elementwise(
    function: Callable[..., np.ndarray | None], op: ir.Operation, arrays: Arrays
) -> np.ndarray | None:
    """Apply `function` to what is distinct in `arrays` (scalars among them are broadcast)."""
    shape = hlo.shape(op.results[0])
    parts = compact(*(np.broadcast_to(array, shape) for array in arrays))
    result = function(*parts)
    return None if result is None else np.broadcast_to(result, shape)


def _enter_functions() -> None:
    def evaluator(function: Callable[..., np.ndarray | None]) -> Evaluator:
        return lambda op, arrays: _elementwise(function, op, arrays)

    for name, function in _FUNCTIONS.items():
        EVALUATORS[f"stablehlo.{name}"] = evaluator(function)


_enter_functions()


@_evaluates("compare")
def _compare(op: ir.Operation, arrays: Arrays) -> np.ndarray | None:
    kind = str(op.attributes["compare_type"]) if "compare_type" in op.attributes else ""
    if "TOTALORDER" in kind:
        return None
    functions = {
        "EQ": np.equal,
        "NE": np.not_equal,
        "LT": np.less,
        "LE": np.less_equal,
        "GT": np.greater,
        "GE": np.greater_equal,
    }
    direction = bindings.ComparisonDirectionAttr(op.attributes["comparison_direction"]).value
    return _elementwise(functions[direction], op, arrays)


@_evaluates("convert")
def _convert(op: ir.Operation, arrays: Arrays) -> np.ndarray | None:
    target = hlo.dtype(op.results[0])

    def convert(x: np.ndarray) -> np.ndarray | None:
        if target.kind == "b":
            return x != 0
        if _is_float(x) and target.kind in "iu":
            limits, wide = np.iinfo(target), x.astype(np.float64)
            # Out of range, the specification leaves the result to the implementation.
            if not ((wide > limits.min - 1.0) & (wide < limits.max + 1.0)).all():
                return None
        return x.astype(target)

    return _elementwise(convert, op, arrays)


@_evaluates("bitcast_convert")
def _bitcast_convert(op: ir.Operation, arrays: Arrays) -> np.ndarray | None:
    target = hlo.dtype(op.results[0])
    if target.itemsize != arrays[0].dtype.itemsize or "b" in (target.kind, arrays[0].dtype.kind):
        return None
    if dtypes.is_small(target):
        return None  # what a product takes as codes stays codes
    return np.ascontiguousarray(arrays[0]).view(target).reshape(hlo.shape(op.results[0]))


# --- Shapes and data movement --------------------------------------------------------------------


@_evaluates("reshape")
def _reshape(op: ir.Operation, arrays: Arrays) -> np.ndarray:
    return arrays[0].reshape(hlo.shape(op.results[0]))


@_evaluates("transpose")
def _transpose(op: ir.Operation, arrays: Arrays) -> np.ndarray:
    return arrays[0].transpose(integers(op, "permutation"))


@_evaluates("broadcast_in_dim")
def _broadcast_in_dim(op: ir.Operation, arrays: Arrays) -> np.ndarray:
    shape = hlo.shape(op.results[0])
    return broadcast_view(arrays[0], shape, integers(op, "broadcast_dimensions"))


@_evaluates("iota")
def _iota(op: ir.Operation, arrays: Arrays) -> np.ndarray:
    del arrays
    shape, dimension = hlo.shape(op.results[0]), integer(op, "iota_dimension")
    numbers = np.arange(shape[dimension]).astype(hlo.dtype(op.results[0]))
    return broadcast_view(numbers, shape, [dimension])


@_evaluates("slice")
def _slice(op: ir.Operation, arrays: Arrays) -> np.ndarray:
    bounds = (integers(op, name) for name in ("start_indices", "limit_indices", "strides"))
    return arrays[0][tuple(slice(*bound) for bound in zip(*bounds, strict=True))]


@_evaluates("dynamic_slice")
def _dynamic_slice(op: ir.Operation, arrays: Arrays) -> np.ndarray:
    return _window(arrays[0], [int(a) for a in arrays[1:]], integers(op, "slice_sizes"))


def _window(array: np.ndarray, start: Sequence[int], sizes: Sequence[int]) -> np.ndarray:
    """The window of `sizes` at `start`, clamped into bounds."""
    begin = [min(max(s, 0), a - n) for s, a, n in zip(start, array.shape, sizes, strict=True)]
    return array[tuple(slice(b, b + n) for b, n in zip(begin, sizes, strict=True))]


@_evaluates("dynamic_update_slice")
def _dynamic_update_slice(op: ir.Operation, arrays: Arrays) -> np.ndarray:
    result = arrays[0].copy()
    _window(result, [int(a) for a in arrays[2:]], arrays[1].shape)[...] = arrays[1]
    return result


@_evaluates("concatenate")
def _concatenate(op: ir.Operation, arrays: Arrays) -> np.ndarray:
    return np.concatenate(arrays, axis=integer(op, "dimension"))


@_evaluates("reverse")
def _reverse(op: ir.Operation, arrays: Arrays) -> np.ndarray:
    return np.flip(arrays[0], tuple(integers(op, "dimensions")))


@_evaluates("pad")
def _pad(op: ir.Operation, arrays: Arrays) -> np.ndarray:
    operand, value = arrays
    result = np.full(hlo.shape(op.results[0]), value.item(), operand.dtype)
    low, interior = integers(op, "edge_padding_low"), integers(op, "interior_padding")
    source, target = [], []
    for d, size in enumerate(operand.shape):
        # Element i of the operand goes to low + i * (interior + 1), where that is in bounds.
        step, extent = interior[d] + 1, result.shape[d]
        first = max(0, -(low[d] // step)) if low[d] < 0 else 0
        last = min(size, (extent - 1 - low[d]) // step + 1) if extent > low[d] else 0
        last = max(last, first)
        source.append(slice(first, last))
        target.append(slice(low[d] + first * step, low[d] + last * step - step + 1, step))
    if all(part.stop > part.start for part in source):
        result[tuple(target)] = operand[tuple(source)]
    return result


@_evaluates("gather")
def _gather(op: ir.Operation, arrays: Arrays) -> np.ndarray | None:
    operand, indices = arrays
    numbers = bindings.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    sizes = integers(op, "slice_sizes")
    if numbers.index_vector_dim == indices.ndim:
        indices = indices[..., None]
    else:
        indices = np.moveaxis(indices, numbers.index_vector_dim, -1)
    if indices.dtype == np.uint64:
        indices = np.minimum(indices, np.iinfo(np.int64).max)
    indices = indices.astype(np.int64)
    batch = indices.shape[:-1]
    if math.prod(hlo.shape(op.results[0])) > MAX_GATHERED_ELEMENTS:
        return None
    dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    kept = [d for d in range(operand.ndim) if d not in dropped]
    vector_dim = numbers.index_vector_dim
    begin: dict[int, np.ndarray] = {
        d: indices[..., number] for number, d in enumerate(numbers.start_index_map)
    }
    for d, source in zip(
        numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True
    ):
        along = source - (source > vector_dim)
        shape = [-1 if axis == along else 1 for axis in range(len(batch))]
        begin[d] = np.arange(batch[along]).reshape(shape)
    places = []
    for d, (length, size) in enumerate(zip(operand.shape, sizes, strict=True)):
        place = np.clip(begin.get(d, np.asarray(0)), 0, length - size)
        place = place.reshape(*(place.shape or (1,) * len(batch)), *(1 for _ in kept))
        if d in kept:
            place = place + np.arange(size).reshape([-1 if e == d else 1 for e in kept])
        places.append(place)
    result = np.broadcast_to(operand[tuple(places)], (*batch, *(sizes[d] for d in kept)))
    return np.moveaxis(result, range(len(batch), result.ndim), list(numbers.offset_dims))


# --- Reductions and contractions -----------------------------------------------------------------

_REDUCTIONS: dict[str, np.ufunc] = {
    "stablehlo.add": np.add,
    "stablehlo.and": np.bitwise_and,
    "stablehlo.maximum": np.maximum,
    "stablehlo.minimum": np.minimum,
    "stablehlo.multiply": np.multiply,
    "stablehlo.or": np.bitwise_or,
}


@_evaluates("reduce")
def _reduce(op: ir.Operation, arrays: Arrays) -> np.ndarray | None:
    if len(arrays) != 2:
        return None
    body = [child.operation for child in op.regions[0].blocks[0].operations]
    function = _REDUCTIONS.get(body[0].name)
    if function is None or len(body) != 2:
        return None
    dtype = arrays[0].dtype
    partial = function.reduce(arrays[0], axis=tuple(integers(op, "dimensions")), dtype=dtype)
    return np.asarray(function(partial, arrays[1]))


@_evaluates("dot_general")
def _dot_general(op: ir.Operation, arrays: Arrays) -> np.ndarray | None:
    numbers = bindings.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    lhs, rhs = arrays
    size = math.prod(hlo.shape(op.results[0]))
    contracted = math.prod(lhs.shape[d] for d in numbers.lhs_contracting_dimensions)
    dtype = hlo.dtype(op.results[0])
    fast = dtype.kind == "f" and not len(numbers.lhs_batching_dimensions)
    if size * contracted > (MAX_FLOAT_DOT_PRODUCTS if fast else MAX_DOT_PRODUCTS):
        return None
    if size * contracted > MAX_DOT_PRODUCTS and size > lhs.size + rhs.size:
        return None  # it would grow
    left, right = list(range(lhs.ndim)), list(range(lhs.ndim, lhs.ndim + rhs.ndim))
    for pairs in (
        zip(numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions, strict=True),
        zip(numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions, strict=True),
    ):
        for i, j in pairs:
            right[j] = left[i]
    batch = [left[d] for d in numbers.lhs_batching_dimensions]
    summed = {left[d] for d in numbers.lhs_contracting_dimensions} | set(batch)
    result = batch + [d for d in (*left, *right) if d not in summed]
    is_half = dtype.itemsize == 2 and dtype.kind in "fV"
    wide: np.dtype = np.dtype(np.float32) if is_half else dtype
    product = np.einsum(lhs.astype(wide), left, rhs.astype(wide), right, result, optimize=True)
    return product.astype(dtype)


def known_array(value: ir.Value, weights: WeightTable) -> np.ndarray | None:
    """The data of something that is made of constants; a view where numbers repeat."""
    attribute = constant_attribute(value)
    if attribute is not None:
        return readable(attribute, weights)
    if not isinstance(value, ir.OpResult):
        return None
    op = value.owner.operation
    evaluate = EVALUATORS.get(op.name)
    if evaluate is None or not len(op.operands) or len(op.results) != 1:
        return None
    operands = [known_array(operand, weights) for operand in op.operands]
    known = [array for array in operands if array is not None]
    return evaluate(op, known) if len(known) == len(operands) else None


def is_constant(value: ir.Value) -> bool:
    """Whether `value` is computed from constants alone: weights, also those that are moved or
    quantised on the way."""
    waiting, seen = [value], {value}
    while waiting:
        value = waiting.pop()
        op = value.owner.operation if isinstance(value, ir.OpResult) else None
        if op is None or op.name not in ("stablehlo.constant", *EVALUATORS):
            return False
        read = [operand for operand in op.operands if operand not in seen]
        seen.update(read)
        waiting += read
    return True
