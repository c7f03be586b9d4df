"""`python -m benchmarks.gpu.build FOLDER`: compile the cases, for `benchmarks.gpu.measure`.

Needs the compiler, jax and torch, and no GPU. Artifacts are written compressed: the weights of the
models are a short pattern, so that a folder is small enough to be carried to another machine.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import click

from benchmarks.gpu.cases import TYPES, Case, chosen
from stepwell.options import CompileOptions
from stepwell.pipeline import compile_to_artifact

INDEX = "index.json"


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--target", default="cuda:sm_90a", show_default=True)
@click.option("--only", default="", help="Parts of names, comma separated.  [default: all]")
def main(folder: Path, target: str, only: str) -> None:
    """Write an artifact for each case into FOLDER, and an index with the times it took."""
    folder.mkdir(parents=True, exist_ok=True)
    built = {}
    for case in chosen(only):
        begin = time.perf_counter()
        build(case, folder, target)
        built[case.name] = time.perf_counter() - begin
        click.echo(f"{case.name}: {built[case.name]:.1f} s", err=True)
        (folder / INDEX).write_text(json.dumps({"target": target, "seconds": built}, indent=2))


def build(case: Case, folder: Path, target: str) -> None:
    """Compile one case."""
    options = CompileOptions(precision="tf32") if case.precision == "tf32" else CompileOptions()
    path = folder / f"{case.name}.stepwell"
    source = _model(case) if case.is_model else _kernel(case)
    compile_to_artifact(source, path, target=target, options=options)
    with gzip.open(f"{path}.gz", "wb", compresslevel=6) as compressed:
        compressed.write(path.read_bytes())
    path.unlink()


def _model(case: Case) -> object:
    import torch

    from benchmarks.gpu.torch_models import MODULES, seeded

    # Tracing runs every operator once, in less time than threads need to begin.
    torch.set_num_threads(1)
    dtype = getattr(torch, TYPES[case.precision])
    inputs = [torch.from_numpy(array) for array in case.inputs()]
    inputs = [x.to(dtype) if x.is_floating_point() else x for x in inputs]
    return torch.export.export(seeded(MODULES[case.family](), dtype), tuple(inputs))


def _kernel(case: Case) -> str:
    import jax
    from jax import numpy as jnp

    from benchmarks.gpu.jax_kernels import KERNELS

    dtype = jnp.dtype(TYPES[case.precision])
    specs = [jax.ShapeDtypeStruct(array.shape, dtype) for array in case.inputs()]
    function = jax.jit(KERNELS[case.family])
    return str(jax.export.export(function, platforms=["cpu"])(*specs).mlir_module())


if __name__ == "__main__":
    main()
