"""`stepwell bench`: times of a model, alone or beside other runtimes, whole or by kernel."""

from __future__ import annotations

import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from stepwell import artifact
from stepwell.artifact import KernelInfo
from stepwell.errors import UsageError
from stepwell.inspection.roofline import Roofline, measured
from stepwell.options import CompileOptions
from stepwell.partitioned import PartitionedExecutable
from stepwell.runtime.cuda_executable import CudaExecutable
from stepwell.runtime.device_arrays import DeviceArray
from stepwell.runtime.executable import Executable
from stepwell.runtime.load import Loaded
from stepwell.runtime.open_sizes import OpenSizeExecutable
from stepwell.runtime.threads import default_threads
from stepwell.specializing import SpecializingExecutable
from stepwell.tools import peers
from stepwell.tools.commands import common
from stepwell.tools.commands.run import random_inputs

_WARM_UP_CALLS = 3
_LEAST_ROUNDS = 5
_PROFILED_CALLS = 20
_WORK_COLUMNS = ("GFLOP/s", "MB", "GB/s", "of peak", "bound")


@dataclass(frozen=True)
class Timing:
    """Seconds of single calls of one contender; `ratio` is its median over Stepwell's."""

    name: str
    median: float
    least: float
    calls: int
    ratio: float


@dataclass(frozen=True)
class KernelTime:
    """Median seconds of a kernel, beside what the machine can do; without that where the kernel's
    work is known for the largest sizes alone."""

    kernel: KernelInfo
    seconds: float
    roofline: Roofline | None


@click.command("bench")
@click.argument("model")
@click.option("--against", default="", metavar="PEER,...", help="onnxruntime, openvino, torch.")
@click.option("--per-kernel", is_flag=True, help="Where the time goes, beside the machine's peak.")
@click.option("--seconds", default=2.0, show_default=True, help="Time to spend on each contender.")
@common.target_option
@common.shape_option
@common.level_option
@common.threads_option
@common.cache_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def bench(
    model: str,
    against: str,
    per_kernel: bool,
    seconds: float,
    target: str,
    shapes: tuple[str, ...],
    opt_level: int,
    threads: int | None,
    no_cache: bool,
    as_json: bool,
) -> None:
    """Time MODEL, an artifact or anything that `stepwell compile` takes, on random inputs.

    Contenders run in turns in this process; the figure is the median of single calls. On a GPU
    they take and give arrays of the host, or ("on the GPU") leave them there.
    """
    names = [name for name in against.split(",") if name]
    if names and (model == "-" or artifact.is_artifact(model)):
        raise UsageError("--against needs the model's own file, which the peers read as well")
    options = CompileOptions(opt_level=opt_level, use_cache=not no_cache)
    known = common.parse_shapes(shapes)
    exe = common.load_or_compile(model, target, threads, known, options)
    sizes = common.complete_shapes(exe.inputs, known or {})
    if isinstance(exe, SpecializingExecutable):
        open_inputs = ", ".join(str(spec) for spec in exe.inputs if spec.name not in sizes)
        if open_inputs:
            raise UsageError(f"what is timed needs known shapes; give --shape for {open_inputs}")
        exe = common.load_or_compile(model, target, threads, sizes, options)
    if isinstance(exe, SpecializingExecutable | PartitionedExecutable):
        raise UsageError(f"what is timed is compiled whole and ahead, and this model is not: {exe}")
    feed = random_inputs(exe.inputs, 0, sizes)
    arrays = [feed[spec.name] for spec in exe.inputs]
    calls: dict[str, Callable[[], object]] = {"stepwell": lambda: exe(*arrays)}
    if isinstance(exe, CudaExecutable) and exe.results_are_arrays:
        calls["stepwell, on the GPU"] = on_the_gpu(exe, arrays)
    cpu_threads = threads or default_threads()
    if not isinstance(exe, CudaExecutable):
        cpu_threads = exe.threads
    for name in names:
        calls[name] = peers.prepare(name, Path(model), feed, cpu_threads)
    timings = measure(calls, seconds)
    kernels = kernel_times(exe, arrays) if per_kernel else []
    if as_json:
        _print_json(exe, timings, kernels)
    else:
        _print_tables(exe, timings, kernels)


def measure(calls: Mapping[str, Callable[[], object]], seconds: float) -> list[Timing]:
    """Time `calls` in turns for about `seconds` each; the first one is what ratios refer to."""
    for call in calls.values():
        for _ in range(_WARM_UP_CALLS):
            call()
    spent: dict[str, list[float]] = defaultdict(list)
    end = time.perf_counter() + seconds * len(calls)
    while time.perf_counter() < end or len(spent[next(iter(calls))]) < _LEAST_ROUNDS:
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            spent[name].append(time.perf_counter() - begin)
    medians = {name: statistics.median(times) for name, times in spent.items()}
    own = medians[next(iter(calls))]
    return [
        Timing(name, medians[name], min(times), len(times), medians[name] / own)
        for name, times in spent.items()
    ]


