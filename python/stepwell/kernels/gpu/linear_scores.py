"""Scores of an attention that are its products times a constant, but for those of keys beyond a
diagonal, which have no weight: what every causal mask leaves, and where there is no mask. So are
those of a program with open sizes, whose keys that are not in use have no weight either.

Kernels take the maximum of such products as they are, and scale where they take exponentials; tiles
of keys that all queries of a block see need no mask.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from stepwell.kernels.expressions import Expression, Reader
from stepwell.kernels.gpu.attention import AttentionParts
from stepwell.kernels.index import Index, Variable, apply_map, delinearize
from stepwell.kernels.rows import loop_point
from stepwell.kernels.structured import shape_of
from stepwell.kernels.triangle import Triangle
from stepwell.mlir import ir

_LEAST = -1e38
"""A score below has no weight beside that of a product."""


@dataclass(frozen=True)
class LinearScores:
    """`factor` times the products; with a `diagonal` (c, p), of each p queries, query r sees the
    keys up to r + c and no others."""

    factor: float
    diagonal: tuple[int, int] | None

    @staticmethod
    def of(operations: list[ir.Operation], parts: AttentionParts) -> LinearScores | None:
        """Those of the group of `operations`, if they are such."""
        raw, reduction = parts.scores.op.results[0], parts.softmax.maximum
        triangles = {
            value: found
            for op in operations
            for value in op.results
            if (found := Triangle.of(value)) is not None
        }
        row = Index.of(Variable("row", 0, parts.batch * parts.queries - 1))
        column = Index.of(Variable("column", 0, parts.keys - 1))
        flat = row * parts.keys + column
        reader = Reader({raw, *triangles})
        place = apply_map(reduction.maps[0], loop_point(reduction, flat))
        score = reader.at(reduction.inputs[0], place)
        product = reader.at(raw, delinearize(flat, shape_of(raw)))
        used = parts.used_keys and parts.used_keys.mask
        factor = _factor(_simplified(score, triangles, used, beyond=False), product)
        if factor is None:
            return None
        diagonals: set[tuple[int, int]] = set()
        for _, value, at in _reads(score, set(triangles)):
            *_, period, columns = shape_of(value)
            within = row.mod(period) * parts.keys + column
            if columns != parts.keys or at.mod(period * columns) != within:
                return None
            diagonals.add((triangles[value].offset, period))
        if not diagonals:
            return LinearScores(factor, None)
        hidden = _simplified(score, triangles, used, beyond=True)
        ((offset, period), *others) = diagonals
        has_weight = hidden[0] != "arith.constant" or hidden[1] > _LEAST
        sees_keys = offset >= 0 or hidden[1:] == (-math.inf,)
        if others or has_weight or not sees_keys or parts.queries % period:
            return None
        return LinearScores(factor, (offset, period))


def _reads(score: Expression, values: set[ir.Value]) -> list[tuple[str, ir.Value, Index]]:
    """The elements of `values` that a score is made of."""
    if score[0] == "value":
        return [score] if score[1] in values else []
    parts = [part for part in score if isinstance(part, tuple)]
    return [found for part in parts for found in _reads(part, values)]


def _simplified(
    score: Expression,
    triangles: dict[ir.Value, Triangle],
    used: ir.Value | None,
    *,
    beyond: bool,
) -> Expression:
    """A score beyond the diagonal, or up to it, where triangles are numbers; `used` tells which
    keys are in use, as this one is."""
    name, *rest = score
    if name == "value" and used is not None and rest[0] == used:
        return "arith.constant", True
    if name == "value" and rest[0] in triangles:
        triangle = triangles[rest[0]]
        return "arith.constant", triangle.far if beyond else triangle.near
    if name not in ("arith.select", "arith.addf"):
        return score
    told, *operands = rest
    operands = [_simplified(operand, triangles, used, beyond=beyond) for operand in operands]
    if name == "arith.select":
        condition, yes, no = operands
        if condition[0] == "arith.constant":
            return yes if condition[1] else no
    else:
        for one, other in (operands, operands[::-1]):
            if one == ("arith.constant", 0.0):
                return other
            if one[0] == "arith.constant" and one[1] < _LEAST:
                return one
    return name, told, *operands


def _factor(score: Expression, product: Expression) -> float | None:
    """What `product` is multiplied by, where that is a positive number and all there is."""
    if score == product:
        return 1.0
    if score[0] not in ("arith.mulf", "arith.divf"):
        return None
    _, _, one, other = score
    if one != product:
        one, other = (other, one) if score[0] == "arith.mulf" else (one, other)
    if one != product or other[0] != "arith.constant" or not 0 < other[1] < math.inf:
        return None
    return other[1] if score[0] == "arith.mulf" else 1 / other[1]
