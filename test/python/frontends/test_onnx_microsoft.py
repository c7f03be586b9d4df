"""Operators of domain com.microsoft against onnxruntime, on seeded random data.

float32 results differ by the order of sums and by the approximations of exp, tanh and erf of the
two; quantized ones by at most one unit, since onnxruntime rounds in fixed point.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import stepwell

RTOL, ATOL = 2e-5, 5e-6

RNG = np.random.default_rng


def _normal(*shape: int, seed: int = 0) -> np.ndarray:
    return RNG((seed, *shape)).standard_normal(shape).astype(np.float32)


def _check(
    name: str,
    inputs: list[np.ndarray | None],
    attributes: dict[str, object] | None = None,
    outputs: int = 1,
    *,
    domain: str = "com.microsoft",
    constants: tuple[int, ...] = (),
    units: int = 0,
    tolerance: float = ATOL,
    compared: int | None = None,
    wanted: list[np.ndarray] | None = None,
) -> None:
    """`constants` are inputs that become initializers; `units` is how far integers may differ; only
    the first `compared` outputs are looked at. `wanted` are the outputs of an operator that
    onnxruntime has no kernel of for the CPU."""
    names = [f"x{i}" if array is not None else "" for i, array in enumerate(inputs)]
    produced = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(name, names, produced, domain=domain, **(attributes or {}))
    arrays = {n: a for n, a in zip(names, inputs, strict=True) if a is not None}
    weights = {names[i]: arrays.pop(names[i]) for i in constants}
    graph = helper.make_graph(
        [node],
        "microsoft",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in arrays.items()
        ],
        [onnx.ValueInfoProto(name=n) for n in produced],
        [onnx.numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    domains = [helper.make_opsetid("com.microsoft", 1), helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=domains, ir_version=10)
    if wanted is None:
        wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, arrays)
    results = stepwell.compile(model, threads=1, options={"progress": False}).run(arrays)
    for output, value in list(zip(produced, wanted, strict=True))[:compared]:
        result = results[output]
        assert result.dtype == value.dtype
        if value.dtype.kind in "iu":
            assert np.abs(result.astype(int) - value.astype(int)).max() <= units
        else:
            np.testing.assert_allclose(result, value, rtol=RTOL, atol=tolerance)


@pytest.mark.parametrize("name", ["Gelu", "QuickGelu", "FastGelu"])
def test_activations(name: str) -> None:
    _check(name, [_normal(3, 8)])


@pytest.mark.parametrize("name", ["BiasGelu", "FastGelu"])
def test_biased_activations(name: str) -> None:
    _check(name, [_normal(3, 8), _normal(8)])


@pytest.mark.parametrize(("left", "right"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_fused_matmul(left: int, right: int) -> None:
    a = _normal(2, 5, 4) if left else _normal(2, 4, 5)
    b = _normal(6, 5) if right else _normal(5, 6)
    _check("FusedMatMul", [a, b], {"transA": left, "transB": right, "alpha": 0.5})


@pytest.mark.parametrize("activation", ["Relu", "LeakyRelu", "HardSigmoid", "Clip", "Tanh"])
def test_fused_convolution(activation: str) -> None:
    parameters = {"LeakyRelu": [0.1], "HardSigmoid": [0.2, 0.5], "Clip": [-0.5, 0.5]}
    attributes: dict[str, object] = {"activation": activation, "pads": [1, 1, 1, 1]}
    if activation in parameters:
        attributes["activation_params"] = parameters[activation]
    _check("FusedConv", [_normal(1, 3, 6, 6), _normal(4, 3, 3, 3), _normal(4)], attributes)


def _convolved(x: np.ndarray, w: np.ndarray, b: np.ndarray, **attributes: object) -> np.ndarray:
    """Conv by onnxruntime."""
    names = ["x", "w", "b"]
    node = helper.make_node("Conv", names, ["y"], **attributes)
    inputs = [
        helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, a.shape)
        for n, a in zip(names, (x, w, b), strict=True)
    ]
    graph = helper.make_graph([node], "conv", inputs, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, dict(zip(names, (x, w, b), strict=True)))[0]


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("constants", [(), (1, 2)])
@pytest.mark.parametrize("filters", ["last", "first"])
def test_channels_last_convolution(group: int, constants: tuple[int, ...], filters: str) -> None:
    """Filters [M, H, W, C] as onnxruntime's kernels have them, or [M, C, H, W] as in Conv."""
    x, w, b = _normal(2, 8, 9, 7), _normal(6, 8 // group, 3, 2), _normal(6)
    attributes = {"group": group, "pads": [1, 0, 0, 1], "strides": [2, 1]}
    wanted = _convolved(x, w, b, **attributes).transpose(0, 2, 3, 1)
    given = w.transpose(0, 2, 3, 1) if filters == "last" else w
    inputs = [np.ascontiguousarray(a) for a in (x.transpose(0, 2, 3, 1), given, b)]
    _check("NhwcConv", [*inputs], attributes, constants=constants, wanted=[wanted])


def test_channels_last_convolution_takes_square_filters_as_channels_last() -> None:
    x, w = _normal(1, 3, 8, 8), _normal(4, 3, 3, 3)
    wanted = _convolved(x, w, np.zeros(4, np.float32)).transpose(0, 2, 3, 1)
    inputs = [np.ascontiguousarray(a.transpose(0, 2, 3, 1)) for a in (x, w)]
    _check("NhwcConv", [*inputs], wanted=[wanted])


def test_channels_last_fused_convolution() -> None:
    x, w, b, z = _normal(2, 8, 9, 7), _normal(6, 8, 3, 3), _normal(6), _normal(2, 9, 7, 6)
    wanted = np.tanh(_convolved(x, w, b, pads=[1] * 4).transpose(0, 2, 3, 1) + z)
    attributes = {"activation": "Tanh", "pads": [1] * 4}
    inputs = [np.ascontiguousarray(x.transpose(0, 2, 3, 1)), w, b, z]
    _check("NhwcFusedConv", [*inputs], attributes, wanted=[wanted])


@pytest.mark.parametrize("activation", [0, 1])
@pytest.mark.parametrize("last", [0, 1])
def test_group_norm(activation: int, last: int) -> None:
    x, gamma, beta = _normal(2, 8, 5, 3), _normal(8), _normal(8, seed=1)
    groups = x.astype(np.float64).reshape(2, 4, -1)
    groups = groups - groups.mean(2, keepdims=True)
    groups /= np.sqrt((groups**2).mean(2, keepdims=True) + 1e-3)
    wanted = groups.reshape(x.shape) * gamma[:, None, None] + beta[:, None, None]
    if activation:
        wanted = wanted / (1 + np.exp(-wanted))
    if last:
        x, wanted = x.transpose(0, 2, 3, 1), wanted.transpose(0, 2, 3, 1)
    attributes = {"groups": 4, "epsilon": 1e-3, "activation": activation, "channels_last": last}
    inputs = [np.ascontiguousarray(x), gamma, beta]
    _check("GroupNorm", [*inputs], attributes, wanted=[wanted.astype(np.float32)])


def test_split_gelu() -> None:
    x, bias = _normal(2, 3, 16), _normal(16)
    first, second = np.split((x + bias).astype(np.float64), 2, -1)
    wanted = first * second / 2 * (1 + np.vectorize(math.erf)(second / np.sqrt(2)))
    _check("BiasSplitGelu", [x, bias], wanted=[wanted.astype(np.float32)])


def test_skip_normalizations() -> None:
    x, skip, gamma, beta, bias = _normal(2, 3, 8), _normal(2, 3, 8, seed=1), *_normal(3, 8)
    _check("SkipLayerNormalization", [x, skip, gamma, beta, bias], {"epsilon": 1e-5})
    _check("SkipSimplifiedLayerNormalization", [x, skip, gamma, bias], {"epsilon": 1e-5})
    _check("SimplifiedLayerNormalization", [x, gamma], {"epsilon": 1e-5}, domain="")


@pytest.mark.parametrize("mask", [False, True])
def test_embedding(mask: bool) -> None:
    rng = RNG(0)
    ids, segments = (rng.integers(0, n, (2, 4)).astype(np.int32) for n in (10, 2))
    tables = [_normal(10, 8), _normal(6, 8), _normal(2, 8)]
    gamma, beta = _normal(2, 8, seed=3)
    masks = np.array([[1, 1, 0, 0], [1, 1, 1, 0]], np.int32) if mask else None
    inputs = [ids, segments, *tables, gamma, beta, *([masks] if mask else [])]
    _check("EmbedLayerNormalization", inputs, {"epsilon": 1e-5}, 2)


@pytest.mark.parametrize("unidirectional", [0, 1])
@pytest.mark.parametrize("mask", ["none", "lengths", "keys"])
def test_attention(unidirectional: int, mask: str) -> None:
    masks = {
        "none": None,
        "lengths": np.array([3, 5], np.int32),
        "keys": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32),
    }
    inputs = [_normal(2, 5, 8), _normal(8, 24), _normal(24), masks[mask]]
    _check("Attention", inputs, {"num_heads": 2, "unidirectional": unidirectional})


