"""Builders of StableHLO operations (and `chlo.erf`): one function an op, result types inferred.

Every function creates its op at the current insertion point with the current location, and returns
the result value. Operands are ranked tensors of static shape. A type error found while an op is
built is raised as `ir.MLIRError`. The operations are those of the StableHLO specification
(https://openxla.org/stablehlo/spec), under the same names.

    with ir.InsertionPoint(block), ir.Location.name("Relu_3"):
        zero = hlo.full(0.0, hlo.shape(x), np.float32)
        y = hlo.maximum(x, zero)
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stepwell import dtypes
from stepwell.attributes import i64
from stepwell.mlir import ir
from stepwell.mlir import stablehlo as bindings
from stepwell.weights import WeightTable

Ints = Sequence[int]
"""Dimension numbers, sizes or strides, one integer a dimension."""

Padding = Sequence[tuple[int, int]]
"""Low and high padding, one pair a dimension."""


# --- Types and attributes ------------------------------------------------------------------------


def tensor_type(value: ir.Value) -> ir.RankedTensorType:
    """The tensor type of `value`."""
    return ir.RankedTensorType(value.type)


def shape(value: ir.Value) -> tuple[int, ...]:
    """The static shape of `value`."""
    return tuple(tensor_type(value).shape)


def element_type(value: ir.Value) -> ir.Type:
    """The element type of `value`."""
    return tensor_type(value).element_type


def dtype(value: ir.Value) -> np.dtype:
    """The numpy dtype of the elements of `value`."""
    return dtypes.to_numpy(element_type(value))


def _tensor(dimensions: Ints, element: ir.Type) -> ir.RankedTensorType:
    return ir.RankedTensorType.get(list(dimensions), element)


def _i64s(values: Ints) -> ir.Attribute:
    return ir.DenseI64ArrayAttr.get([int(v) for v in values])


def _pairs(padding: Padding) -> ir.Attribute:
    if not padding:
        return ir.Attribute.parse("dense<> : tensor<0x2xi64>")
    return ir.DenseElementsAttr.get(np.array(padding, np.int64).reshape(-1, 2))


def _create(
    name: str,
    operands: Sequence[ir.Value],
    attributes: dict[str, ir.Attribute] | None = None,
    result: ir.Type | None = None,
) -> ir.Value:
    """Build one op; `result` is its type, None where the op infers it itself."""
    operation = ir.Operation.create(
        name,
        results=None if result is None else [result],
        operands=list(operands),
        attributes=attributes or {},
        infer_type=result is None,
    )
    return operation.results[0]


# --- Constants -----------------------------------------------------------------------------------


def constant(array: np.ndarray, weights: WeightTable, name: str = "constant") -> ir.Value:
    """`stablehlo.constant` of `array`; a large one becomes a resource entered in `weights`."""
    return constant_of(weights.attribute(array, name))


def constant_of(attribute: ir.Attribute) -> ir.Value:
    """`stablehlo.constant` of an elements attribute."""
    return _create("stablehlo.constant", [], {"value": attribute})


def full(value: bool | int | float, dimensions: Ints, kind: np.dtype | type) -> ir.Value:
    """A constant of `dimensions`, every element `value`, of numpy dtype `kind`."""
    # The bindings take signed numbers of 64 bits, of which unsigned ones have the bits.
    element = dtypes.to_mlir(kind)
    scalar = (
        ir.IntegerAttr.get(element, int(value) - (1 << 64) * (int(value) >= 1 << 63))
        if isinstance(element, ir.IntegerType)
        else ir.FloatAttr.get(element, float(value))
    )
    return constant_of(ir.DenseElementsAttr.get_splat(_tensor(dimensions, element), scalar))


def full_like(operand: ir.Value, value: bool | int | float) -> ir.Value:
    """A constant of the type of `operand`, every element `value`."""
    return full(value, shape(operand), dtype(operand))


def iota(dimensions: Ints, dimension: int, kind: np.dtype | type) -> ir.Value:
    """0, 1, 2, ... along `dimension`."""
    attributes = {"iota_dimension": i64(dimension)}
    return _create("stablehlo.iota", [], attributes, _tensor(dimensions, dtypes.to_mlir(kind)))


# --- Elementwise ---------------------------------------------------------------------------------


def unary(name: str, operand: ir.Value) -> ir.Value:
    """Elementwise op `stablehlo.<name>` of one operand."""
    return _create(f"stablehlo.{name}", [operand])


def binary(name: str, lhs: ir.Value, rhs: ir.Value) -> ir.Value:
    """Elementwise op `stablehlo.<name>` of two operands of one type."""
    return _create(f"stablehlo.{name}", [lhs, rhs])


def _unary(name: str) -> Callable[[ir.Value], ir.Value]:
    def build(operand: ir.Value) -> ir.Value:
        return unary(name, operand)

    build.__doc__ = f"`stablehlo.{name}`, elementwise."
    build.__name__ = name
    return build


def _binary(name: str) -> Callable[[ir.Value, ir.Value], ir.Value]:
    def build(lhs: ir.Value, rhs: ir.Value) -> ir.Value:
        return binary(name, lhs, rhs)

    build.__doc__ = f"`stablehlo.{name}`, elementwise on operands of one type."
    build.__name__ = name
    return build


abs = _unary("abs")
cbrt = _unary("cbrt")
ceil = _unary("ceil")
cosine = _unary("cosine")
count_leading_zeros = _unary("count_leading_zeros")
exponential = _unary("exponential")
exponential_minus_one = _unary("exponential_minus_one")
floor = _unary("floor")
is_finite = _unary("is_finite")
log = _unary("log")
log_plus_one = _unary("log_plus_one")
logistic = _unary("logistic")
negate = _unary("negate")
not_ = _unary("not")
popcnt = _unary("popcnt")
round_nearest_afz = _unary("round_nearest_afz")
round_nearest_even = _unary("round_nearest_even")
rsqrt = _unary("rsqrt")
sign = _unary("sign")
sine = _unary("sine")
sqrt = _unary("sqrt")
tan = _unary("tan")
tanh = _unary("tanh")

add = _binary("add")
and_ = _binary("and")
atan2 = _binary("atan2")
divide = _binary("divide")
maximum = _binary("maximum")
minimum = _binary("minimum")
multiply = _binary("multiply")
or_ = _binary("or")
power = _binary("power")
remainder = _binary("remainder")
shift_left = _binary("shift_left")
shift_right_arithmetic = _binary("shift_right_arithmetic")
shift_right_logical = _binary("shift_right_logical")
subtract = _binary("subtract")
xor = _binary("xor")


def erf(operand: ir.Value) -> ir.Value:
    """`chlo.erf`, the error function, elementwise."""
    return _create("chlo.erf", [operand], None, operand.type)


def compare(lhs: ir.Value, rhs: ir.Value, direction: str) -> ir.Value:
    """Elementwise comparison; `direction` is EQ, NE, LT, LE, GT or GE. The result is of i1."""
    kind = {"f": "FLOAT", "V": "FLOAT", "i": "SIGNED"}.get(dtype(lhs).kind, "UNSIGNED")
    attributes = {
        "comparison_direction": bindings.ComparisonDirectionAttr.get(direction),
        "compare_type": bindings.ComparisonTypeAttr.get(kind),
    }
    return _create("stablehlo.compare", [lhs, rhs], attributes)


def compare_in_order(lhs: ir.Value, rhs: ir.Value, direction: str) -> ir.Value:
    """`compare` for sorting: floats have one NaN, which is the largest, and one zero."""
    if dtype(lhs).kind not in "fV":
        return compare(lhs, rhs, direction)
    attributes = {
        "comparison_direction": bindings.ComparisonDirectionAttr.get(direction),
        "compare_type": bindings.ComparisonTypeAttr.get("TOTALORDER"),
    }
    return _create("stablehlo.compare", [_in_order(lhs), _in_order(rhs)], attributes)


def _in_order(value: ir.Value) -> ir.Value:
    zero, nan = full_like(value, 0), full_like(value, math.nan)
    number = select(compare(value, zero, "EQ"), zero, value)
    return select(compare(value, value, "NE"), nan, number)


def select(predicate: ir.Value, on_true: ir.Value, on_false: ir.Value) -> ir.Value:
    """Elementwise choice; `predicate` is of i1, of the operands' shape or a scalar."""
    return _create("stablehlo.select", [predicate, on_true, on_false])


