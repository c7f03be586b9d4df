"""The single kernels that are timed: one small ONNX model each, and the same for torch."""

# pyright: reportMissingImports=false
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

_DEPTHWISE = [(14, 576, 3), (56, 144, 3), (28, 240, 5), (56, 96, 7), (32, 768, 9)]
_NARROW = [(1, 4096, 4096, 4), (16, 2048, 2048, 4), (128, 768, 3072, 4), (1, 4096, 4096, 16)]
_BYTES = [(*s, bits) for bits in (8, 7) for s in ((512, 512, 512), (128, 768, 3072))]
_PRUNED = [(1, 4096, 4096), (16, 1024, 1024), (128, 768, 3072), (197, 768, 768)]
_GROUPED = [(56, 128, 32), (14, 512, 32), (28, 128, 4)]
_SEED = 7
_OPSET = 20


@dataclass(frozen=True)
class Case:
    """One kernel. `flops` and `bytes` (each operand once) of a run; `flops` is 0 where bandwidth is
    the bound. `own` is the model for Stepwell, `onnx` the one for onnxruntime, with their inputs:
    images are NHWC for the one and NCHW for the other, each the layout it works in."""

    name: str
    flops: int
    bytes: int
    own: onnx.ModelProto
    own_input: np.ndarray
    onnx: onnx.ModelProto
    onnx_input: np.ndarray
    torch: Callable[[], object]
    more: dict[str, np.ndarray] = field(default_factory=dict)
    """Further inputs of both models, by name."""


def contraction(m: int, k: int, n: int, kept: float = 1.0) -> Case:
    """x[m, k] @ w[k, n] with constant weights, of which the part `kept` is not zero; torch has them
    prepacked."""
    x, w = _random(m, k), _random(k, n)
    w[np.random.default_rng(_SEED).random(w.shape) >= kept] = 0
    model = _model([helper.make_node("MatMul", ["x", "w"], ["y"])], x.shape, (m, n), {"w": w})
    packed = torch.ops.mkldnn._reorder_linear_weight(_tensor(w.T), m)
    source = torch.from_numpy(x)

    def run() -> object:
        return torch.ops.mkldnn._linear_pointwise(source, packed, None, "none", [], "")

    name = f"gemm {m}x{k}x{n}"
    if kept < 1:
        name = f"gemm of {100 * (1 - kept):.0f} % zeros {m}x{k}x{n}"
    return Case(name, 2 * m * k * n, _bytes(x, w, m * n), model, x, model, x, run)


def byte_product(m: int, k: int, n: int, bits: int) -> Case:
    """The same of bytes by signed ones of so many bits, summed in 32; torch multiplies signed bytes
    alone, and has no prepacked weights."""
    random = np.random.default_rng(_SEED)
    most = 1 << bits - 1
    x = random.integers(0, 256, (m, k)).astype(np.uint8)
    w = random.integers(-most, most, (k, n)).astype(np.int8)
    node = helper.make_node("MatMulInteger", ["x", "w"], ["y"])
    kinds = TensorProto.UINT8, TensorProto.INT32
    model = _model([node], x.shape, (m, n), {"w": w}, kinds)
    lhs, rhs = torch.from_numpy(x.view(np.int8)), torch.from_numpy(w)
    name = f"gemm of bytes by {bits} bits {m}x{k}x{n}"
    return Case(
        name, 2 * m * k * n, _bytes(x, w, m * n), model, x, model, x,
        lambda: torch.ops.aten._int_mm(lhs, rhs),
    )  # fmt: skip


