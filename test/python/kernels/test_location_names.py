"""What users call an operation: the names in its location, not the files and frames behind them."""

from __future__ import annotations

import pytest

from stepwell.kernels.structured import location_names
from stepwell.mlir import ir, new_context


@pytest.mark.parametrize(
    ("location", "names"),
    [
        ("unknown", []),
        ('"layer"', ["layer"]),
        ('"model.mlir":3:7', ["model.mlir"]),
        ('"jit(f)/dot"("model.py":3:7)', ["jit(f)/dot"]),
        ('fused["a", "b", "a"]', ["a", "b"]),
        ('callsite("dot" at "jit(f)/body")', ["jit(f)/body/dot"]),
        ('callsite("dot" at callsite("body" at "jit(f)"))', ["jit(f)/body/dot"]),
        ('fused["a", "b"(callsite("run"("m.py":1:2) at "main"("m.py":9:1)))]', ["a", "b"]),
    ],
)
def test_names(location: str, names: list[str]) -> None:
    with new_context():
        module = ir.Module.parse(f"module {{}} loc({location})")
        assert location_names(module.operation.location) == names
