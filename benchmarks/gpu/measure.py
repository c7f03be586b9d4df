"""`python -m benchmarks.gpu.measure FOLDER`: time what `benchmarks.gpu.build` has compiled.

Needs a GPU and the runtime; torch and XLA are peers where they are installed with CUDA. All are
timed many calls at a time, with inputs and outputs on the GPU, by its clock, XLA by the host's;
torch.compile with its mode "reduce-overhead", a CUDA graph. The `latency` of a model is the time
from a call to its result.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import datetime
import gzip
import importlib.util
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np

import stepwell
from benchmarks.folders import RESULTS
from benchmarks.gpu import xla_peer
from benchmarks.gpu.cases import TYPES, Case, chosen
from stepwell.errors import Error
from stepwell.runtime.cuda_executable import CudaExecutable
from stepwell.runtime.device_arrays import DeviceArray

if TYPE_CHECKING:
    import jax
    from torch import Tensor

PEERS = ("torch", "torch.compile", "xla")

_COPIED_BYTES = 1 << 30
_LEAST_CALLS = 5


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True))
@click.option("--only", default="", help="Parts of names, comma separated.  [default: all built]")
@click.option("--seconds", default=0.5, show_default=True, help="For each contender of a case.")
@click.option("--peers", default=",".join(PEERS), show_default=True, help="Of those at hand.")
@click.option("--out", type=click.Path(path_type=Path), help="JSON file.  [default: results/gpu/]")
def main(folder: Path, only: str, seconds: float, peers: str, out: Path | None) -> None:
    """Time the artifacts in FOLDER, beside torch and XLA."""
    at_hand = _at_hand(peers.split(","))
    cases = [case for case in chosen(only) if _packed(case, folder).exists()]
    rows, name = [], "gpu"
    for case in cases:
        row = {"name": case.name, "flops": case.flops, "bytes": case.bytes}
        try:
            exe = _load(case, folder)
            name = exe.device.name
            row["contenders"] = measure(case, exe, seconds, at_hand)
        except Error as error:
            row["error"] = str(error)
        rows.append(row)
        click.echo(json.dumps(row), err=True)
    with_torch = bool(at_hand & {"torch", "torch.compile"})
    results = {
        "date": datetime.date.today().isoformat(),
        "gpu": name,
        "torch": _torch_version() if with_torch else None,
        "jax": xla_peer.version() if "xla" in at_hand else None,
        "copy_bytes_per_second": _copy_bandwidth(seconds) if with_torch else None,
        "cases": rows,
    }
    path = out or RESULTS / "gpu" / f"{results['date']}-{slug(name)}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")
    click.echo(str(path))


def slug(name: str) -> str:
    """The name of a GPU as files have it."""
    return "-".join("".join(c if c.isalnum() else " " for c in name).lower().split())


def measure(
    case: Case, exe: CudaExecutable, seconds: float, peers: frozenset[str]
) -> dict[str, dict[str, float]]:
    """Median seconds of a call and how many there were, by contender; with peers, also how far
    their result lies from Stepwell's, relative to the greatest element."""
    arrays = [
        array.astype(spec.dtype) for array, spec in zip(case.inputs(), exe.inputs, strict=True)
    ]
    copies = [DeviceArray.copy_of(array) for array in arrays]
    found = {"stepwell": repeated(lambda calls: exe.time(*copies, calls=calls), seconds)}
    if case.is_model:
        found["stepwell"]["latency"] = _by_the_host(lambda: exe.run_on_device(*copies), seconds)
    if not peers:
        return found
    (result,) = (output.numpy() for output in exe.run_on_device(*copies))
    with_torch = bool(peers & {"torch", "torch.compile"})
    for name, call in (_torch_calls(case, peers) if with_torch else {}).items():
        found[name] = _by_the_gpu(call, seconds)
        found[name]["distance"] = _distance(result, call().float().cpu().numpy())
    if "xla" in peers and (with_torch or not case.is_model):
        call = xla_peer.call_of(case)
        found["xla"] = _by_many(call, seconds)
        found["xla"]["distance"] = _distance(result, np.asarray(call(), np.float32))
    return found


def _distance(result: np.ndarray, theirs: np.ndarray) -> float:
    return float(np.abs(result.astype(np.float32) - theirs).max() / np.abs(theirs).max())


def _packed(case: Case, folder: Path) -> Path:
    return folder / f"{case.name}.stepwell.gz"


def _load(case: Case, folder: Path) -> CudaExecutable:
    with tempfile.TemporaryDirectory() as unpacked:
        path = Path(unpacked) / "model.stepwell"
        path.write_bytes(gzip.decompress(_packed(case, folder).read_bytes()))
        exe = stepwell.load(path)
    assert isinstance(exe, CudaExecutable)
    return exe


