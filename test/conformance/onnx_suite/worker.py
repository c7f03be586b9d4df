"""Runs cases of the onnx suite in a process of its own; see `children`."""

from __future__ import annotations

from pathlib import Path

import children

children.use_one_core()

import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402

import stepwell  # noqa: E402
from onnx_suite import load  # noqa: E402


def verdict(name: str) -> str:
    """ "ok", or what went wrong in a sentence."""
    case = load(name)
    model = (
        onnx.load(case.model) if isinstance(case.model, Path) else onnx.load_from_string(case.model)
    )
    graph = model.graph
    initialized = {tensor.name for tensor in graph.initializer}
    inputs = [info.name for info in graph.input if info.name not in initialized]
    outputs = [info.name for info in graph.output]
    executable = stepwell.compile(case.model, threads=1, options={"progress": False})
    for given, wanted in case.samples:
        results = executable.run(dict(zip(inputs, given, strict=False)))
        for output, value in zip(outputs, wanted, strict=True):
            problem = compare(results[output], value, case.rtol, case.atol)
            if problem:
                return f"wrong: {output}: {problem}"
    return "ok"


def compare(result: object, wanted: object, rtol: float, atol: float) -> str:
    """What differs between a result and the expected value (array, list of arrays, or None)."""
    if wanted is None:
        return "" if result is None else f"{type(result).__name__} instead of None"
    if isinstance(wanted, list):
        if not isinstance(result, list) or len(result) != len(wanted):
            return f"{result!r} is no list of {len(wanted)}"
        problems = (compare(r, w, rtol, atol) for r, w in zip(result, wanted, strict=True))
        return next((problem for problem in problems if problem), "")
    a, b = np.asarray(result), np.asarray(wanted)
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{a.dtype}{a.shape} instead of {b.dtype}{b.shape}"
    if b.dtype.kind in "OUS":
        return "" if np.array_equal(a, b) else "strings differ"
    if b.dtype.name not in np.sctypeDict and hasattr(ml_dtypes, b.dtype.name):
        a, b = a.astype(np.float32), b.astype(np.float32)
    if b.dtype.kind in "biu":
        return "" if np.array_equal(a, b) else f"{np.sum(a != b)} of {b.size} differ"
    if np.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True):
        return ""
    with np.errstate(all="ignore"):
        bad = ~np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
        return f"{bad.sum()} of {b.size} differ, by up to {np.nanmax(np.abs(a - b)):.1e}"


if __name__ == "__main__":
    children.compile_in_process()
    children.answer(verdict)
