"""`stepwell inspect`: the manifest of an artifact."""

from __future__ import annotations

import json

import click

from stepwell import artifact, stepped_artifact
from stepwell.artifact import Artifact
from stepwell.runtime.open_model import open_signature
from stepwell.stepped_artifact import SteppedArtifact
from stepwell.tools.commands import common

_LISTED = 6
"""So many of the values that a step finds are named."""


@click.command("inspect")
@click.argument("path", metavar="ARTIFACT")
@click.option("--json", "as_json", is_flag=True, help="Print the whole manifest as JSON.")
def inspect(path: str, as_json: bool) -> None:
    """Show the inputs, outputs, kernels and sizes of ARTIFACT (any target's)."""
    read = stepped_artifact.read(path, check_host=False)
    if isinstance(read, Artifact):
        if as_json:
            print(json.dumps(artifact.manifest_to_dict(read.manifest), indent=2))
        else:
            _show(read)
    elif as_json:
        print(json.dumps(stepped_artifact.to_dict(read), indent=2))
    else:
        _show_steps(read)


def _show_steps(read: SteppedArtifact) -> None:
    from rich.table import Table

    console = common.console()
    facts = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    facts.add_row("file", _bytes(len(read.file)))
    for kind, specs in (("input", read.signature.inputs), ("output", read.signature.outputs)):
        for spec in specs:
            facts.add_row(kind, str(spec), style="bold")
    console.print(facts)
    for number, step in enumerate(read.steps, 1):
        found = [*(f"the shape of {name}" for name in step.sizes), *step.values]
        listed = [*found[:_LISTED], *([f"{len(found) - _LISTED} more"] * (len(found) > _LISTED))]
        console.print(f"\nstep {number}, {'finds ' + ', '.join(listed) if found else 'the last'}")
        if step.code is not None:
            _show(read.artifacts[step.code])


def _show(read: Artifact) -> None:
    from rich.table import Table

    manifest, sizes = read.manifest, read.manifest.open_sizes
    inputs, outputs = manifest.inputs, manifest.visible_outputs
    at_most = ""
    if sizes is not None:
        inputs, outputs = open_signature(manifest, sizes)
        at_most = " at the largest sizes"
    console = common.console()
    facts = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    code = sum(manifest.code_sizes)
    for label, text in (
        ("target", f"{manifest.target} ({manifest.triple})"),
        ("compiler", manifest.compiler_version),
        ("file", _bytes(len(read.file))),
        ("code", f"{_bytes(code)} ({manifest.code_format})"),
        ("weights", _bytes(manifest.weights_bytes)),
        ("arena", _bytes(manifest.arena_bytes)),
        ("work", f"{sum(k.flops for k in manifest.kernels) / 1e9:.3f} GFLOP{at_most}"),
    ):
        facts.add_row(label, text)
    if manifest.functions:
        facts.add_row("calls", ", ".join(manifest.functions))
    for kind, specs in (("input", inputs), ("output", outputs)):
        for spec in specs:
            facts.add_row(kind, str(spec), style="bold")
    if sizes is not None:
        named = zip(sizes.names, sizes.capacities, strict=True)
        facts.add_row("sizes", ", ".join(f"{name} <= {most}" for name, most in named))
    console.print(facts)
    title = f"{len(manifest.kernels)} kernels{at_most and ', their work' + at_most}"
    kernels = Table(title=title, title_justify="left", box=None)
    for name in ("kernel", "strategy", "sources"):
        kernels.add_column(name, overflow="fold")
    for name in ("MFLOP", "MB"):
        kernels.add_column(name, justify="right")
    for kernel in manifest.kernels:
        kernels.add_row(
            kernel.name,
            kernel.strategy,
            ", ".join(kernel.sources),
            f"{kernel.flops / 1e6:.2f}",
            f"{kernel.bytes / 1e6:.2f}",
        )
    if manifest.kernels:
        console.print(kernels)


def _bytes(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} bytes"
