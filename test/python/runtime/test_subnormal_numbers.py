"""Numbers below the least normal one: kept by default, zeros where a model is compiled so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import stepwell

_SHAPE = (512, 256)
_TYPE = "tensor<512x256xf32>"
_MODEL = f"""
func.func @main(%x: {_TYPE}, %y: {_TYPE}) -> {_TYPE} {{
  %0 = stablehlo.multiply %x, %y : {_TYPE}
  func.return %0 : {_TYPE}
}}
"""

_SMALL, _HALF = np.full(_SHAPE, 1e-20, np.float32), np.full(_SHAPE, 1e-19, np.float32)
"""Their product is subnormal."""


def _flushes_here() -> bool:
    return bool(np.multiply(_SMALL, _HALF).max() == 0)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("flush", [False, True])
def test_results(threads: int, flush: bool) -> None:
    exe = stepwell.compile(_MODEL, threads=threads, options={"flush_subnormals": flush})
    for _ in range(20):
        (result,) = exe(_SMALL, _HALF)
        assert (result == 0).all() if flush else (result == np.multiply(_SMALL, _HALF)).all()
        assert not _flushes_here()  # the caller's own arithmetic stays as it is


@pytest.mark.parametrize("threads", [1, 2])
def test_operands(threads: int) -> None:
    subnormal, large = np.full(_SHAPE, 1e-40, np.float32), np.full(_SHAPE, 1e20, np.float32)
    for flush in (False, True):
        exe = stepwell.compile(_MODEL, threads=threads, options={"flush_subnormals": flush})
        (result,) = exe(subnormal, large)
        assert (result == 0).all() == flush


def test_artifacts_say_so(tmp_path: Path) -> None:
    exe = stepwell.compile(_MODEL, threads=2, options={"flush_subnormals": True})
    exe.save(tmp_path / "flushing.stepwell")
    (result,) = stepwell.load(tmp_path / "flushing.stepwell")(_SMALL, _HALF)
    assert (result == 0).all()


def test_threads_follow_the_caller() -> None:
    torch = pytest.importorskip("torch", reason="sets the mode of its thread")
    exe = stepwell.compile(_MODEL, threads=2)
    assert torch.set_flush_denormal(True)
    try:
        results = [exe(_SMALL, _HALF)[0] for _ in range(20)]
    finally:
        torch.set_flush_denormal(False)
    assert all((result == 0).all() for result in results)
    assert (exe(_SMALL, _HALF)[0] != 0).all()
