"""`expand-math`: replace transcendental functions by polynomials, on vectors and scalars.

Generated code calls no math library, but for remainders of numbers of very different size. Each
expansion states its error against the exact function over all finite inputs, in units in the last
place (ulp) or relative to the result. f64 has expansions of its own, through which the rarer
functions of f32 go too; f16 and bf16 are computed in f32 and rounded. Conversions of floats to
integers get the results of XLA where numbers do not fit; on CPUs, vectors of integers are divided
as floats.

    %y = math.exp %x : vector<16xf32>   ->   arith and math.fma operations on vector<16xf32>

Sources: exp, log: Cephes (S. Moshier) minimax coefficients, with the argument reductions of W. J.
Cody and W. Waite, "Software Manual for the Elementary Functions" (1980); erf and erfc:
`kernels/vector_math_error_functions.py`. Kernels of GPUs with `kernel.fast_math` have the
instructions of `kernels/gpu/approximate_math.py` instead, for the functions that it has."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from stepwell.kernels import (
    vector_math,
    vector_math_double,
    vector_math_error_functions,
    vector_math_integers,
    vector_math_remainder,
)
from stepwell.kernels.gpu import approximate_math
from stepwell.kernels.gpu.approximate_math import FAST_MATH
from stepwell.mlir import dialect, ir, nested_operations
from stepwell.passes.base import Pass, State
from stepwell.targets import Target
from stepwell.targets.nvidia import NvidiaTarget

arith = dialect("arith")

_SINGLE: dict[str, Callable[..., ir.Value]] = {
    "arith.remf": vector_math_remainder.remainder,
    "math.exp": vector_math.exp,
    "math.expm1": vector_math.expm1,
    "math.log": vector_math.log,
    "math.log1p": vector_math.log1p,
    "math.atan2": vector_math.atan2,
    "math.tanh": vector_math.tanh,
    "math.erf": vector_math_error_functions.erf,
    "math.erfc": vector_math_error_functions.erfc,
    "math.rsqrt": vector_math.rsqrt,
    "math.powf": vector_math_double.through_double(vector_math_double.power_of_singles),
}
"""Expansions in f32, of the functions that networks spend time in."""

_DOUBLE: dict[str, Callable[..., ir.Value]] = {
    "arith.remf": vector_math_remainder.remainder,
    "math.exp": vector_math_double.exp,
    "math.expm1": vector_math_double.expm1,
    "math.log": vector_math_double.log,
    "math.log1p": vector_math_double.log1p,
    "math.tanh": vector_math_double.tanh,
    "math.powf": vector_math_double.power,
    "math.sin": vector_math_double.sin,
    "math.cos": vector_math_double.cos,
    "math.tan": vector_math_double.tan,
    "math.atan2": vector_math_double.atan2,
    "math.cbrt": vector_math_double.cbrt,
    "math.erf": vector_math_error_functions.erf,
    "math.erfc": vector_math_error_functions.erfc,
    "math.rsqrt": vector_math.rsqrt,
}
"""Expansions in f64; f32 takes them too where it has none of its own."""


def _expansion(call: ir.Operation, element: str, target: Target) -> Callable[..., ir.Value] | None:
    name = call.name
    avx512 = {"avx512f", "avx512vl"} <= set(target.features)
    if element == "f64" and name == "math.exp":
        return functools.partial(vector_math_double.exp, avx512=avx512)
    if element == "f64":
        return _DOUBLE.get(name)
    if name == "math.exp" and vector_math.NONPOSITIVE in call.attributes:
        on_gpu = isinstance(target, NvidiaTarget)
        return (approximate_math if on_gpu else vector_math).exp_of_nonpositive
    if name == "math.exp":
        return functools.partial(vector_math.exp, avx512=avx512)
    return _SINGLE.get(name) or vector_math_double.through_double(_DOUBLE[name])


_WIDENED = {
    "arith.addf", "arith.subf", "arith.mulf", "arith.divf", "arith.negf",
    "arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf", "arith.cmpf",
    "math.sqrt", "math.absf", "math.floor", "math.ceil",
    "math.roundeven", "math.round", "math.copysign", "math.fma", "vector.reduction",
}  # fmt: skip
"""Operations that machines without bf16 arithmetic take in f32."""

_EXACT = {
    "arith.negf", "arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf",
    "math.absf", "math.floor", "math.ceil", "math.roundeven", "math.round", "math.copysign",
}  # fmt: skip
"""Those of them whose results, of bf16, are bf16."""

_TO_INTEGERS = ("arith.fptosi", "arith.fptoui")
_FROM_INTEGERS = ("arith.sitofp", "arith.uitofp")


@dataclass(frozen=True)
class ExpandMath(Pass):
    """Expand every call in the module's functions."""

    name: ClassVar[str] = "expand-math"

    def run(self, op: ir.Operation, state: State) -> None:
        for child in op.regions[0].blocks[0].operations:
            if FAST_MATH in child.operation.attributes:
                approximate_math.expand(child.operation)
        found: list[ir.Operation] = []
        rounded: list[ir.Operation] = []
        narrow: list[ir.Operation] = []
        chosen: list[ir.Operation] = []
        extended: list[ir.Operation] = []
        to_integers: list[ir.Operation] = []
        divisions: list[ir.Operation] = []
        for inner in nested_operations(op):
            if inner.name in _SINGLE or inner.name in _DOUBLE:
                found.append(inner)
            elif inner.name in _TO_INTEGERS:
                to_integers.append(inner)
            elif vector_math_integers.divides(inner):
                divisions += [] if isinstance(state.target, NvidiaTarget) else [inner]
            elif inner.name == "arith.truncf":
                rounded.append(inner)
            elif inner.name == "arith.extf" and _element(inner.operands[0].type) == "bf16":
                extended += [] if isinstance(state.target, NvidiaTarget) else [inner]
            elif inner.name == "arith.select" and _element(inner.results[0].type) == "bf16":
                chosen.append(inner)
            elif _is_narrow(inner):
                narrow.append(inner)
        for call in found:
            call = call.operation
            kind = call.results[0].type
            element = kind.element_type if isinstance(kind, ir.VectorType) else kind
            expansion = _expansion(call, str(element), state.target)
            if expansion is None:
                continue
            with ir.InsertionPoint(call), call.location:
                if str(element) in ("f16", "bf16"):
                    operands = [_extended(operand) for operand in call.operands]
                    value = arith.TruncFOp(kind, _unrounded(expansion(*operands))).result
                else:
                    value = expansion(*call.operands)
            call.results[0].replace_all_uses_with(value)
            call.erase()
            rounded += _truncations(value)
        for division in divisions:
            with ir.InsertionPoint(division), division.location:
                value = vector_math_integers.divided(division.operation)
            division.results[0].replace_all_uses_with(value)
            division.erase()
        for conversion in to_integers:
            _saturate(conversion.operation)
        for op_on_bf16 in narrow:
            rounded += _widen(op_on_bf16.operation)
        for extension in extended:
            _expand_extension(extension.operation)
        for selection in chosen:
            _select_bits(selection.operation)
        rounds_bfloat16 = isinstance(state.target, NvidiaTarget)
        for truncation in rounded:
            _expand_truncation(truncation.operation, rounds_bfloat16)