def clamp(low: ir.Value, operand: ir.Value, high: ir.Value) -> ir.Value:
    """`operand` limited to [low, high]; the limits have its shape or are scalars."""
    return _create("stablehlo.clamp", [low, operand, high])


def convert(operand: ir.Value, kind: np.dtype | type) -> ir.Value:
    """`operand` in another element type; `operand` itself when it already has it."""
    element = dtypes.to_mlir(kind)
    if element == element_type(operand):
        return operand
    return _create("stablehlo.convert", [operand], None, _tensor(shape(operand), element))


def bitcast_convert(
    operand: ir.Value, kind: np.dtype | type, dimensions: Ints | None = None
) -> ir.Value:
    """The bits of `operand` read as another element type: of the same width, or of a wider or
    narrower one, whose tensor of shape `dimensions` lacks the last dimension or has one more."""
    result = _tensor(shape(operand) if dimensions is None else dimensions, dtypes.to_mlir(kind))
    return _create("stablehlo.bitcast_convert", [operand], None, result)


# --- Shapes and data movement --------------------------------------------------------------------


def reshape(operand: ir.Value, dimensions: Ints) -> ir.Value:
    """`operand` with the same elements in another shape; itself when the shape is the same."""
    if tuple(dimensions) == shape(operand):
        return operand
    result = _tensor(dimensions, element_type(operand))
    return _create("stablehlo.reshape", [operand], None, result)