@pytest.mark.parametrize("past", [False, True])
def test_multi_head_attention(past: bool) -> None:
    inputs = [_normal(2, 4, 8), _normal(2, 6, 8), _normal(2, 6, 8, seed=1), _normal(24)]
    if past:
        inputs += [None, None, _normal(2, 2, 3, 4), _normal(2, 2, 3, 4, seed=1)]
    _check("MultiHeadAttention", inputs, {"num_heads": 2}, 3 if past else 1)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("offset", [False, True])
def test_rotary_embedding(interleaved: int, offset: bool) -> None:
    positions = np.array([2]) if offset else np.array([[0, 1, 2], [4, 5, 6]])
    inputs = [_normal(2, 3, 16), positions, _normal(8, 4), _normal(8, 4, seed=1)]
    _check("RotaryEmbedding", inputs, {"interleaved": interleaved})


@pytest.mark.parametrize("rotary", [0, 1])
@pytest.mark.parametrize("window", [-1, 2])
@pytest.mark.parametrize("length", [1, 4])
def test_group_query_attention(rotary: int, window: int, length: int) -> None:
    """A prompt of four tokens, or one token behind a past of three and two."""
    past, total = (0, 4) if length == 4 else (3, 4)
    last = np.array([3, 3], np.int32) if length == 4 else np.array([3, 2], np.int32)
    inputs = [
        _normal(2, length, 64),
        _normal(2, length, 32),
        _normal(2, length, 32, seed=1),
        _normal(2, 2, past, 16) if past else None,
        _normal(2, 2, past, 16, seed=1) if past else None,
        last,
        np.array(total, np.int32),
        *([_normal(8, 8), _normal(8, 8, seed=1)] if rotary else []),
    ]
    attributes = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": rotary}
    attributes["local_window_size"] = window
    compared = 1 if length == 1 else 3  # beyond a row's own tokens the present is undefined
    _check("GroupQueryAttention", inputs, attributes, 3, constants=(6,), compared=compared)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zero_points", [False, True])
