"""`legalize-to-linalg`: StableHLO to structured operations on tensors.

Upstream's `stablehlo-legalize-to-linalg` does most of it. What it lacks or lowers to scalar
branches is rewritten first: `stablehlo.concatenate` becomes `tensor.concat`, `chlo.erf` and
`chlo.erfc` generics of `math`, a grouped convolution a generic that has a loop over the groups,
weights that stay narrow a generic that products take in (`kernels/widened_weights.py`), a product
with a compressed matrix a generic that reads at its places (`kernels/sparse_product.py`).
Named operations are generalised, so that what follows sees one form, `linalg.generic`.

    %0 = stablehlo.add %a, %b     ->     %0 = linalg.generic ... { arith.addf }
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stepwell.dialects import narrow_weights, sparse_products
from stepwell.dialects import stablehlo as hlo
from stepwell.errors import TAKE_CALLBACKS_OUT, LoweringError
from stepwell.kernels.sparse_product import sparse_product
from stepwell.kernels.structured import source_name
from stepwell.kernels.widened_weights import widened
from stepwell.mlir import dialect, ir, nested_operations, run_upstream
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg import _grouped_convolution
from stepwell.passes.stablehlo._values import constant_array, splat
from stepwell.weights import WeightTable

tensor = dialect("tensor")

_UPSTREAM = (
    "stablehlo-legalize-to-linalg,stablehlo-convert-to-signless,reconcile-unrealized-casts,"
    "func.func(linalg-generalize-named-ops),canonicalize,cse"
)


def _concatenate(op: ir.Operation, weights: WeightTable) -> ir.Value:
    dimension = ir.IntegerAttr(op.attributes["dimension"]).value
    return tensor.ConcatOp(op.results[0].type, dimension, list(op.operands)).result


def _error_function(op: ir.Operation, weights: WeightTable) -> ir.Value:
    kind = ir.RankedTensorType(op.results[0].type)
    return elementwise([op.operands[0]], kind, op.name.replace("chlo.", "math."))


def elementwise(operands: list[ir.Value], kind: ir.RankedTensorType, scalar_op: str) -> ir.Value:
    """`linalg.generic` that applies `scalar_op` to tensors of one shape."""
    identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(kind.rank))
    parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>")
    empty = tensor.EmptyOp(list(kind.shape), kind.element_type).result
    generic = ir.Operation.create(
        "linalg.generic",
        results=[kind],
        operands=[*operands, empty],
        attributes={
            "indexing_maps": ir.ArrayAttr.get([identity] * (len(operands) + 1)),
            "iterator_types": ir.ArrayAttr.get([parallel] * kind.rank),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(operands), 1]),
        },
        regions=1,
    )
    block = generic.regions[0].blocks.append(
        *[o.type.element_type for o in operands], kind.element_type
    )
    with ir.InsertionPoint(block):
        value = ir.Operation.create(
            scalar_op,
            results=[kind.element_type],
            operands=list(block.arguments)[: len(operands)],
        ).results[0]
        ir.Operation.create("linalg.yield", operands=[value])
    return generic.results[0]


def _signless_constant(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """An unsigned constant that is a resource, as the bits of a signless one: upstream's conversion
    to signless types does not look into resources."""
    kind = ir.RankedTensorType(op.results[0].type)
    element = kind.element_type
    attribute = op.attributes["value"]
    unsigned = isinstance(element, ir.IntegerType) and element.is_unsigned
    if not unsigned or isinstance(attribute, ir.DenseElementsAttr):
        return None
    array = weights.array(attribute)
    constant = hlo.constant(array.view(f"i{array.dtype.itemsize}"), weights)
    return ir.Operation.create(
        "stablehlo.bitcast_convert", results=[kind], operands=[constant]
    ).results[0]


def _reduce(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """A reduction over no dimension combines each element with the identity alone."""
    return op.operands[0] if len(op.results) == 1 and not len(op.attributes["dimensions"]) else None


def _target(op: ir.Operation) -> str:
    """What a custom call calls."""
    if op.name != "stablehlo.custom_call":
        return ""
    return f" @{ir.StringAttr(op.attributes['call_target_name']).value}"


def _refuse_callbacks(op: ir.Operation) -> None:
    for inner in nested_operations(op):
        if inner.name == "stablehlo.custom_call" and "python_cpu_callback" in _target(inner):
            raise LoweringError(
                f"{source_name(inner)}: the function calls back into Python, which compiled code "
                f"does not; {TAKE_CALLBACKS_OUT}"
            )


def _convolution(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    return _grouped_convolution.lower(op)


def _widened(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    if not narrow_weights.is_widened(op):
        return None
    codes, scales, zeros = (*op.operands, None, None)[:3]
    assert codes is not None
    zero = None if zeros is None else splat(zeros)
    block = 1 if scales is None else hlo.shape(codes)[0] // hlo.shape(scales)[0]
    if zero is not None:
        zeros = None
    return widened(hlo.shape(codes), codes, scales, zeros, block, zero or 0.0)


def _sparse_dot(op: ir.Operation, weights: WeightTable) -> ir.Value:
    values, places, starts, dense = op.operands
    begins = constant_array(starts, weights)
    assert begins is not None
    kind = ir.RankedTensorType(op.results[0].type)
    return sparse_product(values, places, starts, dense, int(np.diff(begins).max()), kind)


def _custom_call(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    return _sparse_dot(op, weights) if sparse_products.is_sparse_dot(op) else _widened(op, weights)


_REWRITES: dict[str, Callable[[ir.Operation, WeightTable], ir.Value | None]] = {
    "stablehlo.concatenate": _concatenate,
    "chlo.erf": _error_function,
    "chlo.erfc": _error_function,
    "stablehlo.convolution": _convolution,
    "stablehlo.constant": _signless_constant,
    "stablehlo.custom_call": _custom_call,
    "stablehlo.reduce": _reduce,
}


@dataclass(frozen=True)
class LegalizeToLinalg(Pass):
    """Lower every StableHLO operation; raises LoweringError that names one that is left."""

    name: ClassVar[str] = "legalize-to-linalg"

    def run(self, op: ir.Operation, state: State) -> None:
        found = [inner for inner in nested_operations(op) if inner.name in _REWRITES]
        for child in found:
            with ir.InsertionPoint(child), child.location:
                value = _REWRITES[child.name](child, state.weights)
            if value is not None:
                child.results[0].replace_all_uses_with(value)
                child.erase()
        run_upstream(op, _UPSTREAM)
        left = [
            f"{source_name(inner)}: {inner.name}{_target(inner)}"
            for inner in nested_operations(op)
            if inner.name.startswith(("stablehlo.", "chlo.", "vhlo."))
        ]
        _refuse_callbacks(op)
        if left:
            raise LoweringError(
                f"{left[0]} has no lowering to linalg"
                + (f" ({len(left)} operations in all)" if len(left) > 1 else "")
            )
