"""legalize-small-types: floats of 8 bits and fewer, and integers of 4 and 2, become bytes.

    %0 = stablehlo.reshape %a : (tensor<4xf8E5M2>) -> tensor<2x2xf8E5M2>
    %1 = stablehlo.add %0, %b : tensor<2x2xf8E5M2>

becomes

    %0 = stablehlo.reshape %a : (tensor<4xui8>) -> tensor<2x2xui8>
    %1 = ...                    // the bits of %0 as f32, by integer arithmetic; likewise %2 of %b
    %3 = stablehlo.add %1, %2 : tensor<2x2xf32>
    %4 = ...                    // %3 rounded to the bits of f8E5M2: tensor<2x2xui8>

- A float is its code, zero-extended to ui8. What moves data moves codes; all else is computed in
  f32 and rounded after each op.
- An integer is its value as i8 or ui8. Ops run on these, and the result is cut to its width.
- In the arguments and results of functions a signed integer has the high bits of its byte zero,
  as numpy arrays of ml_dtypes have; inside it is sign-extended.

A product of floats of 8 bits that tensor cores of the target multiply stays one: its operands are
codes named as what they are (`bitcast_convert` to the float's type), its sums f32. Operands may
also be widened and scaled first (`_float8_products.py`).

It runs first, so that no other pass meets these types. Custom calls, whose bits have a layout of
their own, are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import ml_dtypes
import numpy as np

from stepwell import dtypes
from stepwell.dialects import stablehlo as hlo
from stepwell.errors import LoweringError
from stepwell.kernels.structured import source_name
from stepwell.mlir import ir
from stepwell.passes.base import Pass, State
from stepwell.passes.stablehlo import _small_floats as small_floats
from stepwell.passes.stablehlo._float8_products import narrow_products
from stepwell.passes.stablehlo._small_bits import regrouped
from stepwell.weights import WeightTable

_MOVEMENT = frozenset(
    [
        "broadcast_in_dim",
        "concatenate",
        "dynamic_slice",
        "dynamic_update_slice",
        "gather",
        "optimization_barrier",
        "pad",
        "reshape",
        "reverse",
        "select",
        "slice",
        "transpose",
    ]
)
"""Ops that only move elements."""

_OPAQUE = frozenset(["custom_call", "composite", "rng_bit_generator", "infeed", "recv"])

_ZERO_EXTENDED = frozenset(["count_leading_zeros", "popcnt", "shift_right_logical"])
"""Integer ops that see the bits above the sign."""

Small: TypeAlias = "np.dtype | None"


@dataclass(frozen=True)
class _Planned:
    """An op, and which small types its operands, results and blocks' arguments had."""

    op: ir.Operation
    operands: list[Small]
    results: list[Small]
    arguments: list[Small]


@dataclass(frozen=True)
class LegalizeSmallTypes(Pass):
    """Carry small types in bytes and compute with them in f32 or i8."""

    name: ClassVar[str] = "legalize-small-types"

    def run(self, op: ir.Operation, state: State) -> None:
        """Rewrite every op that has to do with a small type; functions change their types."""
        products = narrow_products(op, state)
        # Operations are hashed by what they are, operands included: looked up before they change.
        for planned, stays in [(planned, planned.op in products) for planned in _plan(op)]:
            if stays:
                _multiply_codes(planned)
            else:
                _legalize(planned, state.weights)


def _plan(root: ir.Operation) -> Iterator[_Planned]:
    for region in root.regions:
        for block in region.blocks:
            for child in block.operations:
                op = child.operation
                arguments = [
                    _small(argument)
                    for inner in op.regions
                    for inner_block in inner.blocks
                    for argument in inner_block.arguments
                ]
                planned = _Planned(
                    op, [_small(v) for v in op.operands], [_small(v) for v in op.results], arguments
                )
                small = any((*planned.operands, *planned.results, *planned.arguments))
                if small or op.name == "func.func":  # results may be the only small types
                    yield planned
                yield from _plan(op)


def _small(value: ir.Value) -> Small:
    kind = value.type
    if not isinstance(kind, ir.RankedTensorType) or str(kind.element_type) not in dtypes.SMALL:
        return None
    return dtypes.to_numpy(kind.element_type)


def _legalize(planned: _Planned, weights: WeightTable) -> None:
    op = planned.op
    name = op.name.partition(".")[2]
    if name in _OPAQUE:
        raise LoweringError(
            f"{source_name(op)}: {op.name} of {_described(planned)} is not supported; "
            "convert to f32 or i8 before it"
        )
    if op.name == "func.func":
        _function(planned)
    elif name == "return":
        if op.name == "func.return":
            _close(planned)
    elif len(op.regions) or name in _MOVEMENT:
        _retype_arguments(planned)
        _retype_results(planned)
    elif name == "constant":
        _constant(planned, weights)
    elif name == "convert":
        _convert(planned)
    elif name == "bitcast_convert":
        _bitcast(planned)
    elif any(d is not None and dtypes.is_float(d) for d in (*planned.operands, *planned.results)):
        _compute_wide(planned)
    else:
        _compute_in_bytes(planned)


