"""Every operator against the ONNX standard's own node tests, in the reference interpreter.

The tolerance is the standard test's own, loosened to 1e-3 (1e-2 for 16-bit floats) relative: the
interpreter rounds after every operation, the expected values come from numpy in one piece.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache

import numpy as np
import onnx
import pytest
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_node_model_tests

from stepwell.errors import Error, ModelError, OpenModelError
from stepwell.frontends import load
from stepwell.frontends.onnx import registry
from stepwell.inspection.interpreter import interpret
from stepwell.runtime.results import arranged

_SMALL_FLOAT = re.compile(r"(?i)float8|float4|u?int[24]_|_u?int[24]|FLOAT8|_e[45]m[23]|E8M0|STRING")

GAPS = {
    r"training_dropout|bernoulli": "random numbers",
    r"reduce_max_empty_set_bool": "the interpreter returns no empty tensor",
    r"_bf16$": "bfloat16 rounds more often in the function body than in the expected values",
    r"^test_(if|loop).*_(seq|opt)|split_to_sequence|sequence_": (
        "results that are sequences: the conformance suite compares them"
    ),
    r"resize_downsample_scales_(linear|cubic)_align_corners": (
        "expected values from a size of 2.4 pixels; here, as in onnxruntime, sizes are integers"
    ),
    r"^test_loop11|range_": "a length that is computed at run time",
    r"dft|stft": "the interpreter has no Fourier transforms: the conformance suite compares them",
}
"""Standard tests that are expected to be refused or to differ, by pattern, with the reason."""

ALL_KNOWN = ("ConstantOfShape", "Range", "EyeLike", "BlackmanWindow", "HammingWindow", "HannWindow",
             "MelWeightMatrix")  # fmt: skip
"""Operators of which every input has to be known at compile time."""

FUNCTIONS = ("Attention", "AffineGrid", "NegativeLogLikelihoodLoss", "SwiGLU")
"""Operators that come from the standard's function bodies, tested beside the registered ones."""


@cache
def _standard_tests() -> dict[str, list[TestCase]]:
    tests: dict[str, list[TestCase]] = defaultdict(list)
    for case in load_node_model_tests():
        if case.model is not None and len(case.model.graph.node) == 1:
            tests[case.model.graph.node[0].op_type].append(case)
    return tests


def _as_array(value: object) -> np.ndarray | None:
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return None if value is None or isinstance(value, (list, dict)) else np.asarray(value)


def _with_constants(model: onnx.ModelProto, arrays: list[np.ndarray]) -> onnx.ModelProto:
    """The model with all but the first input made initializers: shapes, axes, limits."""
    first = 0 if model.graph.node[0].op_type in ALL_KNOWN else 1
    constant = onnx.ModelProto()
    constant.CopyFrom(model)
    for info, array in list(zip(model.graph.input, arrays, strict=True))[first:]:
        constant.graph.initializer.append(onnx.numpy_helper.from_array(array, info.name))
    return constant


def _run(model: onnx.ModelProto, arrays: list[np.ndarray]) -> list[np.ndarray]:
    fixed = {tensor.name for tensor in model.graph.initializer}
    feed = {
        info.name: array
        for info, array in zip(model.graph.input, arrays, strict=True)
        if info.name not in fixed
    }
    imported = load(model, shapes={name: array.shape for name, array in feed.items()})
    return arranged(interpret(imported, list(feed.values())), imported.cuts, imported.results)


def _check(case: TestCase) -> None:
    inputs, outputs = case.data_sets[0]
    arrays = [_as_array(value) for value in inputs]
    if any(array is None or array.dtype == object for array in arrays):
        return
    known = [array for array in arrays if array is not None]
    try:
        results = _run(case.model, known)
    except ModelError:
        results = _run(_with_constants(case.model, known), known)
    for result, expected in zip(results, map(_as_array, outputs), strict=True):
        assert expected is not None
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
        wide = np.float64 if result.dtype.kind in "fVb" else result.dtype
        loosest = 1e-2 if result.dtype.itemsize == 2 else 1e-3
        np.testing.assert_allclose(
            result.astype(wide), expected.astype(wide), max(case.rtol, loosest), case.atol or 1e-6
        )


@pytest.mark.parametrize("name", [*registry.names(), *FUNCTIONS])
def test_standard_node_tests(name: str) -> None:
    for case in _standard_tests()[name]:
        if _SMALL_FLOAT.search(case.name) or any(re.search(gap, case.name) for gap in GAPS):
            continue
        try:
            _check(case)
        except OpenModelError:  # compiled when it is called: test/conformance/test_onnx.py runs it
            continue
        except (AssertionError, Error) as error:
            raise AssertionError(f"{case.name}: {error}") from error
