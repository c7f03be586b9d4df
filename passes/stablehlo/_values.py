"""Questions about StableHLO values that several passes ask, and copies of ops with changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.errors import LoweringError
from stepwell.mlir import ir
from stepwell.mlir import stablehlo as bindings
from stepwell.weights import WeightTable

UNARY = frozenset(
    [
        "abs",
        "cbrt",
        "ceil",
        "convert",
        "cosine",
        "count_leading_zeros",
        "exponential",
        "exponential_minus_one",
        "floor",
        "is_finite",
        "log",
        "log_plus_one",
        "logistic",
        "negate",
        "not",
        "popcnt",
        "reduce_precision",
        "round_nearest_afz",
        "round_nearest_even",
        "rsqrt",
        "sign",
        "sine",
        "sqrt",
        "tan",
        "tanh",
    ]
)
"""Elementwise ops of one operand."""

BINARY = frozenset(
    [
        "add",
        "and",
        "atan2",
        "compare",
        "divide",
        "maximum",
        "minimum",
        "multiply",
        "or",
        "power",
        "remainder",
        "shift_left",
        "shift_right_arithmetic",
        "shift_right_logical",
        "subtract",
        "xor",
    ]
)
"""Elementwise ops of two operands of one shape."""

ELEMENTWISE = UNARY | BINARY | {"select", "clamp", "chlo.erf", "chlo.erfc"}
"""All elementwise ops; `select` and `clamp` also take scalars."""


def full_name(name: str) -> str:
    """The name of an op with its dialect, which is `stablehlo` where none is said."""
    return name if "." in name else f"stablehlo.{name}"


def producer(value: ir.Value, *names: str) -> ir.Operation | None:
    """The op that defines `value`, if it is one of `names`, of StableHLO unless they say so."""
    if not isinstance(value, ir.OpResult):
        return None
    op = value.owner.operation
    return op if op.name.removeprefix("stablehlo.") in names else None


def has_one_use(value: ir.Value) -> bool:
    """Whether exactly one operand anywhere is `value`."""
    uses = iter(value.uses)
    return next(uses, None) is not None and next(uses, None) is None


def integers(op: ir.Operation, attribute: str) -> list[int]:
    """An array attribute of `op` as integers."""
    return list(ir.DenseI64ArrayAttr(op.attributes[attribute]))


def optional_integers(op: ir.Operation, attribute: str, count: int, default: int) -> list[int]:
    """An array attribute of `op`, `default` repeated where it is left out."""
    return integers(op, attribute) if attribute in op.attributes else [default] * count


def padding(op: ir.Operation, rank: int) -> list[tuple[int, int]]:
    """The attribute `padding` of a window op, zeros where it is left out."""
    if "padding" not in op.attributes:
        return [(0, 0)] * rank
    pairs = np.array(ir.DenseElementsAttr(op.attributes["padding"])).reshape(-1, 2)
    return [(int(low), int(high)) for low, high in pairs]


def reverses_window(op: ir.Operation) -> bool:
    """Whether the convolution reads its kernel backwards in some dimension."""
    if "window_reversal" not in op.attributes:
        return False
    return "true" in str(op.attributes["window_reversal"])


def integer(op: ir.Operation, attribute: str, default: int | None = None) -> int:
    """An integer attribute of `op`, `default` where it is left out."""
    if default is not None and attribute not in op.attributes:
        return default
    return ir.IntegerAttr(op.attributes[attribute]).value


# --- Constants -----------------------------------------------------------------------------------


def constant_attribute(value: ir.Value) -> ir.Attribute | None:
    """The elements attribute of a `stablehlo.constant`."""
    op = producer(value, "constant")
    return None if op is None else op.attributes["value"]


def readable(attribute: ir.Attribute, weights: WeightTable) -> np.ndarray | None:
    """The data of an elements attribute, None where the bindings cannot read it: complex numbers,
    16-bit floats in the IR itself, resources of bytecode."""
    try:
        return weights.array(attribute)
    except (LoweringError, TypeError):
        return None


def constant_array(value: ir.Value, weights: WeightTable) -> np.ndarray | None:
    """The data of a constant, or of a broadcast or reshape of one, as a view where possible."""
    attribute = constant_attribute(value)
    if attribute is not None:
        return readable(attribute, weights)
    op = producer(value, "broadcast_in_dim", "reshape")
    if op is None:
        return None
    source = constant_array(op.operands[0], weights)
    if source is None:
        return None
    if op.name == "stablehlo.reshape":
        return source.reshape(hlo.shape(value)) if distinct(source) == source.size else None
    return broadcast_view(source, hlo.shape(value), integers(op, "broadcast_dimensions"))


def splat(value: ir.Value) -> bool | int | float | None:
    """The one number that fills `value`, seen through broadcasts, reshapes and transposes."""
    while (op := producer(value, "broadcast_in_dim", "reshape", "transpose", "slice")) is not None:
        value = op.operands[0]
    attribute = constant_attribute(value)
    if attribute is None or not isinstance(attribute, ir.DenseElementsAttr):
        return None
    if not attribute.is_splat:
        return None
    kind = hlo.element_type(value)
    if not isinstance(kind, (ir.FloatType, ir.IntegerType)):
        return None
    number = attribute.get_splat_value()
    if isinstance(kind, ir.FloatType):
        return ir.FloatAttr(number).value
    plain = ir.IntegerAttr(number).value
    return bool(plain) if kind.width == 1 else plain


def resource_name(value: ir.Value) -> str:
    """The name of the weight behind a constant, "weight" where it has none."""
    attribute = constant_attribute(value)
    if attribute is None or isinstance(attribute, ir.DenseElementsAttr):
        return "weight"
    return str(attribute).split("<", 1)[1].split(">", 1)[0].strip('"')


def broadcast_view(
    array: np.ndarray, shape: Sequence[int], dimensions: Sequence[int]
) -> np.ndarray:
    """`stablehlo.broadcast_in_dim` of `array` as a view."""
    order = np.argsort(np.array(dimensions, int), kind="stable")
    sizes = [1] * len(shape)
    for source, target in enumerate(dimensions):
        sizes[target] = array.shape[source]
    return np.broadcast_to(array.transpose(order).reshape(sizes), shape)


def distinct(array: np.ndarray) -> int:
    """How many elements of memory a view reads: repeated (stride 0) dimensions count once."""
    count = 1
    for size, stride in zip(array.shape, array.strides, strict=True):
        count *= size if stride else min(size, 1)
    return count


def compact(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """Views of same-shaped `arrays` with dimensions that all of them repeat cut to size 1."""
    rank = arrays[0].ndim
    cut = tuple(
        slice(0, 1) if all(a.strides[d] == 0 for a in arrays) else slice(None) for d in range(rank)
    )
    return tuple(a[cut] for a in arrays)


def broadcast_constant(
    array: np.ndarray, shape: Sequence[int], weights: WeightTable, name: str
) -> ir.Value:
    """A constant of `shape` from `array` of the same rank, whose size-1 dimensions are repeated."""
    if array.size == 1:
        return hlo.full(array.item(), shape, array.dtype)
    kept = [d for d, size in enumerate(array.shape) if size != 1]
    data = hlo.constant(array.reshape([array.shape[d] for d in kept]), weights, name)
    return data if len(kept) == len(shape) else hlo.broadcast_in_dim(data, shape, kept)


def padded_dimension(value: ir.Value, dimension: int, missing: int) -> ir.Value:
    """`value` with so many zeros more along one dimension."""
    if not missing:
        return value
    rank = len(hlo.shape(value))
    highs = [missing if axis == dimension else 0 for axis in range(rank)]
    return hlo.pad(value, hlo.full(0, [], hlo.dtype(value)), [0] * rank, highs)


def is_depthwise(op: ir.Operation) -> bool:
    """Whether each group of a convolution has one input channel."""
    if op.name != "stablehlo.convolution" or integer(op, "feature_group_count", 1) == 1:
        return False
    numbers = bindings.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    return hlo.shape(op.operands[1])[numbers.kernel_input_feature_dimension] == 1


# --- Copies --------------------------------------------------------------------------------------


def rebuild(
    op: ir.Operation,
    operands: Sequence[ir.Value],
    shape: Sequence[int],
    attributes: Mapping[str, ir.Attribute | None] | None = None,
) -> ir.Value:
    """A copy of one-result `op` with other operands, another result shape and other attributes
    (None removes one).

    It gets the current location, which a clone of the bindings could not.
    """
    names = [entry if isinstance(entry, str) else entry.name for entry in op.attributes]
    merged = {name: op.attributes[name] for name in names} | dict(attributes or {})
    element = hlo.element_type(op.results[0])
    copy = ir.Operation.create(
        op.name,
        [ir.RankedTensorType.get(list(shape), element)],
        list(operands),
        {name: attribute for name, attribute in merged.items() if attribute is not None},
        regions=len(op.regions),
    )
    if len(op.regions):
        spare = op.clone()
        for source, target in zip(spare.regions, copy.regions, strict=True):
            source.blocks[0].append_to(target)
        spare.erase()
    return copy.results[0]


def i64s(values: Sequence[int]) -> ir.Attribute:
    """An array attribute of 64-bit integers."""
    return ir.DenseI64ArrayAttr.get(list(values))


def i64_pairs(pairs: Sequence[tuple[int, int]]) -> ir.Attribute:
    """The attribute of window paddings: one pair a dimension."""
    return ir.DenseElementsAttr.get(np.array(pairs, np.int64).reshape(-1, 2))


def inverse(permutation: Sequence[int]) -> list[int]:
    """The permutation that undoes `permutation`."""
    result = [0] * len(permutation)
    for position, dimension in enumerate(permutation):
        result[dimension] = position
    return result