def _described(planned: _Planned) -> str:
    kinds = [d for d in (*planned.operands, *planned.results, *planned.arguments) if d is not None]
    return kinds[0].name


# --- Types ---------------------------------------------------------------------------------------


def _storage(kind: np.dtype) -> np.dtype:
    signed = dtypes.is_integer(kind) and not dtypes.is_unsigned(kind)
    return np.dtype(np.int8 if signed else np.uint8)


def _retype(value: ir.Value, kind: np.dtype) -> None:
    value.set_type(dtypes.tensor_type(hlo.shape(value), kind))


def _retype_results(planned: _Planned) -> None:
    for result, kind in zip(planned.op.results, planned.results, strict=True):
        if kind is not None:
            _retype(result, _storage(kind))


def _retype_arguments(planned: _Planned) -> list[ir.Value]:
    arguments = [a for r in planned.op.regions for block in r.blocks for a in block.arguments]
    for argument, kind in zip(arguments, planned.arguments, strict=True):
        if kind is not None:
            _retype(argument, _storage(kind))
    return arguments


def _function(planned: _Planned) -> None:
    """Signed arguments are sign-extended at the head; the results are known at the return."""
    arguments = _retype_arguments(planned)
    op = planned.op
    for block in op.regions[0].blocks:
        with ir.InsertionPoint.at_block_begin(block), ir.Location.unknown():
            for argument, kind in zip(arguments, planned.arguments, strict=True):
                if kind is not None and _storage(kind) == np.int8:
                    uses = _uses(argument)
                    _redirect(uses, _cut(argument, kind))
    signature = ir.FunctionType(ir.TypeAttr(op.attributes["function_type"]).value)
    results = [_storage_type(kind) for kind in signature.results]
    kinds = [argument.type for argument in arguments]
    op.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(kinds, results))


def _storage_type(kind: ir.Type) -> ir.Type:
    if not isinstance(kind, ir.RankedTensorType) or str(kind.element_type) not in dtypes.SMALL:
        return kind
    return dtypes.tensor_type(list(kind.shape), _storage(dtypes.to_numpy(kind.element_type)))


def _close(planned: _Planned) -> None:
    """Results of signed integers leave with the high bits of their bytes zero."""
    op = planned.op
    with ir.InsertionPoint(op), op.location:
        for i, kind in enumerate(planned.operands):
            if kind is not None and _storage(kind) == np.int8:
                op.operands[i] = _low_bits(op.operands[i], kind)


# --- Uses ----------------------------------------------------------------------------------------


def _uses(value: ir.Value) -> list[tuple[ir.Operation, int]]:
    return [(use.owner.operation, use.operand_number) for use in value.uses]


def _redirect(uses: Sequence[tuple[ir.Operation, int]], value: ir.Value) -> None:
    for user, position in uses:
        user.operands[position] = value


def _replace(op: ir.Operation, value: ir.Value) -> None:
    op.results[0].replace_all_uses_with(value)
    op.erase()


# --- Integers ------------------------------------------------------------------------------------


def _width(kind: np.dtype) -> int:
    return 4 if kind.name.endswith("4") else 2


def _cut(value: ir.Value, kind: np.dtype) -> ir.Value:
    """Bytes of any value, those of `kind` with the same low bits."""
    if dtypes.is_unsigned(kind):
        return _low_bits(value, kind)
    return _sign_extended(value, kind)


def _sign_extended(value: ir.Value, kind: np.dtype) -> ir.Value:
    by = hlo.full_like(value, 8 - _width(kind))
    return hlo.shift_right_arithmetic(hlo.shift_left(value, by), by)


def _within(value: ir.Value, kind: np.dtype) -> ir.Value:
    """`value`, limited to the numbers of `kind`."""
    limits = ml_dtypes.iinfo(kind)
    low, high = (hlo.full(limit, (), hlo.dtype(value)) for limit in (limits.min, limits.max))
    return hlo.clamp(low, value, high)


def _low_bits(value: ir.Value, kind: np.dtype) -> ir.Value:
    return hlo.and_(value, hlo.full_like(value, (1 << _width(kind)) - 1))


