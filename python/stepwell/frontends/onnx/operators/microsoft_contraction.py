"""Matrix products of domain com.microsoft: fused, quantized, and with packed weights."""

from __future__ import annotations

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.dialects.narrow_weights import ROUNDABLE
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.operators.contraction import matmul, matmul_integer
from stepwell.frontends.onnx.operators.quantization import dynamic_quantize_linear
from stepwell.frontends.onnx.registry import operator
from stepwell.frontends.onnx.shaping import broadcast
from stepwell.mlir import ir

_DOMAIN = "com.microsoft"

_ROUNDED_LEVELS = (3, 4)
"""Levels of accuracy at which rounding to bfloat16 is no worse than what is asked for."""


@operator("FusedMatMul", domain=_DOMAIN)
def fused_matmul(node: Node, a: Tensor, b: Tensor) -> ir.Value:
    """`alpha * A' @ B'`, the last two dimensions swapped by transA and transB."""
    if node.integer("transBatchA", 0) or node.integer("transBatchB", 0):
        node.unsupported("transBatchA and transBatchB are not supported")
    left, right = (
        _swapped(t) if node.integer(name, 0) and t.rank > 1 else t
        for t, name in ((a, "transA"), (b, "transB"))
    )
    product = matmul(node, left, right)
    alpha = node.number("alpha", 1.0)
    return product if alpha == 1 else hlo.multiply(product, hlo.full_like(product, alpha))


def _swapped(x: Tensor) -> Tensor:
    if x.array is not None:
        return x.scope.constant(np.swapaxes(x.array, -1, -2), x.name)
    order = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    return x.scope.tensor(hlo.transpose(x.value, order), x.name)


@operator("MatMulIntegerToFloat", domain=_DOMAIN)
def matmul_integer_to_float(
    node: Node,
    a: Tensor,
    b: Tensor,
    a_scale: Tensor,
    b_scale: Tensor,
    a_zero: Tensor | None = None,
    b_zero: Tensor | None = None,
    bias: Tensor | None = None,
) -> ir.Value:
    """`(a - a_zero) * a_scale @ (b - b_zero) * b_scale + bias`; b's scale may be one a column."""
    product = matmul_integer(node, a, b, _scalar(a_zero), b_zero)
    shape = hlo.shape(product)
    scales = [broadcast(s if s.size > 1 else _as_scalar(s), shape) for s in (a_scale, b_scale)]
    value = hlo.multiply(hlo.convert(product, a_scale.dtype), hlo.multiply(*scales))
    return value if bias is None else hlo.add(value, broadcast(bias, shape))


@operator("DynamicQuantizeMatMul", domain=_DOMAIN)
def dynamic_quantize_matmul(
    node: Node,
    a: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor | None = None,
    bias: Tensor | None = None,
) -> ir.Value:
    """MatMulIntegerToFloat with a quantized by DynamicQuantizeLinear."""
    names = (a.name, f"{a.name}.scale", f"{a.name}.zero_point")
    quantized, scale, zero = (
        node.scope.tensor(value, name)
        for value, name in zip(dynamic_quantize_linear(node, a), names, strict=True)
    )
    return matmul_integer_to_float(node, quantized, b, scale, b_scale, zero, b_zero, bias)


def _scalar(x: Tensor | None) -> Tensor | None:
    if x is None or x.size > 1:
        return x
    return x.scope.tensor(_as_scalar(x), x.name)


def _as_scalar(x: Tensor) -> ir.Value:
    return hlo.reshape(x.value, [])


# --- Packed weights ------------------------------------------------------------------------------


@operator("MatMulNBits", domain=_DOMAIN)
def matmul_packed(
    node: Node,
    a: Tensor,
    b: Tensor,
    scales: Tensor,
    zero_points: Tensor | None = None,
    group_index: Tensor | None = None,
    bias: Tensor | None = None,
) -> ir.Value:
    """`a [.., K] @ weights' + bias`, the weights [N, K] packed in b [N, blocks, bytes], low bits
    first, with a scale and a zero point a block. A byte holds each in StableHLO. With an
    `accuracy_level` of 3 (bfloat16) or 4 (8 bits), a may be rounded."""
    k, n = node.integer("K", 0), node.integer("N", 0)
    bits, block = node.integer("bits", 4), node.integer("block_size", 0)
    if bits not in (2, 4, 8):
        node.unsupported(f"{bits} bits are not supported; 2, 4 and 8 are")
    if group_index is not None and group_index.size:
        node.unsupported("g_idx is not supported")
    if min(k, n, block) < 1:
        node.unsupported(f"K {k}, N {n} and block_size {block} have to be positive")
    if not a.rank or a.shape[-1] != k:
        node.unsupported(f"an input of shape {list(a.shape)} does not fit K {k}")
    blocks = -(-k // block)
    _check_size(node, "weights", b, n * blocks * (block * bits // 8))
    _check_size(node, "scales", scales, n * blocks)
    codes = node.constant(
        unpacked(node.known(b, "weights").reshape(n, blocks, -1), bits), b.name or "weights"
    )
    factors = hlo.convert(hlo.reshape(scales.value, [n, blocks]), np.float32)
    zero = hlo.full(1 << (bits - 1), [n, blocks], np.dtype(np.float32))
    if zero_points is not None and zero_points.dtype == np.uint8:
        _check_size(node, "zero points", zero_points, n * -(-blocks * bits // 8))
        zeros = unpacked(node.known(zero_points, "zero points").reshape(n, -1), bits)[:, :blocks]
        zero = node.constant(zeros.astype(np.float32), "zero_points")
    elif zero_points is not None:
        _check_size(node, "zero points", zero_points, n * blocks)
        zero = hlo.convert(hlo.reshape(zero_points.value, [n, blocks]), np.float32)
    wide = hlo.convert(codes, np.float32)
    shape = hlo.shape(wide)
    wide = hlo.subtract(wide, hlo.broadcast_in_dim(zero, shape, [0, 1]))
    wide = hlo.multiply(wide, hlo.broadcast_in_dim(factors, shape, [0, 1]))
    matrix = hlo.slice(hlo.reshape(wide, [n, blocks * block]), [0, 0], [n, k])
    product = hlo.dot_general(
        a.value, hlo.convert(hlo.transpose(matrix, [1, 0]), a.dtype), ([a.rank - 1], [0])
    )
    if node.integer("accuracy_level", 0) in _ROUNDED_LEVELS:
        product.owner.attributes[ROUNDABLE] = ir.UnitAttr.get()
    return product if bias is None else hlo.add(product, broadcast(bias, hlo.shape(product)))


def _check_size(node: Node, role: str, tensor: Tensor, size: int) -> None:
    if tensor.size != size:
        node.unsupported(f"{role} of shape {list(tensor.shape)} are not {size} numbers")


def unpacked(data: np.ndarray, bits: int) -> np.ndarray:
    """Numbers of `bits` bits from bytes, along the last dimension, low bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = (data[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return parts.reshape(*data.shape[:-1], -1)
