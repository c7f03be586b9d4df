"""XLA on the GPU, where jax has one: the cases as jax's functions, compiled by `jax.jit`."""

# pyright: reportMissingImports=false
from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from benchmarks.gpu.cases import TYPES, Case

if TYPE_CHECKING:
    import jax

# Memory is shared with the other contenders: jax would take most of it at its start.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

_PRECISIONS = {"tf32": "tensorfloat32", "f32": "highest"}


def has_a_gpu() -> bool:
    """Whether jax sees one."""
    import jax

    return any(device.platform == "gpu" for device in jax.devices())


def version() -> str:
    """That of jax."""
    import jax

    return jax.__version__


def call_of(case: Case) -> Callable[[], jax.Array]:
    """What XLA does for a case; calls return before it is done. Models need torch too, of whose
    modules they take the weights."""
    import jax
    from jax import numpy as jnp

    from benchmarks.gpu.jax_kernels import KERNELS

    dtype = jnp.dtype(TYPES[case.precision])
    inputs = [x if x.dtype.kind == "i" else x.astype(dtype) for x in case.inputs()]
    arguments: list = [jax.device_put(x) for x in inputs]
    if case.is_model:
        import torch

        from benchmarks.gpu import jax_models
        from benchmarks.gpu.torch_models import MODULES, seeded

        module = seeded(MODULES[case.family](), getattr(torch, TYPES[case.precision]))
        arguments.insert(0, jax.device_put(jax_models.weights_of(module)))
        function = jax_models.function(module)
    else:
        function = KERNELS[case.family]
    with jax.default_matmul_precision(_PRECISIONS.get(case.precision, "default")):
        compiled = jax.jit(function).lower(*arguments).compile()
    return lambda: compiled(*arguments)
