"""StableHLO text, bytecode, portable artifacts and JAX functions come in as one clean module."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from xla import run_artifact

import stepwell
from stepwell.dense import read_dense, write_dense
from stepwell.errors import ModelError, UsageError
from stepwell.frontends import Imported, load
from stepwell.frontends.export import Format, export, to_bytes
from stepwell.inspection.interpreter import interpret
from stepwell.mlir import ir, new_context

CALLS = """
func.func private @double(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = stablehlo.add %x, %x : tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}
func.func public @forward(%x: tensor<2x3xf32> {mhlo.sharding = "x"}) -> tensor<2x3xf32> {
  %0 = func.call @double(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %1 = chlo.erf %0 : tensor<2x3xf32> -> tensor<2x3xf32>
  %2 = chlo.square %1 : tensor<2x3xf32> -> tensor<2x3xf32>
  return %2 : tensor<2x3xf32>
}
"""

RESOURCE_DATA = np.arange(32, dtype=np.float32)

RESOURCE = f"""
func.func @main() -> tensor<32xf32> {{
  %0 = stablehlo.constant dense_resource<w> : tensor<32xf32>
  return %0 : tensor<32xf32>
}}
{{-# dialect_resources: {{ builtin: {{
  w: "0x04000000{RESOURCE_DATA.tobytes().hex().upper()}"
}} }} #-}}
"""

DYNAMIC = """
func.func @main(%x: tensor<?x3xf32>) -> tensor<?x3xf32> {
  %0 = stablehlo.add %x, %x : tensor<?x3xf32>
  return %0 : tensor<?x3xf32>
}
"""


def _operations(imported: Imported) -> list[str]:
    main = imported.module.body.operations[0]
    return [op.operation.name for op in main.regions[0].blocks[0].operations]


def test_calls_are_inlined_into_main_and_erf_is_kept() -> None:
    imported = load(CALLS)
    assert len(list(imported.module.body.operations)) == 1
    assert _operations(imported) == [
        "stablehlo.add",
        "chlo.erf",
        "stablehlo.multiply",
        "func.return",
    ]
    assert imported.inputs[0].name == "arg0"
    x = np.full((2, 3), 0.25, np.float32)
    np.testing.assert_allclose(interpret(imported, [x])[0], 0.5204999**2, rtol=1e-5)


def test_composites_are_the_functions_that_they_name() -> None:
    """But only those that are known further down: others become their decomposition."""
    text = """
      func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
        %0 = stablehlo.composite "chlo.erf" %x {decomposition = @impl, version = 1 : i32}
          : (tensor<3xf32>) -> tensor<3xf32>
        %1 = stablehlo.composite "chlo.asinh" %0 {decomposition = @impl}
          : (tensor<3xf32>) -> tensor<3xf32>
        return %1 : tensor<3xf32>
      }
      func.func private @impl(%x: tensor<3xf32>) -> tensor<3xf32> {
        %0 = stablehlo.negate %x : tensor<3xf32>
        return %0 : tensor<3xf32>
      }"""
    assert _operations(load(text)) == ["chlo.erf", "stablehlo.negate", "func.return"]


def test_resources_in_text_are_read() -> None:
    imported = load(RESOURCE)
    (name,) = imported.weights.names()
    np.testing.assert_array_equal(imported.weights[name], RESOURCE_DATA)


def test_large_constants_move_into_the_weight_table() -> None:
    array = np.arange(600, dtype=np.float32).reshape(20, 30)
    with new_context(), ir.Location.unknown():
        text = f"""func.func @main() -> tensor<20x30xf32> {{
            %0 = stablehlo.constant {write_dense(array)}
            return %0 : tensor<20x30xf32> }}"""
    imported = load(text)
    (name,) = imported.weights.names()
    np.testing.assert_array_equal(imported.weights[name], array)


def test_open_dimensions_are_refined() -> None:
    with pytest.raises(ModelError, match=r"input arg0 has open dimensions"):
        load(DYNAMIC)
    assert load(DYNAMIC, shapes={"arg0": (5, 3)}).outputs[0].shape == (5, 3)
    with pytest.raises(ModelError, match=r"shapes= gives \(5, 4\)"):
        load(DYNAMIC, shapes={"arg0": (5, 4)})


@pytest.mark.parametrize(
    "dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int64, np.uint8, np.bool_]
)
@pytest.mark.parametrize("count", [24, 3000])
def test_dense_data_makes_the_round_trip(dtype: type, count: int) -> None:
    array = (np.arange(count).reshape(2, -1) % 7).astype(dtype)
    with new_context():
        attribute = ir.DenseElementsAttr(write_dense(array))
        np.testing.assert_array_equal(read_dense(attribute), array)


def test_export_is_read_by_xla(tmp_path: Path) -> None:
    x = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)
    imported = load(CALLS)
    path = tmp_path / "model.mlirbc"
    export(imported, path)
    assert [p.name for p in tmp_path.iterdir()] == ["model.mlirbc"]
    expected = interpret(imported, [x])[0]
    np.testing.assert_allclose(run_artifact(path.read_bytes(), [x])[0], expected, rtol=1e-5)
    again = load(path)
    np.testing.assert_allclose(interpret(again, [x])[0], expected, rtol=1e-6)


@pytest.mark.parametrize("version", ["0.17.0", "1.8.0"])
def test_older_versions_are_read_by_xla_and_by_us(tmp_path: Path, version: str) -> None:
    jax = pytest.importorskip("jax")

    def function(x: np.ndarray) -> object:
        y = jax.lax.fori_loop(0, 3, lambda i, c: jax.numpy.tanh(c @ c.T) @ c + i, x)
        return jax.numpy.sort(y, 1), jax.numpy.argmax(y, 0), jax.scipy.special.erf(y)

    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    expected = [np.asarray(value) for value in function(x)]
    lowered = jax.jit(function).lower(x)
    path = tmp_path / "model.mlirbc"
    export(load(lowered), path, version)
    for results in (run_artifact(path.read_bytes(), [x]), stepwell.compile(path, threads=1)(x)):
        for result, value in zip(results, expected, strict=True):
            np.testing.assert_allclose(result, value, rtol=1e-5, atol=1e-6)


def test_traced_functions_are_models(tmp_path: Path) -> None:
    jax = pytest.importorskip("jax")
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    traced = jax.jit(lambda x: jax.numpy.cos(x).sum(0)).trace(x)
    (result,) = stepwell.compile(traced, threads=1)(x)
    np.testing.assert_allclose(result, np.cos(x).sum(0), rtol=1e-6)
    stepwell.export(traced, tmp_path / "model.mlirbc")
    (result,) = run_artifact((tmp_path / "model.mlirbc").read_bytes(), [x])
    np.testing.assert_allclose(result, np.cos(x).sum(0), rtol=1e-6)


@pytest.mark.parametrize("format", ["text", "bytecode"])
def test_text_and_bytecode_are_read_by_xla_and_by_us(tmp_path: Path, format: Format) -> None:
    x = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)
    imported = load(CALLS)
    path = tmp_path / "model"
    export(imported, path, format=format)
    expected = interpret(imported, [x])[0]
    np.testing.assert_allclose(run_artifact(path.read_bytes(), [x])[0], expected, rtol=1e-5)
    np.testing.assert_allclose(interpret(load(path), [x])[0], expected, rtol=1e-6)
    with pytest.raises(UsageError, match="current version alone"):
        to_bytes(imported, format, "1.8.0")


def test_unknown_export_version() -> None:
    with pytest.raises(UsageError, match=r"StableHLO 0\.0\.1; versions from"):
        to_bytes(load(CALLS), "portable", "0.0.1")


def test_jax_function(tmp_path: Path) -> None:
    jax = pytest.importorskip("jax")
    weights = np.linspace(-1, 1, 12 * 8, dtype=np.float32).reshape(12, 8)

    def layer(x: np.ndarray) -> object:
        return jax.nn.softmax(jax.nn.relu(x @ weights))

    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 12)
    exported = jax.export.export(jax.jit(layer))(jax.ShapeDtypeStruct(x.shape, x.dtype))
    serialized = exported.serialize()  # a bytearray
    with_gradient = bytes(exported.serialize(vjp_order=1))
    file = tmp_path / "layer.exported"
    file.write_bytes(serialized)
    forms = (exported, serialized, with_gradient, exported.mlir_module_serialized, file)
    for model in forms:
        imported = load(model)
        assert len(imported.weights) == 1
        result = interpret(imported, [x])[0]
        np.testing.assert_allclose(result, np.asarray(layer(x)), rtol=1e-5)
