"""Lookups of domain com.microsoft."""

from __future__ import annotations

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.operators.indexing import taken_slices
from stepwell.frontends.onnx.operators.microsoft_contraction import unpacked
from stepwell.frontends.onnx.registry import operator
from stepwell.frontends.onnx.shaping import normalize_axis
from stepwell.mlir import ir


@operator("GatherBlockQuantized", domain="com.microsoft")
def gather_block_quantized(
    node: Node,
    data: Tensor,
    indices: Tensor,
    scales: Tensor,
    zero_points: Tensor | None = None,
) -> ir.Value:
    """Gather along `gather_axis`, then `(data - zero_points) * scales`, one of each for a block of
    `block_size` along `quantize_axis`. Bytes hold one number of 8 bits or two of 4, low bits first;
    their zero point is the middle where none is given."""
    axis = normalize_axis(node.integer("gather_axis", 0), data.rank)
    blocked = normalize_axis(node.integer("quantize_axis", 1), data.rank)
    block, bits = node.integer("block_size", 128), node.integer("bits", 4)
    if block < 1 or bits not in (2, 4, 8):
        node.unsupported(f"blocks of {block} numbers of {bits} bits are not supported")
    if axis == blocked:
        node.unsupported("gather_axis and quantize_axis are the same")
    in_bytes = data.dtype == np.uint8
    parameters = {"data": data, "zero_points": zero_points}
    if in_bytes and bits < 8:
        parameters = {
            role: None if t is None else _unpacked(node, t, role, bits)
            for role, t in parameters.items()
        }
    codes, zeros = parameters["data"], parameters["zero_points"]
    assert codes is not None
    sizes = [-(-n // block) if d == blocked else n for d, n in enumerate(codes.shape)]
    if zeros is not None and zeros.shape != tuple(sizes):
        # Bytes are padded where blocks are of an odd number.
        zeros = node.constant_tensor(
            node.known(zeros, "zero_points")[tuple(map(slice, sizes))], "zero_points"
        )
    if scales.shape != tuple(sizes):
        node.unsupported(f"scales of shape {list(scales.shape)} do not fit {list(codes.shape)}")

    def taken(tensor: Tensor) -> ir.Value:
        return hlo.convert(taken_slices(tensor, indices, axis), np.float32)

    wide = taken(codes)
    shape = hlo.shape(wide)
    place = blocked + (indices.rank - 1 if blocked > axis else 0)

    def spread(value: ir.Value) -> ir.Value:
        small = hlo.shape(value)
        kept = [d for d in range(len(small) + 1) if d != place + 1]
        repeated = [*small[: place + 1], block, *small[place + 1 :]]
        merged = [n * block if d == place else n for d, n in enumerate(small)]
        full = hlo.reshape(hlo.broadcast_in_dim(value, repeated, kept), merged)
        return hlo.slice(full, [0] * len(shape), shape)

    if zeros is not None:
        wide = hlo.subtract(wide, spread(taken(zeros)))
    elif in_bytes:
        wide = hlo.subtract(wide, hlo.full_like(wide, 1 << (bits - 1)))
    return hlo.convert(hlo.multiply(wide, spread(taken(scales))), scales.dtype)


def _unpacked(node: Node, tensor: Tensor, role: str, bits: int) -> Tensor:
    return node.constant_tensor(unpacked(node.known(tensor, role), bits), role)
