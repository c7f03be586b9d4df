"""StableHLO as JAX makes it, compiled and run, against XLA on the CPU.

The cases are in the folder `stablehlo`. They run in child processes, a chunk each, since MLIR can
end its process; a case that ends or holds up its process fails alone, and the others go on.
"""

from __future__ import annotations

import pytest

jax = pytest.importorskip("jax")

from children import verdict_of  # noqa: E402
from expected_failures_of_stablehlo import EXPECTED_FAILURES  # noqa: E402
from stablehlo import CASES  # noqa: E402


@pytest.fixture(scope="session")
def verdicts() -> dict[str, str]:
    """What is known of cases so far."""
    return {}


@pytest.mark.parametrize("name", list(CASES))
def test_case(name: str, verdicts: dict[str, str], request: pytest.FixtureRequest) -> None:
    verdict = verdict_of(name, "stablehlo.worker", verdicts, request)
    if name in EXPECTED_FAILURES:
        assert verdict != "ok", "the case passes: take it out of EXPECTED_FAILURES"
        pytest.xfail(EXPECTED_FAILURES[name])
    assert verdict == "ok"
