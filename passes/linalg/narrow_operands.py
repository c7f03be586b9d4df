"""`narrow-operands`: products of unsigned by signed bytes read the bytes.

    %a = linalg.generic (extui) ins(%x : tensor<8x64xi8>) -> tensor<8x64xi32>
    %z = linalg.generic (muli, addi) ins(%a, %w : tensor<8x64xi32>, tensor<64x16xi32>)
      ->
    %z = linalg.generic (extui, extsi, muli, addi) ins(%x, %v : tensor<8x64xi8>, tensor<64x16xi8>)

for contractions of 32-bit integers of which one operand is made of unsigned bytes and the other of
signed ones, or is a constant whose numbers fit into such; on machines with an instruction for that
(StableHLO has no product of two types of operands, and so no form for it). What is transposed
between them becomes a transposition of the bytes. Where the instruction adds pairs of products in
16 bits, the signed ones are a constant of small numbers, and the product is marked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from stepwell.kernels.cpu.contraction_strategy import LARGEST_SMALL, SMALL_BYTES
from stepwell.kernels.structured import (
    Structured,
    contraction_operands,
    defining_op,
    element_type,
    is_identity,
    is_multiply_add,
    shape_of,
)
from stepwell.mlir import dialect, ir, nested_operations
from stepwell.passes.base import Pass, State
from stepwell.weights import WeightTable

arith = dialect("arith")
tensor = dialect("tensor")

_SIGNED, _UNSIGNED = "arith.extsi", "arith.extui"


@dataclass(frozen=True)
class NarrowOperands(Pass):
    """Look at every contraction of a function; nothing where the target has no such instruction."""

    name: ClassVar[str] = "narrow-operands"
    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation, state: State) -> None:
        target = state.target
        if not (target.byte_dot or target.pair_dot):
            return
        for inner in nested_operations(op):
            structured = Structured.of(inner)
            if structured is not None and is_multiply_add(structured):
                _narrow(structured, state.weights, small=not target.byte_dot)


@dataclass(frozen=True)
class _Bytes:
    """An operand as bytes, which `make` writes, the operation that extends them, and the largest
    magnitude that they may have."""

    make: Callable[[], ir.Value]
    extension: str
    largest: int = 255


def _narrow(op: Structured, weights: WeightTable, *, small: bool) -> None:
    values = (*op.inputs, op.op.results[0])
    if any(str(element_type(value)) != "i32" for value in values):
        return
    if contraction_operands(op) is None:
        return
    found = [_bytes(value, weights) for value in op.inputs]
    lhs, rhs = found
    if lhs is None or rhs is None or {lhs.extension, rhs.extension} != {_SIGNED, _UNSIGNED}:
        return
    if small:
        if max(own.largest for own in (lhs, rhs) if own.extension == _SIGNED) > LARGEST_SMALL:
            return
        op.op.attributes[SMALL_BYTES] = ir.UnitAttr.get()
    i32 = ir.IntegerType.get_signless(32)
    for number, operand in enumerate((lhs, rhs)):
        with ir.InsertionPoint(op.op), op.op.location:
            bytes = operand.make()
        op.op.operands[number] = bytes
        argument = op.body.arguments[number]
        argument.set_type(element_type(bytes))
        uses = [(use.owner.operation, use.operand_number) for use in argument.uses]
        with ir.InsertionPoint.at_block_begin(op.body), op.op.location:
            wide = ir.Operation.create(operand.extension, results=[i32], operands=[argument])
        for user, place in uses:
            user.operands[place] = wide.results[0]


def _bytes(value: ir.Value, weights: WeightTable) -> _Bytes | None:
    op = defining_op(value)
    if op is None:
        return None
    if op.name == "arith.constant":
        return _constant(op, weights)
    structured = Structured.of(op)
    if structured is None or len(structured.inputs) != 1:
        return None
    if structured.copied_input() is not None:
        inner = _bytes(structured.inputs[0], weights)
        if inner is None:
            return None
        return replace(inner, make=lambda: _copy_of_bytes(op, inner.make()))
    if not structured.is_elementwise:
        return None
    body = [child.operation for child in structured.body.operations]
    source = structured.inputs[0]
    extends = len(body) == 2 and body[0].name in (_SIGNED, _UNSIGNED)
    if not extends or str(element_type(source)) != "i8" or not is_identity(structured.maps[0]):
        return None
    return _Bytes(lambda: source, body[0].name)


def _copy_of_bytes(op: ir.Operation, bytes: ir.Value) -> ir.Value:
    """What `op`, which copies elements, makes of other ones."""
    element = element_type(bytes)
    empty = tensor.EmptyOp(shape_of(op.results[0]), element).result
    copy = op.clone()
    copy.operands[0], copy.operands[1] = bytes, empty
    for argument in copy.regions[0].blocks[0].arguments:
        argument.set_type(element)
    copy.results[0].set_type(ir.RankedTensorType.get(shape_of(op.results[0]), element))
    return copy.results[0]


def _constant(op: ir.Operation, weights: WeightTable) -> _Bytes | None:
    """One of signed bytes."""
    array = weights.array(op.attributes["value"])
    limits = np.iinfo(np.int8)
    if not array.size or array.min() < limits.min or array.max() > limits.max:
        return None

    def make() -> ir.Value:
        narrow = array.astype(np.int8).reshape(shape_of(op.results[0]))
        name = weights.name_of(op.attributes["value"]) or "weight"
        attribute = weights.attribute(narrow, name)
        return arith.ConstantOp(
            ir.RankedTensorType.get(narrow.shape, ir.IntegerType.get_signless(8)), attribute
        ).result

    return _Bytes(make, _SIGNED, max(-int(array.min()), int(array.max())))
