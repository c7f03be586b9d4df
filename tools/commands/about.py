"""`stepwell targets` and `stepwell version`: what there is."""

from __future__ import annotations

import dataclasses
import json
import platform

import click

import stepwell
from stepwell.targets import Target
from stepwell.targets.nvidia import NvidiaTarget


@click.command("targets")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def targets_command(as_json: bool) -> None:
    """List the machines that code can be generated for; a star marks this one."""
    from stepwell import targets
    from stepwell.errors import UsageError

    known = targets.available()
    try:
        host = targets.host().name
    except UsageError:  # older than every target: cross compilation still works
        host = ""
    if as_json:
        data = [dataclasses.asdict(t) | {"host": t.name == host} for t in known.values()]
        print(json.dumps(data, indent=2))
        return
    for target in known.values():
        mark = "*" if target.name == host else " "
        print(f"{mark} {target.name:<24}{target.triple:<28}{_summary(target)}")


def _summary(target: Target) -> str:
    if not isinstance(target, NvidiaTarget):
        return f"{target.vector_bits}-bit vectors"
    matrix = ", ".join(name for name, _ in target.matrix_instructions)
    return f"{target.block_shared_bytes >> 10} KB shared memory a block, {matrix}"


@click.command("version")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def version(as_json: bool) -> None:
    """Show the versions of Stepwell and of what it stands on."""
    import importlib.metadata

    def installed(package: str) -> str:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return "not installed"

    packages = ("torch-mlir", "llvmlite", "numpy", "onnx", "jax", "torch")
    versions = {
        "stepwell": stepwell.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        **{package: installed(package) for package in packages},
    }
    if as_json:
        print(json.dumps(versions, indent=2))
        return
    for name, text in versions.items():
        print(f"{name:<12}{text}")
