"""legalize-chlo: CHLO ops in terms of StableHLO, except those that are known further down.

    %y = chlo.erf %x : tensor<4xf32> -> tensor<4xf32>          // stays
    %z = chlo.sinh %x : tensor<4xf32> -> tensor<4xf32>         // becomes exponentials, of f64

Kernels compute erf and erfc. Functions that lose digits as upstream writes them have formulas of
their own in f64 (`stepwell/dialects/chlo.py`). Hyperbolic functions of complex numbers stay, for
`expand-complex`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stepwell.dialects import chlo
from stepwell.mlir import ir
from stepwell.passes.base import Pass, State


@dataclass(frozen=True)
class LegalizeChlo(Pass):
    """Write CHLO ops in terms of StableHLO, except those that `chlo.stays` tells."""

    name: ClassVar[str] = "legalize-chlo"

    def run(self, op: ir.Operation, state: State) -> None:
        """Expand everything inside `op`."""
        chlo.legalize(op)