def test_matmul_with_packed_weights(bits: int, zero_points: bool) -> None:
    rng, k, n, block = RNG(0), 64, 12, 32
    blocks = k // block
    weights = rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
    scales = rng.uniform(0.01, 0.1, (n, blocks)).astype(np.float32)
    inputs = [_normal(3, k), weights, scales]
    if zero_points:
        inputs.append(rng.integers(0, 256, (n, blocks * bits // 8)).astype(np.uint8))
    attributes = {"K": k, "N": n, "bits": bits, "block_size": block}
    constants = tuple(range(1, len(inputs)))
    # onnxruntime rounds the rows of A to 8 bits for accuracy_level 4; 1 asks for float32.
    attributes["accuracy_level"] = 1
    _check("MatMulNBits", inputs, attributes, constants=constants, tolerance=1e-4)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"block_size": 0}, "block_size 0 have to be positive"),
        ({"N": 13}, r"weights of shape \[12, 2, 16\] are not 416 numbers"),
        ({"K": 96}, r"an input of shape \[3, 64\] does not fit K 96"),
        ({"bits": 8}, r"weights of shape \[12, 2, 16\] are not 768 numbers"),
    ],
)
def test_packed_weights_that_do_not_fit(changes: dict[str, int], sentence: str) -> None:
    weights, scales = np.zeros((12, 2, 16), np.uint8), np.ones((12, 2), np.float32)
    attributes = {"K": 64, "N": 12, "bits": 4, "block_size": 32} | changes
    inputs, wanted = [_normal(3, 64), weights, scales], [_normal(3, 12)]
    with pytest.raises(stepwell.UnsupportedError, match=sentence):
        _check("MatMulNBits", inputs, attributes, constants=(1, 2), wanted=wanted)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zero_points", [False, True])
