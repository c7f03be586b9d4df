"""FlexAttention: attention whose scores and probabilities pass through subgraphs."""

from __future__ import annotations

import math

import numpy as np
import onnx

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import operator
from stepwell.frontends.onnx.shaping import broadcast, reduce
from stepwell.mlir import ir


@operator("FlexAttention", domain="ai.onnx.preview")
def flex_attention(node: Node, q: Tensor, k: Tensor, v: Tensor) -> ir.Value:
    """`prob_mod(softmax(score_mod(scale * Q K'))) V`, all of [batch, heads, sequence, size].

    Query heads share the keys and values of their group; the scale goes to both factors in halves.
    """
    if not q.rank == k.rank == v.rank == 4:
        node.unsupported("query, key and value have to be of rank 4")
    batch, heads, length, size = q.shape
    shared, keys = k.shape[1:3]
    if shared == 0 or heads % shared or v.shape[1:3] != (shared, keys) or k.shape[3] != size:
        node.unsupported(
            f"the shapes {list(q.shape)}, {list(k.shape)} and {list(v.shape)} of query, key and "
            "value do not belong together"
        )
    group = heads // shared
    scale = node.number("scale", 1 / math.sqrt(size))
    wide = _softmax_type(node, q.dtype)

    def scaled(x: ir.Value) -> ir.Value:
        return hlo.multiply(x, hlo.full_like(x, math.sqrt(scale)))

    queries = hlo.reshape(scaled(q.value), [batch, shared, group * length, size])
    of_heads = ([0, 1], [0, 1])
    scores = hlo.dot_general(queries, scaled(k.value), ([3], [3]), of_heads)
    scores = hlo.convert(hlo.reshape(scores, [batch, heads, length, keys]), wide)
    scores = _modified(node, "score_mod", scores, wide)
    shape = hlo.shape(scores)
    centred = hlo.subtract(scores, broadcast(reduce(scores, [3], "maximum"), shape))
    exponential = hlo.exponential(centred)
    total = broadcast(reduce(exponential, [3], "add"), shape)
    probabilities = _modified(node, "prob_mod", hlo.divide(exponential, total), wide)
    grouped = hlo.reshape(probabilities, [batch, shared, group * length, keys])
    result = hlo.dot_general(grouped, hlo.convert(v.value, wide), ([3], [2]), of_heads)
    return hlo.convert(hlo.reshape(result, [batch, heads, length, v.shape[3]]), v.dtype)


def _softmax_type(node: Node, kind: np.dtype) -> np.dtype:
    code = node.integer("softmax_precision", 0)
    if code:
        return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(code))
    return np.dtype(np.float32) if kind.itemsize < 4 else kind


def _modified(node: Node, name: str, value: ir.Value, wide: np.dtype) -> ir.Value:
    """`value` through the subgraph `name`, where the node has it."""
    if name not in node:
        return value
    (result,) = node.inline(name, [node.scope.tensor(value, f"{node.name}.{name}")])
    if not isinstance(result, Tensor) or result.shape != hlo.shape(value):
        node.unsupported(f"its subgraph {name} does not keep the shape {list(hlo.shape(value))}")
    return hlo.convert(result.value, wide)