def broadcast_in_dim(operand: ir.Value, dimensions: Ints, operand_dimensions: Ints) -> ir.Value:
    """`operand` repeated to shape `dimensions`; its dimension d becomes `operand_dimensions[d]`."""
    attributes = {"broadcast_dimensions": _i64s(operand_dimensions)}
    result = _tensor(dimensions, element_type(operand))
    return _create("stablehlo.broadcast_in_dim", [operand], attributes, result)


def transpose(operand: ir.Value, permutation: Ints) -> ir.Value:
    """Result dimension d is dimension `permutation[d]` of `operand`."""
    if list(permutation) == list(range(len(permutation))):
        return operand
    return _create("stablehlo.transpose", [operand], {"permutation": _i64s(permutation)})


def concatenate(operands: Sequence[ir.Value], dimension: int) -> ir.Value:
    """`operands` one after another along `dimension`."""
    return _create("stablehlo.concatenate", operands, {"dimension": i64(dimension)})


def slice(operand: ir.Value, start: Ints, limit: Ints, strides: Ints | None = None) -> ir.Value:
    """Elements `start` to `limit` (exclusive) by positive `strides`, in every dimension."""
    attributes = {
        "start_indices": _i64s(start),
        "limit_indices": _i64s(limit),
        "strides": _i64s(strides if strides is not None else [1] * len(start)),
    }
    return _create("stablehlo.slice", [operand], attributes)


def dynamic_slice(operand: ir.Value, start: Sequence[ir.Value], sizes: Ints) -> ir.Value:
    """A window of `sizes` that begins at the scalars `start`, clamped into bounds."""
    return _create("stablehlo.dynamic_slice", [operand, *start], {"slice_sizes": _i64s(sizes)})


def dynamic_update_slice(
    operand: ir.Value, update: ir.Value, start: Sequence[ir.Value]
) -> ir.Value:
    """`operand` with the window that begins at the scalars `start` replaced by `update`."""
    return _create("stablehlo.dynamic_update_slice", [operand, update, *start])


