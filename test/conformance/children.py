"""Runs named cases in child processes: a case that ends or holds up its process fails alone."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

CHUNK = 200
"""Cases of one process: to begin one takes as long as ten cases."""

SECONDS_PER_CASE = 30


def run_cases(
    module: str, names: list[str], report: Callable[[str, str], None] = lambda name, verdict: None
) -> dict[str, str]:
    """The verdict on each case of `names`, from `python -m MODULE`, which reads names on stdin and
    answers each with two lines of JSON: its name when it begins, and name and verdict."""
    verdicts: dict[str, str] = {}

    def enter(name: str, verdict: str) -> None:
        verdicts[name] = verdict
        report(name, verdict)

    while pending := [name for name in names if name not in verdicts]:
        _run_process(module, pending, enter)
    return verdicts


def verdict_of(
    name: str, module: str, verdicts: dict[str, str], request: pytest.FixtureRequest
) -> str:
    """The verdict on one case of a test called `test_case`. When it is not among `verdicts`, it is
    run with those selected after it, which then are."""
    if name not in verdicts:
        selected = [
            getattr(item, "callspec").params["name"]  # noqa: B009
            for item in request.session.items
            if getattr(item, "callspec", None) and item.path == request.node.path
        ]
        begin = selected.index(name)
        verdicts.update(run_cases(module, selected[begin : begin + CHUNK]))
    return verdicts[name]


def _run_process(module: str, names: list[str], enter: Callable[[str, str], None]) -> None:
    """Run `names` in one process until all are done, one ends it, or one takes too long."""
    process = subprocess.Popen(
        [sys.executable, "-m", module],
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
    running, done = names[0], False
    with selectors.DefaultSelector() as selector, process:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(SECONDS_PER_CASE):
                process.kill()
                enter(running, f"takes more than {SECONDS_PER_CASE} s")
                return
            line = process.stdout.readline()
            if not line:
                break
            message = json.loads(line)
            running, done = message["name"], "verdict" in message
            if done:
                enter(running, message["verdict"])
    if not done:
        enter(running, f"its process ended with {process.returncode}")


def answer(verdict: Callable[[str], str]) -> None:
    """The child's side: answer each name on stdin with what `verdict` says of it."""
    for line in sys.stdin:
        name = line.strip()
        print(json.dumps({"name": name}), flush=True)
        try:
            text = verdict(name)
        except Exception as error:
            text = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        print(json.dumps({"name": name, "verdict": text}), flush=True)


def use_one_core() -> None:
    """Keep this process on one core: its kernels are then compiled in it, with no fork. Each of
    pytest's workers has another core."""
    cores = sorted(os.sched_getaffinity(0))
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})


def compile_in_process() -> None:
    """Let `stepwell.compile` compile in this process, which is itself one that may crash."""
    from stepwell import compiler
    from stepwell.worker import compile_request

    def run_worker(request, folder, progress) -> None:
        compile_request(request, progress)

    compiler.run_worker = run_worker
