"""`stepwell bench`: times of a model, alone or beside other runtimes, whole or by kernel."""

from __future__ import annotations

import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from stepwell import artifact
from stepwell.errors import UsageError
from stepwell.inspection.kernel_times import KernelTime, highest, kernel_times
from stepwell.options import CompileOptions
from stepwell.runtime.cuda_open_sizes import OnGpu
from stepwell.runtime.device_arrays import DeviceArray
from stepwell.runtime.load_artifact import Loaded
from stepwell.runtime.steps import SteppedModel
from stepwell.runtime.threads import default_threads
from stepwell.tools import peers
from stepwell.tools.commands import ahead, common
from stepwell.tools.commands.kernel_table import kernel_cells, kernel_table

_WARM_UP_CALLS = 3
_LEAST_CALLS = 5
_BURST_S = 0.2
_SETTLE_S = 0.05
"""How long idle threads of onnxruntime (35 ms) and torch (9 ms) may keep processors busy, waiting
for work."""


@dataclass(frozen=True)
class Timing:
    """Seconds of single calls of one contender; `ratio` is its median over Stepwell's."""

    name: str
    median: float
    least: float
    calls: int
    ratio: float


@click.command("bench")
@click.argument("model")
@click.option("--against", default="", metavar="PEER,...", help="onnxruntime, openvino, torch.")
@click.option("--per-kernel", is_flag=True, help="Where the time goes, beside the machine's peak.")
@click.option("--seconds", default=2.0, show_default=True, help="Time to spend on each contender.")
@common.target_option
@common.shape_option
@common.level_option
@common.precision_option
@common.tuning_option
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
    precision: str,
    tuning: str | None,
    threads: int | None,
    no_cache: bool,
    as_json: bool,
) -> None:
    """Time MODEL, an artifact or anything that `stepwell compile` takes, on random inputs.

    Contenders run in turns in this process, a fifth of a second at a time; the figure is the median
    of single calls, which run all parts of a model whose shapes depend on data. On a GPU they take
    and give arrays of the host, or ("on the GPU") leave them there.
    """
    names = [name for name in against.split(",") if name]
    if names and (model == "-" or artifact.is_artifact(model)):
        raise UsageError("--against needs the model's own file, which the peers read as well")
    options = CompileOptions(
        opt_level=opt_level, precision=precision, use_cache=not no_cache, tuning=tuning
    )
    known = common.parse_shapes(shapes)
    exe, arrays = ahead.load_with_inputs(model, target, threads, known, options)
    feed = {spec.name: array for spec, array in zip(exe.inputs, arrays, strict=True)}
    calls: dict[str, Callable[[], object]] = {"stepwell": lambda: exe(*arrays)}
    if isinstance(exe, OnGpu) and exe.results_are_arrays:
        calls["stepwell, on the GPU"] = on_the_gpu(exe, arrays)
    code = exe.specialized(*arrays) if isinstance(exe, SteppedModel) else exe
    cpu_threads = threads or default_threads()
    if not isinstance(code, OnGpu):
        cpu_threads = code.threads
    for name in names:
        calls[name] = peers.prepare(name, Path(model), feed, cpu_threads)
    timings = measure(calls, seconds)
    kernels = kernel_times(exe, arrays) if per_kernel else []
    if as_json:
        _print_json(code, timings, kernels)
    else:
        _print_tables(code, timings, kernels)


def measure(calls: Mapping[str, Callable[[], object]], seconds: float) -> list[Timing]:
    """Time `calls` in turns for about `seconds` each; the first one is what ratios refer to."""
    for call in calls.values():
        for _ in range(_WARM_UP_CALLS):
            call()
    spent: dict[str, list[float]] = defaultdict(list)
    end = time.perf_counter() + seconds * len(calls)
    while time.perf_counter() < end or len(spent[next(iter(calls))]) < _LEAST_CALLS:
        for name, call in calls.items():
            if len(calls) > 1:
                time.sleep(_SETTLE_S)
                call()
            end_of_burst = time.perf_counter() + min(seconds, _BURST_S)
            while True:
                begin = time.perf_counter()
                call()
                after = time.perf_counter()
                spent[name].append(after - begin)
                if after >= end_of_burst:
                    break
    medians = {name: statistics.median(times) for name, times in spent.items()}
    own = medians[next(iter(calls))]
    return [
        Timing(name, medians[name], min(times), len(times), medians[name] / own)
        for name, times in spent.items()
    ]


def on_the_gpu(exe: OnGpu, arrays: list[np.ndarray]) -> Callable[[], object]:
    """A call whose inputs and outputs stay on the GPU."""
    copies = [DeviceArray.copy_of(array) for array in arrays]
    return lambda: exe.run_on_device(*copies)


def _print_json(exe: Loaded, timings: list[Timing], kernels: list[KernelTime]) -> None:
    on_gpu = isinstance(exe, OnGpu)
    place = {"gpu": exe.device.name} if on_gpu else {"threads": exe.threads}
    data: dict[str, object] = {
        **place,
        "target": exe.artifact.manifest.target,
        "contenders": [vars(timing) for timing in timings],
    }
    if kernels:
        peak = highest(kernels)
        if peak is not None:
            data["peak"] = {"gflops": peak.flops / 1e9, "gbps": peak.bandwidth / 1e9}
        data["kernels"] = [entry.to_dict() for entry in kernels]
    print(json.dumps(data, indent=2))


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
    table = kernel_table("by kernel", exe.place, kernels)
    total = sum(entry.seconds for entry in kernels)
    for entry in kernels:
        table.add_row(*kernel_cells(entry, total))
    console.print(table)
