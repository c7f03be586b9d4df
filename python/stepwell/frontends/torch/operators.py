"""Operators that the passes of torch-mlir have no lowering for, or one that fails, as StableHLO.

    torch.aten.lgamma %x                                    ->  chlo.lgamma %x
    torch.aten.scatter_reduce.two %x, 0, %i, %y, "amax", ..  ->  stablehlo.scatter(%x, %i, %y) {max}

A function here takes the operands: tensors as values, others as they are in Python.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.torch import (
    complex_operators,
    cumulative,
    hidden_calls,
    linear_algebra,
)
from stepwell.frontends.torch.hidden_calls import created
from stepwell.mlir import ir, nested_operations

Lowering = Callable[..., ir.Value | list[ir.Value]]
"""Makes the results of an operator, given the call that stands for it and its operands."""

_FORMS: dict[str, Lowering] = {}


def _lowering(name: str) -> Callable[[Lowering], Lowering]:
    """Decorator: the function makes what the operator `name` stands for."""

    def enter(function: Lowering) -> Lowering:
        _FORMS[name] = function
        return function

    return enter


def hide(module: ir.Module) -> None:
    """Replace the operators in `module`, of the torch dialect, by calls."""
    found = [(_name(op), op) for op in nested_operations(module.operation)]
    found = [(name, op) for name, op in found if name in _ALL or _is_of_complex(name, op)]
    if found:
        hidden_calls.load_casts()
    for name, op in found:
        arguments = [_argument(operand) for operand in op.operands]
        known = [argument for argument in arguments if argument is not None]
        if len(known) == len(arguments):  # others are refused, by name, as those without a form
            tensors = [v for v in op.operands if _is_tensor(v)]
            hidden_calls.hide(op, name, tensors, {"arguments": ir.ArrayAttr.get(known)})


def restore(module: ir.Module) -> None:
    """Replace the calls in `module`, of StableHLO, by what they stand for."""
    for name, op in hidden_calls.hidden(module):
        form = _ALL.get(name) or complex_operators.FORMS.get(name)
        if form is None:
            continue
        tensors = iter(op.operands)
        arguments = [
            next(tensors) if isinstance(argument, ir.UnitAttr) else _in_python(argument)
            for argument in ir.ArrayAttr(op.attributes["arguments"])
        ]
        with ir.InsertionPoint(op), op.location:
            made = form(op, *arguments)
            hidden_calls.replace(op, [made] if isinstance(made, ir.Value) else made)


def _name(op: ir.Operation) -> str:
    if op.name == "torch.operator":
        return ir.StringAttr(op.attributes["name"]).value.removeprefix("torch.")
    return op.name.removeprefix("torch.")


def _is_of_complex(name: str, op: ir.Operation) -> bool:
    """Whether the operator is one of complex numbers here."""
    types = [value.type for value in (*op.operands, *op.results)]
    return name in complex_operators.FORMS and any("complex<" in str(kind) for kind in types)


def _is_tensor(value: ir.Value) -> bool:
    return str(value.type).startswith("!torch.vtensor")


def _argument(operand: ir.Value) -> ir.Attribute | None:
    """A constant operand, or the place of a tensor; None for what is neither."""
    if _is_tensor(operand):
        return ir.UnitAttr.get()
    owner = operand.owner
    if not isinstance(owner, ir.Block) and owner.name == "torch.prim.ListConstruct":
        elements = [_argument(element) for element in owner.operands]
        known = [element for element in elements if element is not None]
        return ir.ArrayAttr.get(known) if len(known) == len(elements) else None
    if isinstance(owner, ir.Block) or not owner.name.startswith("torch.constant."):
        return None
    if owner.name == "torch.constant.none":
        return ir.TypeAttr.get(ir.NoneType.get())
    return owner.attributes["value"]


def _in_python(argument: ir.Attribute) -> object:
    if isinstance(argument, ir.ArrayAttr):
        return [_in_python(element) for element in argument]
    if isinstance(argument, ir.TypeAttr):
        return None
    return argument.value  # pyright: ignore[reportAttributeAccessIssue]


# --- Functions of elements ------------------------------------------------------------------------


def _elementwise(name: str, op: ir.Operation, *operands: ir.Value) -> ir.Value:
    """An operation of CHLO on the operands, widened and converted to what the result is."""
    kind = op.results[0].type
    (result,) = created(name, [kind], [_as(operand, op.results[0]) for operand in operands])
    return result


def _as(operand: ir.Value, result: ir.Value) -> ir.Value:
    shape, rank = hlo.shape(result), len(hlo.shape(operand))
    dims = range(len(shape) - rank, len(shape))
    kept = [d for d, size in zip(dims, hlo.shape(operand), strict=True) if size == shape[d]]
    operand = hlo.convert(hlo.reshape(operand, [shape[d] for d in kept]), hlo.dtype(result))
    return hlo.broadcast_in_dim(operand, shape, kept)


for _operator, _function in (
    ("aten.erfc", "chlo.erfc"),
    ("aten.erfinv", "chlo.erf_inv"),
    ("aten.lgamma", "chlo.lgamma"),
    ("aten.digamma", "chlo.digamma"),
    ("aten.special_i1e", "chlo.bessel_i1e"),
    ("aten.special_zeta", "chlo.zeta"),
    ("aten.nextafter", "chlo.next_after"),
):
    _lowering(_operator)(functools.partial(_elementwise, _function))


@_lowering("aten.polygamma")
def _polygamma(op: ir.Operation, order: int, x: ir.Value) -> ir.Value:
    x = _as(x, op.results[0])
    return _elementwise("chlo.polygamma", op, hlo.full_like(x, order), x)


@_lowering("aten.view.dtype")
def _view_of_bits(op: ir.Operation, x: ir.Value, dtype: int) -> ir.Value:
    """The bits of elements as another type, of which one may be several or a part of one."""
    result = op.results[0].type
    sizes, kind = list(hlo.shape(op.results[0])), hlo.element_type(op.results[0])
    before, after = hlo.dtype(x).itemsize, hlo.dtype(op.results[0]).itemsize
    if before < after:
        x = hlo.reshape(x, [*sizes, after // before])
    elif before > after:
        parts = before // after
        sizes = [*hlo.shape(x), parts]
        result = ir.RankedTensorType.get(sizes, kind)
    (bits,) = created("stablehlo.bitcast_convert", [result], [x])
    return hlo.reshape(bits, hlo.shape(op.results[0]))


# --- Scatter --------------------------------------------------------------------------------------

_COMBINERS = {
    "sum": "add",
    "mean": "add",
    "prod": "multiply",
    "amax": "maximum",
    "amin": "minimum",
}


@_lowering("aten.scatter_add")
def _scatter_add(
    op: ir.Operation, x: ir.Value, dim: int, index: ir.Value, source: ir.Value
) -> ir.Value:
    return _scatter_reduce(op, x, dim, index, source, "sum")


@_lowering("aten.scatter_reduce.two")
def _scatter_reduce(
    op: ir.Operation,
    x: ir.Value,
    dim: int,
    index: ir.Value,
    source: ir.Value,
    reduction: str,
    include_self: bool = True,
) -> ir.Value:
    """`x` joined with `source[i][j]` at `[index[i][j]][j]`, for dim 0; without `include_self`, its
    elements there do not count."""
    shape = hlo.shape(x)
    x, index, source = (v if hlo.shape(v) else hlo.reshape(v, [1]) for v in (x, index, source))
    sizes, rank = hlo.shape(index), len(hlo.shape(x))
    dim %= rank
    whole = [d for d in range(rank) if d != dim and sizes[d] == hlo.shape(x)[d]]
    moved = [d for d in range(rank) if d not in whole]
    coordinates = [index if d == dim else hlo.iota(sizes, d, hlo.dtype(index)) for d in moved]
    positions = hlo.concatenate([hlo.reshape(c, [*sizes, 1]) for c in coordinates], rank)
    dimensions = hlo.ScatterDimensions([], moved, moved, rank, whole, whole)
    updates = hlo.slice(source, [0] * rank, sizes)
    combine = _COMBINERS[reduction]

    def joined(start: ir.Value, updates: ir.Value) -> ir.Value:
        if not include_self:
            neutral = hlo.full_like(updates, hlo.identity(combine, hlo.dtype(x)))
            start = hlo.scatter(start, positions, neutral, dimensions)
        return hlo.scatter(start, positions, updates, dimensions, combine)

    total = joined(x, updates)
    if reduction != "mean":
        return hlo.reshape(total, shape)
    count = joined(hlo.full_like(x, 1), hlo.full_like(updates, 1))
    mean = hlo.divide(total, count)
    if np.issubdtype(hlo.dtype(x), np.integer):  # towards minus infinity
        rest = hlo.subtract(total, hlo.multiply(mean, count))
        below = hlo.compare(rest, hlo.full_like(rest, 0), "LT")
        mean = hlo.select(below, hlo.subtract(mean, hlo.full_like(mean, 1)), mean)
    return hlo.reshape(mean, shape)


_ALL = {**_FORMS, **cumulative.FORMS, **linear_algebra.FORMS}

__all__ = ["hide", "restore"]
