"""`mark-parameters`: find the arguments of the model that are weights.

A model whose weights are arguments (what `jax.export` makes of a function of a tree of parameters)
hands over the same ones at every call. They are marked `stepwell.parameter`, so that later passes
pack them like constants; the runtime packs them, once for each new content.

    func.func @main(%w: tensor<784x1024xf32>, ...)
      ->  func.func @main(%w: tensor<784x1024xf32> {stepwell.parameter}, ...)

An argument counts as a weight when all that reads it multiplies by it, as the rhs of a contraction
without batch dimensions, or of one whose batch takes slices of it (the matrices of groups), and
none of its dimensions is open. When fewer than `least` arguments are
such, as in a product of two activations, only those are marked that a loop of the host reads again
and again. None is marked when a result has the type of one, as in a training step that updates
them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from stepwell.frontends.open_sizes import read_extents
from stepwell.kernels.cpu.contraction_strategy import ContractionShape
from stepwell.kernels.slices import slices_behind
from stepwell.kernels.structured import (
    RESHAPES,
    Structured,
    contraction_operands,
    is_multiply_add,
    shape_of,
)
from stepwell.mlir import ir
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg._fusion_graph import is_host_block
from stepwell.passes.linalg.hoist_constants import PARAMETER, weight_arguments

_LEAST_ELEMENTS, _LEAST_IN_LOOP = 1 << 12, 1 << 10
"""Elements of a parameter at least, and of one that a loop of the host reads."""


@dataclass(frozen=True)
class MarkParameters(Pass):
    """Mark the weight arguments of a function, if there are `least` of them or a loop reads them.

    None is marked when the compilation's option `pack_parameters` is off.
    """

    name: ClassVar[str] = "mark-parameters"
    anchor: ClassVar[str] = "func.func"
    least: int = 3

    def run(self, op: ir.Operation, state: State) -> None:
        if not state.pack_parameters or not len(op.regions[0].blocks):
            return
        entry = op.regions[0].blocks[0]
        no_weights = {*weight_arguments(op), *_open_arguments(op)}
        found = [
            argument.arg_number
            for argument in entry.arguments
            if argument.arg_number not in no_weights and _is_parameter(argument)
        ]
        returned = [value.type for value in list(entry.operations)[-1].operation.operands]
        if len(found) < self.least:
            found = [number for number in found if _is_read_in_loop(entry.arguments[number])]
        if not found or any(entry.arguments[n].type in returned for n in found):
            return
        known = list(op.attributes["arg_attrs"]) if "arg_attrs" in op.attributes else []
        known += [ir.DictAttr.get({})] * (len(entry.arguments) - len(known))
        for number in found:
            entries = {name.name: name.attr for name in ir.DictAttr(known[number])}
            known[number] = ir.DictAttr.get({**entries, PARAMETER: ir.UnitAttr.get()})
        op.attributes["arg_attrs"] = ir.ArrayAttr.get(known)


def _open_arguments(host: ir.Operation) -> set[int]:
    """The arguments that have an open dimension, as no weight has."""
    extents = read_extents(host) or []
    return {n for n, shape in enumerate(extents) if any(not e.is_constant for e in shape)}


def _is_parameter(argument: ir.BlockArgument) -> bool:
    if not isinstance(argument.type, ir.RankedTensorType):
        return False
    kind = ir.RankedTensorType(argument.type)
    size = math.prod(shape_of(argument))
    least = _LEAST_IN_LOOP if _is_read_in_loop(argument) else _LEAST_ELEMENTS
    large = kind.rank >= 2 and size >= least
    return large and str(kind.element_type) == "f32" and _is_only_rhs(argument)


def _is_read_in_loop(value: ir.Value) -> bool:
    for use in value.uses:
        owner = use.owner.operation
        if owner.name in RESHAPES and _is_read_in_loop(owner.results[0]):
            return True
        while is_host_block(owner.block) and owner.parent.operation.name != "func.func":
            owner = owner.parent.operation
            if owner.name == "scf.while":
                return True
    return False


def _is_only_rhs(value: ir.Value, *, sliced: bool = False) -> bool:
    uses = list(value.uses)
    return bool(uses) and all(_uses_as_rhs(use, sliced) for use in uses)


def _uses_as_rhs(use: ir.OpOperand, sliced: bool) -> bool:
    op = use.owner.operation
    if op.name in RESHAPES:
        return _is_only_rhs(op.results[0], sliced=sliced)
    if op.name == "tensor.extract":
        taken = op.parent.operation.results[0]
        slices = slices_behind(taken)
        takes = slices is not None and slices.source == op.operands[0] and not use.operand_number
        return takes and _is_only_rhs(taken, sliced=True)
    structured = Structured.of(op)
    if structured is None or not is_multiply_add(structured):
        return False
    operands = contraction_operands(structured)
    if operands is None or operands[1] != use.operand_number:
        return False
    return sliced or not ContractionShape.of(structured, operands).batch
