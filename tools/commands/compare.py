"""`stepwell compare`: layer by layer, how far a model's values are from those of a reference."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from stepwell.compiler import compile
from stepwell.errors import UsageError
from stepwell.inspection.compare import RTOL, Comparison, LayerReport, compare
from stepwell.inspection.references import REFERENCES
from stepwell.options import CompileOptions
from stepwell.tools.commands import common, feeds

if TYPE_CHECKING:
    from rich.table import Table


@click.command("compare")
@click.argument("model")
@click.option(
    "--reference",
    type=click.Choice(list(REFERENCES)),
    help="What computes the values to compare with.  [default: onnx for ONNX, else -O0]",
)
@click.option("--rtol", default=RTOL, show_default=True, help="Relative tolerance.")
@click.option(
    "--atol",
    type=float,
    help="Absolute tolerance.  [default: 1e-4 of the largest number in the layer]",
)
@feeds.input_option
@feeds.always_random_option
@common.target_option
@common.shape_option
@common.level_option
@common.precision_option
@common.threads_option
@common.cache_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def compare_command(
    model: str,
    reference: str | None,
    rtol: float,
    atol: float | None,
    inputs: tuple[str, ...],
    seed: int,
    target: str,
    shapes: tuple[str, ...],
    opt_level: int,
    precision: str,
    threads: int | None,
    no_cache: bool,
    as_json: bool,
) -> int:
    """Run MODEL with its intermediate values as outputs, and compare each with a reference's; exit
    code 1 where one is out of tolerance. The first such layer is named."""
    if rtol < 0 or (atol is not None and atol < 0):
        raise UsageError("tolerances must not be negative")
    options = CompileOptions(opt_level=opt_level, precision=precision, use_cache=not no_cache)
    source, sizes = common.read_model(model), common.parse_shapes(shapes)
    exe = compile(source, target, threads, sizes, options)
    given = feeds.read_inputs(inputs, exe.inputs)
    feed = feeds.completed(given, exe.inputs, seed, sizes)
    found = compare(
        source,
        feed,
        target,
        threads,
        sizes,
        options,
        reference=reference,
        rtol=rtol,
        atol=atol,
    )
    if as_json:
        print(json.dumps(found.to_dict(), indent=2))
    else:
        _print(found)
    first = found.first_out
    if first is not None:
        print(_sentence(first), file=sys.stderr)
    return 1 if first is not None else 0


def _print(found: Comparison) -> None:
    console = common.console()
    console.print(_table(f"layers, beside those of {found.reference}", found.layers))
    console.print(_table("outputs of the model as it is", found.outputs))
    counts = ""
    if found.kernels is not None and found.own_kernels is not None:
        counts = f" ({found.kernels} kernels, where it has {found.own_kernels} by itself)"
    console.print(
        f"layers are of the model compiled with all of them as outputs{counts}, so that other "
        "operators are fused than in the model as it is"
    )
    if found.left_out:
        console.print(f"no arrays of numbers: {', '.join(found.left_out)}")
    out = sum(bool(report.difference.out) for report in found.layers)
    console.print(f"{out} of {len(found.layers)} layers are out of tolerance")


def _table(title: str, reports: Sequence[LayerReport]) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None)
    for name in ("node", "operator", "value", "type"):
        table.add_column(name, overflow="fold")
    for name in ("largest", "relative", "growth", "1 - cosine", "out"):
        table.add_column(name, justify="right")
    for report in reports:
        difference, layer = report.difference, report.layer
        table.add_row(
            layer.node,
            layer.operator,
            layer.value if layer.value != layer.node else "",
            report.type,
            f"{difference.largest:.2e}",
            f"{difference.relative:.2e}",
            f"x{report.growth:.1f}" if report.growth is not None else "",
            f"{max(0.0, 1 - difference.cosine):.1e}",
            f"{difference.out}" if difference.out else "",
            style="bold" if difference.out else None,
        )
    return table


def _sentence(report: LayerReport) -> str:
    difference = report.difference
    return (
        f"{report.layer.node}: error: the first layer out of tolerance: {difference.out} of "
        f"{difference.size} numbers of {report.layer.value}, the largest difference being "
        f"{difference.largest:.3g}, {difference.relative:.2g} of the largest number"
    )
