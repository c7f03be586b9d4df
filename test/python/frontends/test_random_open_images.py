"""Random convolution networks with open batches, heights and widths at many sizes, in random order,
compared with onnx's own evaluator.

STEPWELL_TEST_SEEDS=A-B tries other seeds than the default ones.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from onnx import numpy_helper, parser
from onnx.reference import ReferenceEvaluator

import stepwell

FIRST, LAST = map(int, os.environ.get("STEPWELL_TEST_SEEDS", "1-2").split("-"))

TOLERANCE = 1e-4
"""Of the largest element: a few layers of sums of single precision, one after another."""

BATCHES = (1, 2, 3, 5)
SIZES = (1, 2, 3, 5, 8, 11, 16, 17)

STEPS = (
    "{y} = Relu({x})",
    "{y} = Softmax <axis = {axis}> ({x})",
    "{y} = InstanceNormalization({x}, one, one)",
    "{y} = Conv <pads = [1, 1, 1, 1]> ({x}, square)",
    "{y} = Conv <pads = [2, 2, 2, 2], dilations = [2, 2], group = 2> ({x}, single)",
    '{y} = Conv <auto_pad = "SAME_LOWER"> ({x}, even)',
    '{y}a = Pad <mode = "edge"> ({x}, corner) {y} = Conv ({y}a, even)',
    "{y}a = ConvTranspose <strides = [2, 2]> ({x}, even) "
    "{y} = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> ({y}a)",
    "{y}a = ConvTranspose <strides = [2, 2], pads = [1, 1, 1, 1]> ({x}, phases) {y}b = Relu({y}a) "
    "{y} = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> ({y}b)",
    '{y}a = Resize <mode = "linear", coordinate_transformation_mode = "align_corners"> '
    "({x},, twice) {y} = Conv <strides = [2, 2]> ({y}a, even)",
    '{y}a = Resize <mode = "linear"> ({x},, twice) '
    "{y} = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> ({y}a)",
    "{y} = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1], count_include_pad = {flag}> "
    "({x})",
    "{y}a = GlobalAveragePool({x}) {y}b = Sigmoid({y}a) {y} = Mul({x}, {y}b)",
    "{y}a = Conv <pads = [1, 1, 1, 1]> ({x}, square) {y}b = Relu({y}a) {y} = Add({x}, {y}b)",
    "{y}a = Concat <axis = 1> ({x}, x) {y} = Conv <pads = [1, 1, 1, 1]> ({y}a, double)",
    "{y}a = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> ({x}, square) "
    '{y}s = Shape({x}) {y} = Resize <mode = "nearest"> ({y}a,,, {y}s)',
    "{y}a = MaxPool <kernel_shape = [3, 3], strides = [2, 3], pads = [1, 1, 1, 1]> ({x}) "
    '{y}s = Shape({x}) {y} = Resize <mode = "linear"> ({y}a,,, {y}s)',
    "{y}a = AveragePool <kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1> ({x}) "
    "{y}b = ConvTranspose <strides = [2, 2]> ({y}a, even) {y}s = Shape <start = 2> ({x}) "
    "{y} = Slice({y}b, none, {y}s, spatial)",
    "{y}a = Shape({x}) {y}b = Reshape({x}, flat) {y}c = Softmax({y}b) {y}d = Reshape({y}c, {y}a) "
    "{y} = Add({x}, {y}d)",
)

KERNELS = {
    "square": (2, 2, 3, 3),
    "single": (2, 1, 3, 3),
    "even": (2, 2, 2, 2),
    "phases": (2, 2, 4, 4),
    "double": (2, 4, 3, 3),
}

CONSTANTS = """
    one = Constant <value_floats = [1.0, 1.0]> ()
    twice = Constant <value_floats = [1.0, 1.0, 2.0, 2.0]> ()
    flat = Constant <value_ints = [0, 0, -1]> ()
    none = Constant <value_ints = [0, 0]> ()
    spatial = Constant <value_ints = [2, 3]> ()
    corner = Constant <value_ints = [0, 0, 1, 0, 0, 0, 0, 1]> ()
