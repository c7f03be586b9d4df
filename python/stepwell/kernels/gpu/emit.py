"""Which emitter writes a group on a grid of threads."""

from __future__ import annotations

from stepwell.errors import LoweringError
from stepwell.kernels.cpu.attention import KIND as ATTENTION
from stepwell.kernels.gpu import attention, contraction, elementwise, reduction, row, transpose
from stepwell.kernels.gpu.grid import GridBuilder
from stepwell.kernels.gpu.tensor_core import F32Products
from stepwell.kernels.group import KernelGroup
from stepwell.kernels.rows import check
from stepwell.targets.nvidia import NvidiaTarget

_EMITTERS = {
    "outer-reduction": reduction.emit,
    "concatenate": elementwise.emit_concatenate,
    "transpose": transpose.emit,
    "update": elementwise.emit_update,
    "elementwise": elementwise.emit,
    "pad": elementwise.emit,
}


def emit_on_grid(
    group: KernelGroup,
    nest: GridBuilder,
    kind: str,
    operands: tuple[int, int] | None,
    target: NvidiaTarget,
    *,
    f32: F32Products = "exact",
    whole_sums: bool = False,
) -> None:
    """Write a group of `kind`; `operands` are lhs and rhs of a contraction, which multiplies f32 as
    `f32` says, and with `whole_sums` adds up each sum in one piece. Raises LoweringError for a
    group that no emitter takes."""
    if kind == "contraction":
        attributes = group.function.attributes
        chosen = "kernel.strategy" in attributes
        strategy = attributes["kernel.strategy"] if chosen else None
        contraction.emit(
            group, nest, operands, target, f32=f32, whole_sums=whole_sums, strategy=strategy
        )
    elif kind == ATTENTION:
        attention.emit(group, nest, target, f32)
    elif kind in ("elementwise", "pad") and group.reductions():
        check(group)
        row.emit(group, nest, target)
    elif kind in _EMITTERS:
        _EMITTERS[kind](group, nest)
    else:
        raise LoweringError(f"no emitter for a group of kind {kind}")
