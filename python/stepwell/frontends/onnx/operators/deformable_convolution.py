"""DeformConv: a convolution whose kernel reads at shifted, weighted positions."""

from __future__ import annotations

import math

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx import sampling
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import operator
from stepwell.frontends.onnx.shaping import along
from stepwell.frontends.onnx.windows import read_window
from stepwell.mlir import ir


@operator("DeformConv")
def deform_conv(
    node: Node,
    x: Tensor,
    w: Tensor,
    offset: Tensor,
    b: Tensor | None = None,
    mask: Tensor | None = None,
) -> ir.Value:
    """x is read at every kernel element of every place, linearly, zero outside; then one product.

    x [N, C, sizes...], w [M, C/group, kernel...], offset [N, offset groups * elements * rank,
    places...], mask [N, offset groups * elements, places...].
    """
    batch, channels, *sizes = x.shape
    rank, outputs, kernel = len(sizes), w.shape[0], w.shape[2:]
    groups, shared = node.integer("group", 1), node.integer("offset_group", 1)
    window = read_window(node, list(kernel), sizes)
    window.require_room(node, sizes)
    elements, places = math.prod(kernel), window.places(sizes)
    fits = min(groups, shared) >= 1 and w.rank == x.rank and w.shape[1] * groups == channels
    if not fits or channels % shared or outputs % groups:
        node.unsupported(
            f"the kernel {list(w.shape)} does not fit the input {list(x.shape)} in {groups} "
            f"groups, {shared} groups of offsets"
        )
    for tensor, count in ((offset, shared * elements * rank), (mask, shared * elements)):
        wanted = [batch, count, *places]
        if tensor is not None and list(tensor.shape) != wanted:
            node.unsupported(f'"{tensor.name}" {list(tensor.shape)} should be {wanted}')
    wide = np.dtype(np.float32 if x.dtype.itemsize < 4 else x.dtype)
    points = elements * math.prod(places)
    shifts = hlo.reshape(
        hlo.convert(offset.value, wide), [batch * shared, elements, rank, math.prod(places)]
    )
    taps: list[list[sampling.Tap]] = []
    for d in range(rank):
        base = np.add.outer(
            np.indices(kernel)[d].reshape(-1) * window.dilations[d] - window.padding[d][0],
            np.indices(places)[d].reshape(-1) * window.strides[d],
        )
        shift = hlo.slice(
            shifts, [0, 0, d, 0], [batch * shared, elements, d + 1, math.prod(places)]
        )
        shift = hlo.reshape(shift, [batch * shared, points])
        start = node.constant(base.reshape(-1).astype(wide), f"positions_{d}")
        taps.append(sampling.linear_taps(hlo.add(shift, along(start, 1, hlo.shape(shift)))))
    each = channels // shared
    rows = hlo.reshape(hlo.convert(x.value, wide), [batch * shared, each, math.prod(sizes)])
    rows = hlo.transpose(rows, [0, 2, 1])
    columns = sampling.interpolate(rows, sizes, taps, sampling.pad_with_zeros)
    if mask is not None:
        factors = hlo.reshape(hlo.convert(mask.value, wide), [batch * shared, points])
        columns = hlo.multiply(columns, hlo.broadcast_in_dim(factors, hlo.shape(columns), [0, 1]))
    # [N * offset groups, elements * places, C / offset groups] to [N, groups, C / group, ...]
    columns = hlo.transpose(columns, [0, 2, 1])
    columns = hlo.reshape(columns, [batch, groups, channels // groups, elements, math.prod(places)])
    weights = hlo.reshape(
        hlo.convert(w.value, wide), [groups, outputs // groups, channels // groups, elements]
    )
    product = hlo.dot_general(weights, columns, ([2, 3], [2, 3]), ([0], [1]))
    result = hlo.reshape(hlo.transpose(product, [2, 0, 1, 3]), [batch, outputs, *places])
    if b is not None:
        result = hlo.add(result, hlo.convert(along(b, 1, hlo.shape(result)), wide))
    return hlo.convert(result, x.dtype)
