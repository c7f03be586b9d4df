"""Programs with open sizes whose elements in use do not stand where they should: they are moved.

Of `tensor<2x8xf32>` with s0 of 8 columns in use, a line of `2*s0` elements is

    %r = stablehlo.gather(%flat, %place), where place(i) = (i / s0) * 8 + i % s0

Dimensions that are products of factors (`open_dimensions`) are read by way of these.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.errors import LoweringError
from stepwell.extents import Extent
from stepwell.mlir import ir
from stepwell.open_dimensions import Factor, prefix
from stepwell.passes.stablehlo._open_program import OpenProgram


def put_in_front(program: OpenProgram, value: ir.Value, dimension: int) -> ir.Value:
    """`value` with those elements first that are in use of a dimension that is a product."""
    layout = program.layout(value)
    size, factors = hlo.shape(value)[dimension], layout[dimension] or ()
    number = hlo.iota([size], 0, np.int64)
    result = taken(value, dimension, _place(program, factors, number))
    extent = functools.reduce(Extent.times, (factor.extent for factor in factors))
    program.layouts[result] = tuple(
        prefix(size, extent) if d == dimension else found for d, found in enumerate(layout)
    )
    return result


def reshaped(
    program: OpenProgram, value: ir.Value, shape: Sequence[int], extents: Sequence[Extent]
) -> ir.Value:
    """The elements of `value` in use, in order, as those of a tensor of `shape` that `extents` has
    in use. Raises LoweringError for another number of elements."""
    factors = [factor for found in program.settled(value) for factor in found or ()]
    there, here = (
        functools.reduce(Extent.times, parts, Extent.of(1))
        for parts in ((factor.extent for factor in factors), extents)
    )
    if there != here:
        raise LoweringError(f"{there} elements are reshaped to {here}")
    number = hlo.full(0, shape, np.int64)
    step = Extent.of(1)
    for dimension in reversed(range(len(shape))):
        index = hlo.iota(shape, dimension, np.int64)
        each = hlo.broadcast_in_dim(program.scalar(step), shape, [])
        number = hlo.add(number, hlo.multiply(index, each))
        step = step.times(extents[dimension])
    count = math.prod(shape)
    place = hlo.reshape(_place(program, factors, number), [count])
    flat = hlo.reshape(value, [math.prod(hlo.shape(value))])
    result = hlo.reshape(taken(flat, 0, place), shape)
    program.layouts[result] = tuple(map(prefix, shape, extents))
    return result


def _place(program: OpenProgram, factors: Sequence[Factor], number: ir.Value) -> ir.Value:
    """Where the elements in use that have a `number` stand among all of `factors`."""
    shape, step = hlo.shape(number), 1
    place = hlo.full_like(number, 0)
    for position, factor in reversed(list(enumerate(factors))):
        index = number
        if position:
            most = hlo.maximum(program.scalar(factor.extent), hlo.full(1, [], np.int64))
            count = hlo.broadcast_in_dim(most, shape, [])
            index, number = hlo.remainder(number, count), hlo.divide(number, count)
        place = hlo.add(place, hlo.multiply(index, hlo.full(step, shape, np.int64)))
        step *= factor.capacity
    return place


def taken(value: ir.Value, dimension: int, places: ir.Value) -> ir.Value:
    """The elements at a vector of `places` along `dimension`."""
    shape = hlo.shape(value)
    window = tuple(d for d in range(len(shape)) if d != dimension)
    numbers = hlo.GatherDimensions(window, (dimension,), (dimension,), 1)
    sizes = [1 if d == dimension else n for d, n in enumerate(shape)]
    return hlo.gather(value, places, numbers, sizes)