def _timed(call: Callable[[], float], seconds: float) -> dict[str, float]:
    """The median of what calls say that they took."""
    call()
    spent: list[float] = []
    end = time.perf_counter() + seconds
    while len(spent) < _LEAST_CALLS or time.perf_counter() < end:
        spent.append(call())
    return {"median": statistics.median(spent), "calls": len(spent)}


def repeated(timed: Callable[[int], float], seconds: float) -> dict[str, float]:
    """The median of what `timed` says of one of as many calls as hide their launches."""
    timed(3)
    count = max(1, min(100, round(0.02 / max(timed(1), 1e-6))))
    return _timed(lambda: timed(count), seconds)


def _by_the_host(call: Callable[[], object], seconds: float) -> float:
    """The median time from a call to its result."""

    def timed() -> float:
        begin = time.perf_counter()
        call()
        return time.perf_counter() - begin

    return _timed(timed, seconds)["median"]


def _by_the_gpu(call: Callable[[], object], seconds: float) -> dict[str, float]:
    """Seconds between two events in torch's stream: of as many calls as hide their launches."""
    import torch

    def timed(count: int) -> float:
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(count):
            call()
        last.record()
        torch.cuda.synchronize()
        return first.elapsed_time(last) / 1e3 / count

    return repeated(timed, seconds)


def _by_many(call: Callable[[], jax.Array], seconds: float) -> dict[str, float]:
    """Seconds of one of as many calls of jax as hide their launches, by the host's clock."""
    call().block_until_ready()

    def timed(count: int) -> float:
        begin = time.perf_counter()
        results = [call() for _ in range(count)]
        for result in results:
            result.block_until_ready()
        return (time.perf_counter() - begin) / count

    return repeated(timed, seconds)


def _torch_calls(case: Case, peers: frozenset[str]) -> dict[str, Callable[[], Tensor]]:
    """What torch does for a case: its libraries' kernel, or a model eager and compiled."""
    import torch
    from torch.nn import functional

    from benchmarks.gpu.torch_models import MODULES, seeded

    fast = case.precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = fast
    dtype = getattr(torch, TYPES[case.precision])
    inputs = [torch.from_numpy(array).cuda() for array in case.inputs()]
    x, *rest = (i.to(dtype) if i.is_floating_point() else i for i in inputs)
    if case.is_model:
        module = seeded(MODULES[case.family](), dtype).cuda()
        if case.family == "resnet50":
            layout = torch.channels_last
            for parameter in module.parameters():
                if parameter.dim() == 4:
                    parameter.data = parameter.data.contiguous(memory_format=layout)
            x = x.contiguous(memory_format=layout)
        calls: dict[str, Callable[[], Tensor]] = {"eager": lambda: module(x)}
        if "torch.compile" in peers:
            compiled = torch.compile(module, mode="reduce-overhead")
            calls["torch.compile"] = lambda: compiled(x)
        return calls
    attend = functional.scaled_dot_product_attention
    kernels: dict[str, Callable[[], Tensor]] = {
        "gemm": lambda: x @ rest[0],
        "attention": lambda: attend(x, rest[0], rest[1]),
        "causal": lambda: attend(x, rest[0], rest[1], is_causal=True),
        "decode": lambda: attend(x, rest[0], rest[1], enable_gqa=True),
        "softmax": lambda: functional.softmax(x, -1),
        "layer-norm": lambda: functional.layer_norm(x, x.shape[-1:]),
    }
    if dtype is torch.int8:
        return {"torch": lambda: torch.ops.aten._int_mm(x, rest[0].T)}
    return {"torch": kernels[case.family]}


def _copy_bandwidth(seconds: float) -> float:
    """Bytes read and written a second by torch's copy of a large array."""
    import torch

    source = torch.zeros(_COPIED_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * _COPIED_BYTES / _by_the_gpu(lambda: target.copy_(source), seconds)["median"]


def _at_hand(peers: Sequence[str]) -> frozenset[str]:
    """Those of `peers` whose package is installed and sees the GPU."""
    unknown = sorted(set(peers) - {*PEERS, ""})
    if unknown:
        raise click.BadParameter(f"{unknown[0]} is none of {', '.join(PEERS)}")
    found = set(peers) - {""}
    if not (found & {"torch", "torch.compile"} and _torch_has_a_gpu()):
        found -= {"torch", "torch.compile"}
    if not ("xla" in found and importlib.util.find_spec("jax") and xla_peer.has_a_gpu()):
        found -= {"xla"}
    return frozenset(found)


def _torch_has_a_gpu() -> bool:
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


def _torch_version() -> str:
    import torch

    return torch.__version__


if __name__ == "__main__":
    main()
