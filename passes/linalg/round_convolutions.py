"""`round-convolutions`: with precision "bf16", convolutions of windows that no cheaper algorithm
computes take image and filters as bf16, where the target multiplies these faster.

    %0 = linalg.generic (conv 3x3 of stride 2) ins(%x, %w : .. xf32, .. xf32) outs(.. xf32)
      ->
    %a = linalg.generic (truncf) ins(%x) -> .. xbf16
    %0 = linalg.generic (conv 3x3 of stride 2) ins(%a, %v : .. xbf16, .. xbf16) outs(.. xf32)

Run it behind `choose-convolution`: what is marked for Winograd's algorithm stays f32. Filters are
weights, which are rounded here; a padding with zeros is that of the rounded image. `round-products`
has done the same to matrix products and convolutions of one tap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stepwell.dtypes import BFLOAT16
from stepwell.kernels.cpu import winograd_strategy
from stepwell.kernels.cpu.contraction_strategy import ContractionShape, estimated_time
from stepwell.kernels.cpu.dot_products import bfloat_time
from stepwell.kernels.structured import Structured, defining_op, element_type, shape_of
from stepwell.mlir import dialect, ir, nested_operations
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg.choose_convolution import padding_value
from stepwell.passes.linalg.hoist_constants import (
    WEIGHT,
    add_argument,
    bytes_of_weights,
    weight_arguments,
)
from stepwell.targets import Target

arith, tensor = dialect("arith"), dialect("tensor")


@dataclass(frozen=True)
class RoundConvolutions(Pass):
    """Look at every convolution of a function; nothing where the target has no instruction for
    products of bf16, or with another precision."""

    name: ClassVar[str] = "round-convolutions"
    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation, state: State) -> None:
        if state.precision != "bf16" or not len(op.regions[0].blocks):
            return
        target = state.target.reading(bytes_of_weights(op), state.threads)
        names = weight_arguments(op)
        entry = list(op.regions[0].blocks[0].arguments)
        rounded: dict[ir.Value, ir.Value] = {}
        for inner in nested_operations(op):
            convolution = Structured.of(inner)
            if convolution is None or not _gains(convolution, target):
                continue
            image, filters = convolution.inputs
            number = entry.index(filters) if filters in entry else -1
            if number not in names or winograd_strategy.ATTRIBUTE in inner.attributes:
                continue
            if filters not in rounded:
                array = state.weights[names[number]].astype(BFLOAT16)
                name = state.weights.add(f"{names[number]}_bf16", array)
                kind = ir.RankedTensorType.get(array.shape, ir.BF16Type.get())
                rounded[filters] = add_argument(op, kind, WEIGHT, name)
            if image not in rounded:
                with ir.InsertionPoint(inner), inner.location:
                    rounded[image] = _rounded(image)
            _multiply(convolution, (rounded[image], rounded[filters]))


def _gains(op: Structured, target: Target) -> bool:
    """Whether `op` is a convolution of windows of f32 that operands of bf16 make faster."""
    time = bfloat_time(op, target)
    return time is not None and time < estimated_time(op, ContractionShape.of(op, (0, 1)), target)


def _rounded(image: ir.Value) -> ir.Value:
    """`image` as bf16; what pads it with a constant, pads the rounded one."""
    bf16, pad = ir.BF16Type.get(), defining_op(image)
    kind = ir.RankedTensorType.get(shape_of(image), bf16)
    value = padding_value(pad) if pad is not None and pad.name == "tensor.pad" else None
    if pad is None or value is None:
        return _converted(image, kind)
    source = _rounded(pad.operands[0])
    padded = pad.clone()
    padded.operands[0] = source
    padded.results[0].set_type(kind)
    constant = arith.ConstantOp(bf16, ir.FloatAttr.get(bf16, value))
    constant.operation.move_before(padded)
    end = list(padded.regions[0].blocks[0].operations)[-1].operation
    end.operands[0] = constant.result
    return padded.results[0]


def _converted(image: ir.Value, kind: ir.RankedTensorType) -> ir.Value:
    identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(kind.rank))
    parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>")
    op = ir.Operation.create(
        "linalg.generic",
        results=[kind],
        operands=[image, tensor.EmptyOp(list(kind.shape), kind.element_type).result],
        attributes={
            "indexing_maps": ir.ArrayAttr.get([identity] * 2),
            "iterator_types": ir.ArrayAttr.get([parallel] * kind.rank),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1]),
        },
        regions=1,
    )
    block = op.regions[0].blocks.append(element_type(image), kind.element_type)
    with ir.InsertionPoint(block):
        narrow = arith.TruncFOp(kind.element_type, block.arguments[0]).result
        ir.Operation.create("linalg.yield", operands=[narrow])
    return op.results[0]


def _multiply(op: Structured, operands: tuple[ir.Value, ir.Value]) -> None:
    """Let the products of `op` be of these numbers, extended."""
    f32 = ir.F32Type.get()
    for number, operand in enumerate(operands):
        op.op.operands[number] = operand
        argument = op.body.arguments[number]
        uses = [(use.owner.operation, use.operand_number) for use in argument.uses]
        argument.set_type(element_type(operand))
        with ir.InsertionPoint.at_block_begin(op.body), op.op.location:
            wide = arith.ExtFOp(f32, argument).result
        for user, place in uses:
            user.operands[place] = wide
