"""Linear models of ai.onnx.ml: LinearRegressor, LinearClassifier."""

from __future__ import annotations

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.classification import post_transform, rows_of, select_labels
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import operator
from stepwell.mlir import ir

_DOMAIN = "ai.onnx.ml"


def _affine(node: Node, x: Tensor, targets: int) -> ir.Value:
    """`x @ coefficients' + intercepts`: [N, targets]."""
    value = rows_of(x)
    weights = np.array(node.numbers("coefficients", []), np.float32)
    if weights.size != targets * hlo.shape(value)[1]:
        node.unsupported(
            f"{weights.size} coefficients do not fit {list(x.shape)} and {targets} targets"
        )
    matrix = node.constant(weights.reshape(targets, -1), "coefficients")
    scores = hlo.dot_general(value, matrix, ([1], [1]))
    intercepts = np.array(node.numbers("intercepts", []), np.float32)
    if not intercepts.size:
        return scores
    row = node.constant(np.broadcast_to(intercepts, (targets,)), "intercepts")
    return hlo.add(scores, hlo.broadcast_in_dim(row, hlo.shape(scores), [1]))


@operator("LinearRegressor", domain=_DOMAIN)
def linear_regressor(node: Node, x: Tensor) -> ir.Value:
    scores = _affine(node, x, node.integer("targets", 1))
    return post_transform(scores, node.text("post_transform", "NONE"))


@operator("LinearClassifier", domain=_DOMAIN)
def linear_classifier(node: Node, x: Tensor) -> list[ir.Value]:
    """Labels and scores. One row of coefficients for two classes: the scores are -s and s."""
    labels = node.integers("classlabels_ints", [])
    if not labels:
        node.unsupported("its class labels are strings; only integer labels are supported")
    transform = node.text("post_transform", "NONE")
    columns = x.shape[-1]
    count = len(node.numbers("coefficients", [])) // max(columns, 1)
    scores = _affine(node, x, count)
    if count == 1 and len(labels) == 2:
        scores = hlo.concatenate([hlo.negate(scores), scores], 1)
    elif count == 1:
        transformed = post_transform(scores, transform)
        limit = hlo.full_like(scores, 0.0 if transform == "NONE" else 0.5)
        hit = hlo.reshape(hlo.compare(transformed, limit, "GE"), [hlo.shape(scores)[0]])
        first, zero = (hlo.full(v, hlo.shape(hit), np.int64) for v in (labels[0], 0))
        return [hlo.select(hit, first, zero), transformed]
    return [select_labels(node, scores, labels), post_transform(scores, transform)]
