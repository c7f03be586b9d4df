"""Cumulative reductions: windows that reach from each element to one end of a dimension."""

from __future__ import annotations

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir
from stepwell.passes.stablehlo._values import integers, optional_integers, padding


def cumulative(op: ir.Operation) -> tuple[int, bool] | None:
    """The dimension along which a `reduce_window` accumulates, and whether from its end; None where
    windows are others."""
    shape = hlo.shape(op.operands[0])
    windows = integers(op, "window_dimensions")
    moved = [d for d, size in enumerate(windows) if size != 1]
    if len(moved) != 1 or windows[moved[0]] != shape[moved[0]]:
        return None
    for name in ("window_strides", "base_dilations", "window_dilations"):
        if set(optional_integers(op, name, len(shape), 1)) != {1}:
            return None
    dimension, length = moved[0], shape[moved[0]]
    pads = padding(op, len(shape))
    sides = {(length - 1, 0): False, (0, length - 1): True}
    if any(pad != (0, 0) for d, pad in enumerate(pads) if d != dimension):
        return None
    backward = sides.get(pads[dimension])
    return None if backward is None else (dimension, backward)
