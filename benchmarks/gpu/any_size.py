"""`python -m benchmarks.gpu.any_size build FOLDER`, then `measure FOLDER`: code for any size beside
code for the one size, on a GPU.

Building needs the compiler, jax and torch, measuring a GPU and the runtime. Both kinds of code are
timed many calls at a time, with inputs and outputs on the GPU, by its clock.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import datetime
import functools
import gzip
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

import stepwell
from benchmarks.any_size_table import any_size_table
from benchmarks.folders import RESULTS
from benchmarks.gpu.measure import repeated, slug
from stepwell import compiler
from stepwell.artifact import Artifact
from stepwell.runtime.cuda_executable import CudaExecutable
from stepwell.runtime.cuda_open_sizes import OnGpu, OpenSizeCudaExecutable
from stepwell.runtime.device_arrays import DeviceArray

WIDTH, VOCABULARY = 4096, 30522
F16 = np.float16


@dataclass(frozen=True)
class AnySize:
    """A model in f16: its inputs' dimensions, open ones by name, how large those may be, and the
    sizes to measure. `bert` takes numbers of tokens."""

    name: str
    inputs: tuple[tuple[int | str, ...], ...]
    capacities: dict[str, int]
    sizes: tuple[dict[str, int], ...]

    def arrays(self, sizes: dict[str, int]) -> list[np.ndarray]:
        """Seeded inputs of these sizes."""
        random = np.random.default_rng(0)
        shapes = [[sizes.get(str(n)) or int(n) for n in shape] for shape in self.inputs]
        if self.name == "bert":
            return [random.integers(0, VOCABULARY, shape) for shape in shapes]
        return [random.standard_normal(shape).astype(F16) for shape in shapes]

    def file(self, folder: Path, sizes: dict[str, int] | None) -> Path:
        """Where the code for these sizes is, or for any."""
        size = "any" if sizes is None else text(sizes)
        return folder / f"{self.name}-{size}.stepwell.gz"


def text(sizes: dict[str, int]) -> str:
    """Sizes as `8x128`."""
    return "x".join(map(str, sizes.values()))


def _rows(*sizes: int) -> tuple[dict[str, int], ...]:
    return tuple({"n": n} for n in sizes)


_HEADS = (8, 16, "n", 64)
_SENTENCES = ((1, 32), (1, 128), (3, 70), (8, 128), (1, 512), (8, 512))
CASES = (
    AnySize("gelu", (("n", WIDTH),), {"n": 8192}, _rows(1024, 3000, 8192)),
    AnySize("softmax", (("n", WIDTH),), {"n": 8192}, _rows(1024, 3000, 8192)),
    AnySize("layer-norm", (("n", WIDTH),), {"n": 8192}, _rows(1024, 3000, 8192)),
    AnySize("gemm", (("n", WIDTH), (WIDTH, WIDTH)), {"n": 4096}, _rows(128, 512, 1500, 4096)),
    AnySize("attention", (_HEADS,) * 3, {"n": 2048}, _rows(128, 512, 1000, 2048)),
    AnySize(
        "bert",
        (("b", "n"),),
        {"b": 16, "n": 512},
        tuple({"b": b, "n": n} for b, n in _SENTENCES),
    ),
)


@click.group()
def main() -> None:
    """Code for any size on GPUs, beside code for the one size."""


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--target", default="cuda:sm_90a", show_default=True)
def build(folder: Path, target: str) -> None:
    """Compile all cases into FOLDER."""
    folder.mkdir(parents=True, exist_ok=True)
    for case in CASES:
        for sizes in (None, *case.sizes):
            built = _artifact(case, sizes, target)
            with gzip.open(case.file(folder, sizes), "wb", compresslevel=6) as file:
                file.write(built.file)
            for finding in built.manifest.cuda.findings if built.manifest.cuda else ():
                click.echo(f"{case.name}: {finding}", err=True)
        click.echo(case.name, err=True)


def _artifact(case: AnySize, sizes: dict[str, int] | None, target: str) -> Artifact:
    """The code for these sizes, or for any."""
    options = {"progress": False}
    if case.name == "bert":
        import torch

        from benchmarks.gpu.torch_models import MODULES, seeded

        module = seeded(MODULES["bert"](), torch.float16)
        ids = torch.from_numpy(case.arrays(sizes or case.capacities)[0])
        if sizes is not None:
            program = torch.export.export(module, (ids,))
            return compiler.build(program, target, options=options)
        dims = {i: torch.export.Dim(n, max=case.capacities[n]) for i, n in enumerate("bn")}
        program = torch.export.export(module, (ids,), dynamic_shapes=(dims,))
        bounds = {"shapes": {"ids": case.inputs[0]}, "max_sizes": case.capacities}
        return compiler.build(program, target, options=options, **bounds)
    import jax

    from benchmarks.gpu.jax_kernels import KERNELS

    function = jax.jit({**KERNELS, "gelu": jax.nn.gelu}[case.name])
    scope = jax.export.SymbolicScope()
    shapes = [
        jax.export.symbolic_shape(", ".join(map(str, shape)), scope=scope)
        if sizes is None
        else tuple(sizes.get(str(n)) or int(n) for n in shape)
        for shape in case.inputs
    ]
    specs = [jax.ShapeDtypeStruct(shape, F16) for shape in shapes]
    exported = jax.export.export(function, platforms=["cpu"])(*specs)
    bounds = case.capacities if sizes is None else None
    return compiler.build(exported, target, options=options, max_sizes=bounds)


@main.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True))
@click.option("--seconds", default=0.3, show_default=True, help="For each kind of code.")
@click.option("--out", type=click.Path(path_type=Path), help="JSON file.  [default: results/gpu/]")
def measure(folder: Path, seconds: float, out: Path | None) -> None:
    """Time what was built in FOLDER; write JSON and print a table."""
    rows: list[dict[str, object]] = []
    name = "gpu"
    for case in CASES:
        for_any = _load(case.file(folder, None))
        assert isinstance(for_any, OpenSizeCudaExecutable)
        for sizes in case.sizes:
            for_one = _load(case.file(folder, sizes))
            name = for_one.device.name
            arrays = case.arrays(sizes)
            copies = [DeviceArray.copy_of(array) for array in arrays]
            results = [exe.run_on_device(*copies)[0].numpy() for exe in (for_any, for_one)]
            whole, one = (result.astype(np.float32) for result in results)
            row: dict[str, object] = {"model": case.name, "up_to": text(case.capacities)}
            row |= {"size": text(sizes), "distance": float(np.abs(whole - one).max())}
            for kind, exe in (("any", for_any), ("one", for_one)):
                timed = functools.partial(_time, exe, copies)
                row[kind] = repeated(timed, seconds)["median"]
            rows.append(row)
            click.echo(json.dumps(row), err=True)
    date = datetime.date.today().isoformat()
    data = {"date": date, "gpu": name, "rows": rows}
    path = out or RESULTS / "gpu" / f"{date}-{slug(name)}-any-size.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1) + "\n")
    any_size_table(data).print()


def _time(exe: OnGpu, arrays: list[DeviceArray], calls: int) -> float:
    return exe.time(*arrays, calls=calls)


def _load(path: Path) -> OnGpu:
    with tempfile.TemporaryDirectory() as unpacked:
        whole = Path(unpacked) / "model.stepwell"
        whole.write_bytes(gzip.decompress(path.read_bytes()))
        exe = stepwell.load(whole)
    assert isinstance(exe, CudaExecutable | OpenSizeCudaExecutable)
    return exe


if __name__ == "__main__":
    main()
