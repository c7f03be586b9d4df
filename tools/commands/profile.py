"""`stepwell profile`: one run of a model on a line of time, and what its threads did."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from stepwell.errors import UsageError
from stepwell.inspection.profile import Profile, profile
from stepwell.options import CompileOptions
from stepwell.tools.commands import ahead, common, feeds
from stepwell.tools.commands.kernel_table import kernel_cells, kernel_table

if TYPE_CHECKING:
    from rich.table import Table


@click.command("profile")
@click.argument("model")
@click.option(
    "-o",
    "output",
    metavar="TRACE.json",
    help="Where the timeline goes, for ui.perfetto.dev or chrome://tracing; - is stdout.",
)
@click.option(
    "--runs",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Runs, of which the median one is shown.",
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Kernels in the table.",
)
@feeds.input_option
@feeds.always_random_option
@common.target_option
@common.shape_option
@common.level_option
@common.precision_option
@common.tuning_option
@common.threads_option
@common.cache_option
@click.option("--json", "as_json", is_flag=True, help="Print what the tables say as JSON.")
def profile_command(
    model: str,
    output: str | None,
    runs: int,
    top: int,
    inputs: tuple[str, ...],
    seed: int,
    target: str,
    shapes: tuple[str, ...],
    opt_level: int,
    precision: str,
    tuning: str | None,
    threads: int | None,
    no_cache: bool,
    as_json: bool,
) -> None:
    """Run MODEL, an artifact or anything that `stepwell compile` takes, and show where the time
    of one run goes: kernel by kernel, and how long threads do nothing.
    """
    if output == "-" and as_json:
        raise UsageError("-o - and --json both write to stdout; give one of them")
    if output is not None:
        common.check_output(output)
    options = CompileOptions(
        opt_level=opt_level, precision=precision, use_cache=not no_cache, tuning=tuning
    )
    sizes = common.parse_shapes(shapes)
    exe, arrays = ahead.load_with_inputs(model, target, threads, sizes, options, inputs, seed)
    shown = profile(exe, *arrays, runs=runs)
    if not shown.trace.complete:
        common.note("the record had no room for all kernels of the run; its end is missing")
    if output is not None:
        common.write_output(output, shown.to_chrome_trace())
        if output != "-":
            common.note(f"wrote {output}")
    if as_json:
        print(json.dumps(shown.to_dict(), indent=2))
    elif output != "-":
        _print_tables(shown, top)


def _print_tables(shown: Profile, top: int) -> None:
    console = common.console()
    console.print(_threads_table(shown))
    entries = shown.kernels[:top]
    more = len(shown.kernels) - len(entries)
    title = f"kernels by time, {more} shorter ones left out" if more else "kernels by time"
    table = kernel_table(title, shown.place, [entry.time for entry in entries], "runs", "idle")
    for entry in entries:
        idle = f"{100 * entry.threads.idle:.0f} %"
        table.add_row(*kernel_cells(entry.time, shown.seconds, str(entry.runs), idle))
    if entries:
        console.print(table)


def _threads_table(shown: Profile) -> Table:
    from rich.table import Table

    title = f"a run of {shown.seconds * 1e3:.3f} ms on {shown.place}"
    table = Table(title=title, title_justify="left", show_header=False, box=None)
    table.add_column()
    for _ in ("time", "share"):
        table.add_column(justify="right")
    threads = shown.thread_time
    all_threads = shown.seconds * shown.threads
    for what, seconds, of in (
        ("threads compute", threads.computing, all_threads),
        ("threads wait for others to end a kernel", threads.waiting, all_threads),
        ("threads wake up, or begin late", threads.starting, all_threads),
        ("threads watch a kernel that is not split", threads.alone, all_threads),
        ("all of them idle", threads.idle * all_threads, all_threads),
        ("nobody works between two kernels", shown.between, shown.seconds),
        ("the call, before and after its kernels", shown.outside, shown.seconds),
    ):
        table.add_row(what, f"{seconds * 1e6:.1f} us", f"{100 * seconds / max(of, 1e-12):.1f} %")
    return table