def pad(
    operand: ir.Value, value: ir.Value, low: Ints, high: Ints, interior: Ints | None = None
) -> ir.Value:
    """`operand` with scalar `value` before, after and between its elements; negatives crop."""
    attributes = {
        "edge_padding_low": _i64s(low),
        "edge_padding_high": _i64s(high),
        "interior_padding": _i64s(interior if interior is not None else [0] * len(low)),
    }
    return _create("stablehlo.pad", [operand, value], attributes)


def reverse(operand: ir.Value, dimensions: Ints) -> ir.Value:
    """`operand` read backwards along `dimensions`."""
    return _create("stablehlo.reverse", [operand], {"dimensions": _i64s(dimensions)})


def fft(operand: ir.Value, kind: str, length: int) -> ir.Value:
    """The transform of the last dimension: FFT, IFFT, RFFT or IRFFT, of `length` elements on the
    real side."""
    attributes = {
        "fft_type": ir.Attribute.parse(f"#stablehlo<fft_type {kind}>"),
        "fft_length": _i64s([length]),
    }
    return _create("stablehlo.fft", [operand], attributes)


@dataclass(frozen=True)
class GatherDimensions:
    """Dimension numbers of `stablehlo.gather`, named as in the specification."""

    offset_dims: Ints
    collapsed_slice_dims: Ints
    start_index_map: Ints
    index_vector_dim: int
    operand_batching_dims: Ints = ()
    start_indices_batching_dims: Ints = ()


def gather(
    operand: ir.Value, start_indices: ir.Value, dimensions: GatherDimensions, slice_sizes: Ints
) -> ir.Value:
    """Slices of `operand` of `slice_sizes` at `start_indices` (clamped into bounds)."""
    attributes = {
        "dimension_numbers": bindings.GatherDimensionNumbers.get(
            list(dimensions.offset_dims),
            list(dimensions.collapsed_slice_dims),
            list(dimensions.operand_batching_dims),
            list(dimensions.start_indices_batching_dims),
            list(dimensions.start_index_map),
            dimensions.index_vector_dim,
        ),
        "slice_sizes": _i64s(slice_sizes),
        "indices_are_sorted": ir.BoolAttr.get(False),
    }
    return _create("stablehlo.gather", [operand, start_indices], attributes)


@dataclass(frozen=True)
class ScatterDimensions:
    """Dimension numbers of `stablehlo.scatter`, named as in the specification."""

    update_window_dims: Ints
    inserted_window_dims: Ints
    scattered_dims_to_operand_dims: Ints
    index_vector_dim: int
    input_batching_dims: Ints = ()
    scatter_indices_batching_dims: Ints = ()


def scatter(
    operand: ir.Value,
    indices: ir.Value,
    updates: ir.Value,
    dimensions: ScatterDimensions,
    combine: str | None = None,
) -> ir.Value:
    """`operand` with `updates` written at `indices`, or combined by binary op `combine`."""
    attributes = {
        "scatter_dimension_numbers": bindings.ScatterDimensionNumbers.get(
            list(dimensions.update_window_dims),
            list(dimensions.inserted_window_dims),
            list(dimensions.input_batching_dims),
            list(dimensions.scatter_indices_batching_dims),
            list(dimensions.scattered_dims_to_operand_dims),
            dimensions.index_vector_dim,
        ),
        "indices_are_sorted": ir.BoolAttr.get(False),
        "unique_indices": ir.BoolAttr.get(False),
    }
    operation = ir.Operation.create(
        "stablehlo.scatter", [operand.type], [operand, indices, updates], attributes, regions=1
    )
    _scalar_body(operation, element_type(operand), combine)
    return operation.results[0]


def sort(
    operands: Sequence[ir.Value], dimension: int, direction: str, stable: bool = True
) -> list[ir.Value]:
    """All `operands` reordered along `dimension`; the first is sorted by `direction`, LT or GT,
    with NaN as the largest."""
    operation = ir.Operation.create(
        "stablehlo.sort",
        [o.type for o in operands],
        list(operands),
        {"dimension": i64(dimension), "is_stable": ir.BoolAttr.get(stable)},
        regions=1,
    )
    scalars = [_tensor([], element_type(o)) for o in operands for _ in range(2)]
    block = operation.regions[0].blocks.append(*scalars)
    with ir.InsertionPoint(block):
        _return(compare_in_order(block.arguments[0], block.arguments[1], direction))
    return list(operation.results)


