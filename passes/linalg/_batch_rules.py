"""Which operations of StableHLO compute every element of a batch, the first dimension of what they
read and write, by itself."""

from __future__ import annotations

from collections.abc import Callable

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir
from stepwell.mlir import stablehlo as bindings
from stepwell.passes.stablehlo._values import (
    ELEMENTWISE,
    i64s,
    integer,
    integers,
    optional_integers,
    padding,
    rebuild,
)


def batched_operands(op: ir.Operation, batch: int) -> list[int]:
    """Numbers of the operands whose element i alone, of `batch` along dimension 0, is read for
    element i of the result, and the others whole; none where `op` is no such operation.

    An operand of another size along dimension 0 is never among them.
    """
    rule = _RULES.get(op.name.removeprefix("stablehlo."))
    if rule is None or len(op.results) != 1 or not _holds(op.results[0], batch):
        return []
    numbers = rule(op)
    return numbers if all(_holds(op.operands[n], batch) for n in numbers) else []


def on_part(op: ir.Operation, operands: list[ir.Value], count: int) -> ir.Value:
    """`op` on `count` elements of the batch, which `operands` are of."""
    changed: dict[str, ir.Attribute | None] = {}
    if op.name == "stablehlo.slice":
        changed["limit_indices"] = i64s([count, *integers(op, "limit_indices")[1:]])
    return rebuild(op, operands, (count, *hlo.shape(op.results[0])[1:]), changed)


def _holds(value: ir.Value, batch: int) -> bool:
    if not isinstance(value.type, ir.RankedTensorType):
        return False
    kind = ir.RankedTensorType(value.type)
    return kind.has_static_shape and kind.rank > 0 and kind.shape[0] == batch


def _elementwise(op: ir.Operation) -> list[int]:
    return [number for number, operand in enumerate(op.operands) if hlo.shape(operand)]


def _convolution(op: ir.Operation) -> list[int]:
    numbers = bindings.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    first = numbers.input_batch_dimension == 0 and numbers.output_batch_dimension == 0
    return [0] if first and integer(op, "batch_group_count", 1) == 1 else []


def _dot_general(op: ir.Operation) -> list[int]:
    numbers = bindings.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    if len(numbers.lhs_batching_dimensions):
        return []  # of attention, most often, whose kernel keeps what it makes in the cache itself
    return [] if 0 in numbers.lhs_contracting_dimensions else [0]


def _reduce(op: ir.Operation) -> list[int]:
    return [] if 0 in integers(op, "dimensions") else [0]


def _reduce_window(op: ir.Operation) -> list[int]:
    rank = len(hlo.shape(op.operands[0]))
    names = ("window_dimensions", "window_strides", "base_dilations", "window_dilations")
    steps = [optional_integers(op, name, rank, 1)[0] for name in names]
    return [0] if steps == [1] * 4 and padding(op, rank)[0] == (0, 0) else []


def _transpose(op: ir.Operation) -> list[int]:
    return [0] if integers(op, "permutation")[0] == 0 else []


def _pad(op: ir.Operation) -> list[int]:
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    return [] if any(integers(op, name)[0] for name in names) else [0]


def _concatenate(op: ir.Operation) -> list[int]:
    return list(range(len(op.operands))) if integer(op, "dimension") else []


def _slice(op: ir.Operation) -> list[int]:
    return [0]  # of as many elements as the operand has


def _reshape(op: ir.Operation) -> list[int]:
    return [0]  # rows of the batch stay rows of the batch


def _broadcast_in_dim(op: ir.Operation) -> list[int]:
    return [0] if integers(op, "broadcast_dimensions")[:1] == [0] else []


_RULES: dict[str, Callable[[ir.Operation], list[int]]] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    "convolution": _convolution,
    "dot_general": _dot_general,
    "reduce": _reduce,
    "reduce_window": _reduce_window,
    "transpose": _transpose,
    "pad": _pad,
    "concatenate": _concatenate,
    "slice": _slice,
    "reshape": _reshape,
    "broadcast_in_dim": _broadcast_in_dim,
}
