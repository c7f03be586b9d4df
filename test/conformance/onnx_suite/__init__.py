"""The cases of onnx's own backend test suite: node, simple, pytorch-converted, pytorch-operator."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx.backend.test.case.test_case import TestCase

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")


@functools.cache
def cases() -> dict[str, TestCase]:
    """All cases by name; onnx computes those of kind "node" anew, in some ten seconds."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [case for kind in KINDS for case in load_model_tests(kind=kind)]
    return {case.name: case for case in found}


def sample(case: TestCase) -> tuple[object, list[tuple[list[object], list[object]]]]:
    """The model of a case (a ModelProto or a path) and its pairs of inputs and outputs."""
    if case.model is not None:
        assert case.data_sets is not None
        return case.model, [
            ([_array(value) for value in inputs], [_array(value) for value in outputs])
            for inputs, outputs in case.data_sets
        ]
    assert case.model_dir is not None
    folder = Path(case.model_dir)
    sets = sorted(folder.glob("test_data_set_*"))
    return folder / "model.onnx", [(_stored(s, "input"), _stored(s, "output")) for s in sets]


def _array(value: object) -> object:
    import onnx

    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _stored(folder: Path, side: str) -> list[object]:
    import onnx

    files = sorted(folder.glob(f"{side}_*.pb"), key=lambda f: int(f.stem.rpartition("_")[2]))
    return [onnx.numpy_helper.to_array(onnx.load_tensor(file)) for file in files]
