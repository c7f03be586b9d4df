"""`stepwell check`: what of a model is not supported."""

from __future__ import annotations

import dataclasses
import json

import click

from stepwell.tools.commands import common


@click.command("check")
@click.argument("model")
@common.shape_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(model: str, shapes: tuple[str, ...], as_json: bool) -> int:
    """List every node of MODEL that is not supported; exit code 1 when there is one."""
    from stepwell.inspection.check import check as check_model

    report = check_model(common.read_model(model), common.parse_shapes(shapes))
    if as_json:
        print(json.dumps([dataclasses.asdict(f) for f in report.findings], indent=2))
    else:
        print(report)
    return 1 if report.findings else 0
