"""Linear and kernel models of ai.onnx.ml: LinearRegressor, LinearClassifier, SVMRegressor."""

from __future__ import annotations

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.classification import post_transform, select_labels
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import operator
from stepwell.frontends.onnx.shaping import reduce
from stepwell.mlir import ir

_DOMAIN = "ai.onnx.ml"


def _rows(x: Tensor) -> ir.Value:
    """x as a matrix [N, C] of float32; a vector is one row."""
    value = hlo.convert(x.value, np.float32)
    return hlo.reshape(value, [1, *x.shape]) if x.rank == 1 else value


def _affine(node: Node, x: Tensor, targets: int) -> ir.Value:
    """`x @ coefficients' + intercepts`: [N, targets]."""
    value = _rows(x)
    weights = np.array(node.numbers("coefficients", []), np.float32)
    if x.rank > 2 or weights.size != targets * hlo.shape(value)[1]:
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


@operator("SVMRegressor", domain=_DOMAIN)
def svm_regressor(node: Node, x: Tensor) -> ir.Value:
    """`sum of coefficient * kernel(x, support vector) + rho`; the sign of it with `one_class`."""
    value = _rows(x)
    rows, columns = hlo.shape(value)
    weights = np.array(node.numbers("coefficients", []), np.float32)
    supports = node.integer("n_supports", 0)
    if supports:
        vectors = np.array(node.numbers("support_vectors", []), np.float32)
        if vectors.size != supports * columns:
            node.unsupported(f"the support vectors do not fit {list(x.shape)}")
        value = _kernel(node, value, vectors.reshape(supports, columns))
    rho = node.numbers("rho", [0.0])[0]
    scores = hlo.dot_general(value, node.constant(weights, "coefficients"), ([1], [0]))
    scores = hlo.reshape(hlo.add(scores, hlo.full_like(scores, rho)), [rows, 1])
    if node.integer("one_class", 0):
        above = hlo.compare(scores, hlo.full_like(scores, 0), "GT")
        return hlo.select(above, hlo.full_like(scores, 1), hlo.full_like(scores, -1))
    return post_transform(scores, node.text("post_transform", "NONE"))


def _kernel(node: Node, x: ir.Value, vectors: np.ndarray) -> ir.Value:
    """`kernel_type` of each row of x [N, C] with each of `vectors` [S, C]: [N, S]."""
    kind = node.text("kernel_type", "LINEAR")
    gamma, coef, degree = [*node.numbers("kernel_params", []), 0.0, 0.0, 0.0][:3]
    matrix = node.constant(vectors, "support_vectors")
    if kind == "RBF":
        shape = [hlo.shape(x)[0], *vectors.shape]
        difference = hlo.subtract(
            hlo.broadcast_in_dim(x, shape, [0, 2]), hlo.broadcast_in_dim(matrix, shape, [1, 2])
        )
        distance = reduce(hlo.multiply(difference, difference), [2], "add", keep=False)
        return hlo.exponential(hlo.multiply(distance, hlo.full_like(distance, -gamma)))
    product = hlo.dot_general(x, matrix, ([1], [1]))
    if kind == "LINEAR":
        return product
    scaled = hlo.multiply(product, hlo.full_like(product, gamma))
    shifted = hlo.add(scaled, hlo.full_like(product, coef))
    if kind == "SIGMOID":
        return hlo.tanh(shifted)
    if kind == "POLY":
        return hlo.power(shifted, hlo.full_like(shifted, degree))
    node.unsupported(f'the kernel_type "{kind}" is not known')
