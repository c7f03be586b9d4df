"""Arithmetic on joined results of products and convolutions, done on each before they are joined.

    %c = stablehlo.concatenate %a, %b, dim = 3                    // of two convolutions
    %s = stablehlo.add %c, broadcast(%bias)
    %y = stablehlo.maximum %s, %zero

becomes a concatenation of what each convolution's kernel finishes in registers. The phases of a
transposed convolution are joined so, and the branches of networks that leave a normalisation and
an activation to the whole.
"""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir
from stepwell.passes.stablehlo._values import (
    ELEMENTWISE,
    constant_attribute,
    has_one_use,
    integer,
    integers,
    producer,
    rebuild,
    splat,
)
from stepwell.weights import WeightTable


def joins_results(value: ir.Value, within: ir.Operation | None = None) -> ir.Operation | None:
    """The concatenation that makes `value`, if each part is the result of a product or a
    convolution, or such a concatenation, and nothing reads it or its parts but arithmetic, and
    `within`, the concatenation that it is a part of."""
    op = producer(value, "concatenate")
    if op is None or not all(_is_result(part, op) for part in op.operands):
        return None
    return op if _readers(value, within) <= ELEMENTWISE | {"reshape"} else None


def _is_result(part: ir.Value, whole: ir.Operation) -> bool:
    if producer(part, "concatenate") is not None:
        return has_one_use(part) and joins_results(part, whole) is not None
    if not _readers(part, whole) <= ELEMENTWISE:
        return False
    while (op := producer(part, "reshape", *ELEMENTWISE)) is not None:
        part = op.operands[0]
    return producer(part, "convolution", "dot_general") is not None


def _readers(value: ir.Value, but: ir.Operation | None) -> set[str]:
    readers = {use.owner.operation for use in value.uses} - {but}
    return {reader.name.removeprefix("stablehlo.") for reader in readers}


def through_elementwise(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """Elementwise ops of joined results, and of numbers that each part has its own of."""
    operands = list(op.operands)
    joined = [value for value in operands if producer(value, "concatenate") is not None]
    if not joined or any(joins_results(value) is None for value in joined):
        return None
    return _apart(op, operands, hlo.shape(op.results[0])) if _comes_apart(operands) else None


def _comes_apart(operands: Sequence[ir.Value]) -> bool:
    """Whether operands that are joined are alike, and all others are cut freely."""
    wholes = [producer(value, "concatenate") for value in operands]
    found = next((whole for whole in wholes if whole is not None), None)
    if found is None:
        return True
    axis, sizes = integer(found, "dimension"), _sizes(found)
    for value, whole in zip(operands, wholes, strict=True):
        if whole is None:
            fits = not hlo.shape(value) or _is_cut_freely(value, axis)
        else:
            fits = (integer(whole, "dimension"), _sizes(whole)) == (axis, sizes)
        if not fits:
            return False
    return all(
        _comes_apart([_part(v, whole, n) for v, whole in zip(operands, wholes, strict=True)])
        for n in range(len(sizes))
    )


def _apart(op: ir.Operation, operands: Sequence[ir.Value], shape: Sequence[int]) -> ir.Value:
    """`op` on the parts of `operands`, joined: a result of `shape`."""
    wholes = [producer(value, "concatenate") for value in operands]
    found = next((whole for whole in wholes if whole is not None), None)
    if found is None:
        return rebuild(op, operands, shape)
    axis, parts, begin = integer(found, "dimension"), [], 0
    for number, size in enumerate(_sizes(found)):
        end = begin + size
        inner = [
            _part(value, whole, number) if whole is not None else _cut(value, axis, begin, end)
            for value, whole in zip(operands, wholes, strict=True)
        ]
        parts.append(_apart(op, inner, [*shape[:axis], size, *shape[axis + 1 :]]))
        begin = end
    return hlo.concatenate(parts, axis)


def _part(value: ir.Value, whole: ir.Operation | None, number: int) -> ir.Value:
    return value if whole is None else whole.operands[number]


def _sizes(concatenation: ir.Operation) -> list[int]:
    axis = integer(concatenation, "dimension")
    return [hlo.shape(part)[axis] for part in concatenation.operands]


def _is_cut_freely(value: ir.Value, axis: int) -> bool:
    """Whether a part of `value` along `axis` is known when the model is compiled, or costs nothing:
    one number, or a broadcast that repeats it along there."""
    if splat(value) is not None:
        return True
    op = producer(value, "broadcast_in_dim")
    if op is None:
        return False
    along = axis in integers(op, "broadcast_dimensions")
    return not along or constant_attribute(op.operands[0]) is not None


def _cut(value: ir.Value, axis: int, begin: int, end: int) -> ir.Value:
    shape = list(hlo.shape(value))
    if not shape:
        return value
    shape[axis] = end - begin
    number = splat(value)
    if number is not None:
        return hlo.full(number, shape, hlo.dtype(value))
    op = producer(value, "broadcast_in_dim")
    assert op is not None
    source, targets = op.operands[0], integers(op, "broadcast_dimensions")
    if axis in targets:
        sizes = hlo.shape(source)
        dim = targets.index(axis)
        if sizes[dim] > 1:
            first, last = [0] * len(sizes), list(sizes)
            first[dim], last[dim] = begin, end
            source = hlo.slice(source, first, last)
    return hlo.broadcast_in_dim(source, shape, targets)