# --- Contraction ---------------------------------------------------------------------------------


def dot_general(
    lhs: ir.Value,
    rhs: ir.Value,
    contracting: tuple[Ints, Ints],
    batching: tuple[Ints, Ints] = ((), ()),
    kind: np.dtype | type | None = None,
) -> ir.Value:
    """Products summed over the `contracting` dimensions, for each index of the `batching` ones.

    The result's dimensions are: batching, then those left of `lhs`, then those left of `rhs`; its
    element type is `kind`, by default that of `lhs`.
    """
    left, right = shape(lhs), shape(rhs)
    dimensions = [left[d] for d in batching[0]]
    dimensions += [n for d, n in enumerate(left) if d not in (*contracting[0], *batching[0])]
    dimensions += [n for d, n in enumerate(right) if d not in (*contracting[1], *batching[1])]
    attributes = {
        "dot_dimension_numbers": bindings.DotDimensionNumbers.get(
            list(batching[0]), list(batching[1]), list(contracting[0]), list(contracting[1])
        )
    }
    element = element_type(lhs) if kind is None else dtypes.to_mlir(kind)
    return _create("stablehlo.dot_general", [lhs, rhs], attributes, _tensor(dimensions, element))


@dataclass(frozen=True)
class ConvolutionDimensions:
    """Where batch, feature and spatial dimensions stand in the input, the kernel and the output."""

    input_batch: int
    input_feature: int
    input_spatial: Ints
    kernel_input_feature: int
    kernel_output_feature: int
    kernel_spatial: Ints
    output_batch: int
    output_feature: int
    output_spatial: Ints

    @staticmethod
    def nchw(spatial_rank: int) -> ConvolutionDimensions:
        """Input and output [N, C, spatial...], kernel [O, I, spatial...]: the layout of ONNX."""
        spatial = range(2, 2 + spatial_rank)
        return ConvolutionDimensions(0, 1, spatial, 1, 0, spatial, 0, 1, spatial)


def convolution(
    lhs: ir.Value,
    rhs: ir.Value,
    dimensions: ConvolutionDimensions,
    *,
    strides: Ints,
    padding: Padding,
    lhs_dilation: Ints | None = None,
    rhs_dilation: Ints | None = None,
    feature_groups: int = 1,
    batch_groups: int = 1,
    kind: np.dtype | type | None = None,
) -> ir.Value:
    """Convolution of input `lhs` with kernel `rhs`; one entry of each option a spatial dimension.

    The result's element type is `kind`, by default that of `lhs`.
    """
    rank = len(strides)
    lhs_dilation = lhs_dilation if lhs_dilation is not None else [1] * rank
    rhs_dilation = rhs_dilation if rhs_dilation is not None else [1] * rank
    inputs, kernel = shape(lhs), shape(rhs)
    result = [0] * (rank + 2)
    result[dimensions.output_batch] = inputs[dimensions.input_batch] // batch_groups
    result[dimensions.output_feature] = kernel[dimensions.kernel_output_feature]
    for i, (low, high) in enumerate(padding):
        size = _dilated(inputs[dimensions.input_spatial[i]], lhs_dilation[i]) + low + high
        window = _dilated(kernel[dimensions.kernel_spatial[i]], rhs_dilation[i])
        result[dimensions.output_spatial[i]] = window_count(size, window, strides[i])
    attributes = {
        "window_strides": _i64s(strides),
        "padding": _pairs(padding),
        "lhs_dilation": _i64s(lhs_dilation),
        "rhs_dilation": _i64s(rhs_dilation),
        "dimension_numbers": bindings.ConvDimensionNumbers.get(
            dimensions.input_batch,
            dimensions.input_feature,
            list(dimensions.input_spatial),
            dimensions.kernel_input_feature,
            dimensions.kernel_output_feature,
            list(dimensions.kernel_spatial),
            dimensions.output_batch,
            dimensions.output_feature,
            list(dimensions.output_spatial),
        ),
        "feature_group_count": i64(feature_groups),
        "batch_group_count": i64(batch_groups),
    }
    element = element_type(lhs) if kind is None else dtypes.to_mlir(kind)
    return _create("stablehlo.convolution", [lhs, rhs], attributes, _tensor(result, element))


