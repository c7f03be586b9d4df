"""Products of floats of 8 bits that tensor cores of the target multiply, widened and scaled or not.

    %x = stablehlo.multiply (stablehlo.convert %a : f8E4M3FN to bf16), (broadcast of %s)
    %y = stablehlo.convert %b : f8E4M3FN to bf16
    %0 = stablehlo.dot_general %x, %y : bf16

becomes

    %1 = stablehlo.dot_general %a, %b : (f8E4M3FN, f8E4M3FN) -> f32
    %0 = stablehlo.convert (stablehlo.multiply %1, (broadcast of %s in f32)) : f32 to bf16

Every product is exact in f32, and sums are rounded no more than those of the wider operands. What
was widened to f32 is narrowed only where precision is "tf32", since tensor cores add fewer bits of
small products than f32 has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.kernels.gpu.tensor_core import FLOAT8_TYPES
from stepwell.mlir import ir, nested_operations
from stepwell.mlir import stablehlo as bindings
from stepwell.passes.base import State
from stepwell.passes.stablehlo._values import producer, splat
from stepwell.targets.nvidia import NvidiaTarget

_LEAST_FREE, _LEAST_SUMMED = 8, 32
"""Rows or columns, and places of k, of an instruction for floats of 8 bits."""

_WIDE = ("f16", "bf16")


def narrow_products(root: ir.Operation, state: State) -> set[ir.Operation]:
    """The products inside `root` whose operands are floats of 8 bits that tensor cores take; those
    of wider forms of such floats become some."""
    if not isinstance(state.target, NvidiaTarget) or state.precision == "strict":
        return set()
    known = dict(state.target.matrix_instructions).get("mma.sync", ())
    wide = (*_WIDE, "f32") if state.multiplies_tf32 else _WIDE
    found = []
    for op in nested_operations(root):
        if op.name != "stablehlo.dot_general" or not _fills_instruction(op):
            continue
        sources = [_narrow(value, wide) for value in op.operands]
        types = [str(hlo.element_type(value)) for value, _ in sources]
        if all(FLOAT8_TYPES.get(kind) in known for kind in types):
            _multiply(op, [value for value, _ in sources], [s for _, s in sources if s is not None])
            found.append(op)
    return set(found)


def _narrow(value: ir.Value, wide: Sequence[str]) -> tuple[ir.Value, ir.Value | float | None]:
    """The floats of 8 bits that `value` is a form of, and what they are scaled by; else itself."""
    scaled = producer(value, "multiply")
    factors = list(scaled.operands) if scaled is not None else []
    for one, other in (factors, factors[::-1]) if factors else ():
        scale, (narrow, _) = _uniform(other), _narrow(one, wide)
        if scale is not None and narrow != one and producer(one, "convert") is not None:
            return narrow, scale
    op = producer(value, "convert")
    if op is None or str(hlo.element_type(value)) not in wide:
        return value, None
    narrow = op.operands[0]
    return (narrow if str(hlo.element_type(narrow)) in FLOAT8_TYPES else value), None


def _uniform(value: ir.Value) -> ir.Value | float | None:
    """The one number that all elements of `value` are: a constant, or a value of one element."""
    number = splat(value)
    if number is not None:
        return float(number)
    while math.prod(hlo.shape(value)) != 1:
        op = producer(value, "broadcast_in_dim", "reshape")
        if op is None:
            return None
        value = op.operands[0]
    return value


def _multiply(
    op: ir.Operation, operands: Sequence[ir.Value], scales: Sequence[ir.Value | float]
) -> None:
    """Let `op` multiply `operands`, and scale its sums before they are rounded."""
    narrowed = list(op.operands) != list(operands)
    for number, operand in enumerate(operands):
        op.operands[number] = operand
    result = op.results[0]
    wanted = hlo.dtype(result)
    if not narrowed or (wanted == np.float32 and not scales):
        return
    uses = [(use.owner.operation, use.operand_number) for use in result.uses]
    result.set_type(ir.RankedTensorType.get(hlo.shape(result), ir.F32Type.get()))
    with ir.InsertionPoint.after(op), op.location:
        value: ir.Value = result
        for scale in scales:
            value = hlo.multiply(value, _spread(scale, hlo.shape(result)))
        value = hlo.convert(value, wanted)
    for user, number in uses:
        user.operands[number] = value


def _spread(scale: ir.Value | float, shape: Sequence[int]) -> ir.Value:
    """A tensor of `scale`, in f32."""
    if isinstance(scale, float):
        return hlo.full(scale, list(shape), np.float32)
    return hlo.broadcast_in_dim(hlo.reshape(hlo.convert(scale, np.float32), []), list(shape), [])


def _fills_instruction(op: ir.Operation) -> bool:
    """Whether rows, columns and places of k are as many as one instruction takes."""
    if not all(hlo.tensor_type(value).has_static_shape for value in op.operands):
        return False
    numbers = bindings.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    left, right = (hlo.shape(value) for value in op.operands)
    summed = list(numbers.lhs_contracting_dimensions)
    free = (
        _last_free(left, [*numbers.lhs_batching_dimensions, *summed]),
        _last_free(right, [*numbers.rhs_batching_dimensions, *numbers.rhs_contracting_dimensions]),
    )
    return min(free) >= _LEAST_FREE and math.prod(left[d] for d in summed) >= _LEAST_SUMMED


def _last_free(shape: Sequence[int], others: list[int]) -> int:
    return next((shape[d] for d in reversed(range(len(shape))) if d not in others), 0)
