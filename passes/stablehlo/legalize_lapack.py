"""`legalize-lapack`: the custom calls of JAX on CPUs become calls of LAPACK's functions.

    %0:3 = stablehlo.custom_call @lapack_sgetrf_ffi(%a) {operand_layouts = [dense<[0, 1]>], ...}
        : (tensor<4x3xf32>) -> (tensor<4x3xf32>, tensor<3xi32>, tensor<i32>)

becomes a call with all that the function takes, on matrices that lie in memory as it wants them:

    %t = stablehlo.transpose %a, dims = [1, 0] : (tensor<4x3xf32>) -> tensor<3x4xf32>
    %1:3 = stablehlo.custom_call @stepwell.library_call(%t) {kernel.library_call = {
        function = "lapack.sgetrf", batch = 1, updated = [0], arguments =
        ["i32 4", "i32 3", "result 0", "i32 4", "result 1", "result 2"]}}
    %2 = stablehlo.transpose %1#0, dims = [1, 0]

Complex matrices are passed as their parts side by side. Where the layouts are not given, memory is
row-major, as for any custom call. For GPUs, Cholesky factors and triangular systems of real
matrices become operations of StableHLO (`_lapack_on_gpus.py`); the host calls other functions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from stepwell.dialects import stablehlo as hlo
from stepwell.errors import LoweringError
from stepwell.kernels.structured import source_name
from stepwell.mlir import ir, nested_operations
from stepwell.passes.base import Pass, State
from stepwell.passes.stablehlo._lapack_call import LapackCall
from stepwell.passes.stablehlo._lapack_on_gpus import on_gpu
from stepwell.passes.stablehlo._lapack_routines import ROUTINES
from stepwell.passes.stablehlo._lapack_signatures import TARGET, UNTYPED, checked_batch
from stepwell.targets.nvidia import NvidiaTarget

_PREFIXES = {"f32": "s", "f64": "d", "complex<f32>": "c", "complex<f64>": "z"}


@dataclass(frozen=True)
class LegalizeLapack(Pass):
    """Rewrite every custom call of LAPACK inside a function."""

    name: ClassVar[str] = "legalize-lapack"
    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation, state: State) -> None:
        """Raises LoweringError that names a call of a function which is not known."""
        found = [inner for inner in nested_operations(op) if inner.name == "stablehlo.custom_call"]
        for inner in found:
            target = ir.StringAttr(inner.attributes["call_target_name"]).value
            match = TARGET.fullmatch(target)
            if target not in UNTYPED and match is None:
                continue
            with ir.InsertionPoint(inner), inner.location:
                values = _on_gpu(inner, match) if isinstance(state.target, NvidiaTarget) else None
                if values is None:
                    values = _untyped(inner, target) if match is None else _lapack(inner, match)
            for result, value in zip(inner.results, values, strict=True):
                result.replace_all_uses_with(value)
            inner.erase()


def _on_gpu(op: ir.Operation, match: re.Match[str] | None) -> list[ir.Value] | None:
    if match is None or match[2] not in ROUTINES or match[3] is None:
        return None
    prefix, name, _ = match.groups()
    return on_gpu(name, LapackCall(op, prefix, checked_batch(op, name, prefix), False))


def _untyped(op: ir.Operation, target: str) -> list[ir.Value]:
    kind = str(hlo.element_type(op.operands[0]))
    if kind not in _PREFIXES:
        raise LoweringError(
            f"{source_name(op)}: stablehlo.custom_call @{target} of {kind} is not supported; "
            f"LAPACK computes with {', '.join(_PREFIXES)}"
        )
    return _routine(op, UNTYPED[target], _PREFIXES[kind], column_major=True)


def _lapack(op: ir.Operation, match: re.Match[str]) -> list[ir.Value]:
    prefix, name, current = match.groups()
    if current is None or name not in ROUTINES:
        raise LoweringError(
            f"{source_name(op)}: stablehlo.custom_call @{match[0]} is not supported; "
            + (
                "export the model again with a newer JAX"
                if current is None and name in ROUTINES
                else f"of LAPACK there are {', '.join(sorted(ROUTINES))}"
            )
        )
    return _routine(op, name, prefix, column_major=False)


def _routine(op: ir.Operation, function: str, prefix: str, *, column_major: bool) -> list[ir.Value]:
    batch = checked_batch(op, function, prefix)
    return ROUTINES[function](LapackCall(op, prefix, batch, column_major))
