"""`stepwell export`: any model as StableHLO."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stepwell.tools.commands import common

if TYPE_CHECKING:
    from stepwell.frontends import Frontend
    from stepwell.frontends.export import Format


@click.command("export")
@click.argument("model")
@click.option(
    "-o",
    "output",
    required=True,
    help="Output file: text if it ends in .mlir, else a portable artifact; - is stdout.",
)
@click.option("--version", help="StableHLO version, 1.13.0 for instance.  [default: widely read]")
@click.option(
    "--format",
    type=click.Choice(["portable", "text", "bytecode"]),
    help="What to write, whatever the file's name.",
)
@click.option(
    "--from",
    "frontend",
    type=click.Choice(["onnx", "jax", "torch", "stablehlo"]),
    help="What MODEL is, whatever its name says.  [default: by name and content]",
)
@common.shape_option
def export(
    model: str,
    output: str,
    version: str | None,
    format: Format | None,
    frontend: Frontend | None,
    shapes: tuple[str, ...],
) -> None:
    """Write MODEL as StableHLO, which jaxlib and XLA read."""
    from stepwell import exporting

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"model{Path(output).suffix}"
        known = common.parse_shapes(shapes)
        exporting.export(common.read_model(model), path, version, known, format, frontend)
        common.write_output(output, path.read_bytes())
