"""`bufferize-host`: one-shot bufferization of the host program, results written to out parameters.

Kernels are memref functions already, so that only views, control flow and the function boundary are
left to upstream's one-shot bufferization; no copies arise.

    func.func @main(%x: tensor<..>) -> tensor<..>   ->   func.func @main(%x: memref<..>, %out: memref<..>)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stepwell.errors import LoweringError
from stepwell.kernels.structured import location_names
from stepwell.mlir import ir, run_upstream
from stepwell.passes.base import Pass, State

_PIPELINE = (
    "one-shot-bufferize{bufferize-function-boundaries=true "
    "function-boundary-type-conversion=identity-layout-map},"
    "canonicalize,"
    "buffer-results-to-out-params{modify-public-functions=true hoist-static-allocs=true},"
    "canonicalize"
)


@dataclass(frozen=True)
class BufferizeHost(Pass):
    """Run upstream bufferization; raises LoweringError if a copy of a buffer is left over."""

    name: ClassVar[str] = "bufferize-host"

    def run(self, op: ir.Operation, state: State) -> None:
        run_upstream(op, _PIPELINE)
        copies: list[ir.Operation] = []

        def look(inner: ir.Operation) -> ir.WalkResult:
            if inner.name == "memref.copy":
                copies.append(inner)
            return ir.WalkResult.ADVANCE

        for function in op.regions[0].blocks[0].operations:
            if "kernel.kind" not in function.operation.attributes:
                function.operation.walk(look)
        if copies:
            names = ", ".join(location_names(copies[0].location)) or "a result"
            raise LoweringError(f"{names}: bufferization left {len(copies)} copies in the host")
