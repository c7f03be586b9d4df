"""onnx's own backend test suite, compiled and run.

The cases run in child processes, a chunk each, since MLIR can end its process; a case that ends or
holds up its process fails alone, and the others go on.
"""

from __future__ import annotations

import pytest

pytest.importorskip("onnx")

import onnx_suite
from children import verdict_of
from expected_failures_of_onnx import EXPECTED_FAILURES


@pytest.fixture(scope="session")
def verdicts() -> dict[str, str]:
    """What is known of cases so far."""
    return {}


@pytest.mark.parametrize("name", onnx_suite.names())
def test_case(name: str, verdicts: dict[str, str], request: pytest.FixtureRequest) -> None:
    verdict = verdict_of(name, "onnx_suite.worker", verdicts, request)
    if name in EXPECTED_FAILURES:
        assert verdict != "ok", "the case passes: take it out of EXPECTED_FAILURES"
        pytest.xfail(EXPECTED_FAILURES[name])
    assert verdict == "ok"
