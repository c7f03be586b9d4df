"""Support vector machines of ai.onnx.ml: SVMRegressor, SVMClassifier."""

from __future__ import annotations

import itertools

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.classification import post_transform, rows_of, select_labels
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import operator
from stepwell.frontends.onnx.shaping import reduce
from stepwell.mlir import ir

_DOMAIN = "ai.onnx.ml"

_COUPLING_ROUNDS = 100
_COUPLING_ERROR = 0.005
"""Divided by the number of classes: the error below which the coupling of probabilities ends."""


@operator("SVMRegressor", domain=_DOMAIN)
def svm_regressor(node: Node, x: Tensor) -> ir.Value:
    """`sum of coefficient * kernel(x, support vector) + rho`; the sign of it with `one_class`."""
    value = rows_of(x)
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


@operator("SVMClassifier", domain=_DOMAIN)
def svm_classifier(node: Node, x: Tensor) -> list[ir.Value]:
    """Labels and scores. With support vectors, each two classes compete for votes, and the scores
    are those of the pairs, or probabilities given `prob_a`; else every class has a linear score.

    What the standard leaves open is as onnxruntime has it.
    """
    labels = node.integers("classlabels_ints", [])
    if not labels:
        node.unsupported("its class labels are strings; only integer labels are supported")
    if sum(node.integers("vectors_per_class", [])):
        return _classify_by_votes(node, x, labels)
    return _classify_linearly(node, x, labels)


def _classify_linearly(node: Node, x: Tensor, labels: list[int]) -> list[ir.Value]:
    """The highest of the scores [N, classes] wins; of two classes, the second when it is enough."""
    value, classes = rows_of(x), len(labels)
    weights = np.array(node.numbers("coefficients", []), np.float32)
    if weights.size != classes * hlo.shape(value)[1]:
        node.unsupported(
            f"{weights.size} coefficients do not fit {list(x.shape)} and {classes} classes"
        )
    matrix = node.constant(weights.reshape(classes, -1), "coefficients")
    scores = hlo.dot_general(value, matrix, ([1], [1]))
    scores = hlo.add(scores, hlo.full_like(scores, node.numbers("rho", [0.0])[0]))
    chosen = select_labels(node, scores, labels)
    if classes == 2 and not node.numbers("prob_a", []):
        highest = reduce(scores, [1], "maximum", keep=False)
        positive = bool(np.all(weights >= 0))
        limit = hlo.full_like(highest, 0.5 if positive else 0.0)
        enough = hlo.compare(highest, limit, "GE" if positive else "GT")
        chosen = hlo.select(enough, hlo.full_like(chosen, labels[1]), chosen)
    transform = node.text("post_transform", "NONE")
    is_transformed = classes > 1 or transform == "PROBIT"
    return [chosen, post_transform(scores, transform) if is_transformed else scores]


def _classify_by_votes(node: Node, x: Tensor, labels: list[int]) -> list[ir.Value]:
    classes = len(labels)
    pairs = list(itertools.combinations(range(classes), 2))
    scores = _pair_scores(node, rows_of(x), pairs, classes)
    first, second = _membership(node, pairs, classes)
    won = hlo.compare(scores, hlo.full_like(scores, 0), "GT")
    wins = hlo.convert(won, np.float32)
    losses = hlo.convert(hlo.not_(won), np.float32)
    votes = hlo.add(
        hlo.dot_general(wins, first, ([1], [0])), hlo.dot_general(losses, second, ([1], [0]))
    )
    chosen = select_labels(node, votes, labels)
    transform = node.text("post_transform", "NONE")
    if node.numbers("prob_a", []):
        return [chosen, post_transform(_probabilities(node, scores, pairs, classes), transform)]
    if classes > 2:
        return [chosen, post_transform(scores, transform)]
    if transform == "PROBIT":
        node.unsupported("PROBIT of the one score of two classes leaves the other score open")
    if transform in ("NONE", "LOGISTIC"):
        both = hlo.concatenate([hlo.negate(scores), scores], 1)
        return [chosen, post_transform(both, transform)]
    rest = hlo.subtract(hlo.full_like(scores, 1), scores)
    return [chosen, hlo.concatenate([rest, scores], 1)]