def window_count(size: int, window: int, stride: int) -> int:
    """How many windows of `window` elements fit into `size` elements at `stride`."""
    return 0 if size < window else (size - window) // stride + 1


def _dilated(size: int, dilation: int) -> int:
    return 0 if size == 0 else (size - 1) * dilation + 1


# --- Reductions ----------------------------------------------------------------------------------

COMBINERS = ("add", "multiply", "maximum", "minimum", "and", "or", "xor")
"""The operations that reductions by one operation know an identity of."""


def identity(combine: str, kind: np.dtype) -> bool | int | float:
    """The number that changes nothing when it takes part in a reduction by one of `COMBINERS`."""
    if combine in ("maximum", "minimum"):
        highest = combine == "minimum"
        if kind.kind in "fV":
            return float("inf") if highest else float("-inf")
        if kind.kind == "b":
            return highest
        limits = np.iinfo(kind)
        return int(limits.max if highest else limits.min)
    if combine == "and":
        return True if kind.kind == "b" else int(np.array(-1).astype(kind))
    return {"add": 0, "or": 0, "xor": 0, "multiply": 1}[combine]


def reduce(operand: ir.Value, init: ir.Value, dimensions: Ints, combine: str) -> ir.Value:
    """`operand` reduced over `dimensions` by binary op `combine` ("add", "maximum", ...).

    `init` is a scalar of the same element type; the reduced dimensions are dropped.
    """
    element = element_type(operand)
    kept = [n for d, n in enumerate(shape(operand)) if d not in tuple(dimensions)]
    operation = ir.Operation.create(
        "stablehlo.reduce",
        [_tensor(kept, element)],
        [operand, init],
        {"dimensions": _i64s(dimensions)},
        regions=1,
    )
    _scalar_body(operation, element, combine)
    return operation.results[0]


def reduce_window(
    operand: ir.Value,
    init: ir.Value,
    combine: str,
    *,
    window: Ints,
    strides: Ints,
    padding: Padding,
    base_dilations: Ints | None = None,
    window_dilations: Ints | None = None,
) -> ir.Value:
    """Sliding windows of `operand` reduced by `combine`; one entry of each option a dimension."""
    rank = len(window)
    base_dilations = base_dilations if base_dilations is not None else [1] * rank
    window_dilations = window_dilations if window_dilations is not None else [1] * rank
    result = [
        window_count(
            _dilated(size, base_dilations[d]) + padding[d][0] + padding[d][1],
            _dilated(window[d], window_dilations[d]),
            strides[d],
        )
        for d, size in enumerate(shape(operand))
    ]
    attributes = {
        "window_dimensions": _i64s(window),
        "window_strides": _i64s(strides),
        "base_dilations": _i64s(base_dilations),
        "window_dilations": _i64s(window_dilations),
        "padding": _pairs(padding),
    }
    element = element_type(operand)
    operation = ir.Operation.create(
        "stablehlo.reduce_window",
        [_tensor(result, element)],
        [operand, init],
        attributes,
        regions=1,
    )
    _scalar_body(operation, element, combine)
    return operation.results[0]


