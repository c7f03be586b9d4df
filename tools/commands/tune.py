"""`stepwell tune`: a record of choices that are faster on this machine than the cost models'."""

from __future__ import annotations

import json
import sys

import click

from stepwell import artifact
from stepwell.errors import UsageError
from stepwell.inspection.tune import TuningResult, require_cpu, tune
from stepwell.options import CompileOptions
from stepwell.tools.commands import ahead, common, feeds


@click.command("tune")
@click.argument("model")
@click.option(
    "-o", "output", required=True, metavar="RECORD.json", help="Where the record goes; - is stdout."
)
@click.option(
    "--budget",
    type=click.FloatRange(min=0),
    default=300.0,
    show_default=True,
    help="Seconds after which nothing more is tried.",
)
@feeds.input_option
@feeds.always_random_option
@common.target_option
@common.shape_option
@common.level_option
@common.precision_option
@common.tuning_option
@common.threads_option
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def tune_command(
    model: str,
    output: str,
    budget: float,
    inputs: tuple[str, ...],
    seed: int,
    target: str,
    shapes: tuple[str, ...],
    opt_level: int,
    precision: str,
    tuning: str | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """Measure, for the products, attention and 3x3 convolutions of MODEL, other algorithms, tiles
    and blocks than the cost models choose, and write those that are faster on this machine to a
    record, which --tuning reads.
    """
    if output == "-" and as_json:
        raise UsageError("-o - and --json both write to stdout; give one of them")
    if model != "-" and artifact.is_artifact(model):
        raise UsageError("an artifact is compiled already; tune the model that it was made from")
    require_cpu(target)
    common.check_output(output)
    options = CompileOptions(opt_level=opt_level, precision=precision, tuning=tuning)
    source = sys.stdin.buffer.read() if model == "-" else model
    sizes = common.parse_shapes(shapes)
    exe, arrays = ahead.load_with_inputs(source, target, threads, sizes, options, inputs, seed)
    feed = {spec.name: array for spec, array in zip(ahead.whole(exe).inputs, arrays, strict=True)}
    known = {name: array.shape for name, array in feed.items()}

    def tell(what: str, winners: int) -> None:
        common.note(f"{what}; {winners} choices are faster so far")

    found = tune(source, feed, target, threads, known, options, budget=budget, on_round=tell)
    if output == "-":
        common.write_output(output, json.dumps(found.record.to_dict(), indent=1) + "\n")
        return
    found.save(output)
    if as_json:
        print(json.dumps(found.to_dict(), indent=2))
    else:
        _print(found)


def _print(found: TuningResult) -> None:
    from rich.table import Table

    console = common.console()
    if found.record.entries:
        table = Table(box=None)
        for name in ("what", "computes", "chosen"):
            table.add_column(name, overflow="fold")
        for name in ("us", "default us", "gain"):
            table.add_column(name, justify="right")
        for entry in found.record.entries:
            table.add_row(
                entry.kind,
                entry.computes,
                ", ".join(f"{name} {value}" for name, value in entry.chosen.items()),
                f"{entry.seconds * 1e6:.1f}",
                f"{entry.default_seconds * 1e6:.1f}",
                f"{entry.default_seconds / entry.seconds:.3f}" if entry.seconds else "",
            )
        console.print(table)
    low, high = found.quartiles
    console.print(
        f"{found.tried} choices were measured, {found.found} recorded: a run is "
        f"{found.ratio:.3f} times as fast (quartiles {low:.3f} to {high:.3f})"
    )