def _pair_scores(
    node: Node, value: ir.Value, pairs: list[tuple[int, int]], classes: int
) -> ir.Value:
    """[N, pairs]: above zero, the first class of the pair is preferred.

    The coefficients [classes - 1, vectors] have those of class i against j in row j, or j - 1 when
    j is greater. As a matrix [vectors, pairs], each pair takes the vectors of its two classes.
    """
    counts = node.integers("vectors_per_class", [])
    bounds = [0, *itertools.accumulate(counts)]
    vectors = np.array(node.numbers("support_vectors", []), np.float32)
    weights = np.array(node.numbers("coefficients", []), np.float32)
    rho = np.array(node.numbers("rho", []), np.float32)
    total, columns = bounds[-1], hlo.shape(value)[1]
    fits = vectors.size == total * columns and weights.size == (classes - 1) * total
    if classes < 2 or len(counts) != classes or not fits or rho.size < len(pairs):
        node.unsupported(
            f"{vectors.size} elements of support vectors, {weights.size} coefficients and "
            f"{rho.size} offsets do not fit {total} vectors of {columns} and {classes} classes"
        )
    weights = weights.reshape(classes - 1, total)
    matrix = np.zeros((total, len(pairs)), np.float32)
    for pair, (i, j) in enumerate(pairs):
        of_i, of_j = (slice(bounds[c], bounds[c + 1]) for c in (i, j))
        matrix[of_i, pair] = weights[j - 1, of_i]
        matrix[of_j, pair] = weights[i, of_j]
    kernels = _kernel(node, value, vectors.reshape(total, columns))
    scores = hlo.dot_general(kernels, node.constant(matrix, "coefficients"), ([1], [0]))
    offsets = node.constant(rho[: len(pairs)], "rho")
    return hlo.add(scores, hlo.broadcast_in_dim(offsets, hlo.shape(scores), [1]))


def _membership(
    node: Node, pairs: list[tuple[int, int]], classes: int
) -> tuple[ir.Value, ir.Value]:
    """Two matrices [pairs, classes]: 1 where the class is the first, or the second, of the pair."""
    parts = np.array(pairs).T
    first, second = np.eye(classes, dtype=np.float32)[parts]
    return node.constant(first, "first"), node.constant(second, "second")


def _probabilities(
    node: Node, scores: ir.Value, pairs: list[tuple[int, int]], classes: int
) -> ir.Value:
    """[N, classes]: of each pair by a sigmoid (Platt 1999), coupled to those of all classes."""
    shape = hlo.shape(scores)
    slope, shift = (np.array(node.numbers(n, []), np.float32) for n in ("prob_a", "prob_b"))
    if slope.size < len(pairs) or shift.size < len(pairs):
        node.unsupported(f"prob_a and prob_b do not have {len(pairs)} elements, one a pair")
    factor, offset = (
        hlo.broadcast_in_dim(node.constant(values[: len(pairs)], role), shape, [1])
        for values, role in ((slope, "prob_a"), (shift, "prob_b"))
    )
    line = hlo.add(hlo.multiply(scores, factor), offset)
    one = hlo.full_like(scores, 1)
    low, high = (hlo.full(v, [], np.float32) for v in (1e-7, 1 - 1e-7))
    chance = hlo.clamp(low, hlo.subtract(one, hlo.logistic(line)), high)
    cells = np.zeros((2, len(pairs), classes, classes), np.float32)
    for pair, (i, j) in enumerate(pairs):
        cells[0, pair, i, j] = cells[1, pair, j, i] = 1
    above, below = (node.constant(c, n) for c, n in zip(cells, ("above", "below"), strict=True))
    against = hlo.add(
        hlo.dot_general(chance, above, ([1], [0])),
        hlo.dot_general(hlo.subtract(one, chance), below, ([1], [0])),
    )
    return _coupled(against)


