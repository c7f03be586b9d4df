"""`python -m benchmarks.run`: whole models, Stepwell beside other systems in one run.

Every contender has the model in a process of its own; then they are timed in turns, in bursts, so
that a busy or throttled machine disturbs all alike. With one thread all run on the second core.
"""

from __future__ import annotations

import datetime
import json
import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

import click

from benchmarks import machine
from benchmarks.folders import RESULTS, bench_folder
from benchmarks.measure import Report, Settings, time_contenders
from benchmarks.models import catalog
from benchmarks.peers.registry import PEERS
from benchmarks.summary import OWN, SAME_NETWORK, Results
from benchmarks.tables import all_tables

_DEFAULT_PEERS = ("stepwell", "onnxruntime", "openvino", "eager", "inductor", "xla")


@click.command()
@click.option("--models", default=",".join(catalog.MODELS), help="Comma separated.  [default: all]")
@click.option("--peers", default=",".join(_DEFAULT_PEERS), show_default=True)
@click.option("--threads", default="1,2", show_default=True)
@click.option("--rounds", default=5, show_default=True, help="Turns of each contender.")
@click.option("--burst", default=0.5, show_default=True, help="Seconds of a turn.")
@click.option("--timeout", default=600.0, show_default=True, help="Seconds to a first result.")
@click.option(
    "--python",
    "pythons",
    multiple=True,
    metavar="PEER=PATH",
    help="Another interpreter for a peer, iree=/path/to/python for instance.",
)
@click.option("--precision", type=click.Choice(["f32", "bf16"]), default="f32", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="JSON file.  [default: in results/]")
def main(
    models: str,
    peers: str,
    threads: str,
    rounds: int,
    burst: float,
    timeout: float,
    pythons: tuple[str, ...],
    precision: str,
    out: Path | None,
) -> None:
    """Time models on Stepwell and its peers; write JSON and print tables."""
    names = _chosen(models, catalog.MODELS, "model")
    contenders = _chosen(peers, tuple(PEERS), "peer")
    counts = [int(count) for count in threads.split(",")]
    if OWN not in contenders:
        contenders.insert(0, OWN)
    contenders = [peer for peer in contenders if precision in PEERS[peer].precisions]
    others = dict(p.split("=", 1) for p in pythons)
    settings = Settings(rounds, burst, timeout, others, precision)
    out = out or default_path(names, precision)
    catalog.ensure_made(names)
    results = run(names, contenders, counts, settings, out)
    for table in all_tables(results):
        table.print()
    click.echo(f"wrote {out}", err=True)


def default_path(names: list[str], precision: str) -> Path:
    """Where results of today go: those of some models in float32 apart, so that they do not take
    the place of a run of all, which is what the tables show."""
    is_part = precision == "f32" and not set(catalog.MODELS) <= set(names)
    folder = RESULTS / "selected" if is_part else RESULTS
    suffix = "" if precision == "f32" else f"-{precision}"
    return folder / f"{datetime.date.today()}-{machine.slug()}{suffix}.json"


def _chosen(text: str, known: tuple[str, ...], noun: str) -> list[str]:
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in known:
            raise click.UsageError(f"there is no {noun} {name}; there are: {', '.join(known)}")
    return names


def run(
    models: list[str], peers: list[str], threads: list[int], settings: Settings, out: Path
) -> Results:
    """Measure and write `out`, anew after each model, so that a broken run keeps what it has."""
    data: dict[str, object] = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": shlex.join(["python", "-m", "benchmarks.run", *sys.argv[1:]]),
        "machine": machine.describe(cpus_for(1)[0]),
        "versions": _versions(peers, settings),
        "settings": {"rounds": settings.rounds, "burst_s": settings.burst_s},
        "precision": settings.precision,
        "facts": {name: catalog.files(name).read_facts() for name in models},
        "models": {},
    }
    results = Results(data)
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=bench_folder()))
    try:
        for name in models:
            able = [peer for peer in peers if catalog.family(name) in PEERS[peer].families]
            for count in threads:
                contenders = {peer: (catalog.files(name), peer) for peer in able}
                reports = time_contenders(
                    contenders, count, cpus_for(count), folder, settings, _note
                )
                results.models.setdefault(name, {})[str(count)] = reports
                out.write_text(json.dumps(data, indent=1) + "\n")
        if 1 in threads and set(SAME_NETWORK) <= set(models):
            data["same_network"] = time_same_network(folder / "same", settings)
            out.write_text(json.dumps(data, indent=1) + "\n")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return results


def time_same_network(folder: Path, settings: Settings) -> dict[str, Report]:
    """Stepwell's report on each of `SAME_NETWORK`, with one thread, in turns with one another."""
    contenders = {name: (catalog.files(name), OWN) for name in SAME_NETWORK}
    return time_contenders(contenders, 1, cpus_for(1), folder, settings, _note)


def cpus_for(threads: int) -> tuple[int, ...]:
    """The CPUs of a run: not the first one, which serves most interrupts, when others suffice.

    Raises click.UsageError when there are fewer CPUs than threads.
    """
    cpus = sorted(os.sched_getaffinity(0))
    if threads > len(cpus):
        raise click.UsageError(f"{threads} threads need as many CPUs; there are {len(cpus)}")
    return tuple(cpus[-threads:])


def _versions(peers: list[str], settings: Settings) -> dict[str, str]:
    found = machine.versions(["numpy", "onnx"]) | {"python": sys.version.split()[0]}
    for peer in peers:
        python = settings.pythons.get(peer, sys.executable)
        found |= machine.versions(PEERS[peer].packages, python)
    return found


def _note(text: str) -> None:
    click.echo(text, err=True)


if __name__ == "__main__":
    main()
