"""Where the tensors of a graph lie: on the CPU, or on the first GPU, where compiled code reads and
leaves them."""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import torch

from stepwell.frontends.torch.graph import to_array
from stepwell.runtime.cuda_open_sizes import OnGpu
from stepwell.runtime.device_arrays import DeviceArray
from stepwell.runtime.load_artifact import Loaded

CPU, GPU = "cpu", "cuda"
"""Targets of graphs."""


def target_of(values: Sequence[object]) -> str | None:
    """The target for tensors among `values`: that of the GPU where they lie there, maybe with
    scalars of the CPU; None where they lie elsewhere, or some here and some there."""
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    elsewhere = [tensor for tensor in tensors if tensor.device.type != CPU]
    if not elsewhere:
        return CPU
    on_gpu = all(t.device.type == GPU and not t.device.index for t in elsewhere)
    others = all(tensor.dim() == 0 for tensor in tensors if tensor.device.type == CPU)
    return GPU if on_gpu and others else None


def run(executable: Loaded, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The results of `executable`, for a CPU or the GPU on which tensors lie, there."""
    if not isinstance(executable, OnGpu):
        return list(map(_from_host, executable(*map(to_array, tensors))))
    given = [to_array(t) if t.device.type == CPU else _dense(t) for t in tensors]
    if executable.results_are_arrays:
        return list(map(from_gpu, executable.run_on_device(*given)))
    return [_from_host(array).to(f"{GPU}:0") for array in executable(*given)]


def from_gpu(array: DeviceArray) -> torch.Tensor:
    """The tensor whose memory an array on the GPU is."""
    return torch.from_dlpack(array)


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def _from_host(array: np.ndarray) -> torch.Tensor:
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
