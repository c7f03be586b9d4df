"""How much work an ONNX model is."""

from __future__ import annotations

import math

import onnx
from onnx import helper


def gflop(model: onnx.ModelProto) -> float:
    """10^9 floating-point operations (a multiply-add is two) of the convolutions and matrix
    products of one run, from inferred static shapes."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    shapes = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.value_info, *graph.input, *graph.output):
        shapes[value.name] = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    total = 0
    for node in graph.node:
        first = shapes.get(node.input[0], []) if node.input else []
        out = shapes.get(node.output[0], [])
        match node.op_type:
            case "Conv":
                total += 2 * math.prod(out) * math.prod(shapes[node.input[1]][1:])
            case "ConvTranspose":
                total += 2 * math.prod(first) * math.prod(shapes[node.input[1]][1:])
            case "MatMul":
                total += 2 * math.prod(out) * first[-1]
            case "Gemm":
                attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
                total += 2 * math.prod(out) * first[0 if attributes.get("transA") else 1]
            case "LSTM":
                weights = sum(math.prod(shapes[name]) for name in node.input[1:3])
                total += 2 * math.prod(first[:2]) * weights
    return total / 1e9


def weights_bytes(model: onnx.ModelProto) -> int:
    """The bytes of all initializers."""
    return sum(
        math.prod(tensor.dims) * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
        for tensor in model.graph.initializer
    )
