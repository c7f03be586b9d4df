"""Forms of StableHLO beside plain static tensors: shape operands, quantized types, annotations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import stepwell
from stepwell.errors import LoweringError, ModelError
from stepwell.frontends.shardy import without_shardy
from stepwell.mlir import deserialize_portable_artifact, new_context

if TYPE_CHECKING:
    from types import ModuleType

    import jax

X = np.arange(6, dtype=np.int64).reshape(2, 3)


def run(body: str, kind: str, result: str, *arguments: np.ndarray) -> np.ndarray:
    """The result of `@main(%x: kind) -> result` with this body."""
    text = f"func.func @main(%x: {kind}) -> {result} {{\n{body}\n}}"
    return stepwell.compile(text, threads=1)(*arguments)[0]


def test_dynamic_pad_of_constants() -> None:
    body = """
      %z = stablehlo.constant dense<0> : tensor<i64>
      %l = stablehlo.constant dense<[0, 1]> : tensor<2xi64>
      %h = stablehlo.constant dense<[2, 1]> : tensor<2xi64>
      %i = stablehlo.constant dense<[0, 0]> : tensor<2xi64>
      %0 = stablehlo.dynamic_pad %x, %z, %l, %h, %i : (tensor<2x3xi64>, tensor<i64>,
        tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<4x5xi64>
      return %0 : tensor<4x5xi64>"""
    result = run(body, "tensor<2x3xi64>", "tensor<4x5xi64>", X)
    np.testing.assert_array_equal(result, np.pad(X, ((0, 2), (1, 1))))


def test_dynamic_reshape_of_constants() -> None:
    body = """
      %s = stablehlo.constant dense<[3, 2]> : tensor<2xi64>
      %0 = stablehlo.dynamic_reshape %x, %s : (tensor<2x3xi64>, tensor<2xi64>) -> tensor<3x2xi64>
      return %0 : tensor<3x2xi64>"""
    result = run(body, "tensor<2x3xi64>", "tensor<3x2xi64>", X)
    np.testing.assert_array_equal(result, X.reshape(3, 2))


def test_values_of_inputs_are_sizes() -> None:
    body = """
      %0 = stablehlo.reshape %n : (tensor<i64>) -> tensor<1xi64>
      %1 = stablehlo.constant dense<3> : tensor<1xi64>
      %2 = stablehlo.concatenate %0, %1, dim = 0 :
        (tensor<1xi64>, tensor<1xi64>) -> tensor<2xi64>
      %3 = stablehlo.dynamic_broadcast_in_dim %x, %2, dims = [1] :
        (tensor<3xf32>, tensor<2xi64>) -> tensor<?x3xf32>
      %4 = stablehlo.convert %n : (tensor<i64>) -> tensor<f32>
      %5 = stablehlo.dynamic_broadcast_in_dim %4, %2, dims = [] :
        (tensor<f32>, tensor<2xi64>) -> tensor<?x3xf32>
      %6 = stablehlo.add %3, %5 : tensor<?x3xf32>
      return %6 : tensor<?x3xf32>"""
    head = "func.func @main(%x: tensor<3xf32>, %n: tensor<i64>) -> tensor<?x3xf32>"
    exe = stepwell.compile(f"{head} {{{body}\n}}", threads=1)
    x = np.array([1, 2, 3], np.float32)
    for n in (2, 5, 2):
        (result,) = exe(x, np.array(n))
        np.testing.assert_array_equal(result, np.tile(x + n, (n, 1)))


def test_slice_of_known_size_begins_anywhere() -> None:
    """Only the value of %n is asked for; a start beyond the end is clamped."""
    text = """func.func @main(%n: tensor<i64>, %x: tensor<?x4xf32>, %i: tensor<1xi32>)
        -> tensor<?x2xf32> {
      %0 = stablehlo.convert %n : (tensor<i64>) -> tensor<i32>
      %1 = stablehlo.reshape %0 : (tensor<i32>) -> tensor<1xi32>
      %zero = stablehlo.constant dense<0> : tensor<1xi32>
      %two = stablehlo.constant dense<2> : tensor<1xi32>
      %one = stablehlo.constant dense<1> : tensor<2xi32>
      %start = stablehlo.concatenate %zero, %i, dim = 0 :
        (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
      %again = stablehlo.concatenate %zero, %i, dim = 0 :
        (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
      %size = stablehlo.concatenate %1, %two, dim = 0 :
        (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
      %end = stablehlo.add %again, %size : tensor<2xi32>
      %y = stablehlo.real_dynamic_slice %x, %start, %end, %one :
        (tensor<?x4xf32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<?x2xf32>
      return %y : tensor<?x2xf32>
    }"""
    exe = stepwell.compile(text, threads=1)
    for n, i, begin in ((3, 0, 0), (3, 1, 1), (5, 3, 2)):
        x = np.arange(4 * n, dtype=np.float32).reshape(n, 4)
        (result,) = exe(np.array(n), x, np.array([i], np.int32))
        np.testing.assert_array_equal(result, x[:, begin : begin + 2])
    assert "3 compiled" not in repr(exe)


def test_bounds_of_a_slice_of_static_shape_are_values() -> None:
    text = """func.func @main(%n: tensor<i64>, %x: tensor<?xf32>) -> tensor<1xf32> {
      %c = stablehlo.constant dense<-1> : tensor<i64>
      %0 = stablehlo.add %n, %c : tensor<i64>
      %start = stablehlo.reshape %0 : (tensor<i64>) -> tensor<1xi64>
      %end = stablehlo.reshape %n : (tensor<i64>) -> tensor<1xi64>
      %one = stablehlo.constant dense<1> : tensor<1xi64>
      %y = stablehlo.real_dynamic_slice %x, %start, %end, %one :
        (tensor<?xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<1xf32>
      return %y : tensor<1xf32>
    }"""
    exe = stepwell.compile(text, threads=1)
    for n in (3, 5):
        np.testing.assert_array_equal(exe(np.array(n), np.arange(n, dtype=np.float32))[0], [n - 1])


def test_integers_beside_open_shapes_are_no_sizes() -> None:
    """Indices whose number is open are data: their values need not be known."""
    text = """func.func @main(%n: tensor<i64>, %i: tensor<?xi32>) -> tensor<?xi32> {
      %0 = stablehlo.reshape %n : (tensor<i64>) -> tensor<1xi64>
      %c = stablehlo.constant dense<1> : tensor<i32>
      %1 = stablehlo.dynamic_broadcast_in_dim %c, %0, dims = [] :
        (tensor<i32>, tensor<1xi64>) -> tensor<?xi32>
      %2 = stablehlo.add %i, %1 : tensor<?xi32>
      return %2 : tensor<?xi32>
    }"""
    exe = stepwell.compile(text, threads=1)
    for i in ([1, 2, 0], [4, 4, 4]):
        (result,) = exe(np.array(3), np.array(i, np.int32))
        np.testing.assert_array_equal(result, np.array(i) + 1)
    assert "1 compiled" in repr(exe)


def test_empty_module_does_nothing() -> None:
    assert stepwell.compile("module {\n}\n", threads=1)() == ()


def test_nan_with_other_bits_is_a_constant() -> None:
    text = """func.func @main() -> (tensor<2xf64>, tensor<2xf32>, tensor<2xf16>, tensor<2xbf16>) {
      %0 = stablehlo.constant dense<[0x7FFFFFFFFFFFFFFF, 0xFFF0000000000001]> : tensor<2xf64>
      %1 = stablehlo.constant dense<[0x7FFFFFFF, 0xFF800001]> : tensor<2xf32>
      %2 = stablehlo.constant dense<[0x7FFF, 0xFC01]> : tensor<2xf16>
      %3 = stablehlo.constant dense<[0x7FFF, 0xFF81]> : tensor<2xbf16>
      %4 = stablehlo.negate %0 : tensor<2xf64>
      %5 = stablehlo.negate %1 : tensor<2xf32>
      %6 = stablehlo.negate %2 : tensor<2xf16>
      %7 = stablehlo.negate %3 : tensor<2xbf16>
      return %4, %5, %6, %7 : tensor<2xf64>, tensor<2xf32>, tensor<2xf16>, tensor<2xbf16>
    }"""
    with np.errstate(invalid="ignore"):  # of signalling ones
        assert all(np.isnan(result).all() for result in stepwell.compile(text, threads=1)())


def test_reduced_precision_of_one_nan() -> None:
    text = """func.func @main() -> tensor<f64> {
      %0 = stablehlo.constant dense<0x7FFFFFFFFFFFFFFF> : tensor<f64>
      %1 = stablehlo.reduce_precision %0, format = e5m0 : tensor<f64>
      return %1 : tensor<f64>
    }"""
    assert np.isposinf(stepwell.compile(text, threads=1)()[0])


@pytest.mark.parametrize("direction", ["EQ", "NE", "LT", "LE", "GT", "GE"])
def test_weak_order(direction: str) -> None:
    """NaNs of any sign are one number above infinity, zeros of both signs are one."""
    text = f"""func.func @main(%x: tensor<64xf32>, %y: tensor<64xf32>) -> tensor<64xi1> {{
      %0 = stablehlo.compare  {direction}, %x, %y,  WEAKORDER :
        (tensor<64xf32>, tensor<64xf32>) -> tensor<64xi1>
      return %0 : tensor<64xi1>
    }}"""
    numbers = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -1e-45], np.float32)
    ranks = np.array([9, 9, 8, 0, 4, 4, 5, 3])
    x, y = (side.ravel() for side in np.meshgrid(numbers, numbers))
    a, b = (side.ravel() for side in np.meshgrid(ranks, ranks))
    compare = {
        "EQ": np.equal,
        "NE": np.not_equal,
        "LT": np.less,
        "LE": np.less_equal,
        "GT": np.greater,
        "GE": np.greater_equal,
    }
    (result,) = stepwell.compile(text, threads=1)(x, y)
    np.testing.assert_array_equal(result, compare[direction](a, b))


def test_random_bits_of_an_open_shape() -> None:
    jax = pytest.importorskip("jax")
    state = np.arange(4, dtype=np.uint32)

    def bits(x: jax.Array) -> list[jax.Array]:
        return jax.lax.rng_bit_generator(state, (x.shape[0], 3), dtype=np.uint32)

    (batch,) = jax.export.symbolic_shape("batch")
    open_shape = jax.ShapeDtypeStruct((batch,), np.float32)
    exe = stepwell.compile(jax.export.export(jax.jit(bits), platforms=["cpu"])(open_shape))
    x = np.zeros(5, np.float32)
    for got, want in zip(exe(x), jax.jit(bits)(x), strict=True):
        np.testing.assert_array_equal(got, want)


def _windows(jax: ModuleType, x: jax.Array) -> jax.Array:
    b = x.shape[0]
    lax = jax.lax
    return lax.reduce_window(x, -np.inf, lax.max, (b, 2), (1, 1), ((b - 1, 0), (0, 1)))


def _mean_and_largest(jax: ModuleType, x: jax.Array) -> list[jax.Array]:
    """Calls whose shapes come from one another's results."""
    b, lax = x.shape[0], jax.lax
    two = lax.reduce_window(
        (x, x), (0.0, np.inf), lambda a, c: (a[0] + c[0], lax.min(a[1], c[1])), (b, 1), (1, 1),
        ((0, b), (0, 0)),
    )  # fmt: skip
    return [*two, *lax.top_k(two[0].T, two[0].shape[0])]


@pytest.mark.parametrize(
    ("function", "call"),
    [
        (lambda jax, x: jax.lax.top_k(x, x.shape[0]), "dynamic_top_k"),
        (lambda jax, x: jax.lax.approx_max_k(x, x.shape[0]), "dynamic_approx_top_k"),
        (lambda jax, x: jax.lax.approx_min_k(x, x.shape[0]), "dynamic_approx_top_k"),
        (_windows, "dynamic_reduce_window"),
        (_mean_and_largest, "dynamic_reduce_window"),
    ],
)
def test_calls_that_are_told_a_shape(function: Callable, call: str) -> None:
    jax = pytest.importorskip("jax")
    (b,) = jax.export.symbolic_shape("b")
    jitted = jax.jit(functools.partial(function, jax))
    exported = jax.export.export(jitted, platforms=["cpu"])(
        jax.ShapeDtypeStruct((b, 2 * b), np.float32)
    )
    assert f"stablehlo.{call}" in exported.mlir_module()
    exe = stepwell.compile(exported)
    for size in (3, 1, 5):
        x = np.random.default_rng(size).standard_normal((size, 2 * size), np.float32)
        for got, want in zip(exe(x), jax.tree.leaves(jitted(x)), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("tpu_ApproxTopK", "data_2023_04_17"),  # from before artifacts said that they are some
        ("stablehlo_dynamic_approx_top_k", "data_2024_05_30"),
        ("stablehlo_dynamic_rng_bit_generator", "data_2023_06_17"),
        ("stablehlo_dynamic_top_k", "data_2023_08_11"),
        ("tpu_stablehlo_dynamic_reduce_window", "data_unary_2023_06_17"),
    ],
)
def test_programs_that_jax_stored_long_ago(name: str, data: str) -> None:
    module = pytest.importorskip(f"jax._src.internal_test_util.export_back_compat_test_data.{name}")
    stored = getattr(module, data)
    results = stepwell.compile(stored["mlir_module_serialized"])(*stored["inputs"])
    for got, want in zip(results, stored["expected_outputs"], strict=True):
        np.testing.assert_array_equal(got, want)


def test_programs_of_several_devices_are_refused() -> None:
    folder = "jax._src.internal_test_util.export_back_compat_test_data"
    stored = pytest.importorskip(f"{folder}.tpu_Sharding").data_2025_06_30
    with pytest.raises((LoweringError, ModelError), match="several devices"):
        stepwell.compile(stored["shardy"]["mlir_module_serialized"])
    with pytest.raises((LoweringError, ModelError), match="several devices"):
        stepwell.compile(stored["gspmd"]["mlir_module_serialized"])
    text = stored["shardy"]["mlir_module_text"]
    with pytest.raises((LoweringError, ModelError), match="several devices"):
        stepwell.compile(text)


def test_custom_calls_with_a_tuple_are_refused() -> None:
    text = """
      func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
        %0 = stablehlo.custom_call @Pair(%x) : (tensor<3xf32>) -> tuple<tensor<3xf32>, tensor<i32>>
        %1 = stablehlo.get_tuple_element %0[0] :
          (tuple<tensor<3xf32>, tensor<i32>>) -> tensor<3xf32>
        return %1 : tensor<3xf32>
      }"""
    with pytest.raises((LoweringError, ModelError), match="@Pair has no lowering"):
        stepwell.compile(text)


def test_lowered_functions_of_jax(tmp_path: Path) -> None:
    jax = pytest.importorskip("jax")

    def function(x: dict, unused: jax.Array, y: jax.Array) -> list[jax.Array]:
        values, _ = jax.lax.top_k(x["a"], 2)
        grown = jax.lax.fori_loop(0, 3, lambda i, c: c * x["b"] + i, y)
        return [jax.scipy.special.erf(values), grown]

    x = {"a": np.random.default_rng(0).standard_normal((3, 4), np.float32), "b": np.float32(2)}
    y = np.arange(3, dtype=np.float32)
    jitted = jax.jit(function)
    lowered = jitted.lower(x, y, y)
    expected = jitted(x, y, y)
    stepwell.export(lowered, tmp_path / "function.mlirbc")
    for model in (lowered, tmp_path / "function.mlirbc"):
        for got, want in zip(stepwell.compile(model)(x["a"], x["b"], y), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6)


def _rounded(x: np.ndarray, name: str) -> np.ndarray:
    if name == "tf32":
        bits = x.view(np.uint32)
        odd = (bits >> 13) & 1
        return ((bits + 0xFFF + odd) & np.uint32(0xFFFFE000)).view(np.float32)
    return x.astype(name).astype(np.float32)


def test_algorithms_of_products() -> None:
    """Operands are rounded to what the algorithm says, and no further for products of parts."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((7, 33), np.float32), rng.standard_normal((33, 5), np.float32)
    known = (
        ("tf32", "f32", 1, "tf32"),
        ("tf32", "f32", 3, "float32"),
        ("bf16", "f32", 1, "bfloat16"),
        ("bf16", "f32", 6, "float32"),
        ("f16", "f32", 1, "float16"),
        ("f32", "f32", 1, "float32"),
    )
    kinds = "(tensor<7x33xf32>, tensor<33x5xf32>) -> tensor<7x5xf32>"
    lines = [
        f"%{i} = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0], precision = [DEFAULT, "
        f"DEFAULT], algorithm = <lhs_precision_type = {kind}, rhs_precision_type = {kind}, "
        f"accumulation_type = {sums}, lhs_component_count = 1, rhs_component_count = 1, "
        f"num_primitive_operations = {count}, allow_imprecise_accumulation = false> : {kinds}"
        for i, (kind, sums, count, _) in enumerate(known)
    ]
    values = ", ".join(f"%{i}" for i in range(len(known)))
    types = ", ".join(["tensor<7x5xf32>"] * len(known))
    head = f"func.func @main(%x: tensor<7x33xf32>, %y: tensor<33x5xf32>) -> ({types})"
    body = "\n".join([*lines, f"return {values} : {types}"])
    results = stepwell.compile(f"{head} {{\n{body}\n}}", threads=1)(x, y)
    for result, (*_, name) in zip(results, known, strict=True):
        expected = _rounded(x, name).astype(np.float64) @ _rounded(y, name)
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_quantized_sum() -> None:
    kind = "tensor<4x!quant.uniform<i8:f32, 0.5:3>>"
    body = f"""
      %0 = stablehlo.uniform_quantize %x : (tensor<4xf32>) -> {kind}
      %1 = stablehlo.add %0, %0 : ({kind}, {kind}) -> {kind}
      %2 = stablehlo.uniform_dequantize %1 : ({kind}) -> tensor<4xf32>
      return %2 : tensor<4xf32>"""
    x = np.array([1, 2.3, -4.6, 100], np.float32)
    result = run(body, "tensor<4xf32>", "tensor<4xf32>", x)
    np.testing.assert_array_equal(result, np.array([2, 5, -9, 62], np.float32))


def test_annotations_of_shardy() -> None:
    text = """module {
      sdy.mesh @mesh = <["x"=1]>
      func.func @main(%x: tensor<3xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>})
          -> tensor<3xf32> {
        %0 = stablehlo.negate %x {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}]>]>} : tensor<3xf32>
        %1 = sdy.sharding_constraint %0 <@mesh, [{}]> : tensor<3xf32>
        return %1 : tensor<3xf32>
      }
    }"""  # noqa: E501
    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(stepwell.compile(text, threads=1)(x)[0], -x)


def test_maximum_of_complex_numbers_is_lexicographic() -> None:
    kind = "tensor<4xcomplex<f32>>"
    body = f"""
      %0 = stablehlo.reverse %x, dims = [0] : {kind}
      %1 = stablehlo.maximum %x, %0 : {kind}
      return %1 : {kind}"""
    x = np.array([1 + 2j, 3, 3 + 1j, 1 + 3j], np.complex64)
    want = np.array([1 + 3j, 3 + 1j, 3 + 1j, 1 + 3j], np.complex64)
    np.testing.assert_array_equal(run(body, kind, kind, x), want)


@pytest.mark.parametrize(("kind", "low", "high"), [("i32", -5, 4), ("ui8", 3, 250), ("i64", 0, 1)])
def test_uniform_integers_fill_their_range(kind: str, low: int, high: int) -> None:
    text = f"""func.func @main(%a: tensor<{kind}>, %b: tensor<{kind}>) -> tensor<20000x{kind}> {{
      %s = stablehlo.constant dense<20000> : tensor<1xi64>
      %y = stablehlo.rng %a, %b, %s, distribution = UNIFORM
        : (tensor<{kind}>, tensor<{kind}>, tensor<1xi64>) -> tensor<20000x{kind}>
      return %y : tensor<20000x{kind}>
    }}"""
    dtype = {"i32": np.int32, "ui8": np.uint8, "i64": np.int64}[kind]
    (result,) = stepwell.compile(text, threads=1)(np.array(low, dtype), np.array(high, dtype))
    values, counts = np.unique(result, return_counts=True)
    np.testing.assert_array_equal(values, np.arange(low, high))
    expected = 20000 / (high - low)
    assert np.abs(counts - expected).max() <= 6 * np.sqrt(expected)  # 6 standard deviations


def test_select_of_operands_that_broadcast() -> None:
    text = """func.func @main(%p: tensor<2x3xi1>, %x: tensor<3xi64>, %y: tensor<i64>)
        -> tensor<2x3xi64> {
      %z = "chlo.broadcast_select"(%p, %x, %y)
        : (tensor<2x3xi1>, tensor<3xi64>, tensor<i64>) -> tensor<2x3xi64>
      return %z : tensor<2x3xi64>
    }"""
    p, y = X % 2 == 0, np.array(7)
    result = stepwell.compile(text, threads=1)(p, X[1], y)[0]
    np.testing.assert_array_equal(result, np.where(p, X[1], y))


def test_einsum_of_one_operand() -> None:
    text = """func.func @main(%x: tensor<2x3xi64>) -> tensor<3xi64> {
      %y = "stablehlo.unary_einsum"(%x) {einsum_config = "ij->j"} : (tensor<2x3xi64>)
        -> tensor<3xi64>
      return %y : tensor<3xi64>
    }"""
    np.testing.assert_array_equal(stepwell.compile(text, threads=1)(X)[0], X.sum(0))


def test_normal_numbers_have_mean_and_deviation() -> None:
    body = """
      %d = stablehlo.constant dense<2.0> : tensor<f32>
      %s = stablehlo.constant dense<[100, 100]> : tensor<2xi64>
      %0 = stablehlo.rng %x, %d, %s, distribution = NORMAL
        : (tensor<f32>, tensor<f32>, tensor<2xi64>) -> tensor<100x100xf32>
      return %0 : tensor<100x100xf32>"""
    numbers = run(body, "tensor<f32>", "tensor<100x100xf32>", np.array(3, np.float32))
    assert abs(numbers.mean() - 3) < 0.1  # five standard errors
    assert abs(numbers.std() - 2) < 0.1
    share = np.mean(np.abs(numbers - 3) < 2)
    assert abs(share - 0.683) < 0.025


def test_largest_elements_by_custom_call() -> None:
    text = """func.func @main(%x: tensor<4x9xf32>) -> (tensor<4x3xf32>, tensor<4x3xi32>) {
      %0:2 = stablehlo.custom_call @mhlo.topk(%x)
        {mhlo.attributes = {k = 3 : i64, largest = true}, mhlo.version = 1 : i64}
        : (tensor<4x9xf32>) -> (tensor<4x3xf32>, tensor<4x3xi32>)
      return %0#0, %0#1 : tensor<4x3xf32>, tensor<4x3xi32>
    }"""
    x = np.random.default_rng(0).permutation(36).reshape(4, 9).astype(np.float32)
    values, places = stepwell.compile(text)(x)
    np.testing.assert_array_equal(values, -np.sort(-x)[:, :3])
    np.testing.assert_array_equal(np.take_along_axis(x, places, 1), values)
    with pytest.raises(stepwell.LoweringError, match=r"@mhlo\.topk has no lowering"):
        stepwell.compile(text.replace("largest = true", "largest = false"))


@pytest.mark.parametrize("form", ["bytecode", "text"])
def test_constraints_of_shardy_from_jax(form: str) -> None:
    jax = pytest.importorskip("jax")
    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")[:1]), ("x",))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))

    def function(a):
        return jax.numpy.linalg.inv(jax.lax.with_sharding_constraint(a * 2, spread))

    exported = jax.export.export(jax.jit(function, in_shardings=spread), platforms=["cpu"])(
        jax.ShapeDtypeStruct((2, 4, 4), np.float32)
    )
    model = exported if form == "bytecode" else exported.mlir_module()
    a = np.random.default_rng(0).random((2, 4, 4)).astype(np.float32) + 4 * np.eye(4, dtype="f")
    np.testing.assert_allclose(stepwell.compile(model)(a)[0], np.linalg.inv(2 * a), atol=1e-6)


def test_shardy_in_bytecode() -> None:
    """What JAX writes beside calls of LAPACK is overwritten; damaged bytes stay as they are."""
    jax = pytest.importorskip("jax")
    exported = jax.export.export(jax.jit(jax.lax.linalg.lu), platforms=["cpu"])(
        jax.ShapeDtypeStruct((4, 4), np.float32)
    )
    data = exported.mlir_module_serialized
    if b"sdy" not in data:
        pytest.skip("Shardy is switched off")
    readable = without_shardy(data)
    assert len(readable) == len(data)
    with new_context() as context:
        context.allow_unregistered_dialects = True
        assert "lapack_sgetrf_ffi" in str(deserialize_portable_artifact(context, readable))
    for length in (8, 100, len(data) // 2):
        assert without_shardy(data[:length]) == data[:length]
