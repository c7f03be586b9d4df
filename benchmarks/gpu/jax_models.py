"""The models of torch_models.py in jax, with the weights of their modules: what XLA runs."""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp
from torch import nn

from benchmarks.gpu.torch_models import Bert, EncoderLayer, ResNet

Weights = dict[str, jax.Array]
_EPSILON = 1e-5


def weights_of(module: nn.Module) -> Weights:
    """Parameters and statistics by torch's names; those of convolutions as [h, w, in, out]."""
    found = {}
    for name, value in module.state_dict().items():
        array = value.cpu().numpy()
        found[name] = jnp.asarray(array.transpose(2, 3, 1, 0) if array.ndim == 4 else array)
    return found


def resnet(module: ResNet) -> Callable[[Weights, jax.Array], jax.Array]:
    """ResNet of the blocks that `module` has, on images [n, channels, h, w]."""
    stages = []
    for number, block in enumerate(module.stages):
        strides = [c.stride[0] for c in block.modules() if isinstance(c, nn.Conv2d)]
        changes = any(name.startswith("shortcut.") for name, _ in block.named_parameters())
        stages.append((f"stages.{number}", max(strides), changes))

    def convolution(w: Weights, name: str, x: jax.Array, stride: int = 1) -> jax.Array:
        window = w[f"{name}.0.weight"]
        pad = window.shape[0] // 2
        names = ("NHWC", "HWIO", "NHWC")
        strides = (stride, stride)
        pads = [(pad, pad)] * 2
        x = lax.conv_general_dilated(x, window, strides, pads, dimension_numbers=names)
        norm = {n: w[f"{name}.1.{n}"] for n in ("weight", "bias", "running_mean", "running_var")}
        scale = norm["weight"] * lax.rsqrt(norm["running_var"] + _EPSILON).astype(x.dtype)
        return (x - norm["running_mean"]) * scale + norm["bias"]

    def run(w: Weights, x: jax.Array) -> jax.Array:
        x = jax.nn.relu(convolution(w, "stem", x.transpose(0, 2, 3, 1), 2))
        low = jnp.array(-jnp.inf, x.dtype)
        pads = ((0, 0), (1, 1), (1, 1), (0, 0))
        x = lax.reduce_window(x, low, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), pads)
        for name, stride, changes in stages:
            inner = jax.nn.relu(convolution(w, f"{name}.reduce", x))
            inner = jax.nn.relu(convolution(w, f"{name}.spatial", inner, stride))
            inner = convolution(w, f"{name}.expand", inner)
            x = convolution(w, f"{name}.shortcut", x, stride) if changes else x
            x = jax.nn.relu(inner + x)
        return _linear(w, "head", x.mean((1, 2)))

    return run


def bert(module: Bert) -> Callable[[Weights, jax.Array], jax.Array]:
    """BERT of the layers that `module` has, on numbers of tokens."""
    layers = [layer for layer in module.layers if isinstance(layer, EncoderLayer)]

    def encode(w: Weights, name: str, heads: int, x: jax.Array) -> jax.Array:
        batch, length, width = x.shape
        parts = _linear(w, f"{name}.qkv", x).reshape(batch, length, 3, heads, width // heads)
        q, k, v = (parts[:, :, i] for i in range(3))
        mixed = jax.nn.dot_product_attention(q, k, v)
        mixed = _linear(w, f"{name}.mix", mixed.reshape(x.shape))
        x = _norm(w, f"{name}.norm_1", x + mixed)
        wide = jax.nn.gelu(_linear(w, f"{name}.up", x), approximate=False)
        return _norm(w, f"{name}.norm_2", x + _linear(w, f"{name}.down", wide))

    def run(w: Weights, ids: jax.Array) -> jax.Array:
        embedded = w["tokens.weight"][ids] + w["positions.weight"][: ids.shape[1]]
        x = _norm(w, "norm", embedded)
        for number, layer in enumerate(layers):
            x = encode(w, f"layers.{number}", layer.heads, x)
        return x

    return run


def _linear(w: Weights, name: str, x: jax.Array) -> jax.Array:
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def _norm(w: Weights, name: str, x: jax.Array) -> jax.Array:
    wide = x.astype(np.float32)
    mean = wide.mean(-1, keepdims=True)
    variance = jnp.square(wide - mean).mean(-1, keepdims=True)
    normal = ((wide - mean) * lax.rsqrt(variance + _EPSILON)).astype(x.dtype)
    return normal * w[f"{name}.weight"] + w[f"{name}.bias"]


def function(module: nn.Module) -> Callable[[Weights, jax.Array], jax.Array]:
    """The model that `module` is, as a function of its weights and its input."""
    if isinstance(module, ResNet):
        return resnet(module)
    assert isinstance(module, Bert)
    return bert(module)
