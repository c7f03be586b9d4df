"""Compile-time evaluation of nodes whose inputs are all constants, by onnx's own evaluator."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from stepwell.frontends.onnx.node import Node, Tensor

LIMIT_BYTES = 1 << 20
"""Constants above this size are left to the constant folder of the StableHLO level."""

_RANDOM = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial",
           "Bernoulli")  # fmt: skip
_CONTROL_FLOW = ("If", "Loop", "Scan")

_KEEPS_FILLED = ("Add", "Cast", "Div", "Identity", "Mul", "Sub", "Unsqueeze")
"""Operators that give one number throughout for such inputs."""

_LEAST_CAST = 1 << 16
"""Elements of a matrix of weights that is worth keeping as narrow as it is stored."""

_NARROW = tuple(
    np.dtype(kind)
    for kind in (
        np.int8,
        np.uint8,
        ml_dtypes.int4,
        ml_dtypes.uint4,
        ml_dtypes.int2,
        ml_dtypes.uint2,
        np.float16,
        ml_dtypes.bfloat16,
    )
)


def evaluate(node: Node, inputs: Sequence[Tensor | None]) -> list[np.ndarray] | None:
    """The outputs of `node` when its inputs are small constants; None when they are not."""
    if node.operator in _RANDOM or node.operator in _CONTROL_FLOW or not inputs:
        return None
    if _may_be_weights(node, inputs[0]):
        return None
    arrays = [None if tensor is None else tensor.known for tensor in inputs]
    present = [tensor for tensor in inputs if tensor is not None]
    if any(tensor.known is None for tensor in present):
        return None
    if sum(tensor.size * tensor.dtype.itemsize for tensor in present) > LIMIT_BYTES:
        return None
    try:
        results = _evaluator(node).run(
            None,
            {
                name: array
                for name, array in zip(node.proto.input, arrays, strict=True)
                if array is not None
            },
        )
    except Exception:  # the evaluator raises anything; the operator's own function decides
        return None
    if not isinstance(results, list) or not all(
        isinstance(r, (np.ndarray, np.generic)) for r in results
    ):
        return None
    folded = [np.asarray(result) for result in results]
    return folded if sum(result.nbytes for result in folded) <= LIMIT_BYTES else None


def is_filled(node: Node, inputs: Sequence[Tensor | None]) -> bool:
    """Whether constants that `node` gives are one number throughout because it repeats a number."""
    if node.operator in ("ConstantOfShape", "Expand"):
        return True
    present = [tensor for tensor in inputs if tensor is not None]
    alike = all(tensor.is_filled or tensor.size == 1 for tensor in present)
    return node.operator in _KEEPS_FILLED and alike and any(t.is_filled for t in present)


def is_of_blocks(node: Node, inputs: Sequence[Tensor | None]) -> bool:
    """Whether `node` joins blocks of a number each, or reads what is made of such. Where these end
    depends on their shapes, which may be open: it is no constant."""
    blocks = [tensor is not None and tensor.is_filled for tensor in inputs]
    joins = node.operator == "Concat" and len(blocks) > 1 and all(blocks)
    return joins or any(t is not None and t.blocks is not None for t in inputs)


def _may_be_weights(node: Node, x: Tensor | None) -> bool:
    """Whether the StableHLO level looks for products with such numbers, before it folds them."""
    if x is None or x.rank < 2 or x.dtype not in _NARROW:
        return False
    if node.operator == "Cast":
        return x.size >= _LEAST_CAST
    return node.operator == "DequantizeLinear"


def _evaluator(node: Node) -> ReferenceEvaluator:
    undefined = onnx.TypeProto()
    graph = onnx.helper.make_graph(
        [node.proto],
        "folded",
        [onnx.helper.make_value_info(n, undefined) for n in dict.fromkeys(node.proto.input) if n],
        [onnx.helper.make_value_info(n, undefined) for n in node.proto.output if n],
    )
    opset = onnx.helper.make_opsetid(node.proto.domain, node.opset)
    return ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=[opset]))
