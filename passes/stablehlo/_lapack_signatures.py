"""What JAX's custom calls of LAPACK take and give, and a check that a model's calls do.

A function that is called with other shapes than it is told would read and write where it may not.
"""

from __future__ import annotations

import math
import re

from stepwell.dialects import stablehlo as hlo
from stepwell.errors import LoweringError
from stepwell.kernels.structured import source_name
from stepwell.mlir import ir

TARGET = re.compile(r"(?:lapack|blas)_([sdcz])(\w+?)(_ffi)?")
"""The target of a custom call of LAPACK: the prefix of its type, and the name behind that."""

UNTYPED = {
    "ProductOfElementaryHouseholderReflectors": "orgqr",
    "Qr": "geqrf",
    "tridiagonal_solve_perturbed_ffi": "tridiagonal_solve_perturbed",
}
"""The same function by a target that does not name a type; without layouts, it is row-major."""

_REAL = {"s": "f32", "d": "f64", "c": "f32", "z": "f64"}
_TENSOR = re.compile(r"([TRCI])\[([^\]]*)\]")

SIGNATURES = {
    "geev": "T[n,n] -> T[n] T[n] C[n,n] C[n,n] I[]",
    "geev complex": "T[n,n] -> T[n] T[n,n] T[n,n] I[]",
    "gees": "T[n,n] -> T[n,n] T[n,n] T[n] T[n] I[] I[]",
    "gees complex": "T[n,n] -> T[n,n] T[n,n] T[n] I[] I[]",
    "gehrd": "T[n,n] -> T[n,n] T[n-1] I[]",
    "geqp3": "T[m,n] I[n] -> T[m,n] I[n] T[min]",
    "geqrf": "T[m,n] -> T[m,n] T[min]",
    "gesdd": "T[m,n] -> T[m,n] R[min] T[m,u] T[v,n] I[]",
    "gesvd": "T[m,n] -> T[m,n] R[min] T[m,u] T[v,n] I[]",
    "getrf": "T[m,n] -> T[m,n] I[min] I[]",
    "gtsv": "T[n] T[n] T[n] T[n,k] -> T[n] T[n] T[n] T[n,k] I[]",
    "heevd": "T[n,n] -> T[n,n] R[n] I[]",
    "hetrd": "T[n,n] -> T[n,n] R[n] R[n-1] T[n-1] I[]",
    "orgqr": "T[m,n] T[k] -> T[m,n]",
    "ormqr": "T[q,k] T[k] T[m,n] -> T[m,n]",
    "potrf": "T[n,n] -> T[n,n] I[]",
    "syevd": "T[n,n] -> T[n,n] R[n] I[]",
    "sytrd": "T[n,n] -> T[n,n] R[n] R[n-1] T[n-1] I[]",
    "tridiagonal_solve_perturbed": "T[n] T[n] T[n] T[n,k] -> T[n,k]",
    "trsm": "T[q,q] T[m,n] -> T[m,n]",
    "ungqr": "T[m,n] T[k] -> T[m,n]",
    "unmqr": "T[q,k] T[k] T[m,n] -> T[m,n]",
}
"""Operands and results behind the dimensions of the batch, by function. T is the matrices' type, R
its real parts, C the complex numbers of these, I 32-bit integers; `min` is that of m and n."""


def checked_batch(op: ir.Operation, function: str, prefix: str) -> int:
    """How many matrices the custom call `op` is given. Raises LoweringError unless its operands and
    results are of the types and shapes that `function` has for LAPACK's type `prefix`."""
    variant = f"{function} complex" if prefix in "cz" else function
    signature = SIGNATURES.get(variant, SIGNATURES[function])
    tensors = _TENSOR.findall(signature)
    values = [*op.operands, *op.results]
    results = len(_TENSOR.findall(signature.split(" -> ")[1]))
    if len(tensors) == len(values) and len(op.results) == results:
        shape = hlo.shape(values[0])
        batch = shape[: len(shape) - len(_dimensions(tensors[0][1]))]
        sizes: dict[str, int] = {}
        if all(
            _fits(value, kind, text, prefix, batch, sizes)
            for (kind, text), value in zip(tensors, values, strict=True)
        ):
            return math.prod(batch)
    given = ", ".join(str(value.type) for value in op.operands)
    taken = ", ".join(str(value.type) for value in op.results)
    raise LoweringError(
        f"{call_name(op)}: {prefix}{function} has {signature}, the call ({given}) -> ({taken})"
    )


def batch_rank(op: ir.Operation) -> int | None:
    """How many dimensions the custom call `op` has in front of those of one matrix; None where it
    is none of LAPACK's."""
    target = ir.StringAttr(op.attributes["call_target_name"]).value
    match = TARGET.fullmatch(target)
    function = UNTYPED.get(target) if match is None else match[2]
    if function not in SIGNATURES:
        return None
    _, dimensions = _TENSOR.findall(SIGNATURES[function])[0]
    return len(hlo.shape(op.operands[0])) - len(_dimensions(dimensions))


def call_name(op: ir.Operation) -> str:
    """A custom call and its target, for messages."""
    target = ir.StringAttr(op.attributes["call_target_name"]).value
    return f"{source_name(op)}: stablehlo.custom_call @{target}"


def _dimensions(text: str) -> list[str]:
    return text.split(",") if text else []


def _fits(
    value: ir.Value,
    kind: str,
    text: str,
    prefix: str,
    batch: tuple[int, ...],
    sizes: dict[str, int],
) -> bool:
    """Whether `value` is of a type; `sizes` has what is known of dimensions, and learns."""
    real = _REAL[prefix]
    elements = {"R": real, "C": f"complex<{real}>", "I": "i32"}
    elements["T"] = elements["C"] if prefix in "cz" else real
    shape, dimensions = hlo.shape(value), _dimensions(text)
    if str(hlo.element_type(value)) != elements[kind] or shape[: len(batch)] != batch:
        return False
    own = shape[len(batch) :]
    if len(own) != len(dimensions):
        return False
    for size, dimension in zip(own, dimensions, strict=True):
        if dimension == "min":
            known = min(sizes["m"], sizes["n"])
        elif dimension == "n-1":
            known = max(sizes["n"] - 1, 0)
        else:
            known = sizes.setdefault(dimension, size)
        if size != known:
            return False
    return True
