"""The results as tables, for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.summary import OWN, Figure, Results, figures


@dataclass(frozen=True)
class Table:
    """A table of text; the first column is left aligned, the others right."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)

    def markdown(self) -> str:
        """The table as GitHub-flavoured Markdown, its title as a bold line."""
        lines = [
            f"**{self.title}**",
            "",
            _line(self.columns),
            _line(("---", *["--:"] * (len(self.columns) - 1))),
            *(_line(row) for row in self.rows),
        ]
        return "\n".join(lines)

    def print(self) -> None:
        """Print it with rich, never narrower than it is."""
        from rich.console import Console
        from rich.table import Table as RichTable

        table = RichTable(box=None)
        table.add_column(self.columns[0], no_wrap=True)
        for name in self.columns[1:]:
            table.add_column(name, justify="right", no_wrap=True)
        for row in self.rows:
            table.add_row(*row)
        widths = [max(map(len, cells)) for cells in zip(self.columns, *self.rows, strict=True)]
        console = Console()
        console.width = max(console.width, sum(widths) + 2 * len(widths))
        console.print(self.title, style="italic")
        console.print(table)
        console.print()


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def all_tables(results: Results) -> list[Table]:
    """Times for each number of threads, the other qualities, and the figures, which are of f32."""
    return [
        *(times_table(results, threads) for threads in results.threads()),
        *quality_tables(results),
        *([figures_table(figures(results))] if results.precision == "f32" else []),
    ]


def times_table(results: Results, threads: int) -> Table:
    """Milliseconds a call, and Stepwell against the best peer."""
    what = "CPU time" if threads == 1 else "wall time"
    noun = "thread" if threads == 1 else "threads"
    peers = results.peers()
    exact = results.precision == "f32"
    share_of = "share of peak" if exact else "share of fp32 peak"
    columns = ("model", *peers, "best peer / stepwell", share_of)
    rounded = "" if exact else f", precision {results.precision}"
    table = Table(f"Median {what} of a call in ms, {threads} {noun}{rounded}", columns)
    peak = results.machine["fp32_gflops"]
    assert isinstance(peak, (int, float))
    for model in results.models:
        ratio = results.ratio(model, threads)
        own = results.time_ms(model, threads, OWN)
        share = results.facts[model]["gflop"] / own * 1e3 / peak / threads if own else None
        table.rows.append(
            (
                model,
                *(_cell(results, model, threads, peer) for peer in peers),
                "-" if ratio is None else f"{ratio:.2f}",
                "-" if share is None else f"{100 * share:.0f} %",
            )
        )
    return table


def _cell(results: Results, model: str, threads: int, peer: str) -> str:
    report = results.report(model, threads, peer)
    if not report:
        return "-"
    time = results.time_ms(model, threads, peer)
    return "failed" if time is None else f"{time:.3g}" if time < 100 else f"{time:.0f}"


def quality_tables(results: Results) -> list[Table]:
    """Errors, seconds to the first result, memory and sizes, of the first thread count."""
    return [
        _quality(results, "Relative L2 error", "relative_error", lambda v: f"{v:.1e}"),
        _quality(
            results, "Seconds to the first result, cold", "first_result_s", lambda v: f"{v:.1f}"
        ),
        _quality(
            results,
            "Seconds to the first result, from a warm cache",
            "first_result_warm_s",
            lambda v: f"{v:.2f}",
        ),
        _quality(results, "Peak MB of the running process", "peak_rss_bytes", _megabytes),
        _quality(results, "Peak MB of the compiler's process", "compiler_rss_bytes", _megabytes),
        _quality(
            results, "MB to deploy, weights included", "artifact_bytes", lambda v: f"{v / 1e6:.1f}"
        ),
    ]


def _megabytes(value: float) -> str:
    return f"{value / 1e6:.0f}"


def _quality(results: Results, title: str, key: str, show: Callable[[float], str]) -> Table:
    threads = results.threads()[0]
    values = {
        peer: {model: results.number(model, threads, peer, key) for model in results.models}
        for peer in results.peers()
    }
    peers = [peer for peer in values if any(values[peer].values())]
    table = Table(title, ("model", "weights MB", *peers))
    for model in results.models:
        cells = (values[peer][model] for peer in peers)
        weights = _megabytes(results.facts[model]["weights_bytes"])
        table.rows.append((model, weights, *("-" if v is None else show(v) for v in cells)))
    return table


def figures_table(reached: list[Figure]) -> Table:
    """The figures to reach, each passed or missed."""
    words = {True: "passed", False: "missed", None: "not measured"}
    rows = [(f.name, f.wanted, f.measured, words[f.passed]) for f in reached]
    return Table("Figures to reach", ("figure", "wanted", "measured", ""), rows)
