"""Times of kernels beside what the machine can do."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepwell.artifact import KernelInfo
from stepwell.inspection.roofline import Roofline, measured
from stepwell.runtime.executable import Executable
from stepwell.runtime.load_artifact import Loaded
from stepwell.runtime.open_model import OpenSizeModel
from stepwell.runtime.steps import SteppedModel

_PROFILED_CALLS = 20


@dataclass(frozen=True)
class KernelTime:
    """Seconds of a kernel, beside what the machine can do; without that where the kernel's work is
    known for the largest sizes alone."""

    kernel: KernelInfo
    seconds: float
    roofline: Roofline | None

    def to_dict(self) -> dict[str, object]:
        """As `--json` prints it."""
        data: dict[str, object] = {**vars(self.kernel), "seconds": self.seconds}
        if self.roofline is None:
            del data["flops"], data["bytes"]
            return data
        share = self.roofline.share(self.kernel, self.seconds)
        return data | {"share_of_peak": share, "bound": self.roofline.bound(self.kernel)}


def kernel_times(exe: Loaded | SteppedModel, arrays: Sequence[np.ndarray]) -> list[KernelTime]:
    """The median time of each kernel over several calls, the slowest kernel first."""
    codes = exe.codes(*arrays) if isinstance(exe, SteppedModel) else [exe]
    runs = [exe.profile(*arrays) for _ in range(_PROFILED_CALLS)]
    medians = [statistics.median(spent) for spent in zip(*map(_nanoseconds, runs), strict=True)]
    kernels = [kernel for kernel, _ in runs[0]]
    times = beside_peak(codes, list(zip(kernels, medians, strict=True)))
    return sorted(times, key=lambda entry: -entry.seconds)


def beside_peak(
    codes: Sequence[Loaded], spent: Sequence[tuple[KernelInfo, float]]
) -> list[KernelTime]:
    """Kernels of `codes` and nanoseconds in each, beside the machine's peak."""
    peaks = {
        kernel.name: roofline
        for code in codes
        for kernel, roofline in zip(code.kernels, _rooflines(code), strict=True)
    }
    return [KernelTime(kernel, time / 1e9, peaks[kernel.name]) for kernel, time in spent]


def highest(kernels: Sequence[KernelTime]) -> Roofline | None:
    """The peak of the machine: on a GPU, kernels with matrix instructions have another than those
    without."""
    known = (entry.roofline for entry in kernels if entry.roofline is not None)
    return max(known, key=lambda roofline: roofline.flops, default=None)


def _rooflines(exe: Loaded) -> Sequence[Roofline | None]:
    if isinstance(exe, OpenSizeModel):
        return [None] * len(exe.kernels)
    if isinstance(exe, Executable):
        return [measured(exe.threads)] * len(exe.kernels)
    from stepwell.inspection.gpu_roofline import rooflines

    return rooflines(exe)


def _nanoseconds(profile: list[tuple[KernelInfo, int]]) -> list[int]:
    return [spent for _, spent in profile]
