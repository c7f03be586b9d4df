"""Runs StableHLO text in the reference interpreter, before and after a pipeline.

The interpreter ends its process on ops it does not know, so tests give it a process of its own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from stepwell.dense import read_dense, write_dense
from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir, nested_operations, new_context, stablehlo
from stepwell.passes import pipeline_text
from stepwell.passes.base import State
from stepwell.weights import WeightTable


@dataclass(frozen=True)
class Comparison:
    """Results of `@main` before and after a pipeline, and the text after it."""

    before: list[np.ndarray]
    after: list[np.ndarray]
    text: str


def dense(array: np.ndarray) -> str:
    """The text of a dense constant."""
    return f"dense<{json.dumps(array.tolist())}>"


def compare(text: str, pipeline: str, seed: int = 0) -> Comparison:
    """Interpret `@main` of `text` on random inputs, run `pipeline`, and interpret it again."""
    try:
        return _compare(text, pipeline, seed)
    except ir.MLIRError as error:
        raise RuntimeError(str(error)) from None  # MLIR's exceptions do not travel.


def _compare(text: str, pipeline: str, seed: int) -> Comparison:
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        main = module.body.operations[0]
        arguments = main.regions[0].blocks[0].arguments
        rng = np.random.default_rng(seed)
        inputs = [_random(rng, value) for value in arguments]
        before = _interpret(module, inputs)
        state = State()
        pipeline_text.run_steps(module, pipeline_text.plan(pipeline_text.parse(pipeline)), state)
        assert module.operation.verify()
        result = str(module)
        _write_out(module, state.weights)
        return Comparison(before, _interpret(module, inputs), result)


def _random(rng: np.random.Generator, value: ir.Value) -> np.ndarray:
    shape, dtype = hlo.shape(value), hlo.dtype(value)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        return rng.integers(0 if dtype.kind == "u" else -9, 9, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def _interpret(module: ir.Module, inputs: list[np.ndarray]) -> list[np.ndarray]:
    results = stablehlo.eval_module(module, [write_dense(a) for a in inputs])
    return [_array(result) for result in results]


def _array(result: ir.Attribute) -> np.ndarray:
    dense = ir.DenseElementsAttr(result)
    return WeightTable().array(result) if dense.is_splat else read_dense(dense)


def _write_out(module: ir.Module, weights: WeightTable) -> None:
    """Write resources into the IR: the interpreter reads no others."""
    for op in nested_operations(module.operation):
        if op.name == "stablehlo.constant":
            value = op.attributes["value"]
            if not isinstance(value, ir.DenseElementsAttr):
                op.attributes["value"] = write_dense(weights.array(value))