def _compute_in_bytes(planned: _Planned) -> None:
    op = planned.op
    name = op.name.partition(".")[2]
    if name in _ZERO_EXTENDED:
        with ir.InsertionPoint(op), op.location:
            kind = planned.operands[0]
            if kind is not None and _storage(kind) == np.int8:
                op.operands[0] = _low_bits(op.operands[0], kind)
    elif name == "shift_right_arithmetic":
        with ir.InsertionPoint(op), op.location:
            kind = planned.operands[0]
            if kind is not None and dtypes.is_unsigned(kind):
                op.operands[0] = _sign_extended(op.operands[0], kind)
    _retype_results(planned)
    for result, kind in zip(op.results, planned.results, strict=True):
        if kind is None:
            continue
        uses = _uses(result)
        with ir.InsertionPoint.after(op), op.location:
            value: ir.Value = result
            if name == "count_leading_zeros":
                value = hlo.subtract(value, hlo.full_like(value, 8 - _width(kind)))
            _redirect(uses, _cut(value, kind))


# --- Floats --------------------------------------------------------------------------------------


def _compute_wide(planned: _Planned) -> None:
    """Run the op in f32 and round its results."""
    op = planned.op
    with ir.InsertionPoint(op), op.location:
        for i, kind in enumerate(planned.operands):
            if kind is not None and dtypes.is_float(kind):
                op.operands[i] = small_floats.decode(op.operands[i], str(dtypes.to_mlir(kind)))
    for result, kind in zip(op.results, planned.results, strict=True):
        if kind is None:
            continue
        uses = _uses(result)
        _retype(result, np.dtype(np.float32))
        with ir.InsertionPoint.after(op), op.location:
            _redirect(uses, small_floats.encode(result, str(dtypes.to_mlir(kind))))


# --- Products ------------------------------------------------------------------------------------


def _multiply_codes(planned: _Planned) -> None:
    """Name the codes that are multiplied, and round sums to what they were."""
    op = planned.op
    result = op.results[0]
    wanted = hlo.dtype(result)
    with ir.InsertionPoint(op), op.location:
        for number, kind in enumerate(planned.operands):
            assert kind is not None
            op.operands[number] = hlo.bitcast_convert(op.operands[number], kind)
    if wanted == np.float32:
        return
    uses = _uses(result)
    _retype(result, np.dtype(np.float32))
    with ir.InsertionPoint.after(op), op.location:
        if planned.results[0] is None:
            _redirect(uses, hlo.convert(result, wanted))
        else:
            _redirect(uses, small_floats.encode(result, str(dtypes.to_mlir(wanted))))


# --- Constants and conversions -------------------------------------------------------------------


def _constant(planned: _Planned, weights: WeightTable) -> None:
    op, kind = planned.op, planned.results[0]
    assert kind is not None
    array = weights.array(op.attributes["value"])
    codes = array.astype(_storage(kind)) if dtypes.is_integer(kind) else array.view(np.uint8)
    with ir.InsertionPoint(op), op.location:
        _replace(op, hlo.constant(codes, weights, weights.name_of(op.attributes["value"]) or "c"))


def _convert(planned: _Planned) -> None:
    """Through f32, in which every small float is exact; integers are cut, numbers limited."""
    op = planned.op
    source, target = planned.operands[0], planned.results[0]
    with ir.InsertionPoint(op), op.location:
        value = op.operands[0]
        if source is not None and dtypes.is_float(source):
            value = small_floats.decode(value, str(dtypes.to_mlir(source)))
        if target is None:
            value = hlo.convert(value, hlo.dtype(op.results[0]))
        elif dtypes.is_float(target):
            wide = np.float64 if hlo.dtype(value) == np.float64 else np.float32
            value = small_floats.encode(hlo.convert(value, wide), str(dtypes.to_mlir(target)))
        else:
            if dtypes.is_float(hlo.dtype(value)):
                value = _within(hlo.convert(value, np.int32), target)
            value = _cut(hlo.convert(value, _storage(target)), target)
        _replace(op, value)


def _bitcast(planned: _Planned) -> None:
    op = planned.op
    source, kind = planned.operands[0], planned.results[0]
    value, shape = op.operands[0], hlo.shape(op.results[0])
    with ir.InsertionPoint(op), op.location:
        if source is not None and _storage(source) == np.int8:
            value = _low_bits(value, source)
        if hlo.shape(value) != shape:
            before, after = (
                dtypes.bits(hlo.dtype(v) if small is None else small)
                for v, small in ((value, source), (op.results[0], kind))
            )
            value = regrouped(value, before, after, shape)
        storage = hlo.dtype(op.results[0]) if kind is None else _storage(kind)
        if hlo.dtype(value) != storage:
            value = hlo.bitcast_convert(value, storage, shape)
        if kind is not None and dtypes.is_integer(kind):
            value = _cut(value, kind)
        _replace(op, value)
