"""What results of models are compared with: other implementations, and this compiler at -O0."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from stepwell.compiler import compile
from stepwell.errors import Error, UsageError
from stepwell.frontends import load
from stepwell.inspection.interpreter import interpret

if TYPE_CHECKING:
    import onnx
    from onnx.reference.op_run import OpRun

Run = Callable[[object, "Sequence[str]", "Sequence[np.ndarray]"], "Sequence[object]"]
"""Runs a model on arrays for the inputs of these names; gives its outputs in order."""

_OTHERS = "another reference may"

ONNX_ONLY = ("onnx", "onnxruntime")
"""References that read no other models."""


def _onnx(model: object, names: Sequence[str], arrays: Sequence[np.ndarray]) -> Sequence[object]:
    """onnx's reference evaluator."""
    from onnx.reference import ReferenceEvaluator

    from stepwell.frontends.onnx.host_operators import OPERATORS

    try:
        operators = [*OPERATORS, _gather_elements()]
        evaluator = ReferenceEvaluator(cast("onnx.ModelProto", model), new_ops=operators)
        results = evaluator.run(None, dict(zip(names, arrays, strict=True)))
    except Exception as error:  # it has its own kinds for what it lacks, and numpy's
        raise Error(
            f"onnx's reference evaluator cannot run the model: {error}; {_OTHERS}"
        ) from error
    return cast("list[object]", results)


def _gather_elements() -> type[OpRun]:
    """The operator, which onnx 1.23 has wrong where data and indices differ along other axes."""
    from onnx.reference.op_run import OpRun

    class GatherElements(OpRun):
        def _run(self, data: np.ndarray, indices: np.ndarray, axis: int = 0) -> tuple[np.ndarray]:
            along = axis % data.ndim
            used = [slice(None if d == along else n) for d, n in enumerate(indices.shape)]
            return (np.take_along_axis(data[tuple(used)], indices, along),)

    return GatherElements


def _onnxruntime(
    model: object, names: Sequence[str], arrays: Sequence[np.ndarray]
) -> Sequence[object]:
    """onnxruntime on the CPU, its nodes as they are: no fusion, no folding."""
    try:
        import onnxruntime as ort
    except ImportError as error:
        raise UsageError(
            f"onnxruntime is not installed ({error}); pip install onnxruntime"
        ) from error
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    try:
        data = cast("onnx.ModelProto", model).SerializeToString()
        session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        return session.run(None, dict(zip(names, arrays, strict=True)))
    except Exception as error:  # its own kinds derive from Exception alone
        raise Error(f"onnxruntime cannot run the model: {error}; {_OTHERS}") from error


def _unoptimized(
    model: object, names: Sequence[str], arrays: Sequence[np.ndarray]
) -> Sequence[object]:
    """This compiler without optimizations, each sum as the operator says."""
    shapes = {name: array.shape for name, array in zip(names, arrays, strict=True)}
    exe = compile(model, shapes=shapes, options={"opt_level": 0, "precision": "strict"})
    return exe(*arrays)


def _interpreter(
    model: object, names: Sequence[str], arrays: Sequence[np.ndarray]
) -> Sequence[object]:
    """StableHLO's reference interpreter, in a process of its own."""
    imported = load(model, shapes={n: a.shape for n, a in zip(names, arrays, strict=True)})
    if imported.cuts or imported.results:
        raise UsageError(
            "the interpreter gives arrays of known shapes alone, and the model has other results"
        )
    return interpret(imported, arrays)


REFERENCES: dict[str, Run] = {
    "onnx": _onnx,
    "onnxruntime": _onnxruntime,
    "interpreter": _interpreter,
    "-O0": _unoptimized,
}
"""References by the names that users give them."""
