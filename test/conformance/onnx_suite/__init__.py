"""The cases of onnx's own backend test suite: node, simple, pytorch-converted, pytorch-operator.

onnx computes the cases anew in each process, in some ten seconds; here they are kept in files of
the cache, one a case, by onnx's version.
"""

from __future__ import annotations

import functools
import pickle
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from stepwell import cache

if TYPE_CHECKING:
    from onnx.backend.test.case.test_case import TestCase

_ONNX = Path(onnx.__file__).parent
"""Paths in the cache are below it: other installations of onnx have the same cases."""

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")

Values = list[object]
"""Arrays; lists of them, for sequences; None, for an empty optional value."""


@dataclass(frozen=True)
class Case:
    """One case: a serialized model, or the path of one, and pairs of inputs and outputs."""

    name: str
    model: bytes | Path
    samples: list[tuple[Values, Values]]
    rtol: float
    atol: float


@functools.cache
def names() -> list[str]:
    """The names of all cases, in onnx's order."""
    index = _folder() / "index"
    if not index.exists():
        made = _make()
        for case in made:
            (_folder() / case.name).write_bytes(pickle.dumps(case))
        index.write_text("\n".join(case.name for case in made))
    return index.read_text().splitlines()


def load(name: str) -> Case:
    """The case called `name`, one of `names()`."""
    case: Case = pickle.loads((_folder() / name).read_bytes())
    return case if isinstance(case.model, bytes) else replace(case, model=_ONNX / case.model)


def _folder() -> Path:
    return cache.folder(f"onnx-cases-{onnx.__version__}")


def _make() -> list[Case]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [case for kind in KINDS for case in load_model_tests(kind=kind)]
    return [_case(case) for case in found]


def _case(case: TestCase) -> Case:
    if case.model is not None:
        assert case.data_sets is not None
        samples = [
            ([_array(value) for value in inputs], [_array(value) for value in outputs])
            for inputs, outputs in case.data_sets
        ]
        return Case(case.name, case.model.SerializeToString(), samples, case.rtol, case.atol)
    assert case.model_dir is not None
    folder = Path(case.model_dir)
    sets = sorted(folder.glob("test_data_set_*"))
    samples = [(_stored(s, "input"), _stored(s, "output")) for s in sets]
    model = (folder / "model.onnx").relative_to(_ONNX)
    return Case(case.name, model, samples, case.rtol, case.atol)


def _array(value: object) -> object:
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _stored(folder: Path, side: str) -> Values:
    files = sorted(folder.glob(f"{side}_*.pb"), key=lambda f: int(f.stem.rpartition("_")[2]))
    return [onnx.numpy_helper.to_array(onnx.load_tensor(file)) for file in files]