def narrow_product(m: int, k: int, n: int, bits: int) -> Case:
    """x[m, k] @ w[k, n], w of 4 bits with a scale for 32 rows of a column (MatMulNBits), or of f16;
    torch has them as prepacked floats of 32 bits."""
    x, random = _random(m, k), np.random.default_rng(_SEED)
    if bits == 4:
        codes = random.integers(0, 256, (n, k // 32, 16), dtype=np.uint8)
        scales = random.uniform(0.5, 1.5, (n, k // 32)).astype(np.float32)
        narrow, moved = {"codes": codes, "scales": scales}, _bytes(codes, scales)
        inputs, domain = ["x", "codes", "scales"], "com.microsoft"
        sizes = {"K": k, "N": n, "bits": 4, "block_size": 32}
        node = helper.make_node("MatMulNBits", inputs, ["y"], domain=domain)
        node.attribute.extend(helper.make_attribute(key, value) for key, value in sizes.items())
        nodes = [node]
        low_first = np.stack([codes & 15, codes >> 4], axis=-1).reshape(n, k // 32, 32)
        w = ((low_first - np.float32(8)) * scales[..., None]).reshape(n, k)
    else:
        halves = _random(k, n).astype(np.float16)
        narrow, moved, w = {"halves": halves}, _bytes(halves), halves.astype(np.float32).T
        nodes = [
            helper.make_node("Cast", ["halves"], ["w"], to=TensorProto.FLOAT),
            helper.make_node("MatMul", ["x", "w"], ["y"]),
        ]
    model = _model(nodes, x.shape, (m, n), narrow)
    packed = torch.ops.mkldnn._reorder_linear_weight(_tensor(w), m)
    source = torch.from_numpy(x)

    def run() -> object:
        return torch.ops.mkldnn._linear_pointwise(source, packed, None, "none", [], "")

    moved += _bytes(x, m * n)
    name = f"gemm of {bits}-bit weights {m}x{k}x{n}"
    return Case(name, 2 * m * k * n, moved, model, x, model, x, run)


def convolution(
    size: int,
    channels: int,
    out: int,
    kernel: tuple[int, int],
    stride: int = 1,
    groups: int = 1,
    dilation: int = 1,
) -> Case:
    """A convolution with bias over a size x size image; torch has it prepacked, channels last."""
    image = _random(1, size, size, channels)
    weight, bias = _random(out, channels // groups, *kernel), _random(out)
    half = [dilation * (terms // 2) for terms in kernel]
    result = (size + 2 * half[0] - dilation * (kernel[0] - 1) - 1) // stride + 1
    node = helper.make_node(
        "Conv",
        ["image", "weight", "bias"],
        ["result"],
        kernel_shape=kernel,
        pads=half * 2,
        strides=[stride, stride],
        dilations=[dilation, dilation],
        group=groups,
    )
    constants = {"weight": weight, "bias": bias}
    nchw = np.ascontiguousarray(image.transpose(0, 3, 1, 2))
    node.input[0], node.output[0] = "x", "y"
    theirs = _model([node], nchw.shape, (1, out, result, result), constants)
    inner = onnx.NodeProto()
    inner.CopyFrom(node)
    inner.input[0], inner.output[0] = "image", "result"
    nodes = [
        helper.make_node("Transpose", ["x"], ["image"], perm=[0, 3, 1, 2]),
        inner,
        helper.make_node("Transpose", ["result"], ["y"], perm=[0, 2, 3, 1]),
    ]
    own = _model(nodes, image.shape, (1, result, result, out), constants)
    sizes = [half, [stride] * 2, [dilation] * 2, groups]
    packed = torch.ops.mkldnn._reorder_convolution_weight(_tensor(weight), *sizes, list(nchw.shape))
    source = torch.from_numpy(nchw).contiguous(memory_format=torch.channels_last)
    shift = torch.from_numpy(bias)

    def run() -> object:
        return torch.ops.mkldnn._convolution_pointwise(
            source, packed, shift, *sizes, "none", [], ""
        )

    kind = "depthwise" if groups == channels else "conv"
    steps = f" s{stride}" if stride > 1 else ""
    steps += f" d{dilation}" if dilation > 1 else ""
    steps += f" g{groups}" if 1 < groups < channels else ""
    name = f"{kind} {kernel[0]}x{kernel[1]}{steps} {size}x{size}x{channels}"
    name += f"->{out}" if out != channels else ""
    pixels = result * result
    flops = 2 * pixels * out * channels // groups * math.prod(kernel)
    moved = _bytes(image, weight, bias, pixels * out)
    return Case(name, flops, moved, own, image, theirs, nchw, run)


def transposed_product(m: int, k: int, n: int) -> Case:
    """x[k, m] transposed @ w[k, n], both from the call in torch, w constant in the models."""
    x, w = _random(k, m), _random(k, n)
    node = helper.make_node("Gemm", ["x", "w"], ["y"], transA=1)
    model = _model([node], x.shape, (m, n), {"w": w})
    lhs, rhs = torch.from_numpy(x).T, torch.from_numpy(w)
    return Case(
        f"gemm of a transpose {m}x{k}x{n}", 2 * m * k * n, _bytes(x, w, m * n), model, x, model, x,
        lambda: lhs @ rhs,
    )  # fmt: skip


def volume(depth: int, size: int, channels: int, kernel: int) -> Case:
    """A convolution of `depth` images; torch has channels last, the models channels first."""
    image = _random(1, channels, depth, size, size)
    weight = _random(channels, channels, kernel, kernel, kernel)
    half = kernel // 2
    node = helper.make_node(
        "Conv", ["x", "weight"], ["y"], kernel_shape=[kernel] * 3, pads=[half] * 6
    )
    model = _model([node], image.shape, image.shape, {"weight": weight})
    layout = torch.channels_last_3d
    source = torch.from_numpy(image).contiguous(memory_format=layout)
    filters = torch.from_numpy(weight).contiguous(memory_format=layout)
    return Case(
        f"conv {kernel}x{kernel}x{kernel} {depth}x{size}x{size}x{channels}",
        2 * image.size * channels * kernel**3, _bytes(image, weight, image.size),
        model, image, model, image,
        lambda: torch.nn.functional.conv3d(source, filters, padding=half),
    )  # fmt: skip


def signal(length: int, channels: int, kernel: int) -> Case:
    """A convolution along one dimension, with channels first."""
    x, weight = _random(1, channels, length), _random(channels, channels, kernel)
    half = kernel // 2
    node = helper.make_node("Conv", ["x", "weight"], ["y"], kernel_shape=[kernel], pads=[half] * 2)
    model = _model([node], x.shape, x.shape, {"weight": weight})
    source, filters = torch.from_numpy(x), torch.from_numpy(weight)
    return Case(
        f"conv {kernel} {length}x{channels}",
        2 * x.size * channels * kernel, _bytes(x, weight, x.size),
        model, x, model, x,
        lambda: torch.nn.functional.conv1d(source, filters, padding=half),
    )  # fmt: skip


def elementwise(
    name: str,
    shape: tuple[int, ...],
    nodes: list[onnx.NodeProto],
    function: Callable[[torch.Tensor], torch.Tensor],
    out: tuple[int, ...] | None = None,
    constants: dict[str, np.ndarray] | None = None,
) -> Case:
    """Something bound by bandwidth: reads its input once and writes its output once."""
    x, out = _random(*shape), out or shape
    model = _model(nodes, shape, out, constants or {})
    source = torch.from_numpy(x)
    text = "x".join(map(str, shape))
    moved = _bytes(x, math.prod(out))
    return Case(f"{name} {text}", 0, moved, model, x, model, x, lambda: function(source))


def group_norm(size: int, channels: int, groups: int) -> Case:
    """As PyTorch exports it: groups merged, normalised, and scaled a channel."""
    image = _random(1, size, size, channels)
    nchw = np.ascontiguousarray(image.transpose(0, 3, 1, 2))
    scale, shift = _random(channels), _random(channels)
    constants = {
        "merged": np.array([0, groups, -1]), "whole": np.array(nchw.shape),
        "ones": np.ones(groups, np.float32), "zeros": np.zeros(groups, np.float32),
        "scale": scale.reshape(-1, 1, 1), "shift": shift.reshape(-1, 1, 1),
    }  # fmt: skip

    def nodes(x: str, y: str) -> list[onnx.NodeProto]:
        return [
            helper.make_node("Reshape", [x, "merged"], ["m"]),
            helper.make_node("InstanceNormalization", ["m", "ones", "zeros"], ["n"]),
            helper.make_node("Reshape", ["n", "whole"], ["r"]),
            helper.make_node("Mul", ["r", "scale"], ["s"]),
            helper.make_node("Add", ["s", "shift"], [y]),
        ]

    into = helper.make_node("Transpose", ["x"], ["image"], perm=[0, 3, 1, 2])
    back = helper.make_node("Transpose", ["result"], ["y"], perm=[0, 2, 3, 1])
    own = _model([into, *nodes("image", "result"), back], image.shape, image.shape, constants)
    theirs = _model(nodes("x", "y"), nchw.shape, nchw.shape, constants)
    source, weight, bias = map(torch.from_numpy, (nchw, scale, shift))
    return Case(
        f"groupnorm {size}x{size}x{channels}",
        0, _bytes(image, image.size), own, image, theirs, nchw,
        lambda: torch.nn.functional.group_norm(source, groups, weight, bias),
    )  # fmt: skip


def attention(heads: int, queries: int, keys: int, width: int) -> Case:
    """softmax(q k / sqrt(width)) v; torch has its fused kernel."""
    q = _random(heads, queries, width)
    k, v = _random(heads, keys, width), _random(heads, keys, width)
    more = {"keys": k.transpose(0, 2, 1).copy(), "values": v}
    nodes = [
        helper.make_node("Mul", ["x", "scale"], ["scaled"]),
        helper.make_node("MatMul", ["scaled", "keys"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "values"], ["y"]),
    ]
    scale = np.array(np.float32(1 / np.sqrt(width)))
    model = _model(nodes, q.shape, q.shape, {"scale": scale}, more=more)
    query, key, value = (torch.from_numpy(array)[None] for array in (q, k, v))
    flops = 4 * heads * queries * keys * width
    return Case(
        f"attention {heads}x{queries}x{keys}x{width}",
        flops, _bytes(q, k, v, q.size), model, q, model, q,
        lambda: torch.nn.functional.scaled_dot_product_attention(query, key, value)[0], more,
    )  # fmt: skip


def makers() -> list[Callable[[], Case]]:
    """One function for each kernel, in the order of report."""
    gemms = [
        (512,) * 3,
        (1024,) * 3,
        (128, 768, 3072),
        (128, 11008, 1024),
        (16, 768, 768),
        (1, 4096, 4096),
    ]
    spatial = [(56, 64), (28, 128), (14, 256), (7, 512)]
    return [
        *(lambda s=s: contraction(*s) for s in gemms),
        *(lambda s=s: byte_product(*s) for s in _BYTES),
        *(lambda s=s: narrow_product(*s) for s in _NARROW),
        *(lambda s=s: contraction(*s, kept=0.1) for s in _PRUNED),
        *(lambda s=s, c=c: convolution(s, c, c, (3, 3)) for s, c in spatial),
        *(lambda s=s, c=c: convolution(s, c, c, (1, 1)) for s, c in ((28, 192), (14, 256))),
        lambda: transposed_product(512, 1024, 512),
        lambda: convolution(27, 64, 192, (5, 5)),
        lambda: convolution(17, 192, 192, (1, 7)),
        lambda: signal(1500, 384, 3),
        lambda: convolution(32, 256, 256, (3, 3), dilation=2),
        lambda: convolution(33, 512, 256, (3, 3), dilation=12),
        *(lambda s=s, c=c, g=g: convolution(s, c, c, (3, 3), groups=g) for s, c, g in _GROUPED),
        lambda: volume(8, 28, 128, 3),
        lambda: volume(32, 32, 32, 5),
        lambda: convolution(224, 3, 64, (7, 7), stride=2),
        *(lambda s=s, c=c, k=k: convolution(s, c, c, (k, k), groups=c) for s, c, k in _DEPTHWISE),
        *(lambda n=n: attention(12, n, n, 64) for n in (128, 512)),
        lambda: _softmax(512, 1024),
        lambda: _softmax(8, 32_000),
        _layer_norm,
        _gelu,
        lambda: group_norm(32, 320, 32),
        lambda: _transpose((512, 1024), (1, 0)),
        lambda: _transpose((128, 12, 64), (1, 0, 2)),
        lambda: _transpose((56, 56, 64), (2, 0, 1)),
        _largest_of_windows,
        _mish,
        _cosh,
        _remainder,
        _sum_of_everything,
        _top_k,
        *(lambda axis=axis: _running_sums(axis) for axis in (0, 1)),
        _spectrum,
    ]


def _softmax(rows: int, length: int) -> Case:
    node = helper.make_node("Softmax", ["x"], ["y"], axis=-1)
    return elementwise("softmax", (rows, length), [node], lambda x: torch.softmax(x, -1))


def _layer_norm() -> Case:
    scale, shift = _random(1024), _random(1024)
    weight, bias = torch.from_numpy(scale), torch.from_numpy(shift)
    node = helper.make_node("LayerNormalization", ["x", "scale", "shift"], ["y"], axis=-1)
    return elementwise(
        "layernorm",
        (512, 1024),
        [node],
        lambda x: torch.nn.functional.layer_norm(x, (1024,), weight, bias),
        constants={"scale": scale, "shift": shift},
    )


def _gelu() -> Case:
    node = helper.make_node("Gelu", ["x"], ["y"])
    return elementwise("gelu", (512, 1024), [node], torch.nn.functional.gelu)


def _largest_of_windows() -> Case:
    """As detectors pool their last features; transposed into channels last and back."""
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[5, 5], pads=[2] * 4)
    return elementwise(
        "maxpool 5x5",
        (1, 256, 40, 40),
        [node],
        lambda x: torch.nn.functional.max_pool2d(x, 5, 1, 2),
    )


def _mish() -> Case:
    node = helper.make_node("Mish", ["x"], ["y"])
    return elementwise("mish", (512, 1024), [node], torch.nn.functional.mish)


def _cosh() -> Case:
    node = helper.make_node("Cosh", ["x"], ["y"])
    return elementwise("cosh", (512, 1024), [node], torch.cosh)


def _remainder() -> Case:
    node = helper.make_node("Mod", ["x", "step"], ["y"], fmod=1)
    step = np.array(0.3, np.float32)
    constants = {"step": step}
    return elementwise(
        "fmod", (512, 1024), [node], lambda x: torch.fmod(x, 0.3), constants=constants
    )


def _sum_of_everything() -> Case:
    node = helper.make_node("ReduceSum", ["x"], ["y"], keepdims=1)
    return elementwise("sum of everything", (512, 1024), [node], lambda x: x.sum(), (1, 1))


def _top_k() -> Case:
    """What sampling takes from a vocabulary."""
    node = helper.make_node("TopK", ["x", "k"], ["y", "places"])
    constants = {"k": np.array([50], np.int64)}
    return elementwise(
        "top 50", (4, 32000), [node], lambda x: torch.topk(x, 50)[0], (4, 50), constants=constants
    )


def _running_sums(axis: int) -> Case:
    """Along rows, or along columns."""
    node = helper.make_node("CumSum", ["x", "axis"], ["y"])
    constants = {"axis": np.array(axis, np.int64)}
    return elementwise(
        f"running sums along dimension {axis}",
        (512, 512),
        [node],
        lambda x: x.cumsum(axis),
        (512, 512),
        constants=constants,
    )


def _spectrum() -> Case:
    nodes = [
        helper.make_node("Unsqueeze", ["x", "last"], ["real"]),
        helper.make_node("DFT", ["real", "", "axis"], ["y"], onesided=1),
    ]
    constants = {"last": np.array([2], np.int64), "axis": np.array(1, np.int64)}
    return elementwise(
        "rfft",
        (256, 512),
        nodes,
        lambda x: torch.view_as_real(torch.fft.rfft(x)),
        (256, 257, 2),
        constants=constants,
    )


def _transpose(shape: tuple[int, ...], order: tuple[int, ...]) -> Case:
    node = helper.make_node("Transpose", ["x"], ["y"], perm=list(order))
    out = tuple(shape[axis] for axis in order)
    name = f"transpose {''.join(map(str, order))}"
    return elementwise(name, shape, [node], lambda x: x.permute(order).contiguous(), out)


def _model(
    nodes: list[onnx.NodeProto],
    shape: tuple[int, ...],
    out: tuple[int, ...],
    constants: dict[str, np.ndarray],
    kinds: tuple[int, int] = (TensorProto.FLOAT, TensorProto.FLOAT),
    more: dict[str, np.ndarray] | None = None,
) -> onnx.ModelProto:
    """A model from `x` of `shape` to `y` of `out`; `kinds` are their types. `more` are further
    inputs, of f32."""
    inputs = {"x": (kinds[0], shape)}
    inputs |= {name: (TensorProto.FLOAT, array.shape) for name, array in (more or {}).items()}
    graph = helper.make_graph(
        nodes,
        "kernel",
        [helper.make_tensor_value_info(name, *what) for name, what in inputs.items()],
        [helper.make_tensor_value_info("y", kinds[1], out)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(_SEED).normal(size=shape).astype(np.float32)


def _tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))


def _bytes(*operands: np.ndarray | int) -> int:
    """Bytes of arrays, and of fp32 arrays given by their number of elements."""
    return sum(o.nbytes if isinstance(o, np.ndarray) else 4 * o for o in operands)
