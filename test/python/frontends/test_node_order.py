"""Graphs whose nodes are in no order, as onnxruntime's conversion to float16 leaves them."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import stepwell


def test_nodes_in_any_order():
    """Also what a branch reads of the graph around it comes first."""
    branch = helper.make_graph(
        [helper.make_node("Mul", ["doubled", "doubled"], ["squared"])],
        "branch",
        [],
        [helper.make_tensor_value_info("squared", TensorProto.FLOAT, [3])],
    )
    other = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["same"])],
        "other",
        [],
        [helper.make_tensor_value_info("same", TensorProto.FLOAT, [3])],
    )
    nodes = [
        helper.make_node("Neg", ["chosen"], ["y"]),
        helper.make_node("If", ["yes"], ["chosen"], then_branch=branch, else_branch=other),
        helper.make_node("Greater", ["sum", "zero"], ["yes"]),
        helper.make_node("ReduceSum", ["doubled"], ["sum"], keepdims=0),
        helper.make_node("Add", ["x", "x"], ["doubled"]),
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])],
        [numpy_helper.from_array(np.float32(0), "zero")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    executable = stepwell.compile(model)
    for sign in (1, -1):
        x = np.array([sign, 2 * sign, 3 * sign], np.float32)
        (y,) = executable(x)
        np.testing.assert_array_equal(y, -4 * x * x if sign > 0 else -x)
    assert [node.op_type for node in model.graph.node] == [node.op_type for node in nodes]
