"""Weights that products widen themselves, in panels: codes, scales and zeros each in their own."""

from __future__ import annotations

import dataclasses

from stepwell.kernels.cpu import contraction_choice
from stepwell.kernels.cpu.contraction_strategy import ContractionShape
from stepwell.kernels.structured import Structured, defining_op, element_type, shape_of
from stepwell.kernels.widened_weights import WidenedWeights, widened
from stepwell.mlir import dialect, ir
from stepwell.packing import WORD_CODES, Packing, PanelPacking, WordPacking
from stepwell.passes.base import State
from stepwell.passes.linalg._packed_weights import (
    Weight,
    add_packed,
    replace_operand,
    retype_argument,
    weight_of,
)

arith = dialect("arith")

_LARGEST_CODE = 15
"""Of 4 bits."""

Calls = list[tuple[ir.Operation, ir.Operation]]
"""Host functions, and calls of a kernel in them."""


def prepare_widened(
    kernel: ir.Operation,
    anchor: Structured,
    shape: ContractionShape,
    weights: WidenedWeights,
    calls: Calls,
    state: State,
    packed: dict[tuple[Weight, Packing], ir.Value],
    *,
    pack: bool,
) -> None:
    """Choose the strategy of a kernel that widens its rhs, and pack what that is made of."""
    parts = (weights.codes, weights.scales, weights.zeros)
    known = pack and all(value is None or _is_known(value, calls) for value in parts)
    least = _least_code(weights, calls, state) if known else None
    if least is not None:
        shape = dataclasses.replace(shape, rhs_bytes=0.5)
    choice = contraction_choice.choice(anchor, shape, state.target, known)
    strategy = state.decide(kernel, choice)
    kernel.attributes["kernel.strategy"] = strategy.to_attribute()
    if not known:
        return
    panel = strategy.vectors * state.target.vector_lanes
    (rows, columns), block = weights.shape, weights.block  # of arguments that change now
    panels = (-(-columns // panel), rows, panel)
    with ir.InsertionPoint(anchor.op), anchor.op.location:
        codes, scales, zeros = (
            None if v is None else _packed(kernel, v, panel, calls, state, packed, least)
            for v in parts
        )
        assert codes is not None
        value = widened(panels, codes, scales, zeros, block, weights.zero, least)
    replace_operand(anchor, shape.rhs, value)
    maps = list(anchor.op.attributes["indexing_maps"])
    column, row = (ir.AffineExpr.get_dim(d) for d in (shape.column, shape.reduced[0]))
    places = [ir.AffineExpr.get_floor_div(column, panel), row, ir.AffineExpr.get_mod(column, panel)]
    maps[shape.rhs] = ir.AffineMapAttr.get(ir.AffineMap.get(len(shape.sizes), 0, places))
    anchor.op.attributes["indexing_maps"] = ir.ArrayAttr.get(maps)


def _is_known(value: ir.Value, calls: Calls) -> bool:
    """Whether `value` is a constant at every call that one operation reads, or one number
    everywhere."""
    if defining_op(value) is not None:
        return True
    number = ir.BlockArgument(value).arg_number
    constant = all(isinstance(weight_of(host, call, number), str) for host, call in calls)
    return bool(calls) and constant and len(list(value.uses)) == 1


def _least_code(weights: WidenedWeights, calls: Calls, state: State) -> int | None:
    """The least of codes that 4 bits hold; None where they do not, or rows do not fill words."""
    rows, _ = weights.shape
    if str(element_type(weights.codes)) != "i8" or rows % WORD_CODES:
        return None
    number = ir.BlockArgument(weights.codes).arg_number
    names = {weight_of(host, call, number) for host, call in calls}
    arrays = [state.weights[name] for name in names if isinstance(name, str)]
    least, largest = min(int(a.min()) for a in arrays), max(int(a.max()) for a in arrays)
    return least if largest - least <= _LARGEST_CODE else None


def _packed(
    kernel: ir.Operation,
    value: ir.Value,
    panel: int,
    calls: Calls,
    state: State,
    packed: dict[tuple[Weight, Packing], ir.Value],
    least: int | None,
) -> ir.Value:
    """`value` of the kernel in panels: its argument as that is passed now, or a constant."""
    packing: Packing = PanelPacking(shape_of(value), (0, 1), 0, panel)
    element = element_type(value)
    op = defining_op(value)
    if op is not None:
        number = ir.DenseElementsAttr(op.attributes["value"]).get_splat_value()
        kind = ir.RankedTensorType.get(packing.shape, element)
        return arith.ConstantOp(kind, ir.DenseElementsAttr.get_splat(kind, number)).result
    if least is not None and str(element) == "i8":
        packing = WordPacking(packing, least)
        element = ir.IntegerType.get_signless(32)
    number = ir.BlockArgument(value).arg_number
    kind = ir.RankedTensorType.get(packing.shape, element)
    retype_argument(kernel, number, kind)
    for host, call in calls:
        weight = weight_of(host, call, number)
        assert isinstance(weight, str)
        if (weight, packing) not in packed:
            packed[weight, packing] = add_packed(host, weight, packing, kind, state)
        call.operands[number] = packed[weight, packing]
    return kernel.regions[0].blocks[0].arguments[number]
