"""Builds and runs the C runtime's own test."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_c_runtime(tmp_path: Path) -> None:
    sources = [*(ROOT / "runtime").glob("*.c"), ROOT / "test/runtime/runtime_test.c"]
    warnings = ["-Wall", "-Wextra", "-Werror"]
    command = ["cc", "-std=c11", "-D_GNU_SOURCE", "-O1", "-g", *warnings, f"-I{ROOT / 'runtime'}"]
    program = tmp_path / "runtime_test"
    subprocess.run([*command, *sources, "-o", program, "-lpthread"], check=True)
    run = subprocess.run([program], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "ok\n"