def cumulative(
    operands: Sequence[ir.Value],
    initial: Sequence[ir.Value],
    dimension: int,
    combine: Callable[[list[ir.Value], list[ir.Value]], Sequence[ir.Value]],
) -> list[ir.Value]:
    """`operands` of one shape, each element combined with all before it along `dimension`: by
    `combine`, of scalars of what comes before and of what follows."""
    sizes = shape(operands[0])
    window, padding = [1] * len(sizes), [(0, 0)] * len(sizes)
    window[dimension], padding[dimension] = sizes[dimension], (sizes[dimension] - 1, 0)
    attributes = {"window_dimensions": _i64s(window), "padding": _pairs(padding)}
    operation = ir.Operation.create(
        "stablehlo.reduce_window",
        [value.type for value in operands],
        [*operands, *initial],
        attributes,
        regions=1,
    )
    scalars = [_tensor([], element_type(value)) for value in operands]
    block = operation.regions[0].blocks.append(*scalars, *scalars)
    with ir.InsertionPoint(block):
        arguments = list(block.arguments)
        _return(*combine(arguments[: len(scalars)], arguments[len(scalars) :]))
    return list(operation.results)


# --- Control flow --------------------------------------------------------------------------------


def while_loop(
    initial: Sequence[ir.Value],
    condition: Callable[..., ir.Value],
    body: Callable[..., Sequence[ir.Value]],
) -> list[ir.Value]:
    """`body(*carried)` gives the next carried values as long as `condition(*carried)` holds.

    The condition is a scalar of i1. Both functions build ops, and may use values from outside.
    """
    types = [value.type for value in initial]
    operation = ir.Operation.create("stablehlo.while", types, list(initial), regions=2)
    for region, build in zip(operation.regions, (condition, body), strict=True):
        block = region.blocks.append(*types)
        with ir.InsertionPoint(block):
            results = build(*block.arguments)
            _return(*([results] if isinstance(results, ir.Value) else results))
    return list(operation.results)


@contextlib.contextmanager
def detached_block(*types: ir.Type) -> Iterator[ir.Block]:
    """A block to fill before the op is made that takes it: its results tell that op's types.

    Operations are built into it inside of `with`; a block that no op took is gone afterwards."""
    holder = ir.Operation.create("stablehlo.case", regions=1)
    block = holder.regions[0].blocks.append(*types)
    try:
        with ir.InsertionPoint(block):
            yield block
    finally:
        holder.erase()


def if_(
    predicate: ir.Value,
    on_true: tuple[ir.Block, Sequence[ir.Value]],
    on_false: tuple[ir.Block, Sequence[ir.Value]],
) -> list[ir.Value]:
    """The results of one of two detached blocks, each given with its results of the same types."""
    branches = (on_true, on_false)
    operation = ir.Operation.create(
        "stablehlo.if", [value.type for value in on_true[1]], [predicate], regions=2
    )
    for region, (block, results) in zip(operation.regions, branches, strict=True):
        block.append_to(region)
        with ir.InsertionPoint(block):
            _return(*results)
    return list(operation.results)


def while_(
    initial: Sequence[ir.Value],
    condition: Callable[[Sequence[ir.Value]], ir.Value],
    body: tuple[ir.Block, Callable[[Sequence[ir.Value]], Sequence[ir.Value]]],
) -> list[ir.Value]:
    """Repeat while `condition` of the values holds. `body` is a detached block, whose arguments are
    the first of the values, and a function that makes all of the next ones at its end."""
    types = [value.type for value in initial]
    operation = ir.Operation.create("stablehlo.while", types, list(initial), regions=2)
    check = operation.regions[0].blocks.append(*types)
    with ir.InsertionPoint(check):
        _return(condition(list(check.arguments)))
    block, following = body
    block.append_to(operation.regions[1])
    for kind in types[len(block.arguments) :]:
        block.add_argument(kind, ir.Location.current)
    with ir.InsertionPoint(block):
        _return(*following(list(block.arguments)))
    return list(operation.results)


def _scalar_body(operation: ir.Operation, element: ir.Type, combine: str | None) -> None:
    """Fill the region with `combine` of its two scalars; None returns the second of them."""
    scalar = _tensor([], element)
    block = operation.regions[0].blocks.append(scalar, scalar)
    first, second = block.arguments
    with ir.InsertionPoint(block):
        _return(binary(combine, first, second) if combine else second)


def _return(*values: ir.Value) -> None:
    ir.Operation.create("stablehlo.return", [], list(values))