def test_lookup_in_packed_table(bits: int, zero_points: bool) -> None:
    rng, rows, columns, block = RNG(0), 20, 48, 16
    table = rng.integers(0, 256, (rows, columns * bits // 8)).astype(np.uint8)
    scales = rng.uniform(0.01, 0.1, (rows, columns // block)).astype(np.float32)
    indices = np.array([[3, 0, 19], [7, 7, -1]])
    inputs = [table, indices, scales]
    if zero_points:
        packed = -(-columns // block * bits // 8)
        inputs.append(rng.integers(0, 256, (rows, packed)).astype(np.uint8))
    attributes = {"block_size": block, "gather_axis": 0, "quantize_axis": 1, "bits": bits}
    constants = (0, *range(2, len(inputs)))
    _check("GatherBlockQuantized", inputs, attributes, constants=constants)


@pytest.mark.parametrize("gather", [0, 2])
def test_lookup_in_integers_of_four_bits(gather: int) -> None:
    rng = RNG(1)
    table = rng.integers(-8, 8, (4, 32, 6)).astype(ml_dtypes.int4)
    scales = rng.uniform(0.01, 0.1, (4, 2, 6)).astype(np.float32)
    zeros = rng.integers(-8, 8, (4, 2, 6)).astype(ml_dtypes.int4)
    inputs = [table, np.array([1, 3]), scales, zeros]
    attributes = {"block_size": 16, "gather_axis": gather, "quantize_axis": 1}
    _check("GatherBlockQuantized", inputs, attributes, constants=(0, 2, 3))


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("name", ["QLinearAdd", "QLinearMul"])
def test_quantized_arithmetic(name: str, kind: type) -> None:
    info, rng = np.iinfo(kind), RNG(0)
    a, b = (rng.integers(info.min, info.max + 1, (4, 5)).astype(kind) for _ in range(2))
    zero = kind(3)
    scales = [np.float32(s) for s in (0.1, 0.2, 0.7)]
    inputs = [a, scales[0], zero, b, scales[1], zero, scales[2], zero]
    _check(name, [np.asarray(i) for i in inputs], constants=(1, 2, 4, 5, 6, 7), units=1)


@pytest.mark.parametrize("name", ["QLinearSigmoid", "QLinearLeakyRelu", "QLinearGlobalAveragePool"])
def test_quantized_functions(name: str) -> None:
    x = RNG(0).integers(0, 256, (1, 3, 4, 4)).astype(np.uint8)
    zero, small = np.uint8(128), np.float32(1 / 256)
    scale = np.float32(0.02) if name == "QLinearLeakyRelu" else small
    inputs = [x, np.float32(0.05), zero, scale, np.uint8(7)]
    if name == "QLinearGlobalAveragePool":
        inputs[3:] = [np.float32(0.04), np.uint8(100)]
    _check(name, [np.asarray(i) for i in inputs], constants=(1, 2, 3, 4), units=1)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("name", ["QLinearAveragePool", "QLinearGlobalAveragePool"])
def test_quantized_pooling(name: str, last: int) -> None:
    x = RNG(last).integers(0, 256, (2, 6, 5, 3) if last else (2, 3, 6, 5)).astype(np.uint8)
    inputs = [x, np.float32(0.05), np.uint8(128), np.float32(0.04), np.uint8(100)]
    attributes = {"channels_last": last}
    if name == "QLinearAveragePool":
        attributes |= {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    _check(name, [np.asarray(i) for i in inputs], attributes, constants=(1, 2, 3, 4), units=1)


@pytest.mark.parametrize("opset", [12, 13])
def test_quantized_softmax(opset: int) -> None:
    x = RNG(opset).integers(0, 256, (3, 4, 5)).astype(np.uint8)
    inputs = [x, np.float32(0.1), np.uint8(128), np.float32(1 / 256), np.uint8(0)]
    attributes = {"axis": 1, "opset": opset}
    _check(
        "QLinearSoftmax",
        [np.asarray(i) for i in inputs],
        attributes,
        constants=(1, 2, 3, 4),
        units=1,
    )


@pytest.mark.parametrize("quantizes", [False, True])
@pytest.mark.parametrize("turned", [0, 1])
def test_quantized_gemm(turned: int, quantizes: bool) -> None:
    """Sums are exact; in float32 only the order of the factors differs."""
    rng = RNG(turned)
    a = rng.integers(0, 256, (8, 3) if turned else (3, 8)).astype(np.uint8)
    b = rng.integers(-64, 64, (5, 8) if turned else (8, 5)).astype(np.int8)
    c = rng.integers(-900, 900, 5).astype(np.int32)
    columns = rng.uniform(0.001, 0.01, 5).astype(np.float32)
    inputs = [a, np.float32(0.1), np.uint8(120), b, columns, np.zeros(5, np.int8), c]
    if quantizes:
        inputs += [np.float32(0.05), np.uint8(100)]
    constants = tuple(range(1, len(inputs)))
    attributes = {"transA": turned, "transB": turned, "alpha": 1.0}
    _check(
        "QGemm",
        [np.asarray(i) for i in inputs],
        attributes,
        constants=constants,
        units=1,
    )


def test_quantized_concat() -> None:
    a, b = (RNG(s).integers(0, 256, (2, 3)).astype(np.uint8) for s in range(2))
    zero = np.uint8(10)
    inputs = [np.float32(0.1), zero, a, np.float32(0.1), zero, b, np.float32(0.05), zero]
    constants = (0, 1, 3, 4, 6, 7)
    _check(
        "QLinearConcat", [np.asarray(i) for i in inputs], {"axis": 1}, constants=constants, units=1
    )


def test_integer_products() -> None:
    """With weights of 7 bits: onnxruntime adds two products in 16 bits on CPUs without VNNI."""
    rng = RNG(0)
    a, b = rng.integers(0, 256, (3, 8)).astype(np.uint8), rng.integers(-64, 64, (8, 5))
    b, bias = b.astype(np.int8), _normal(5)
    scale, column_scales = np.float32(0.1), np.float32([0.1, 0.2, 0.3, 0.4, 0.5])
    inputs = [a, b, scale, column_scales, np.uint8(120), np.zeros(5, np.int8), bias]
    _check("MatMulIntegerToFloat", [np.asarray(i) for i in inputs], tolerance=1e-4)
    inputs = [_normal(3, 8), b, column_scales, np.zeros(5, np.int8), bias]
    _check("DynamicQuantizeMatMul", inputs, tolerance=1e-4)
