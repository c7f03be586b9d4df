"""XLA:CPU on the StableHLO portable artifact, with weights as arguments (as JAX has them)."""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
# pyright: reportPrivateImportUsage=false
from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from benchmarks.peers.job import Job, Prepared

if len(os.sched_getaffinity(0)) == 1:
    os.environ["XLA_FLAGS"] = (
        os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"
    )

import jax
from jax._src.interpreters import mlir
from jax._src.lib import xla_client
from jax.extend.backend import get_backend
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

jax.config.update("jax_enable_x64", True)
jax.devices()

_LEAST_WEIGHT = 1024
"""Constants of fewer elements stay in the module."""


def prepare(job: Job) -> Prepared:
    """Compile; weights become device arrays."""
    context = mlir.make_ir_context()
    module = stablehlo.deserialize_portable_artifact(context, Path(job.path).read_bytes())
    with context, ir.Location.unknown():
        weights = weights_to_arguments(module)
    backend = get_backend("cpu")
    devices = xla_client.DeviceList(tuple(backend.local_devices()[:1]))
    executable = backend.compile_and_load(module, devices, xla_client.CompileOptions())
    arguments = [jax.device_put(array) for array in (*job.inputs().values(), *weights)]

    def call() -> list[np.ndarray]:
        outputs = executable.execute_sharded(arguments).disassemble_into_single_device_arrays()
        return [np.asarray(output[0]) for output in outputs]

    return Prepared(call)


def weights_to_arguments(module: ir.Module) -> list[np.ndarray]:
    """Turn large constants of @main into further arguments; returns their values. A constant left
    in the module would be copied into machine code and folded for minutes."""
    main = next(
        op
        for op in module.body.operations
        if ir.StringAttr(op.attributes["sym_name"]).value == "main"
    )
    block = main.regions[0].blocks[0]
    weights = []
    for op in list(block.operations):
        if op.operation.name != "stablehlo.constant":
            continue
        value = op.operation.attributes["value"]
        if not isinstance(value, ir.DenseElementsAttr) or len(value) < _LEAST_WEIGHT:
            continue
        if value.is_splat:
            continue
        weights.append(np.array(value))
        result = op.operation.results[0]
        result.replace_all_uses_with(block.add_argument(result.type, op.operation.location))
        op.operation.erase()
    kind = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
    inputs = [argument.type for argument in block.arguments]
    main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, kind.results))
    if "arg_attrs" in main.attributes:
        del main.attributes["arg_attrs"]
    return weights
