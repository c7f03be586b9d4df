"""Strassen's algorithm: products of halves are those of the whole, within their rounding errors."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import stepwell
from stepwell.compiler import build
from stepwell.errors import UsageError
from stepwell.inspection.explain import explain
from stepwell.kernels.strategy import Decision
from stepwell.options import CompileOptions
from stepwell.targets import host
from stepwell.tuning_record import ALGORITHM, STRATEGY, TuningEntry, TuningRecord

AVX2 = "x86_64-v3"


def network(rows: str, k: int, n: int, after: str = "y = Add(p, b)") -> onnx.ModelProto:
    """A product of `rows` by weights, and the nodes after it."""
    text = f"""<ir_version: 8, opset_import: ["": 20]>
    g (float[{rows}, {k}] x) => (float[] y) {{ p = MatMul(x, w) {after} }}"""
    model = parser.parse_model(text)
    generator = np.random.default_rng(0)
    weights = generator.standard_normal((k, n), np.float32) / np.float32(np.sqrt(k))
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    bias = generator.standard_normal(n, np.float32)
    model.graph.initializer.append(numpy_helper.from_array(bias, "b"))
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    return onnx.shape_inference.infer_shapes(model)


def weights_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {w.name: numpy_helper.to_array(w) for w in model.graph.initializer}


def decisions(model: object, target: str, threads: int, record: TuningRecord) -> list[Decision]:
    report = explain(model, target, threads, options=CompileOptions(tuning=record))
    return [decision for kernel in report.kernels for decision in kernel.decisions]


def halved(
    model: object, target: str, threads: int = 1, chosen: Mapping[str, object] | None = None
) -> TuningRecord:
    """A record that says to take the algorithm, and `chosen` of its strategy."""
    record = TuningRecord(host().name if target == "cpu" else target, threads)
    for decision in decisions(model, target, threads, record):
        if decision.kind == ALGORITHM:
            record = record.with_entries([entry(decision, {"products": 7})])
    for decision in decisions(model, target, threads, record):
        if decision.kind == STRATEGY:
            assert "half" in decision.chosen
            record = record.with_entries([entry(decision, chosen or {})])
    return record


def entry(decision: Decision, chosen: Mapping[str, object]) -> TuningEntry:
    fields = {**decision.chosen, **chosen}
    return TuningEntry(decision.kind, decision.key, "it", fields, 1.0, 2.0)


def compiled(
    model: object, target: str, threads: int = 1, chosen: Mapping[str, object] | None = None
) -> stepwell.Executable:
    options = CompileOptions(tuning=halved(model, target, threads, chosen))
    exe = stepwell.compile(model, target, threads, options=options)
    assert isinstance(exe, stepwell.Executable)
    return exe


def relative_error(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize("target", [AVX2, "cpu"])
@pytest.mark.parametrize(
    ("rows", "k", "n"),
    [("2", 32, 32), ("3", 64, 96), ("50", 64, 96), ("2, 19", 96, 160), ("128", 320, 64)],
)
def test_any_shape(target: str, rows: str, k: int, n: int) -> None:
    model = network(rows, k, n)
    shape = tuple(map(int, rows.split(",")))
    x = np.random.default_rng(1).standard_normal((*shape, k)).astype(np.float32)
    (y,) = compiled(model, target)(x)
    weights = weights_of(model)
    expected = x.astype(np.float64) @ weights["w"] + weights["b"]
    assert relative_error(y, expected) < 1e-6


@pytest.mark.parametrize(
    ("m", "chosen"),
    [
        (48, {"half": 8, "rows": 4, "vectors": 1, "pairs": 2}),
        (48, {"half": 12, "rows": 2, "vectors": 2, "pairs": 1}),
        (45, {"half": 8, "rows": 2, "vectors": 3, "pairs": 1}),
        (45, {"half": 24, "rows": 3, "vectors": 1, "pairs": 3}),
        (7, {"half": 4, "rows": 4, "vectors": 1, "pairs": 6}),
    ],
)
def test_blocks_of_rows_and_panels(m: int, chosen: Mapping[str, object]) -> None:
    model = network(str(m), 32, 96)
    x = np.random.default_rng(2).standard_normal((m, 32)).astype(np.float32)
    weights = weights_of(model)
    expected = x.astype(np.float64) @ weights["w"] + weights["b"]
    exe = compiled(model, AVX2, 2, chosen)
    (y,) = exe(x)
    assert relative_error(y, expected) < 1e-6
    for _ in range(3):
        np.testing.assert_array_equal(exe(x)[0], y)


@pytest.mark.parametrize(
    "after",
    [
        "q = Add(p, b) y = Gelu(q)",
        "q = Add(p, x) y = Relu(q)",
        "s = Constant<value_ints = [10, 4, 16]>() r = Reshape(p, s) "
        "y = Transpose<perm = [1, 0, 2]>(r)",
        "q = Softmax(p) y = Mul(q, p)",
    ],
)
def test_what_follows(after: str) -> None:
    model = network("10", 64, 64, after)
    x = np.random.default_rng(3).standard_normal((10, 64)).astype(np.float32)
    (direct,) = stepwell.compile(model, AVX2, 1, options={"precision": "strict"})(x)
    (y,) = compiled(model, AVX2)(x)
    np.testing.assert_allclose(y, direct, rtol=1e-5, atol=2e-6)


def test_convolution_of_one_pixel() -> None:
    text = """<ir_version: 8, opset_import: ["": 20]>
    g (float[1, 64, 7, 5] x) => (float[1, 96, 7, 5] y) { c = Conv(x, w, b) y = Relu(c) }"""
    model = parser.parse_model(text)
    generator = np.random.default_rng(0)
    for name, shape in (("w", (96, 64, 1, 1)), ("b", (96,))):
        array = generator.standard_normal(shape, np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    x = generator.standard_normal((1, 64, 7, 5), np.float32)
    (y,) = compiled(model, AVX2)(x)
    weights = weights_of(model)
    sums = np.einsum("nchw,oc->nohw", x.astype(np.float64), weights["w"][:, :, 0, 0])
    expected = np.maximum(sums + weights["b"][:, None, None], 0)
    assert relative_error(y, expected) < 1e-6


def test_weights_that_are_arguments() -> None:
    jax = pytest.importorskip("jax")
    generator = np.random.default_rng(4)
    x = generator.standard_normal((40, 64), np.float32)
    weights = [generator.standard_normal((64, 64), np.float32) / 8 for _ in range(3)]
    exe = compiled(jax.jit(lambda x, u, v, w: x @ u @ v @ w).lower(x, *weights), AVX2)
    for scale in (np.float32(1), np.float32(2)):
        (y,) = exe(x, *(scale * w for w in weights))
        expected = functools.reduce(np.matmul, weights, x.astype(np.float64)) * scale**3
        assert relative_error(y, expected) < 3e-6


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3.3e38])
def test_rows_keep_to_themselves(value: float) -> None:
    """What a row has of numbers that are not finite, no other row shows."""
    model = network("30", 64, 64)
    x = np.random.default_rng(5).standard_normal((30, 64)).astype(np.float32)
    x[[2, 29], [3, 60]] = value
    (direct,) = stepwell.compile(model, AVX2, 1, options={"precision": "strict"})(x)
    (y,) = compiled(model, AVX2, chosen={"half": 8, "rows": 4})(x)
    np.testing.assert_allclose(y, direct, rtol=1e-5, atol=1e-5)
    assert np.isfinite(np.delete(y, [2, 29], axis=0)).all()


@pytest.mark.parametrize("scale", [0.0, 1e-4, 1e4])
def test_rows_of_other_sizes(scale: float) -> None:
    """Each has errors of its own size."""
    model = network("30", 64, 64, "y = Identity(p)")
    x = np.random.default_rng(7).standard_normal((30, 64)).astype(np.float32)
    x[4] *= scale
    expected = x.astype(np.float64) @ weights_of(model)["w"]
    (y,) = compiled(model, AVX2)(x)
    errors = np.abs(y - expected).max(axis=1)
    assert (errors <= 1e-6 * np.abs(expected).max(axis=1)).all()


def test_weights_that_are_not_finite() -> None:
    model = network("128", 768, 768)
    weights = weights_of(model)["w"].copy()
    weights[5, 7] = np.inf
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, "w"))
    (kernel,) = (k for k in explain(model, "x86_64-v4", 1).kernels if k.kind == "contraction")
    assert "half" not in kernel.parameters


def test_rounding_errors() -> None:
    """Two to three times those of direct sums."""
    model = network("64", 768, 96, "y = Identity(p)")
    x = np.random.default_rng(6).standard_normal((64, 768)).astype(np.float32)
    expected = x.astype(np.float64) @ weights_of(model)["w"]
    (direct,) = stepwell.compile(model, "cpu", 1, options={"precision": "strict"})(x)
    (y,) = compiled(model, "cpu")(x)
    assert not np.array_equal(y, direct)
    assert relative_error(y, expected) < 3 * relative_error(direct, expected)


@pytest.mark.parametrize("target", [AVX2, "x86_64-v4", "aarch64-neoverse-v2"])
@pytest.mark.parametrize("threads", [1, 2])
def test_few_rows_are_multiplied_directly(target: str, threads: int) -> None:
    """On AVX2, products of one row took up to four times as long as they should."""
    for m in (1, 2, 8, 16):
        report = explain(network(str(m), 768, 768), target, threads)
        (kernel,) = (k for k in report.kernels if k.kind == "contraction")
        names = [candidate.name for candidate in kernel.candidates["algorithm"]]
        assert names == ["direct"]


def test_where_it_pays() -> None:
    def algorithm(m: int, precision: str = "default") -> str:
        options = CompileOptions(precision=precision)
        report = explain(network(str(m), 768, 3072), "x86_64-v4", 1, options=options)
        (kernel,) = (k for k in report.kernels if k.kind == "contraction")
        return kernel.candidates["algorithm"][0].name if "algorithm" in kernel.candidates else ""

    assert algorithm(128) == "Strassen-Winograd"
    assert algorithm(4) == "direct"
    assert algorithm(128, "strict") == ""


@pytest.mark.parametrize(
    ("chosen", "sentence"),
    [
        ({"half": 7, "rows": 2}, "half is 7, no whole register tiles of 2 rows"),
        ({"half": 40, "rows": 4}, "30 rows are no two halves of blocks of 40"),
        ({"vectors": 3}, "8 vectors of columns are no pairs of panels of 3"),
        ({"vectors": 4, "pairs": 2}, "pairs is 2, of 1"),
        ({"rows": 15, "half": 15}, "do not fit x86_64-v3"),
    ],
)
def test_what_cannot_be_is_a_sentence(chosen: Mapping[str, object], sentence: str) -> None:
    model = network("30", 64, 64)
    record = halved(model, AVX2, 1, chosen)
    with pytest.raises(UsageError, match="strategy of it") as caught:
        build(model, AVX2, 1, options=CompileOptions(tuning=record))
    assert sentence in str(caught.value)


def test_an_algorithm_that_there_is_not() -> None:
    model = network("30", 64, 64)
    record = halved(model, AVX2)
    wrong = dataclasses.replace(record.entries[0], chosen={"products": 6})
    record = TuningRecord(AVX2, 1, entries=(wrong,))
    with pytest.raises(UsageError, match="products is 6, not 7 or 8"):
        build(model, AVX2, 1, options=CompileOptions(tuning=record))
