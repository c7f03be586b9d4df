"""`python -m benchmarks.report`: the tables of README.md, docs/benchmarks.md and docs/gpu.md from
the newest results of each machine, between the lines `<!-- benchmark:start -->` and
`<!-- benchmark:end -->`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import click

from benchmarks.any_size_table import any_size_table
from benchmarks.folders import RESULTS, ROOT
from benchmarks.gpu.table import gpu_table
from benchmarks.kernels_table import kernels_table
from benchmarks.layers_table import layers_table
from benchmarks.summary import GOAL_MODELS, Results, figures, geometric_mean
from benchmarks.tables import figures_table, quality_tables, times_table

START, END = "<!-- benchmark:start -->", "<!-- benchmark:end -->"


@click.command()
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, help="Folder of JSON.")
@click.option("--root", type=click.Path(path_type=Path), default=ROOT, help="Where README.md is.")
def main(results: Path, root: Path) -> None:
    """Write the newest results into README.md and docs/benchmarks.md."""
    models = newest(results, _is_models)
    if not models:
        raise click.ClickException(f"there are no results in {results}; make bench measures them")
    data = [(path, Results(json.loads(path.read_text()))) for path in models]
    kernels = [kernels_table(_read(path)) for path in newest(results, _is_kernels)]
    layers = [layers_table(_read(path)) for path in newest(results, _is_layers)]
    sizes = [any_size_table(_read(path)) for path in newest(results, _is_any_size)]
    single = [table.markdown() for table in (*kernels, *layers, *sizes)]
    rounded = [(path, Results(_read(path))) for path in newest(results, _is_rounded)]
    texts = {
        root / "README.md": "\n\n".join(summary(measured) for _, measured in data),
        root / "docs" / "benchmarks.md": "\n\n".join(
            [
                *(details(measured, path.name) for path, measured in data),
                *(times(measured, path.name) for path, measured in rounded),
                *single,
            ]
        ),
    }
    measured = sorted((results / "gpu").glob("*.json"), key=lambda path: _read(path)["date"])
    newest_of: dict[tuple[str, bool], str] = {}
    for path in measured:
        table = any_size_table if _is_any_size(path) else gpu_table
        newest_of[_read(path)["gpu"], _is_any_size(path)] = table(_read(path)).markdown()
    texts[root / "docs" / "gpu.md"] = "\n\n".join(newest_of[key] for key in sorted(newest_of))
    for path, text in texts.items():
        if replace_between_markers(path, text):
            click.echo(f"wrote {path}", err=True)
        else:
            click.echo(f"{path} has no {START} and {END}; this would stand there:\n{text}")


def newest(folder: Path, wanted: Callable[[Path], bool]) -> list[Path]:
    """The newest results of each CPU among those wanted, the newest of all first."""
    found = sorted(filter(wanted, folder.glob("*.json")), key=lambda path: _read(path)["date"])
    by_cpu = {_read(path)["machine"]["cpu"]: path for path in found}
    return sorted(by_cpu.values(), key=found.index, reverse=True)


def _read(path: Path) -> dict:
    return json.loads(path.read_text())


def _is_kernels(path: Path) -> bool:
    return path.name.endswith("-kernels.json")


def _is_layers(path: Path) -> bool:
    return path.name.endswith("-layers.json")


def _is_any_size(path: Path) -> bool:
    return path.name.endswith("-any-size.json")


def _is_rounded(path: Path) -> bool:
    return path.name.endswith("-bf16.json")


def _is_models(path: Path) -> bool:
    others = (_is_kernels, _is_layers, _is_any_size, _is_rounded)
    return not any(other(path) for other in others)


def summary(results: Results) -> str:
    """A sentence on the speed, and the table of times on one thread."""
    threads = results.threads()[0]
    return f"{sentence(results)}\n\n{times_table(results, threads).markdown()}"


def sentence(results: Results) -> str:
    """How Stepwell compares with the best peer of each model."""
    threads = results.threads()[0]
    ratios = results.ratios(threads, GOAL_MODELS) or results.ratios(threads, results.models)
    noun = "thread" if threads == 1 else "threads"
    where = f"{results.machine['cpu']}, {threads} {noun}, fp32, {str(results.data['date'])[:10]}"
    if not ratios:
        return f"Measured on {where}."
    least = min(ratios, key=lambda model: ratios[model])
    return (
        f"Measured on {where}: the best peer's time over Stepwell's is "
        f"{geometric_mean(list(ratios.values())):.2f} in the geometric mean of {len(ratios)} "
        f"models (above 1: Stepwell is the fastest) and {ratios[least]:.2f} at the least "
        f"({least})."
    )


def details(results: Results, name: str) -> str:
    """Machine, versions, all tables of whole models."""
    parts = [
        sentence(results),
        f"- command: `{results.data['command']}`\n- results: `benchmarks/results/{name}`\n"
        f"- machine: {_listed(results.machine)}\n- versions: {_listed(results.versions)}",
        figures_table(figures(results)).markdown(),
        *(times_table(results, threads).markdown() for threads in results.threads()),
        *(table.markdown() for table in quality_tables(results)),
    ]
    return "\n\n".join(parts)


def times(results: Results, name: str) -> str:
    """The tables of times and errors of another precision."""
    error, *_ = quality_tables(results)
    parts = [
        f"- command: `{results.data['command']}`\n- results: `benchmarks/results/{name}`\n"
        f"- machine: {_listed(results.machine)}\n- versions: {_listed(results.versions)}",
        *(times_table(results, threads).markdown() for threads in results.threads()),
        error.markdown(),
    ]
    return "\n\n".join(parts)


def _listed(facts: Mapping[str, object]) -> str:
    """Keys and values in one line, nested ones in parentheses."""
    texts = {k: f"({_listed(v)})" if isinstance(v, dict) else v for k, v in facts.items()}
    return ", ".join(f"{key} {value}" for key, value in texts.items())


def replace_between_markers(path: Path, text: str) -> bool:
    """Put `text` between the markers of a file; false when it has none."""
    if not path.exists():
        return False
    pattern = re.compile(f"{re.escape(START)}.*?{re.escape(END)}", re.DOTALL)
    content, count = pattern.subn(lambda _: f"{START}\n{text}\n{END}", path.read_text(), count=1)
    if count:
        path.write_text(content)
    return bool(count)


if __name__ == "__main__":
    main()
