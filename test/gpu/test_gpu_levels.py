"""`stepwell compile --emit` of the levels that only GPUs have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from models import needs_ptxas

MODEL = """
func.func @main(%x: tensor<64x256xf16>, %w: tensor<256x128xf16>) -> tensor<64x128xf16> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
      : (tensor<64x256xf16>, tensor<256x128xf16>) -> tensor<64x128xf16>
  return %0 : tensor<64x128xf16>
}
"""


@pytest.mark.parametrize(
    ("level", "words"),
    [
        ("affine", ["affine.parallel (%", "gpu.barrier", "nvgpu.mma.sync"]),
        ("nvvm", ["gpu.module @", "nvvm.mma.sync", "gpu.launch_func  @kernel_0"]),
        ("ptx", [".target sm_80", ".visible .entry", "mma.sync.aligned.m16n8k16"]),
        ("sass", ["HMMA.16816", "LDGSTS", "LDSM"]),
    ],
)
def test_level(level: str, words: list[str], tmp_path: Path) -> None:
    if level == "sass" and needs_ptxas():
        pytest.skip("there is no ptxas here (pip install stepwell[cuda])")
    model = tmp_path / "model.mlir"
    model.write_text(MODEL)
    command = [sys.executable, "-m", "stepwell.tools.stepwell", "compile", str(model)]
    done = subprocess.run(
        [*command, "--target", "cuda:sm_80", f"--emit={level}", "-o", "-"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert all(word in done.stdout for word in words), done.stdout