def _saturate(op: ir.Operation) -> None:
    """Give conversions of what does not fit a result: processors differ in theirs."""
    with ir.InsertionPoint(op), op.location:
        value = op.operands[0]
        if _element(value.type) in ("f16", "bf16"):
            value = _extended(value)
        signed = op.name == "arith.fptosi"
        value = vector_math.to_integer(value, op.results[0].type, signed=signed)
    op.results[0].replace_all_uses_with(value)
    op.erase()


def _extended(value: ir.Value) -> ir.Value:
    if _element(value.type) == "bf16":
        return vector_math.extend_bfloat16(value)
    return arith.ExtFOp(vector_math.like(value.type, ir.F32Type.get()), value).result


def _select_bits(op: ir.Operation) -> None:
    """Choose between bf16 as between integers: LLVM widens a choice between constants to f32 and
    calls a library to round it."""
    kind = op.results[0].type
    bits = vector_math.like(kind, ir.IntegerType.get_signless(16))
    with ir.InsertionPoint(op), op.location:
        sides = [arith.BitcastOp(bits, value).result for value in list(op.operands)[1:]]
        result = arith.SelectOp(op.operands[0], *sides).result
        value = arith.BitcastOp(kind, result).result
    op.results[0].replace_all_uses_with(value)
    op.erase()