def on_the_gpu(exe: CudaExecutable, arrays: list[np.ndarray]) -> Callable[[], object]:
    """A call whose inputs and outputs stay on the GPU."""
    copies = [DeviceArray.copy_of(array) for array in arrays]
    return lambda: exe.run_on_device(*copies)


def kernel_times(exe: Loaded, arrays: list[np.ndarray]) -> list[KernelTime]:
    """The time of each kernel, the slowest first."""
    runs = [exe.profile(*arrays) for _ in range(_PROFILED_CALLS)]
    kernels = [kernel for kernel, _ in runs[0]]
    medians = [statistics.median(spent) for spent in zip(*map(_nanoseconds, runs), strict=True)]
    names = [kernel.name for kernel in exe.kernels]
    peaks = dict(zip(names, _rooflines(exe), strict=True))
    return sorted(
        (
            KernelTime(kernel, time / 1e9, peaks[kernel.name])
            for kernel, time in zip(kernels, medians, strict=True)
        ),
        key=lambda item: -item.seconds,
    )


def _rooflines(exe: Loaded) -> Sequence[Roofline | None]:
    if isinstance(exe, OpenSizeExecutable):
        return [None] * len(exe.kernels)
    if isinstance(exe, Executable):
        return [measured(exe.threads)] * len(exe.kernels)
    from stepwell.inspection.gpu_roofline import rooflines

    return rooflines(exe)


def _nanoseconds(profile: list[tuple[KernelInfo, int]]) -> list[int]:
    return [spent for _, spent in profile]


def _print_json(exe: Loaded, timings: list[Timing], kernels: list[KernelTime]) -> None:
    on_gpu = isinstance(exe, CudaExecutable)
    place = {"gpu": exe.device.name} if on_gpu else {"threads": exe.threads}
    data: dict[str, object] = {
        **place,
        "target": exe.artifact.manifest.target,
        "contenders": [vars(timing) for timing in timings],
    }
    if kernels:
        peak = _highest(kernels)
        if peak is not None:
            data["peak"] = {"gflops": peak.flops / 1e9, "gbps": peak.bandwidth / 1e9}
        data["kernels"] = [_kernel_data(entry) for entry in kernels]
    print(json.dumps(data, indent=2))


def _kernel_data(entry: KernelTime) -> dict[str, object]:
    data: dict[str, object] = {**vars(entry.kernel), "seconds": entry.seconds}
    if entry.roofline is None:
        del data["flops"], data["bytes"]
        return data
    share = entry.roofline.share(entry.kernel, entry.seconds)
    return data | {"share_of_peak": share, "bound": entry.roofline.bound(entry.kernel)}


def _highest(kernels: list[KernelTime]) -> Roofline | None:
    """On a GPU, kernels with matrix instructions have another peak than those without."""
    known = (entry.roofline for entry in kernels if entry.roofline is not None)
    return max(known, key=lambda roofline: roofline.flops, default=None)


def _print_tables(exe: Loaded, timings: list[Timing], kernels: list[KernelTime]) -> None:
    from rich.table import Table

    console = common.console()
    table = Table(title=f"{exe.place}, ms a call", title_justify="left", box=None)
    table.add_column("runtime")
    for name in ("median", "least", "calls", "against stepwell"):
        table.add_column(name, justify="right")
    for timing in timings:
        table.add_row(
            timing.name,
            f"{timing.median * 1e3:.3f}",
            f"{timing.least * 1e3:.3f}",
            str(timing.calls),
            f"{timing.ratio:.2f}",
        )
    console.print(table)
    if not kernels:
        return
    peak = _highest(kernels)
    title = "by kernel"
    if peak is not None:
        title += (
            f"; this machine: {peak.flops / 1e9:.0f} GFLOP/s on {exe.place}, "
            f"{peak.bandwidth / 1e9:.0f} GB/s from memory"
        )
    table = Table(title=title, title_justify="left", box=None)
    for name in ("kernel", "strategy", "sources"):
        table.add_column(name, overflow="fold")
    for name in ("us", "%", *(_WORK_COLUMNS if peak is not None else ())):
        table.add_column(name, justify="left" if name == "bound" else "right")
    total = sum(entry.seconds for entry in kernels)
    for entry in kernels:
        table.add_row(
            entry.kernel.name,
            entry.kernel.strategy,
            ", ".join(entry.kernel.sources),
            f"{entry.seconds * 1e6:.1f}",
            f"{100 * entry.seconds / max(total, 1e-12):.1f}",
            *(_work(entry.kernel, entry.seconds, entry.roofline) if entry.roofline else ()),
        )
    console.print(table)


def _work(kernel: KernelInfo, seconds: float, roofline: Roofline) -> tuple[str, ...]:
    """The cells of `_WORK_COLUMNS`."""
    return (
        f"{kernel.flops / max(seconds, 1e-9) / 1e9:.1f}",
        f"{kernel.bytes / 1e6:.2f}",
        f"{kernel.bytes / max(seconds, 1e-9) / 1e9:.1f}",
        f"{100 * roofline.share(kernel, seconds):.0f} %",
        roofline.bound(kernel),
    )
