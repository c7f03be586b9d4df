"""The first few elements of rows, by each kind of kernel, against a stable sort of Python's."""

from __future__ import annotations

import math

import jax
import ml_dtypes
import numpy as np
import onnx
import pytest
from jax import lax
from onnx import helper

import stepwell

FORMS = {
    "long-rows": ((2, 300), 1, 5),
    "many-of-long-rows": ((2, 700), 1, 100),
    "first-of-rows": ((3, 211), 1, 1),
    "all-of-a-row": ((100,), 0, 100),
    "short-rows": ((37, 8), 1, 2),
    "all-of-short-rows": ((17, 7), 1, 7),
    "columns": ((2, 150, 37), 1, 3),
    "many-of-columns": ((60, 19), 0, 20),
    "few-columns": ((9, 40, 3), 1, 4),
    "one-element": ((1, 1), 1, 1),
}
"""Shape, axis and count."""

DTYPES = ("float32", "float16", "float64", "int8", "uint8", "int32", "uint32", "int64", "uint64")

CONTENTS = (
    "random",
    "ascending",
    "descending",
    "few-values",
    "equal",
    "extremes",
    "least",
    "last",
)


def _inputs(shape: tuple[int, ...], dtype: np.dtype) -> dict[str, np.ndarray]:
    random = np.random.default_rng(math.prod(shape))
    size = math.prod(shape)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        some = random.integers(limits.min, limits.max, size, dtype, endpoint=True)
        extremes = random.choice(np.array([limits.min, limits.max, 1], dtype), size)
    else:
        some = random.standard_normal(size)
        extremes = random.choice([math.nan, -math.nan, math.inf, -math.inf, 0.0, -0.0, 1], size)
    found = (
        some,
        np.sort(some),
        np.sort(some)[::-1],
        random.integers(0, 4, size),
        np.full(size, some[0]),
        extremes,
        np.full(size, extremes.min() if dtype.kind in "iu" else -math.inf),
        np.full(size, extremes.max() if dtype.kind in "iu" else math.nan),
    )
    arrays = [values.astype(dtype).reshape(shape) for values in found]
    return dict(zip(CONTENTS, arrays, strict=True))


def _first(axis: int, count: int, largest: bool, keys: np.ndarray) -> np.ndarray:
    """Positions of what comes first by `keys`, Python's numbers."""

    def row(line: np.ndarray) -> np.ndarray:
        order = sorted(range(len(line)), key=line.__getitem__, reverse=largest)
        return np.array(order[:count])

    return np.apply_along_axis(row, axis, keys)


def _check(
    values: np.ndarray, places: np.ndarray, x: np.ndarray, axis: int, positions: np.ndarray
) -> None:
    assert np.array_equal(places, positions)
    expected = np.ascontiguousarray(np.take_along_axis(x, positions, axis))
    assert np.ascontiguousarray(values).tobytes() == expected.tobytes()


def _as_numbers(x: np.ndarray) -> np.ndarray:
    """Python's numbers in the order of x, whose NaNs are greatest."""
    if x.dtype.kind != "f":
        return x.astype(object)
    return np.where(np.isnan(x), 2.0**200, np.clip(x.astype(np.float64), -1e40, 1e40))


def _in_total_order(x: np.ndarray) -> np.ndarray:
    """Bits of floats as integers in their total order."""
    bits = x.view(f"i{x.itemsize}").astype(np.int64)
    return np.where(bits < 0, -(bits & (1 << 8 * x.itemsize - 1) - 1) - 1, bits)


def _model(kind: int, largest: int) -> onnx.ModelProto:
    """TopK of an input of each form."""
    nodes, inputs, outputs, counts = [], [], [], []
    for form, (shape, axis, count) in FORMS.items():
        names = [f"{form}-{name}" for name in ("x", "k", "v", "p")]
        nodes.append(helper.make_node("TopK", names[:2], names[2:], axis=axis, largest=largest))
        inputs.append(helper.make_tensor_value_info(names[0], kind, shape))
        counts.append(helper.make_tensor(names[1], onnx.TensorProto.INT64, [1], [count]))
        for name, element in zip(names[2:], (kind, onnx.TensorProto.INT64), strict=True):
            outputs.append(helper.make_tensor_value_info(name, element, None))
    graph = helper.make_graph(nodes, "top_k", inputs, outputs, counts)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("dtype", DTYPES)
def test_first_numbers(dtype: str, largest: int) -> None:
    model = _model(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), largest)
    compiled = stepwell.compile(model, threads=1 + largest)
    cases = {form: _inputs(shape, np.dtype(dtype)) for form, (shape, _, _) in FORMS.items()}
    for name in CONTENTS:
        results = compiled.run({f"{form}-x": inputs[name] for form, inputs in cases.items()})
        for form, (_, axis, count) in FORMS.items():
            x = cases[form][name]
            positions = _first(axis, count, bool(largest), _as_numbers(x))
            _check(results[f"{form}-v"], results[f"{form}-p"], x, axis, positions)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_first_in_total_order(dtype: str) -> None:
    kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)

    def program(*inputs: jax.Array) -> list[tuple[jax.Array, jax.Array]]:
        forms = zip(inputs, FORMS.values(), strict=True)
        return [tuple(lax.top_k(x, count, axis=axis)) for x, (_, axis, count) in forms]

    shapes = [jax.ShapeDtypeStruct(shape, kind) for shape, _, _ in FORMS.values()]
    compiled = stepwell.compile(jax.export.export(jax.jit(program))(*shapes), threads=2)
    cases = [_inputs(shape, np.dtype(np.float32)) for shape, _, _ in FORMS.values()]
    for name in CONTENTS:
        inputs = [case[name].astype(kind) for case in cases]
        results = compiled(*inputs)
        for number, (_, axis, count) in enumerate(FORMS.values()):
            x = inputs[number]
            positions = _first(axis, count, True, _in_total_order(x))
            _check(results[2 * number], results[2 * number + 1], x, axis, positions)


def test_inside_a_loop_of_the_host() -> None:
    """Each step takes the first of what is left by turns."""
    x = np.random.default_rng(0).standard_normal((4, 2000)).astype(np.float32)

    def step(_: int, x: jax.Array) -> jax.Array:
        values, places = lax.top_k(x, 3)
        return x.at[jax.numpy.arange(4)[:, None], places].set(-values)

    def program(x: jax.Array) -> jax.Array:
        return lax.fori_loop(0, 5, step, x)

    (got,) = stepwell.compile(jax.export.export(jax.jit(program))(x), threads=2)(x)
    assert np.array_equal(got, program(x))


def test_positions_of_what_is_not_zero() -> None:
    shape = (7, 43)
    graph = helper.make_graph(
        [helper.make_node("NonZero", ["x"], ["p"])],
        "non_zero",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("p", onnx.TensorProto.INT64, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=10)
    compiled = stepwell.compile(model)
    random = np.random.default_rng(0)
    last = np.zeros(shape)
    last[-1, -1] = 1
    for x in (np.zeros(shape), np.ones(shape), last, 1 - last, random.integers(0, 2, shape)):
        x = x.astype(np.float32)
        assert np.array_equal(compiled.run({"x": x})["p"], np.array(np.nonzero(x)))
