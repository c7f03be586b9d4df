"""Runs StableHLO, a portable artifact, text or bytecode, with XLA, in a process of its own.

python xla.py model.mlirbc inputs.npz outputs.npz
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np


def run_artifact(artifact: bytes, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of the main of StableHLO in any format on `arrays`, on XLA's CPU backend."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("model.mlirbc", "inputs.npz", "outputs.npz")]
        paths[0].write_bytes(artifact)
        np.savez(paths[1], *arrays)
        subprocess.run([sys.executable, __file__, *map(str, paths)], check=True, timeout=120)
        return _arrays(paths[2])


def _arrays(path: str | Path) -> list[np.ndarray]:
    with np.load(path) as data:
        return [data[f"arr_{i}"] for i in range(len(data.files))]


def _main(model: str, inputs: str, outputs: str) -> None:
    import jax
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jax.extend.backend import get_backend
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    jax.config.update("jax_enable_x64", True)
    backend = get_backend("cpu")
    artifact = Path(model).read_bytes()
    if b"StableHLO_v" in artifact[:32]:
        module = stablehlo.deserialize_portable_artifact(mlir.make_ir_context(), artifact)
    else:
        module = ir.Module.parse(artifact, mlir.make_ir_context())
    devices = xla_client.DeviceList(tuple(backend.local_devices()[:1]))
    executable = backend.compile_and_load(module, devices, xla_client.CompileOptions())
    results = executable.execute_sharded([jax.device_put(array) for array in _arrays(inputs)])
    per_output = results.disassemble_into_single_device_arrays()
    np.savez(outputs, *[np.asarray(output[0]) for output in per_output])


if __name__ == "__main__":
    _main(*sys.argv[1:])
