"""choose-layout: put convolutions and poolings into one layout, with explicit transposes around.

    %y = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1] ...

becomes, with `layout=nhwc`,

    %xt = stablehlo.transpose %x, dims = [0, 2, 3, 1]
    %wt = stablehlo.transpose %w, dims = [2, 3, 1, 0]
    %yt = stablehlo.convolution(%xt, %wt) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f] ...
    %y = stablehlo.transpose %yt, dims = [0, 3, 1, 2]

for any spatial rank. Windows over all but the first two dimensions of a tensor are poolings in NCHW
and move alike. What is in the layout already stays as it is. fold-constants then transposes the
weights, and propagate-transposes cancels the transposes between the layers.

Operands of products get their terms side by side on CPUs; on GPUs products read operands from
before a transpose, where tensor cores take them as they lie there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from stepwell.dialects import stablehlo as hlo
from stepwell.errors import UsageError
from stepwell.mlir import ir
from stepwell.mlir import stablehlo as bindings
from stepwell.passes.base import Pass, State
from stepwell.passes.stablehlo._cumulative import cumulative
from stepwell.passes.stablehlo._rules import Rules
from stepwell.passes.stablehlo._values import (
    constant_attribute,
    has_one_use,
    i64_pairs,
    i64s,
    integers,
    inverse,
    optional_integers,
    padding,
    producer,
    rebuild,
)
from stepwell.targets.nvidia import NvidiaTarget
from stepwell.weights import WeightTable

NHWC = Rules()

WINDOW_ATTRIBUTES = {"window_strides": 1, "base_dilations": 1, "window_dilations": 1}
"""Per-dimension attributes of reduce_window beside window_dimensions, with their defaults."""


@NHWC.on("convolution")
def convolution(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """A convolution with any dimension numbers, as [b, 0.., f] x [0.., i, o] -> [b, 0.., f]."""
    numbers = bindings.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    inputs = [
        numbers.input_batch_dimension,
        *numbers.input_spatial_dimensions,
        numbers.input_feature_dimension,
    ]
    kernel = [
        *numbers.kernel_spatial_dimensions,
        numbers.kernel_input_feature_dimension,
        numbers.kernel_output_feature_dimension,
    ]
    outputs = [
        numbers.output_batch_dimension,
        *numbers.output_spatial_dimensions,
        numbers.output_feature_dimension,
    ]
    rank = len(inputs)
    ordered = list(range(rank))
    if inputs == kernel == outputs == ordered:
        return None
    spatial = ordered[1:-1]
    layout = bindings.ConvDimensionNumbers.get(
        0, rank - 1, spatial, rank - 2, rank - 1, ordered[:-2], 0, rank - 1, spatial
    )
    lhs, rhs = op.operands
    shape = hlo.shape(op.results[0])
    result = rebuild(
        op,
        [_transposed(lhs, inputs), _transposed(rhs, kernel)],
        [shape[d] for d in outputs],
        {"dimension_numbers": layout},
    )
    return hlo.transpose(result, inverse(outputs))


def _transposed(value: ir.Value, order: Sequence[int]) -> ir.Value:
    """`value` transposed in front of what widens its numbers and of what pads it then."""
    wide = producer(value, "convert")
    if wide is None or str(hlo.element_type(wide.operands[0])) not in ("i8", "ui8"):
        return hlo.transpose(value, order)
    source = wide.operands[0]
    padded = producer(source, "pad")
    if padded is None or not has_one_use(source):
        return hlo.convert(hlo.transpose(source, order), hlo.dtype(value))
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    amounts = {name: integers(padded, name) for name in names}
    moved = rebuild(
        padded,
        [hlo.transpose(padded.operands[0], order), padded.operands[1]],
        [hlo.shape(source)[d] for d in order],
        {name: i64s([numbers[d] for d in order]) for name, numbers in amounts.items()},
    )
    return hlo.convert(moved, hlo.dtype(value))


@NHWC.on("reduce_window")
def pooling(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """Windows over the dimensions from 2 on, moved to lie over those from 1 to the last but one."""
    shape = hlo.shape(op.results[0])
    rank = len(shape)
    window = optional_integers(op, "window_dimensions", rank, 1)
    pads = padding(op, rank)
    others = {name: optional_integers(op, name, rank, n) for name, n in WINDOW_ATTRIBUTES.items()}
    touched = [
        window[d] != 1 or pads[d] != (0, 0) or any(values[d] != 1 for values in others.values())
        for d in range(rank)
    ]
    if rank < 3 or len(op.operands) != 2 or any(touched[:2]) or not any(touched[2:]):
        return None
    if cumulative(op) is not None:
        return None
    order = [0, *range(2, rank), 1]
    attributes = {
        "window_dimensions": i64s([window[d] for d in order]),
        "padding": i64_pairs([pads[d] for d in order]),
    }
    attributes |= {name: i64s([values[d] for d in order]) for name, values in others.items()}
    operands = [hlo.transpose(op.operands[0], order), op.operands[1]]
    result = rebuild(op, operands, [shape[d] for d in order], attributes)
    return hlo.transpose(result, inverse(order))


PRODUCTS_OF_CPUS = Rules()

LEAST_COLUMNS = 32
"""Of a product whose lhs is worth transposing: about so many times is each of its elements read."""


@PRODUCTS_OF_CPUS.on("dot_general")
def terms_last(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """An lhs [batch.., K, rows..] as [batch.., rows.., K]: a row's terms lie side by side."""
    numbers = bindings.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    batch = list(numbers.lhs_batching_dimensions)
    lhs, rhs = op.operands
    rank, leading = len(hlo.shape(lhs)), len(batch)
    if batch != list(range(leading)) or list(numbers.lhs_contracting_dimensions) != [leading]:
        return None
    columns = prod(hlo.shape(op.results[0])[rank - 1 :])
    if rank == leading + 1 or columns < LEAST_COLUMNS:
        return None
    moved = _transposed(lhs, [*batch, *range(leading + 1, rank), leading])
    dimensions = bindings.DotDimensionNumbers.get(
        batch, numbers.rhs_batching_dimensions, [rank - 1], numbers.rhs_contracting_dimensions
    )
    shape = hlo.shape(op.results[0])
    return rebuild(op, [moved, rhs], shape, {"dot_dimension_numbers": dimensions})


