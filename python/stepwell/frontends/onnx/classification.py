"""What the classifiers and regressors of ai.onnx.ml share: transforms of scores, and labels."""

from __future__ import annotations

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, NotSupportedError, Tensor
from stepwell.frontends.onnx.shaping import reduce
from stepwell.mlir import ir

_TINY = 1e-7
"""Scores this close to zero are zeros for SOFTMAX_ZERO."""


def rows_of(x: Tensor) -> ir.Value:
    """x as a matrix [N, C] of float32; a vector is one row."""
    if x.rank not in (1, 2):
        raise NotSupportedError(f"the input {list(x.shape)} is neither a row nor a matrix of rows")
    value = hlo.convert(x.value, np.float32)
    return hlo.reshape(value, [1, *x.shape]) if x.rank == 1 else value


def post_transform(scores: ir.Value, transform: str) -> ir.Value:
    """`scores` [N, E] by NONE, LOGISTIC, SOFTMAX, SOFTMAX_ZERO (zeros get no share) or PROBIT."""
    if transform == "NONE":
        return scores
    if transform == "LOGISTIC":
        return hlo.logistic(scores)
    if transform == "PROBIT":
        return _probit(scores)
    if transform not in ("SOFTMAX", "SOFTMAX_ZERO"):
        raise NotSupportedError(f'the post_transform "{transform}" is not known')
    shape = hlo.shape(scores)

    def spread(row: ir.Value) -> ir.Value:
        return hlo.broadcast_in_dim(row, shape, [0])

    highest = spread(reduce(scores, [1], "maximum", keep=False))
    powers = hlo.exponential(hlo.subtract(scores, highest))
    if transform == "SOFTMAX_ZERO":
        zero = hlo.compare(hlo.abs(scores), hlo.full_like(scores, _TINY), "LE")
        powers = hlo.select(
            zero, hlo.multiply(scores, hlo.exponential(hlo.negate(highest))), powers
        )
    total = spread(reduce(powers, [1], "add", keep=False))
    shares = hlo.divide(powers, total)
    if transform == "SOFTMAX":
        return shares
    nothing = hlo.compare(total, hlo.full_like(total, 0), "EQ")
    return hlo.select(nothing, hlo.full_like(shares, 0.5), shares)


def _probit(p: ir.Value) -> ir.Value:
    """sqrt(2) * erfinv(2 p - 1), by Winitzki's approximation of erfinv (2008), as onnxruntime."""

    def number(value: float) -> ir.Value:
        return hlo.full_like(p, value)

    x = hlo.subtract(hlo.multiply(p, number(2)), number(1))
    log = hlo.log(hlo.multiply(hlo.subtract(number(1), x), hlo.add(number(1), x)))
    v = hlo.add(number(2 / (np.pi * 0.147)), hlo.multiply(number(0.5), log))
    inner = hlo.subtract(hlo.multiply(v, v), hlo.multiply(number(1 / 0.147), log))
    root = hlo.sqrt(hlo.subtract(hlo.sqrt(inner), v))
    signed = hlo.select(hlo.compare(x, number(0), "LT"), hlo.negate(root), root)
    return hlo.multiply(number(1.41421356), signed)


def select_labels(node: Node, scores: ir.Value, labels: list[int]) -> ir.Value:
    """The label [N] of the highest score in each row of `scores` [N, E], the first of equals."""
    rows, count = hlo.shape(scores)
    shape = [rows, count]
    highest = hlo.broadcast_in_dim(reduce(scores, [1], "maximum", keep=False), shape, [0])
    position = hlo.iota(shape, 1, np.int64)
    hit = hlo.select(
        hlo.compare(scores, highest, "EQ"), position, hlo.full(count - 1, shape, np.int64)
    )
    index = reduce(hit, [1], "minimum", keep=False)
    if labels == list(range(count)):
        return index
    table = node.constant(np.array(labels, np.int64), "labels")
    dimensions = hlo.GatherDimensions((), (0,), (0,), 1)
    return hlo.gather(table, hlo.reshape(index, [rows, 1]), dimensions, [1])
