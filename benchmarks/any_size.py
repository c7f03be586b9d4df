"""`python -m benchmarks.any_size`: code for any size beside code for the one size.

Each model is compiled once for any sizes up to its capacities, and for each size by itself; both
run in turns in one process, on one core. A figure is the median time of a call, copies of inputs
and results included.
"""

from __future__ import annotations

import datetime
import json
import os
import shlex
import statistics
import sys
import time
from pathlib import Path

import click
import numpy as np

from benchmarks import machine
from benchmarks.any_size_table import any_size_table
from benchmarks.folders import RESULTS
from benchmarks.models.any_size import Case, cases
from benchmarks.peers.registry import PEERS
from benchmarks.run import cpus_for
from stepwell.compiler import build
from stepwell.runtime.load_artifact import Loaded, load_artifact

_SECONDS = 1.0
"""Of each pair: enough turns to have a median, and 15 at least."""

_OPTIONS = {"progress": False}


@click.command()
@click.option("--out", type=click.Path(path_type=Path), help="JSON file.  [default: results/]")
def main(out: Path | None) -> None:
    """Time code for any size against code for one; write JSON and print a table."""
    cpu = cpus_for(1)[0]
    data = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": shlex.join(["python", "-m", "benchmarks.any_size", *sys.argv[1:]]),
        "machine": machine.describe(cpu),
        "versions": machine.versions(PEERS["stepwell"].packages),
        "rows": [],
    }
    out = out or RESULTS / f"{datetime.date.today()}-{machine.slug()}-any-size.json"
    os.sched_setaffinity(0, {cpu})
    for case in cases():
        data["rows"] += measure(case)
    out.write_text(json.dumps(data, indent=1) + "\n")
    any_size_table(data).print()
    click.echo(f"wrote {out}", err=True)


def measure(case: Case) -> list[dict[str, object]]:
    """Seconds of both kinds of code for each size."""
    artifact = build(
        case.model, threads=1, options=_OPTIONS, shapes=case.shapes, max_sizes=case.capacities
    )
    for_any = load_artifact(artifact, 1)
    rows: list[dict[str, object]] = []
    for sizes in case.sizes:
        known = case.shapes_at(sizes)
        for_one = load_artifact(build(case.model, threads=1, shapes=known, options=_OPTIONS), 1)
        random = np.random.default_rng(0)
        arrays = [
            np.ones(shape, np.int64) if len(known) > 1 else random.random(shape, np.float32)
            for shape in known.values()
        ]
        results = [np.asarray(exe(*arrays)[0]) for exe in (for_any, for_one)]
        np.testing.assert_allclose(results[0], results[1], 1e-4, 1e-4)
        seconds = _in_turns([for_any, for_one], arrays)
        texts = (case.text(at) for at in (case.capacities, sizes))
        row = dict(zip(("up_to", "size"), texts, strict=True))
        rows.append({"model": case.name, **row, "any": seconds[0], "one": seconds[1]})
    return rows


def _in_turns(executables: list[Loaded], arrays: list[np.ndarray]) -> list[float]:
    """The median seconds of a call of each, one after the other."""
    times: list[list[float]] = [[] for _ in executables]
    begin = time.perf_counter()
    while time.perf_counter() - begin < _SECONDS or len(times[0]) < 15:
        for executable, spent in zip(executables, times, strict=True):
            start = time.perf_counter()
            executable(*arrays)
            spent.append(time.perf_counter() - start)
    return [statistics.median(spent) for spent in times]


if __name__ == "__main__":
    main()
