"""Random ONNX graphs with open dimensions at many sizes, small and beyond capacities, in random
order, compared with onnx's own evaluator.

What stands beyond the part in use must not leak, nor may what a small size changes be lost.
STEPWELL_TEST_SEEDS=A-B tries other seeds than the default ones.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import stepwell

FIRST, LAST = map(int, os.environ.get("STEPWELL_TEST_SEEDS", "0-2").split("-"))

TOLERANCE = 1e-4
"""Of the largest element: a few sums of up to 40 numbers of single precision, one after another."""

SIZES = (1, 2, 3, 4, 7, 8, 15, 16, 17, 31)

STEPS = (
    "{y} = Tanh({x})",
    "{y} = Neg({x})",
    "{y}a = Clip({x}, low, high) {y} = Exp({y}a)",
    "{y} = Softmax <axis = {axis}> ({x})",
    "{y}a = ReduceMean({x}, a{axis}) {y} = Sub({x}, {y}a)",
    "{y}a = ReduceMax({x}, a{axis}) {y} = Sub({x}, {y}a)",
    "{y}a = ReduceMin({x}, a{axis}) {y}b = Abs({y}a) {y} = Sub({x}, {y}b)",
    "{y}a = ReduceLogSumExp({x}, a{axis}) {y} = Sub({x}, {y}a)",
    "{y} = CumSum <reverse = {flag}, exclusive = 1> ({x}, s{axis})",
    "{y}a = ArgMin <axis = {axis}> ({x}) {y}b = Cast <to = 1> ({y}a) {y} = Add({x}, {y}b)",
    "{y}a = Slice({x}, none, last, a{axis}) {y}b = Slice({x}, last, far, a{axis}) "
    "{y} = Concat <axis = {axis}> ({y}b, {y}a)",
    "{y}a = Slice({x}, none, two, a{axis}) {y}b = ReduceSum({y}a, a{axis}) {y} = Add({x}, {y}b)",
    "{y}a = Shape <start = {axis}, end = {next}> ({x}) {y}b = Min({y}a, two) "
    "{y}c = Cast <to = 1> ({y}b) {y} = Div({x}, {y}c)",
    "{y}a = Transpose({x}) {y}b = MatMul({x}, {y}a) {y}c = Softmax({y}b) {y} = MatMul({y}c, {x})",
    "{y}a = Shape({x}) {y}b = Reshape({x}, flat) {y}c = Neg({y}b) {y} = Reshape({y}c, {y}a)",
)

CONSTANTS = """
    low = Constant <value_float = -4.0> () high = Constant <value_float = 4.0> ()
    a0 = Constant <value_ints = [0]> () a1 = Constant <value_ints = [1]> ()
    s0 = Constant <value_int = 0> () s1 = Constant <value_int = 1> ()
    none = Constant <value_ints = [0]> () last = Constant <value_ints = [-1]> ()
    two = Constant <value_ints = [2]> () far = Constant <value_ints = [9999]> ()
    flat = Constant <value_ints = [-1]> ()
"""


@pytest.mark.parametrize("seed", range(FIRST, LAST + 1))
def test_any_size(seed: int) -> None:
    random = np.random.default_rng(seed)
    value, text = "x", CONSTANTS
    for number in range(int(random.integers(3, 7))):
        axis, flag = map(int, random.integers(0, 2, 2))
        step = STEPS[int(random.integers(len(STEPS)))]
        text += step.format(x=value, y=f"v{number}", axis=axis, next=axis + 1, flag=flag) + "\n"
        value = f"v{number}"
    text += f"y = Identity({value}) z = ReduceSum <keepdims = 0> ({value}, a0)"
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]>\n'
        f"g (float[n, m] x) => (float[n, m] y, float[m] z) {{ {text} }}"
    )
    exe = stepwell.compile(model, threads=1 + seed % 2, options={"progress": False})
    reference = ReferenceEvaluator(model)
    for _ in range(6):
        x = random.standard_normal(random.choice(SIZES, 2)).astype(np.float32) - 1
        wanted = reference.run(None, {"x": x})
        for result, expected in zip(exe(x), map(np.asarray, wanted), strict=True):
            assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
            largest = np.abs(expected).max()
            np.testing.assert_allclose(result, expected, 0, TOLERANCE * largest, err_msg=text)
