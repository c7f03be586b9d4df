"""Products by weights of 4, 8 and 16 bits, which stay as they are stored, against float64."""

from __future__ import annotations

import tempfile

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import stepwell
from stepwell import artifact

_TOLERANCE = 2e-6
"""Of the largest result: sums of a thousand terms in float32."""


class _Layer:
    """One product `x @ w`, of x [rows, k], w [k, n] being made of narrow constants."""

    def __init__(self, rows: int, k: int, n: int) -> None:
        self.random = np.random.default_rng(rows + k + n)
        self.k, self.n = k, n
        self.x = self.random.standard_normal((rows, k)).astype(np.float32)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, name: str, array: np.ndarray) -> str:
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def add(self, operator: str, inputs: list[str], output: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def model(self, rows: str | int | None = None) -> onnx.ModelProto:
        rows = self.x.shape[0] if rows is None else rows
        kind = TensorProto.FLOAT
        graph = helper.make_graph(
            self.nodes,
            "layer",
            [helper.make_tensor_value_info("x", kind, [rows, self.k])],
            [helper.make_tensor_value_info("y", kind, [rows, self.n])],
            self.constants,
        )
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def check(self, weights: np.ndarray, most_bytes: float, rows: str | None = None) -> None:
        """Compile, compare with `x @ weights`, and see that so many bytes hold the weights."""
        model = self.model(rows)
        expected = self.x.astype(np.float64) @ weights.astype(np.float64)
        for threads in (1, 2):
            executable = stepwell.compile(model, target="host", threads=threads)
            (y,) = executable(self.x)
            error = np.abs(y - expected).max() / np.abs(expected).max()
            assert error < _TOLERANCE
            if rows is None:
                with tempfile.TemporaryDirectory() as folder:
                    executable.save(f"{folder}/layer.stepwell")
                    stored = artifact.read(f"{folder}/layer.stepwell").manifest.weights_bytes
                # Columns fill panels, of which the last may be half empty.
                assert stored < 1.2 * most_bytes + 4096


def _blocks(array: np.ndarray, block: int) -> np.ndarray:
    """Numbers of blocks [k / block, n] as those of rows."""
    return np.repeat(array, block, axis=0)


def _words(codes: np.ndarray) -> np.ndarray:
    """Numbers of 4 bits, two a byte."""
    low, high = codes[..., ::2], codes[..., 1::2]
    return (low | (high << 4)).astype(np.uint8)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(
    ("rows", "k", "n", "block"),
    [(1, 1024, 512, 32), (3, 544, 400, 16), (70, 512, 200, 128), (40, 2064, 200, 16)],
)
def test_blocks_of_columns(bits, rows, k, n, block, zeros):
    """com.microsoft's MatMulNBits; 70 rows share panels that are widened once."""
    layer = _Layer(rows, k, n)
    random, most = layer.random, 1 << bits
    codes = random.integers(0, most, (n, k // block, block), dtype=np.uint8)
    scales = random.uniform(0.5, 1.5, (n, k // block)).astype(np.float32)
    inputs = ["x", layer.constant("w", _words(codes) if bits == 4 else codes)]
    inputs.append(layer.constant("s", scales))
    middle = np.full((n, k // block), most // 2, np.uint8)
    if zeros:
        middle = random.integers(0, most, middle.shape, dtype=np.uint8)
        padded = np.pad(middle, ((0, 0), (0, middle.shape[1] % 2)))
        inputs.append(layer.constant("z", _words(padded) if bits == 4 else middle))
    attributes = {"K": k, "N": n, "bits": bits, "block_size": block}
    layer.add("MatMulNBits", inputs, "y", domain="com.microsoft", **attributes)
    wide = (codes - middle[..., None].astype(np.float32)) * scales[..., None]
    shared = 4 * scales.size * (2 if zeros else 1)
    layer.check(wide.reshape(n, k).T, k * n * bits / 8 + shared)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("scales", ["one", "columns", "blocks"])
def test_dequantized_bytes(scales, dtype):
    """DequantizeLinear of a constant."""
    layer = _Layer(2, 768, 320)
    limits = np.iinfo(dtype)
    codes = layer.random.integers(limits.min, limits.max + 1, (768, 320), dtype=dtype)
    shape = {"one": (), "columns": (320,), "blocks": (768 // 64, 320)}[scales]
    scale = layer.random.uniform(0.5, 1.5, shape).astype(np.float32)
    zero = layer.random.integers(limits.min, limits.max + 1, shape, dtype=dtype)
    attributes = {"one": {}, "columns": {"axis": 1}, "blocks": {"axis": 0, "block_size": 64}}
    inputs = [layer.constant(name, a) for name, a in (("w", codes), ("s", scale), ("z", zero))]
    layer.add("DequantizeLinear", inputs, "d", **attributes[scales])
    layer.add("MatMul", ["x", "d"], "y")
    if scales == "blocks":
        scale, zero = _blocks(scale, 64), _blocks(zero, 64)
    wide = (codes.astype(np.float32) - zero) * scale
    layer.check(wide, codes.size + (2 * 4 * codes.size / 64 if scales == "blocks" else 8 * 320))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("rows", [1, 20])
def test_halves(rows, dtype):
    layer = _Layer(rows, 640, 500)
    weights = layer.random.standard_normal((500, 640)).astype(dtype)
    layer.add("Cast", [layer.constant("w", weights)], "d", to=TensorProto.FLOAT)
    layer.add("Gemm", ["x", "d"], "y", transB=1)
    layer.check(weights.astype(np.float32).T, 2 * weights.size)


def test_integers_of_four_bits():
    """ONNX's own type, in the model's file."""
    layer = _Layer(1, 512, 256)
    codes = layer.random.integers(-8, 8, (512, 256)).astype(ml_dtypes.int4)
    scale = layer.random.uniform(0.5, 1.5, (16, 256)).astype(np.float32)
    inputs = [layer.constant("w", codes), layer.constant("s", scale)]
    layer.add("DequantizeLinear", inputs, "d", axis=0, block_size=32)
    layer.add("MatMul", ["x", "d"], "y")
    wide = codes.astype(np.float32) * _blocks(scale, 32)
    layer.check(wide, codes.size / 2 + 4 * scale.size)


def test_any_number_of_rows():
    layer = _Layer(5, 512, 256)
    codes = layer.random.integers(-128, 128, (512, 256), dtype=np.int8)
    layer.add("Cast", [layer.constant("w", codes)], "d", to=TensorProto.FLOAT)
    layer.add("MatMul", ["x", "d"], "y")
    layer.check(codes.astype(np.float32), codes.size, rows="rows")


def test_several_products_read_one_weight():
    layer = _Layer(2, 512, 512)
    codes = layer.random.integers(-128, 128, (512, 512), dtype=np.int8)
    scale = layer.constant("s", np.float32(1 / 64))
    layer.add("DequantizeLinear", [layer.constant("w", codes), scale], "d")
    layer.add("MatMul", ["x", "d"], "m")
    layer.add("MatMul", ["m", "d"], "y")
    wide = codes.astype(np.float64) / 64
    layer.check(wide @ wide, codes.size)


@pytest.mark.parametrize("precision", ["default", "strict"])
def test_model_that_allows_rounding(precision):
    """`accuracy_level` 4: bfloat16 where the machine multiplies that, unless it shall be strict."""
    layer = _Layer(64, 512, 256)
    codes = layer.random.integers(0, 16, (256, 16, 32), dtype=np.uint8)
    scales = layer.random.uniform(0.5, 1.5, (256, 16)).astype(np.float32)
    inputs = ["x", layer.constant("w", _words(codes)), layer.constant("s", scales)]
    attributes = {"K": 512, "N": 256, "bits": 4, "block_size": 32, "accuracy_level": 4}
    layer.add("MatMulNBits", inputs, "y", domain="com.microsoft", **attributes)
    wide = ((codes - np.float32(8)) * scales[..., None]).reshape(256, 512).T
    executable = stepwell.compile(layer.model(), options={"precision": precision})
    expected = layer.x.astype(np.float64) @ wide
    (y,) = executable(layer.x)
    error = np.abs(y - expected).max() / np.abs(expected).max()
    # Both operands of bfloat16 are off by 2**-9 at most, and the largest sum is made of 512 terms
    # whose errors cancel as the terms themselves do.
    assert error < (_TOLERANCE if precision == "strict" else 2**-8)
