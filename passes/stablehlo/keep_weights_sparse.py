"""keep-weights-sparse: products skip the zeros of weights that are zero for the most part.

    %z = stablehlo.dot_general %x, dense_resource<w> : (tensor<128x768xf32>, tensor<768x3072xf32>)
      ->
    %t = stablehlo.transpose %x : tensor<768x128xf32>
    %p = stablehlo.custom_call @stepwell.sparse_dot(%values, %places, %starts, %t)
    %z = stablehlo.transpose %p : tensor<128x3072xf32>

for matrices of constants of float32 on either side, and for convolutions by windows of one element,
whose images lie as the product reads them if channels come first. Columns that are no whole vectors
are followed by zeros. Run it before layouts are chosen: transposes of neighbours cancel. What is
zero in the weights is not looked at in the other operand: an infinity or NaN there adds nothing,
and so the precision "strict" leaves products as they are.

Pruned models have such weights (T. Gale et al., The State of Sparsity in Deep Neural Networks,
2019). How many zeros make it pay is worked out from what a dense product takes: its multiply-adds,
or reading the weights if few rows meet them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from stepwell.dialects import sparse_products
from stepwell.dialects import stablehlo as hlo
from stepwell.dialects.sparse_products import SparseRows
from stepwell.mlir import ir
from stepwell.mlir import stablehlo as bindings
from stepwell.passes.base import Pass, State
from stepwell.passes.stablehlo._rules import Rules
from stepwell.passes.stablehlo._values import (
    constant_attribute,
    integer,
    optional_integers,
    padding,
    producer,
    readable,
    resource_name,
)
from stepwell.targets import Target
from stepwell.targets.nvidia import NvidiaTarget
from stepwell.weights import WeightTable, is_splat

_TERM = 1.3
"""Multiply-adds that a term takes at least: its value and its place are loaded, too."""

_ROW, _TILE = 12, 8
"""Multiply-adds that a row takes to begin and to end, for each tile of so many vectors."""

_BYTES = 6
"""Of a term: its value and its place."""

_GAIN = 1.15
"""How many times faster it has to be, by these figures."""


@dataclass(frozen=True)
class KeepWeightsSparse(Pass):
    """Run on a module; nothing on GPUs."""

    name: ClassVar[str] = "keep-weights-sparse"

    least_elements: int = 1 << 10
    """Of a weight that is worth it."""

    def run(self, op: ir.Operation, state: State) -> None:
        if isinstance(state.target, NvidiaTarget) or state.precision == "strict":
            return
        rules = Rules()
        products = _Products(state, self.least_elements)
        rules.on("dot_general")(products.of_matrices)
        rules.on("convolution")(products.of_pixels)
        rules.apply(op, state.weights)


@dataclass(frozen=True)
class _Products:
    """The rewriting of products."""

    state: State
    least_elements: int
    kept: dict[str, float] = field(default_factory=dict)
    """Of weights by name, the part that is not zero."""

    def of_matrices(self, op: ir.Operation, weights: WeightTable) -> ir.Value | None:
        """One operand is a matrix of constants, as a rule the right one."""
        numbers = bindings.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
        contracted = [
            list(numbers.lhs_contracting_dimensions),
            list(numbers.rhs_contracting_dimensions),
        ]
        if len(numbers.lhs_batching_dimensions) or "algorithm" in op.attributes:
            return None
        if not _is_f32(op) or len(contracted[0]) != 1:
            return None
        for side in (1, 0):
            other, (along,), (place,) = (
                op.operands[1 - side],
                contracted[side],
                contracted[1 - side],
            )
            shape = hlo.shape(other)
            rank, inner = len(shape), shape[place]
            columns = math.prod(shape) // max(1, inner)
            if len(hlo.shape(op.operands[side])) != 2:
                continue
            matrix = self._matrix(op.operands[side], (1 - along, along), columns, weights)
            if matrix is None:
                continue
            order = [place, *(d for d in range(rank) if d != place)]
            dense = hlo.reshape(hlo.transpose(other, order), [inner, columns])
            rows = SparseRows.of(matrix)
            name = resource_name(op.operands[side])
            product = self._product(rows, dense, weights, name)
            outer = [shape[d] for d in order[1:]]
            split = hlo.reshape(product, [hlo.shape(product)[1], *outer])
            return split if side == 0 else hlo.transpose(split, [*range(1, rank), 0])
        return None

    def of_pixels(self, op: ir.Operation, weights: WeightTable) -> ir.Value | None:
        """A convolution each of whose windows is one pixel."""
        numbers = bindings.ConvDimensionNumbers(op.attributes["dimension_numbers"])
        image, kernel = op.operands
        sizes, window = hlo.shape(image), hlo.shape(kernel)
        inputs = numbers.kernel_input_feature_dimension
        outputs = numbers.kernel_output_feature_dimension
        spatial = list(numbers.input_spatial_dimensions)
        batch, channel = numbers.input_batch_dimension, numbers.input_feature_dimension
        rank = len(spatial)
        if not _is_f32(op) or math.prod(window) != window[inputs] * window[outputs]:
            return None
        if integer(op, "feature_group_count") != 1 or integer(op, "batch_group_count") != 1:
            return None
        strides = optional_integers(op, "window_strides", rank, 1)
        dilations = optional_integers(op, "lhs_dilation", rank, 1)
        if any(n != 1 for n in dilations) or any(map(any, padding(op, rank))):
            return None
        taken = [-(-sizes[d] // by) for d, by in zip(spatial, strides, strict=True)]
        pixels = math.prod(taken)
        matrix = self._matrix(kernel, (outputs, inputs), sizes[batch] * pixels, weights)
        if matrix is None:
            return None
        rows = SparseRows.of(matrix)
        order = [batch, channel, *spatial]
        by = dict(zip(spatial, strides, strict=True))
        steps = [by.get(d, 1) for d in range(len(sizes))]
        if max(strides) > 1:
            image = hlo.slice(image, [0] * len(sizes), sizes, steps)
        shape = [sizes[batch], sizes[channel], pixels]
        dense = hlo.reshape(hlo.transpose(image, order), shape)
        product = self._product(rows, dense, weights, resource_name(kernel))
        split = hlo.reshape(product, [sizes[batch], window[outputs], *taken])
        result = [numbers.output_batch_dimension, numbers.output_feature_dimension]
        result += list(numbers.output_spatial_dimensions)
        return hlo.transpose(split, np.argsort(result).tolist())

    def _product(
        self, rows: SparseRows, dense: ir.Value, weights: WeightTable, name: str
    ) -> ir.Value:
        """The product with `dense`, [K, M] or a batch of such, which gets rows of whole vectors, of
        which none is in two lines of the cache."""
        *batch, inner, columns = hlo.shape(dense)
        lanes = self.state.target.vector_lanes
        rest = -columns % lanes
        if columns > lanes and rest:
            zero = hlo.full(0.0, [], np.float32)
            dense = hlo.pad(dense, zero, [0] * (len(batch) + 2), [0] * (len(batch) + 1) + [rest])
        dense = hlo.reshape(dense, [math.prod(batch), inner, hlo.shape(dense)[-1]])
        return sparse_products.sparse_dot(rows, dense, columns, weights, name)

    def _matrix(
        self, value: ir.Value, axes: tuple[int, int], columns: int, weights: WeightTable
    ) -> np.ndarray | None:
        """The data of `value` as a matrix [N, K] of its `axes`, the others being of one element; if
        it is constant, and has so many zeros that skipping them pays where `columns` meet it."""
        widened = producer(value, "convert")
        attribute = constant_attribute(value if widened is None else widened.operands[0])
        rows, inner = (hlo.shape(value)[axis] for axis in axes)
        if attribute is None or min(rows, inner) < 2 or not columns:
            return None
        if rows * inner < self.least_elements:
            return None
        array = readable(attribute, weights)
        if array is None or is_splat(array):
            return None
        name = weights.name_of(attribute)
        kept = self.kept.get(name or "")
        if kept is None:
            kept = part_kept(array)
            if name is not None:
                self.kept[name] = kept
        if not kept or not pays(kept, (rows, inner), columns, self.state.target):
            return None
        matrix = array.reshape(rows, inner) if axes[0] < axes[1] else array.reshape(inner, rows).T
        return matrix.astype(np.float32, copy=False)


def part_kept(array: np.ndarray) -> float:
    """The part of an array of floats that is not zero."""
    numbers = array.view(np.uint16) << 1 if array.dtype.itemsize == 2 else array
    return np.count_nonzero(numbers != 0) / array.size


def pays(kept: float, matrix: tuple[int, int], columns: int, target: Target) -> bool:
    """Whether a product of `columns` columns with a matrix of so many rows and columns, of which
    the part `kept` is not zero, is faster without the others. Times are multiply-adds of a vector
    for each element of the matrix."""
    lanes, (rows, inner) = target.vector_lanes, matrix
    far = 4 * rows * inner > target.l2_bytes
    rate = target.memory_rate if far else 4 * lanes / target.l2_load
    dense = max(columns / lanes, 4 / rate)
    vectors = math.ceil(columns / lanes)
    term = max(_TERM, vectors * target.l2_load)
    sparse = kept * max(term, _BYTES / rate) + math.ceil(vectors / _TILE) * _ROW / inner
    return sparse * _GAIN < dense


def _is_f32(op: ir.Operation) -> bool:
    values = (*op.operands, op.results[0])
    return all(isinstance(hlo.element_type(value), ir.F32Type) for value in values)
