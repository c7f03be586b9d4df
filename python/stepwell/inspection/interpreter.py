"""Runs imported models in StableHLO's reference interpreter, in a forked child that may abort."""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence

import numpy as np

from stepwell.dense import read_dense, write_dense
from stepwell.errors import Error
from stepwell.frontends import Imported
from stepwell.frontends.export import with_inline_constants
from stepwell.mlir import ir, stablehlo
from stepwell.weights import WeightTable


def interpret(imported: Imported, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of `imported` on `arrays`. Raises Error when the interpreter aborts, or takes an
    operation not."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _answer(writing, imported, arrays)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    if not data:
        raise Error(f"StableHLO's reference interpreter aborted on {imported.source}")
    answer = pickle.loads(data)
    if isinstance(answer, Exception):
        raise answer
    return answer


def _answer(writing: int, imported: Imported, arrays: Sequence[np.ndarray]) -> None:
    try:
        module = with_inline_constants(imported)
        with imported.context, ir.Location.unknown():
            results = stablehlo.eval_module(module, [write_dense(array) for array in arrays])
            answer = [_read(ir.DenseElementsAttr(result)) for result in results]
    except (Error, ir.MLIRError, RuntimeError, TypeError, ValueError) as error:
        answer = Error(f"StableHLO's reference interpreter: {error}")
    with os.fdopen(writing, "wb") as pipe:
        pickle.dump(answer, pipe)


def _read(attribute: ir.DenseElementsAttr) -> np.ndarray:
    if attribute.is_splat:
        return np.array(WeightTable().array(attribute))
    return read_dense(attribute)
