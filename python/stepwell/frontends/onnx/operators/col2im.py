"""Col2Im: overlapping blocks added up to an image."""

from __future__ import annotations

import itertools

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import operator
from stepwell.frontends.onnx.windows import Window, read_pads, read_steps, require_positive
from stepwell.mlir import ir


@operator("Col2Im")
def col2im(node: Node, x: Tensor, image_shape: Tensor, block_shape: Tensor) -> ir.Value:
    """x [N, C * block elements, blocks] to [N, C, image...].

    Element k of all blocks lies on a grid of the image whose spacing is the strides: a padded
    tensor each, and the image is their sum.
    """
    image = [int(n) for n in node.known(image_shape, "image_shape")]
    block = [int(n) for n in node.known(block_shape, "block_shape")]
    rank = len(image)
    require_positive(node, "block_shape", block, rank)
    strides, dilations = read_steps(node, rank)
    window = Window(block, strides, dilations, read_pads(node, rank))
    window.require_room(node, image)
    counts = window.places(image)
    elements = int(np.prod(block))
    if x.rank != 3 or x.shape[1] % elements or x.shape[2] != int(np.prod(counts)):
        node.unsupported(
            f"the input {list(x.shape)} does not hold {counts} blocks of {block} elements"
        )
    batch, channels = x.shape[0], x.shape[1] // elements
    columns = hlo.reshape(x.value, [batch, channels, elements, *counts])
    zero = hlo.full(0, [], x.dtype)
    total: ir.Value | None = None
    for k, offsets in enumerate(itertools.product(*map(range, block))):
        plane = hlo.slice(columns, [0, 0, k, *[0] * rank], [batch, channels, k + 1, *counts])
        plane = hlo.reshape(plane, [batch, channels, *counts])
        low = [offset * dilations[d] - window.padding[d][0] for d, offset in enumerate(offsets)]
        high = [image[d] - low[d] - (counts[d] - 1) * strides[d] - 1 for d in range(rank)]
        interior = [s - 1 for s in strides]
        spread = hlo.pad(plane, zero, [0, 0, *low], [0, 0, *high], [0, 0, *interior])
        total = spread if total is None else hlo.add(total, spread)
    return hlo.full(0, [batch, channels, *image], x.dtype) if total is None else total