"""


@pytest.mark.parametrize("seed", range(FIRST, LAST + 1))
def test_any_size(seed: int) -> None:
    random = np.random.default_rng(seed)
    value, text = "x", CONSTANTS
    for number in range(int(random.integers(3, 5))):
        axis, flag = map(int, random.integers(0, 2, 2))
        step = STEPS[int(random.integers(len(STEPS)))]
        text += step.format(x=value, y=f"v{number}", axis=axis + 2, flag=flag) + "\n"
        value = f"v{number}"
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]>\n'
        f"g (float[b, 2, h, w] x) => (float[b, 2, h, w] y) {{ {text} y = Identity({value}) }}"
    )
    for name, shape in KERNELS.items():
        kernel = random.standard_normal(shape).astype(np.float32) / 3
        model.graph.initializer.append(numpy_helper.from_array(kernel, name))
    exe = stepwell.compile(model, threads=1 + seed % 2, options={"progress": False})
    reference = ReferenceEvaluator(model)
    for _ in range(4):
        shape = (random.choice(BATCHES), 2, *random.choice(SIZES, 2))
        x = random.standard_normal(shape).astype(np.float32)
        expected = np.asarray(reference.run(None, {"x": x})[0])
        result = exe(x)[0]
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
        largest = np.abs(expected).max()
        np.testing.assert_allclose(result, expected, 0, TOLERANCE * largest, err_msg=text)


CHANNELS = 20
"""Enough for Winograd's algorithm, and no whole vectors."""

WIDE_STEPS = (
    "{y}a = Conv ({x}, pixel, bias) {y} = Relu({y}a)",
    "{y} = Conv <strides = [2, 2]> ({x}, pixel)",
    "{y}a = Conv <pads = [1, 1, 1, 1]> ({x}, square, bias) {y} = Relu({y}a)",
    "{y} = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> ({x}, square)",
    "{y} = Conv <pads = [2, 2, 2, 2], dilations = [2, 2]> ({x}, square)",
    "{y} = Conv <pads = [0, 1, 2, 1]> ({x}, square, bias)",
    "{y} = Conv <pads = [1, 1, 1, 1], group = 20> ({x}, deep)",
    "{y} = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> ({x})",
    "{y} = ConvTranspose <strides = [2, 2]> ({x}, even)",
    "{y}a = ConvTranspose <strides = [2, 2], pads = [1, 1, 1, 1]> ({x}, phases, bias) "
    "{y} = Relu({y}a)",
    "{y}a = Conv <pads = [1, 1, 1, 1]> ({x}, square) {y}b = Concat <axis = 1> ({y}a, {x}) "
    "{y} = Conv <pads = [1, 1, 1, 1]> ({y}b, double)",
    "{y}a = Conv <pads = [1, 1, 1, 1]> ({x}, square) {y}b = Relu({y}a) {y} = Add({x}, {y}b)",
    "{y}a = GlobalAveragePool({x}) {y}b = Sigmoid({y}a) {y} = Mul({x}, {y}b)",
)

WIDE_KERNELS = {
    "pixel": (20, 20, 1, 1),
    "square": (20, 20, 3, 3),
    "deep": (20, 1, 3, 3),
    "even": (20, 20, 2, 2),
    "phases": (20, 20, 4, 4),
    "double": (20, 40, 3, 3),
    "bias": (20,),
}


@pytest.mark.parametrize("seed", range(FIRST, LAST + 3))
def test_what_a_larger_call_left_is_not_read(seed: int) -> None:
    """A call for the largest sizes, all NaN, fills the buffers with it; the next ones are small."""
    random = np.random.default_rng(seed)
    value, text = "x", ""
    for number in range(int(random.integers(3, 6))):
        step = WIDE_STEPS[int(random.integers(len(WIDE_STEPS)))]
        text += step.format(x=value, y=f"v{number}") + "\n"
        value = f"v{number}"
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]>\n'
        f"g (float[b, 20, h, w] x) => (float[b, 20, p, q] y) {{ {text} y = Identity({value}) }}"
    )
    for name, shape in WIDE_KERNELS.items():
        kernel = random.standard_normal(shape) / np.prod(shape[1:]) ** 0.5
        model.graph.initializer.append(numpy_helper.from_array(kernel.astype(np.float32), name))
    exe = stepwell.compile(
        model,
        threads=1 + seed % 2,
        options={"progress": False},
        max_sizes={"b": 2, "h": 24, "w": 21},
    )
    reference = ReferenceEvaluator(model)
    for height, width in ((9, 13), (16, 10), (23, 21)):
        exe(np.full((2, CHANNELS, 24, 21), np.nan, np.float32))
        x = random.standard_normal((1, CHANNELS, height, width)).astype(np.float32)
        expected = np.asarray(reference.run(None, {"x": x})[0])
        np.testing.assert_allclose(
            exe(x)[0], expected, 0, TOLERANCE * np.abs(expected).max(), err_msg=text
        )
