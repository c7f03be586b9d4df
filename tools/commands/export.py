"""`stepwell export`: any model as a StableHLO portable artifact."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from stepwell.tools.commands import common


@click.command("export")
@click.argument("model")
@click.option("-o", "output", required=True, help="Output file (.mlirbc); - is stdout.")
@click.option("--version", help="StableHLO version, 1.13.0 for instance.  [default: widely read]")
@common.shape_option
def export(model: str, output: str, version: str | None, shapes: tuple[str, ...]) -> None:
    """Write MODEL as a StableHLO portable artifact, which jaxlib and XLA read."""
    from stepwell import exporting

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.mlirbc"
        exporting.export(common.read_model(model), path, version, common.parse_shapes(shapes))
        common.write_output(output, path.read_bytes())
