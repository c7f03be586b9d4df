"""Counts the onnx suite: python -m onnx_suite [--only REGEX] [--jobs N] [--json FILE]."""

from __future__ import annotations

import json
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
from children import CHUNK, run_cases

import onnx_suite
from onnx_suite import expected_failures


@click.command()
@click.option("--only", default="", help="Run the cases whose names match this expression.")
@click.option("--jobs", default=2, show_default=True, help="Processes at a time.")
@click.option("--json", "file", type=Path, help="Write all verdicts here.")
@click.option("--table", is_flag=True, help="Write expected_failures_of_onnx.py anew.")
@click.option("--names", is_flag=True, help="Only list the cases.")
def main(only: str, jobs: int, file: Path | None, names: bool, table: bool) -> None:
    """Print every case that fails, and how many pass."""
    if table and only:
        raise click.UsageError("--table is of all cases; leave --only out")
    selected = [name for name in onnx_suite.names() if re.search(only, name)]
    if names:
        click.echo("\n".join(selected))
        return

    def report(name: str, verdict: str) -> None:
        if verdict != "ok":
            click.echo(f"{name}: {verdict}")

    chunk = min(CHUNK, -(-len(selected) // jobs) or 1)
    chunks = [selected[i : i + chunk] for i in range(0, len(selected), chunk)]
    verdicts: dict[str, str] = {}
    with ThreadPoolExecutor(jobs) as pool:
        for part in pool.map(lambda names: run_cases("onnx_suite.worker", names, report), chunks):
            verdicts.update(part)
    if file is not None:
        file.write_text(json.dumps(verdicts, indent=1, sort_keys=True) + "\n")
    if table:
        expected_failures.write(verdicts)
    passed = Counter(verdict == "ok" for verdict in verdicts.values())[True]
    click.echo(f"{passed} of {len(verdicts)} pass")


main()