PRODUCTS_OF_GPUS = Rules()

_NARROW = (ir.F16Type, ir.BF16Type)


@PRODUCTS_OF_GPUS.on("dot_general")
def transposed_operand(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """An operand that was transposed, read where it lies: tensor cores take terms that lie side by
    side, and 16-bit rows or columns too. A transpose that leaves the last dimension in its place
    costs nothing, and stays."""
    numbers = bindings.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    sides = [
        (list(numbers.lhs_batching_dimensions), list(numbers.lhs_contracting_dimensions)),
        (list(numbers.rhs_batching_dimensions), list(numbers.rhs_contracting_dimensions)),
    ]
    operands = list(op.operands)
    for number, operand in enumerate(operands):
        moved = producer(operand, "transpose")
        if moved is None or constant_attribute(moved.operands[0]) is not None:
            continue
        order, (batch, summed) = integers(moved, "permutation"), sides[number]
        last = len(order) - 1
        kept = [order[d] for d in range(len(order)) if d not in (*batch, *summed)]
        batch, summed = ([order[d] for d in dims] for dims in (batch, summed))
        is_narrow = isinstance(hlo.element_type(operand), _NARROW) and last in kept
        if order[last] == last or kept != sorted(kept) or not (is_narrow or last in summed):
            continue
        operands[number], sides[number] = moved.operands[0], (batch, summed)
    if operands == list(op.operands):
        return None
    (left, left_summed), (right, right_summed) = sides
    dimensions = bindings.DotDimensionNumbers.get(left, right, left_summed, right_summed)
    shape = hlo.shape(op.results[0])
    return rebuild(op, operands, shape, {"dot_dimension_numbers": dimensions})


LAYOUTS = {"nhwc": NHWC}


@dataclass(frozen=True)
class ChooseLayout(Pass):
    """Put convolutions and poolings into one layout, with explicit transposes around them; let
    products read what suits the target."""

    name: ClassVar[str] = "choose-layout"

    layout: str = "nhwc"
    """The layout: `nhwc` (channels last)."""

    def run(self, op: ir.Operation, state: State) -> None:
        """Rewrite every convolution, pooling and product inside `op`."""
        rules = LAYOUTS.get(self.layout)
        if rules is None:
            raise UsageError(f"choose-layout: there is no layout {self.layout}; there is: nhwc")
        rules.apply(op, state.weights)
        on_gpu = isinstance(state.target, NvidiaTarget)
        (PRODUCTS_OF_GPUS if on_gpu else PRODUCTS_OF_CPUS).apply(op, state.weights)
