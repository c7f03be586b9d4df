"""`python -m benchmarks.models [--again] [NAME ...]`: make models (all that are missing)."""

from __future__ import annotations

import sys
import time

import click

from benchmarks.models import catalog


@click.command()
@click.argument("names", nargs=-1)
@click.option("--again", is_flag=True, help="Make them even when they exist.")
def main(names: tuple[str, ...], again: bool) -> None:
    """Make the benchmark's models NAMES, or all of them."""
    for name in names or catalog.MODELS:
        try:
            files = catalog.files(name)
        except KeyError as error:
            raise click.UsageError(str(error.args[0])) from None
        if files.facts.exists() and not again:
            continue
        begin = time.perf_counter()
        make(files)
        facts = files.read_facts()
        click.echo(
            f"{name}: {facts['gflop']:.3f} GFLOP, {facts['weights_bytes'] / 1e6:.0f} MB of weights,"
            f" made in {time.perf_counter() - begin:.0f} s",
            err=True,
        )


def make(files: catalog.ModelFiles) -> None:
    """Make one model with the scripts of its family."""
    match catalog.family(files.name):
        case "torch":
            from benchmarks.models import torch_onnx

            torch_onnx.make(files)
        case "quantized":
            from benchmarks.models import quantized

            quantized.make(files)
        case "pruned":
            from benchmarks.models import pruned

            pruned.make(files)
        case "light":
            from benchmarks.models import light

            light.make(files)
        case _:
            from benchmarks.models import jax_models

            jax_models.make(files)


if __name__ == "__main__":
    sys.exit(main())