def _is_narrow(op: ir.Operation) -> bool:
    """Whether `op` computes with bf16."""
    if op.name in _FROM_INTEGERS:
        return _element(op.results[0].type) == "bf16"
    return op.name in _WIDENED and "bf16" in {_element(v.type) for v in op.operands}


def _widen(op: ir.Operation) -> list[ir.Operation]:
    """Compute an operation on bf16 in f32; returns the rounding of its result, if it needs one."""
    single = ir.F32Type.get()
    with ir.InsertionPoint(op), op.location:
        operands = [
            vector_math.extend_bfloat16(v) if _element(v.type) == "bf16" else v for v in op.operands
        ]
        result = op.results[0]
        is_narrow = _element(result.type) == "bf16"
        kind = vector_math.like(result.type, single) if is_narrow else result.type
        attributes = {name: op.attributes[name] for name in op.attributes}
        value = ir.Operation.create(
            op.name, results=[kind], operands=operands, attributes=attributes
        ).results[0]
        is_exact = op.name in _EXACT
        if is_narrow and is_exact:
            value = vector_math.exact_bfloat16(value)
        elif is_narrow:
            value = arith.TruncFOp(result.type, value).result
    result.replace_all_uses_with(value)
    op.erase()
    return _truncations(value) if is_narrow and not is_exact else []


def _unrounded(value: ir.Value) -> ir.Value:
    """What was rounded to f32: LLVM takes two roundings for one, which a library does for f16."""
    truncations = _truncations(value)
    return truncations[0].operands[0] if truncations else value


def _truncations(value: ir.Value) -> list[ir.Operation]:
    op = value.owner
    return [op.operation] if op.name == "arith.truncf" else []


def _expand_truncation(op: ir.Operation, rounds_bfloat16: bool) -> None:
    """Roundings that machines without bf16 or f16 arithmetic leave to a library; f32 to bf16 is an
    instruction where `rounds_bfloat16`."""
    source, target = (_element(v.type) for v in (op.operands[0], op.results[0]))
    if (source, target) not in (("f32", "bf16"), ("f64", "bf16"), ("f64", "f16")):
        return
    if source == "f32" and rounds_bfloat16:
        return
    with ir.InsertionPoint(op), op.location:
        value = op.operands[0]
        if source == "f64":
            value = vector_math.round_to_odd(value)
        if target == "bf16" and not rounds_bfloat16:
            value = vector_math.truncate_to_bfloat16(value)
        else:
            value = arith.TruncFOp(op.results[0].type, value).result
    op.results[0].replace_all_uses_with(value)
    op.erase()


def _expand_extension(op: ir.Operation) -> None:
    """By bits, so that LLVM does not compute in bf16, which CPUs leave to a library."""
    kind = op.results[0].type
    with ir.InsertionPoint(op), op.location:
        value = vector_math.extend_bfloat16(op.operands[0])
        if _element(kind) == "f64":
            value = arith.ExtFOp(kind, value).result
    op.results[0].replace_all_uses_with(value)
    op.erase()


def _element(kind: ir.Type) -> str:
    return str(kind.element_type if isinstance(kind, ir.VectorType) else kind)
