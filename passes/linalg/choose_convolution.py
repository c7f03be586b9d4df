"""`choose-convolution`: mark the convolutions that run by Winograd's algorithm, and pad for it.

A convolution of stride 1 or 2 whose filters are weights of 2 to 5 or 7 terms, in one dimension or
two, is marked `kernel.winograd = tile` where the target's cost model says that it is faster than
direct convolution; longer filters are divided into such (`_long_filters`). Its image is padded to
whole tiles, by widening the padding that is there, so that no tile reads outside.

    %p = tensor.pad %x low[0, 1, 1, 0] high[0, 1, 1, 0]     ->  high[0, 3, 3, 0]
    %0 = linalg.generic (conv 3x3 of 14x14) ins(%p, %w)     ->  {kernel.winograd = 4} ins(%p, %w)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from stepwell.attributes import i64
from stepwell.kernels.cpu import winograd_strategy
from stepwell.kernels.cpu.contraction_strategy import ContractionShape, estimated_time
from stepwell.kernels.cpu.dot_products import bfloat_time
from stepwell.kernels.cpu.winograd_shape import ConvolutionShape
from stepwell.kernels.structured import (
    RESHAPES,
    Structured,
    defining_op,
    element_type,
    is_multiply_add,
    shape_of,
)
from stepwell.mlir import dialect, ir, nested_operations
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg import _long_filters
from stepwell.passes.linalg._fusion_graph import is_host_block
from stepwell.passes.linalg._grouped_convolution import channels_of
from stepwell.passes.linalg.hoist_constants import (
    bytes_of_weights,
    hoist,
    weight_argument,
)
from stepwell.targets import Target

arith, tensor = dialect("arith"), dialect("tensor")

_Padded = dict[tuple[ir.Value, tuple[int, ...], ir.Block], ir.Value]
"""Images as they are padded to whole tiles: by image, size, and where that is."""


@dataclass(frozen=True)
class ChooseConvolution(Pass):
    """`tile` forces tiles of so many results in a row wherever there are such (0: by the cost
    model, -1: never).

    Nothing is marked when the compilation asks for strict precision.
    """

    name: ClassVar[str] = "choose-convolution"
    anchor: ClassVar[str] = "func.func"
    tile: int = 0

    def run(self, op: ir.Operation, state: State) -> None:
        if self.tile < 0 or state.precision == "strict" or not len(op.regions[0].blocks):
            return
        target = state.target.reading(bytes_of_weights(op), state.threads)
        hoisted: dict[ir.Value, ir.Value] = {}
        padded: _Padded = {}
        for inner in nested_operations(op):
            convolution = Structured.of(inner)
            if convolution is None or not is_multiply_add(convolution):
                continue
            if not is_host_block(inner.block):
                continue
            if not _is_weight(convolution.inputs[1], op):
                continue
            shape = ConvolutionShape.of(convolution)
            if shape is None or not shape.tiles():
                self._divide(convolution, op, padded, target, state)
                continue
            tile = self._tile(convolution, shape, target, state)
            if not tile:
                continue
            filters = convolution.inputs[1]
            constant = defining_op(filters)
            if constant is not None and constant.name not in RESHAPES:  # a splat has no transform
                if filters not in hoisted:
                    hoisted[filters] = hoist(constant, op, state)
                convolution.op.operands[1] = hoisted[filters]
            _mark(convolution, shape, tile, padded)

    def _divide(
        self,
        convolution: Structured,
        host: ir.Operation,
        padded: _Padded,
        target: Target,
        state: State,
    ) -> None:
        """Mark a convolution with long filters as one with several short ones, if that is faster
        than any other way."""
        if not _long_filters.is_known(convolution, host, state):
            return
        best = math.inf, None
        for lengths in _long_filters.lengths(convolution):
            divided = _long_filters.divide(convolution, lengths)
            shape = ConvolutionShape.of(divided)
            if shape is not None:
                time = winograd_strategy.least_time(shape, target, state.threads)
                best = min(best, (time, lengths), key=lambda found: found[0])
            _long_filters.erase(divided)
        if best[1] is None:
            return
        divided = _long_filters.divide(convolution, best[1])
        shape = ConvolutionShape.of(divided)
        assert shape is not None
        tile = self._tile(convolution, shape, target, state)
        if not tile:
            _long_filters.erase(divided)
            return
        _long_filters.fill_in(divided, convolution, best[1], host, state)
        _mark(divided, shape, tile, padded)
        convolution.op.results[0].replace_all_uses_with(divided.op.results[0])
        convolution.op.erase()

    def _tile(
        self,
        convolution: Structured,
        shape: ConvolutionShape,
        target: Target,
        state: State,
    ) -> int:
        if self.tile:
            possible = self.tile in shape.tiles() and winograd_strategy.applies(shape, target)
            return self.tile if possible else 0
        contraction = ContractionShape.of(convolution, (0, 1))
        direct = estimated_time(convolution, contraction, target)
        if state.precision == "bf16":  # round-convolutions
            direct = min(direct, bfloat_time(convolution, target) or direct)
        choice = winograd_strategy.algorithm(shape, target, state.threads, direct)
        return state.decide(convolution.op, choice).tile


def _is_weight(value: ir.Value, host: ir.Operation) -> bool:
    """Whether it is known when the model is compiled, or first runs; or is a constant here."""
    if weight_argument(value, host) is not None:
        return True
    while (producer := defining_op(value)) is not None and producer.name in RESHAPES:
        value = producer.operands[0]
    return producer is not None and producer.name == "arith.constant"


def _mark(
    convolution: Structured,
    shape: ConvolutionShape,
    tile: int,
    padded: _Padded,
) -> None:
    op, image = convolution.op, convolution.inputs[0]
    whole = channels_of(image)
    sizes = list(shape_of(whole))
    for side in shape.sides:
        sizes[side.place] = max(sizes[side.place], side.padded(tile))
    wanted = tuple(sizes)
    if wanted != tuple(shape_of(whole)):
        key = (image, wanted, op.block)
        if key not in padded:
            with ir.InsertionPoint(op), op.location:
                widened = _widen(whole, wanted)
                padded[key] = widened if whole == image else _in_groups(widened, image)
        op.operands[0] = padded[key]
    op.attributes[winograd_strategy.ATTRIBUTE] = i64(tile)


def _in_groups(whole: ir.Value, like: ir.Value) -> ir.Value:
    """The channels of `whole` in two dimensions, as those of `like`, a tensor.expand_shape."""
    last = shape_of(like)[-2:]
    return tensor.ExpandShapeOp(
        ir.RankedTensorType.get([*shape_of(whole)[:-1], *last], element_type(whole)),
        whole,
        like.owner.attributes["reassociation"],
        [],
        [*shape_of(whole)[:-1], *last],
    ).result


def _widen(image: ir.Value, wanted: tuple[int, ...]) -> ir.Value:
    """`image` with zeros after it up to `wanted`; a padding with zeros is widened itself."""
    extra = [w - n for w, n in zip(wanted, shape_of(image), strict=True)]
    pad = defining_op(image)
    source, low, high = image, [0] * len(extra), extra
    if pad is not None and pad.name == "tensor.pad" and pads_with_zero(pad):
        source = pad.operands[0]
        low = list(pad.attributes["static_low"])
        high = [h + e for h, e in zip(pad.attributes["static_high"], extra, strict=True)]
    kind = ir.RankedTensorType(image.type)
    result = ir.RankedTensorType.get(list(wanted), kind.element_type)
    op = ir.Operation.create(
        "tensor.pad",
        results=[result],
        operands=[source],
        attributes={
            "static_low": ir.DenseI64ArrayAttr.get(low),
            "static_high": ir.DenseI64ArrayAttr.get(high),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0]),
        },
        regions=1,
    )
    zero = arith.ConstantOp(kind.element_type, ir.FloatAttr.get(kind.element_type, 0.0))
    zero.operation.move_before(op)
    block = op.regions[0].blocks.append(*[ir.IndexType.get()] * len(extra))
    with ir.InsertionPoint(block):
        ir.Operation.create("tensor.yield", operands=[zero.result])
    return op.results[0]


def pads_with_zero(pad: ir.Operation) -> bool:
    """Whether a `tensor.pad` adds zeros, and takes nothing away."""
    if any(v < 0 for name in ("static_low", "static_high") for v in pad.attributes[name]):
        return False
    return padding_value(pad) == 0.0


def padding_value(pad: ir.Operation) -> float | None:
    """The number that a `tensor.pad` puts around; None where it is no constant."""
    source = defining_op(pad.regions[0].blocks[0].operations[0].operands[0])
    if source is None or source.name != "arith.constant":
        return None
    value = source.attributes["value"]
    return value.value if isinstance(value, ir.FloatAttr) else None
