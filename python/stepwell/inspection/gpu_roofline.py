"""What a GPU can do: arithmetic by its data sheet, memory by a copy that is timed.

Sources: NVIDIA's white papers of the Ampere, Ada, Hopper and Blackwell architectures (fused
multiply-adds a clock and multiprocessor).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from stepwell.inspection.roofline import Roofline
from stepwell.launch import timed_kernels
from stepwell.options import ROUNDED_TO_TF32
from stepwell.runtime.cuda import Device, copy_bandwidth
from stepwell.runtime.cuda_executable import CudaExecutable

_FP32 = {(8, 0): 64}
_FP32_OF_OTHERS = 128
"""Fused multiply-adds of f32 a clock and multiprocessor."""

_MATRIX = {(8, 0): 1024, (9, 0): 2048, (10, 0): 4096}
_MATRIX_OF_OTHERS = 512
"""Those of matrix instructions on 16-bit operands."""

_FACTORS = {"tf32": 0.5, "f16": 1, "bf16": 1, "s8": 2, "u8": 2, "e4m3": 2, "e5m2": 2}
"""How many more of them a clock other operands allow; sparse matrices do not count."""

_SPLIT_PRODUCTS = 3
"""Of tf32, for one of f32 (kernels/gpu/split_f32.py, which needs the compiler; this does not)."""

_INSTRUCTION = re.compile(r"\b(?:mma\.sync|wgmma\.mma_async|tcgen05\.mma)[\w.:]*")


def rooflines(executable: CudaExecutable) -> Sequence[Roofline]:
    """The roofline of each kernel of `executable`, by the instructions in its PTX; for functions
    that the host calls, that of a kernel without matrix instructions."""
    bandwidth = copy_bandwidth()
    program = executable.artifact.manifest.cuda
    assert program is not None
    parts = executable.artifact.code_parts()
    precision = executable.artifact.manifest.options.get("precision")
    splits = precision not in ROUNDED_TO_TF32
    peaks = [
        Roofline(
            peak_flops(executable.device, parts[image.ptx].decode(), splits_f32=splits), bandwidth
        )
        for image in program.images
    ]
    others = Roofline(peak_flops(executable.device, ""), bandwidth)
    return [others if n is None else peaks[n] for n in timed_kernels(program.code)]


def peak_flops(device: Device, ptx: str, *, splits_f32: bool = False) -> float:
    """Operations a second of `device` at its highest clock, by matrix instructions where the kernel
    `ptx` has some, else by fused multiply-adds of f32. With `splits_f32`, three products of tf32
    are one operation's."""
    rate = _FP32.get(device.capability, _FP32_OF_OTHERS)
    found = _INSTRUCTION.search(ptx)
    if found is not None:
        factor = max((f for kind, f in _FACTORS.items() if f".{kind}" in found[0]), default=1)
        rate = _MATRIX.get(device.capability, _MATRIX_OF_OTHERS) * factor
        if splits_f32 and ".tf32" in found[0]:
            rate /= _SPLIT_PRODUCTS
    return 2 * rate * device.multiprocessors * device.clock
