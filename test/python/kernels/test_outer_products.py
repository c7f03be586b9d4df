"""Products that sum nothing are elementwise kernels, with what follows them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper
from programs import skip_elsewhere

import stepwell
from stepwell import dtypes

SIZES = {"a": 5, "b": 3, "c": 6, "d": 7, "i": 37, "j": 41, "k": 19}


@pytest.mark.parametrize("target", ["x86_64-v3", "x86_64-v4"])
@pytest.mark.parametrize(
    "equation",
    ["i,j->ij", "i,j->ji", "bi,bj->bij", "i,jk->ijk", "ab,cd->abcd", "ib,bj->bij"],
)
def test_one_kernel_with_what_follows(equation: str, target: str) -> None:
    letters = equation.partition("->")[0].split(",")
    generator = np.random.default_rng(0)
    arrays = [
        generator.uniform(-1, 1, [SIZES[c] for c in word]).astype(np.float32) for word in letters
    ]
    nodes = [
        helper.make_node("Einsum", ["x", "y"], ["product"], equation=equation),
        helper.make_node("Neg", ["product"], ["negative"]),
        helper.make_node("Relu", ["negative"], ["z"]),
    ]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape)
        for name, array in zip(("x", "y"), arrays, strict=True)
    ]
    output = helper.make_tensor_value_info("z", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "outer", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    kernels = stepwell.explain(model, target=target).kernels
    assert [(kernel.kind, kernel.remark) for kernel in kernels] == [("elementwise", "")]
    skip_elsewhere(target)
    (got,) = stepwell.compile(model, target=target)(*arrays)
    want = np.maximum(-np.einsum(equation, *arrays), 0)
    np.testing.assert_array_equal(got, want)  # one product each, rounded once


@pytest.mark.parametrize(
    ("operand", "result", "element", "of_result"),
    [
        (np.int8, np.int32, "i8", "i32"),
        (np.uint8, np.int32, "ui8", "i32"),
        (np.complex64, np.complex64, "complex<f32>", "complex<f32>"),
        (ml_dtypes.bfloat16, ml_dtypes.bfloat16, "bf16", "bf16"),
        (ml_dtypes.bfloat16, np.float32, "bf16", "f32"),
        (np.float16, np.float16, "f16", "f16"),
        (ml_dtypes.float8_e4m3fn, np.float32, "f8E4M3FN", "f32"),
    ],
)
def test_element_types(operand: type, result: type, element: str, of_result: str) -> None:
    """Whole numbers up to 15, whose products every type of a result holds."""
    text = f"""func.func @main(%x: tensor<37x{element}>, %y: tensor<41x{element}>)
        -> tensor<37x41x{of_result}> {{
      %z = stablehlo.dot_general %x, %y, contracting_dims = [] x []
        : (tensor<37x{element}>, tensor<41x{element}>) -> tensor<37x41x{of_result}>
      return %z : tensor<37x41x{of_result}>
    }}"""
    generator = np.random.default_rng(0)
    x, y = (generator.integers(0, 16, n).astype(operand) for n in (37, 41))
    assert not any(kernel.remark for kernel in stepwell.explain(text).kernels)
    (got,) = stepwell.compile(text)(x, y)
    want = np.multiply.outer(x.astype(result), y.astype(result))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("lhs", "rhs", "result"),
    [
        ("i32", "i32", "i8"),
        ("i64", "i64", "ui16"),
        ("i8", "i8", "ui32"),
        ("ui8", "ui8", "i8"),
        ("i4", "i4", "i32"),
        ("i16", "i16", "i4"),
    ],
)
def test_integers_wrap_around(lhs: str, rhs: str, result: str) -> None:
    """Of any widths: the result has the low bits of the product."""
    text = f"""func.func @main(%x: tensor<37x{lhs}>, %y: tensor<41x{rhs}>)
        -> tensor<37x41x{result}> {{
      %z = stablehlo.dot_general %x, %y, contracting_dims = [] x []
        : (tensor<37x{lhs}>, tensor<41x{rhs}>) -> tensor<37x41x{result}>
      return %z : tensor<37x41x{result}>
    }}"""
    kinds = [dtypes.to_numpy_by_name(name) for name in (lhs, rhs)]
    generator = np.random.default_rng(0)
    x, y = (
        generator.integers(*map(int, dtypes.limits(kind)), n, endpoint=True, dtype=np.int64)
        for kind, n in zip(kinds, (37, 41), strict=True)
    )
    assert not any(kernel.remark for kernel in stepwell.explain(text).kernels)
    (got,) = stepwell.compile(text)(x.astype(kinds[0]), y.astype(kinds[1]))
    bits = dtypes.bits(got.dtype)
    want = np.multiply.outer(x, y) & (2**bits - 1)
    np.testing.assert_array_equal(got.astype(np.int64) & (2**bits - 1), want)
