"""The `light` topologies inside the onnx package, with seeded random weights in place of their
constant ones. References come from onnxruntime without any optimisation."""

# pyright: reportMissingImports=false
from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper, version_converter

from benchmarks.models.catalog import SEED, ModelFiles
from benchmarks.models.work import gflop, weights_bytes

_OPSET = 17
_LARGEST_LOGIT_DEVIATION = 2.0


def make(files: ModelFiles) -> None:
    """Write the model, its inputs and its references."""
    generator = np.random.default_rng(SEED)
    folder = Path(onnx.__file__).parent / "backend/test/data/light"
    model = with_random_weights(onnx.load(folder / f"{files.name}.onnx"), generator)
    inputs = {
        value.name: generator.normal(
            size=[d.dim_value for d in value.type.tensor_type.shape.dim]
        ).astype(np.float32)
        for value in model.graph.input
    }
    soften(model, inputs)
    onnx.save(model, files.path)
    files.write_data(
        inputs,
        run_plainly(model, None, inputs),
        gflop=gflop(model),
        weights_bytes=weights_bytes(model),
    )


def with_random_weights(model: onnx.ModelProto, generator: np.random.Generator) -> onnx.ModelProto:
    """The model at opset 17 with each ConstantOfShape weight as a random initializer."""
    graph = model.graph
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    roles = _roles(graph)
    nodes, weights = [], []
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in stored:
            name = node.output[0]
            shape = tuple(int(size) for size in stored[node.input[0]])
            value = _weight(*roles.get(name, ("", 0)), shape, generator)
            weights.append(numpy_helper.from_array(value.astype(np.float32), name))
        else:
            nodes.append(node)
    used = {name for node in nodes for name in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in used] + weights
    constants = {tensor.name for tensor in kept}
    inputs = [v for v in graph.input if v.name in used and v.name not in constants]
    result = helper.make_model(
        helper.make_graph(nodes, graph.name, inputs, graph.output, kept),
        opset_imports=model.opset_import,
        ir_version=max(model.ir_version, 4),
    )
    return version_converter.convert_version(result, _OPSET)


def _roles(graph: onnx.GraphProto) -> dict[str, tuple[str, int]]:
    """For each value, an operator that takes it, and at which position."""
    roles = {name: (node.op_type, i) for node in graph.node for i, name in enumerate(node.input)}
    for node in graph.node:
        if node.op_type == "Unsqueeze":
            roles[node.input[0]] = roles.get(node.output[0], ("", 0))
    return roles


def _weight(
    operator: str, position: int, shape: tuple[int, ...], generator: np.random.Generator
) -> np.ndarray:
    """Values that keep activations in range: scales and variances around one, small shifts, and
    He initialisation (https://arxiv.org/abs/1502.01852) for what is multiplied and summed."""
    is_scale = operator == "Mul" or (operator == "BatchNormalization" and position in (1, 4))
    if is_scale:
        return generator.uniform(0.5, 1.5, shape)
    if operator == "BatchNormalization":
        return generator.normal(0, 0.1, shape)
    if len(shape) > 1:
        return generator.normal(0, math.sqrt(2 / max(1, math.prod(shape[1:]))), shape)
    return generator.normal(0, 0.02, shape)


def soften(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> None:
    """Scale the last layer so that a closing softmax is not one-hot: errors would not show."""
    graph = model.graph
    if graph.node[-1].op_type != "Softmax":
        return
    layer = [node for node in graph.node if node.op_type in ("Gemm", "Conv")][-1]
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    probe.graph.output.append(helper.make_empty_tensor_value_info(layer.output[0]))
    deviation = float(run_plainly(probe, [layer.output[0]], inputs)[0].std())
    if deviation <= _LARGEST_LOGIT_DEVIATION:
        return
    for tensor in graph.initializer:
        if tensor.name in layer.input[1:]:
            scaled = numpy_helper.to_array(tensor) * (_LARGEST_LOGIT_DEVIATION / deviation)
            tensor.CopyFrom(numpy_helper.from_array(scaled.astype(np.float32), tensor.name))


def run_plainly(
    model: onnx.ModelProto, outputs: list[str] | None, inputs: dict[str, np.ndarray]
) -> list[np.ndarray]:
    """The outputs by onnxruntime's plain kernels, no graph optimisation."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return [np.asarray(value) for value in session.run(outputs, inputs)]
