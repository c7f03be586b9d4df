"""Runs cases of the folder in a process of its own; see `children`."""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import children

children.use_one_core()  # this process forks badly with XLA in it

import jax  # noqa: E402

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_use_shardy_partitioner", False)

import jax.export  # noqa: E402
import numpy as np  # noqa: E402

import stepwell  # noqa: E402
from stablehlo import CASES, TOLERANCE, Case  # noqa: E402


def verdict(case: Case) -> str:
    """ "ok", or what went wrong in a sentence."""
    function = jax.jit(case.function)
    expected = [np.asarray(leaf) for leaf in jax.tree.leaves(function(*case.arguments))]
    exported = jax.export.export(function, platforms=["tpu" if _portable(case) else "cpu"])(
        *case.arguments
    )
    results = stepwell.lower(exported, threads=1).compile()(*case.arguments)
    for number, (result, wanted) in enumerate(zip(results, expected, strict=True)):
        problem = _compare(np.asarray(result), wanted, case.tolerance)
        if problem:
            return f"wrong: result {number}: {problem}"
    return "ok"


def _portable(case: Case) -> bool:
    """Whether linear algebra is exported for TPUs: for CPUs it is calls of LAPACK."""
    return case.name.startswith(("cholesky", "portable", "triangular_solve"))


def _compare(result: np.ndarray, wanted: np.ndarray, tolerance: float | None) -> str:
    if result.shape != wanted.shape or result.dtype != wanted.dtype:
        return f"{result.dtype}{result.shape} instead of {wanted.dtype}{wanted.shape}"
    if wanted.dtype.kind == "c":
        part = np.dtype(f"f{wanted.dtype.itemsize // 2}")
        result, wanted = (np.ascontiguousarray(a).view(part) for a in (result, wanted))
    if wanted.dtype.name not in TOLERANCE:
        equal = np.array_equal(result, wanted)
        return "" if equal else f"{np.sum(result != wanted)} of {wanted.size} differ"
    limit = tolerance or TOLERANCE[wanted.dtype.name]
    a, b = result.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return "differs where not finite"
    scale = max(1.0, np.max(np.abs(b[finite]), initial=0))
    error = np.max(np.abs(a[finite] - b[finite]), initial=0) / scale
    return "" if error <= limit else f"relative error {error:.1e} above {limit:.0e}"


if __name__ == "__main__":
    children.answer(lambda name: verdict(CASES[name]))
