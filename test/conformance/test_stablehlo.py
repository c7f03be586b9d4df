"""StableHLO as JAX makes it, compiled and run, against XLA on the CPU.

The cases are in the folder `stablehlo`. They run in child processes, a chunk each, since MLIR can
end its process; a case that ends or holds up its process fails alone, and the others go on.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
from pathlib import Path

import pytest

jax = pytest.importorskip("jax")

from expected_failures_of_stablehlo import EXPECTED_FAILURES  # noqa: E402
from stablehlo import CASES  # noqa: E402

CHUNK = 40
SECONDS_PER_CASE = 30

NAMES = list(CASES)


def run_chunk(names: list[str]) -> dict[str, str]:
    """The verdict on each case of `names`."""
    verdicts: dict[str, str] = {}
    while pending := [name for name in names if name not in verdicts]:
        _run_process(pending, verdicts)
    return verdicts


def _run_process(names: list[str], verdicts: dict[str, str]) -> None:
    """Run `names` in one process until all are done, one ends it, or one takes too long."""
    process = subprocess.Popen(
        [sys.executable, "-m", "stablehlo.worker"],
        cwd=Path(__file__).parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n".join(names) + "\n")
    process.stdin.close()
    running = names[0]
    with selectors.DefaultSelector() as selector, process:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(SECONDS_PER_CASE):
                process.kill()
                verdicts[running] = f"takes more than {SECONDS_PER_CASE} s"
                return
            line = process.stdout.readline()
            if not line:
                break
            message = json.loads(line)
            running = message["name"]
            if "verdict" in message:
                verdicts[running] = message["verdict"]
    if running not in verdicts:
        verdicts[running] = f"its process ended with {process.returncode}"


@pytest.fixture(scope="session")
def verdicts() -> dict[str, str]:
    """What is known of cases so far."""
    return {}


@pytest.mark.parametrize("name", NAMES)
def test_case(name: str, verdicts: dict[str, str], request: pytest.FixtureRequest) -> None:
    if name not in verdicts:
        selected = [
            item.callspec.params["name"]
            for item in request.session.items
            if getattr(item, "callspec", None) and item.originalname == "test_case"
        ]
        begin = selected.index(name)
        verdicts.update(run_chunk(selected[begin : begin + CHUNK]))
    verdict = verdicts[name]
    if name in EXPECTED_FAILURES:
        assert verdict != "ok", "the case passes: take it out of EXPECTED_FAILURES"
        pytest.xfail(EXPECTED_FAILURES[name])
    assert verdict == "ok"