def _coupled(against: ir.Value) -> ir.Value:
    """Class probabilities p [N, k] from those of i against j, r [N, k, k] (zero where i is j): the
    minimum of the sum of `(r[j, i] p[i] - r[i, j] p[j])^2`.

    By coordinates, `p' Q p` being the sum, until no row has an error: Wu, Lin and Weng 2004 (JMLR
    5), algorithm 2.
    """
    rows, classes, _ = hlo.shape(against)
    square, vector = [rows, classes, classes], [rows, classes]
    if not rows:
        return hlo.full(0, vector, np.float32)

    def spread(column: ir.Value) -> ir.Value:
        return hlo.broadcast_in_dim(column, vector, [0])

    def total(value: ir.Value) -> ir.Value:
        return reduce(value, [1], "add", keep=False)

    turned = hlo.transpose(against, [0, 2, 1])
    sums = hlo.broadcast_in_dim(total(hlo.multiply(against, against)), square, [0, 1])
    diagonal = hlo.compare(hlo.iota(square, 1, np.int32), hlo.iota(square, 2, np.int32), "EQ")
    q = hlo.select(diagonal, sums, hlo.negate(hlo.multiply(turned, against)))
    position = hlo.iota(vector, 1, np.int64)
    zero, one = hlo.full(0, [], np.int64), hlo.full(1, [], np.int64)

    def step(t: ir.Value, p: ir.Value, qp: ir.Value, pqp: ir.Value) -> list[ir.Value]:
        row = hlo.reshape(hlo.dynamic_slice(q, [zero, t, zero], [rows, 1, classes]), vector)
        here = hlo.compare(position, hlo.broadcast_in_dim(t, vector, []), "EQ")

        def element(value: ir.Value) -> ir.Value:
            return total(hlo.select(here, value, hlo.full_like(value, 0)))

        q_t, qp_t = element(row), element(qp)
        change = hlo.divide(hlo.subtract(pqp, qp_t), q_t)
        scale = hlo.add(change, hlo.full_like(change, 1))
        moved = hlo.select(here, hlo.add(p, spread(change)), p)
        twice = hlo.add(hlo.multiply(change, q_t), hlo.add(qp_t, qp_t))
        pqp = hlo.divide(hlo.add(pqp, hlo.multiply(change, twice)), hlo.multiply(scale, scale))
        qp = hlo.divide(hlo.add(qp, hlo.multiply(spread(change), row)), spread(scale))
        return [hlo.add(t, one), hlo.divide(moved, spread(scale)), qp, pqp]

    def sweep(count: ir.Value, p: ir.Value, _: ir.Value) -> list[ir.Value]:
        qp = hlo.dot_general(q, p, ([2], [1]), ([0], [0]))
        pqp = total(hlo.multiply(p, qp))
        error = reduce(hlo.abs(hlo.subtract(qp, spread(pqp))), [1], "maximum", keep=False)
        limit = hlo.full_like(error, _COUPLING_ERROR / classes)
        wrong = hlo.compare(error, limit, "GE")
        end = hlo.full(classes, [], np.int64)
        better = hlo.while_loop([zero, p, qp, pqp], lambda t, *_: hlo.compare(t, end, "LT"), step)[
            1
        ]
        goes_on = reduce(wrong, [0], "or", keep=False)
        return [hlo.add(count, one), hlo.select(spread(wrong), better, p), goes_on]

    rounds = hlo.full(_COUPLING_ROUNDS, [], np.int64)
    start = [zero, hlo.full(1 / classes, vector, np.float32), hlo.full(True, [], np.bool_)]
    return hlo.while_loop(
        start, lambda count, _, on: hlo.and_(on, hlo.compare(count, rounds, "LT")), sweep
    )[1]


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
