"""Recognising a softmax that can be taken in one walk over its row, a piece at a time.

Of scores x, the weights exp(x - max x) / sum exp(x - max x) need two reductions of a whole row.
With the maximum m and the sum l of what was seen, a new piece of the row changes both:

    m' = max(m, max x)      l' = l exp(m - m') + sum exp(x - m')

and what was summed with the old weights is multiplied by exp(m - m'), too (M. Milakov and N.
Gimelshein, "Online normalizer calculation for softmax", 2018). That holds of this form only, so
values are compared as expressions of their elements.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepwell.kernels.expressions import Expression, Reader, constant_of, is_plain
from stepwell.kernels.index import Index, Variable, delinearize
from stepwell.kernels.reduction import Combiner
from stepwell.kernels.structured import Structured, elements, shape_of
from stepwell.mlir import ir

OEQ, UEQ = 1, 8
"""Predicates of `arith.cmpf`: both are numbers and equal; they are equal, or one is no number."""

_UNORDERED = (13, 14)
"""Predicates of `arith.cmpf` that hold of a number and itself only where that is a NaN."""


@dataclass(frozen=True)
class OnlineSoftmax:
    """The softmax of an attention. `maximum` reads the scores as they are after scale and mask,
    `total` is the sum of the exponentials, in which those of a row that sees no key are zeros.
    Weights are 0 where `zero_where` holds of their sum and 0, if it is a predicate: where no key is
    seen, or with `UEQ` also where they are no numbers."""

    maximum: Structured
    total: Structured
    zero_where: int | None

    @staticmethod
    def of(reductions: list[Structured], weights: ir.Value) -> OnlineSoftmax | None:
        """The softmax that makes `weights` by `reductions`; None when that is something else."""
        if len(reductions) != 2 or not all(map(is_plain, reductions)):
            return None
        maximum, total = reductions
        names = [Combiner.of(reduction).op_name for reduction in reductions]
        low, zero = (constant_of(reduction.outputs[0]) for reduction in reductions)
        if names != ["arith.maximumf", "arith.addf"] or low is None or zero != 0:
            return None
        if low > _least_finite(maximum):
            return None
        rows = elements(maximum.op.results[0])
        length = elements(weights) // rows
        row = Index.of(Variable("row", 0, rows - 1))
        column = Index.of(Variable("column", 0, length - 1))
        reader = Reader({r.op.results[0] for r in reductions})
        flat = row * length + column
        scores, exponential = (reader.operand(r, flat) for r in reductions)
        top, sum_ = (("value", r.op.results[0], row) for r in reductions)
        if exponential != ("math.exp", "", ("arith.subf", "", scores, top)):
            return None
        weight = reader.at(weights, delinearize(flat, shape_of(weights)))
        plain = _quotients(exponential, sum_)
        guarded = [
            ("arith.select", "", ("arith.cmpf", predicate, weight, weight), _ZERO, weight)
            for weight in plain
            for predicate in _UNORDERED
        ]
        unseen = ("arith.cmpf", OEQ, top, _LOWEST)
        where_seen = [("arith.select", "", unseen, _ZERO, weight) for weight in plain]
        forms = ((plain, None), (guarded, UEQ), (where_seen, OEQ))
        found = [zero_where for form, zero_where in forms if weight in form]
        return OnlineSoftmax(maximum, total, found[0]) if found else None


_ZERO = ("arith.constant", 0.0)
_ONE = ("arith.constant", 1.0)
_LOWEST = ("arith.constant", float("-inf"))


def _quotients(numerator: Expression, denominator: Expression) -> list[Expression]:
    inverse = ("arith.divf", "", _ONE, denominator)
    return [
        ("arith.divf", "", numerator, denominator),
        ("arith.mulf", "", numerator, inverse),
        ("arith.mulf", "", inverse, numerator),
    ]


def _least_finite(reduction: Structured) -> float:
    """The least number of the reduction's type that is finite."""
    kind = str(reduction.op.results[0].type.element_type)
    return {"f16": -65504.0, "bf16": -3.38e38, "f32": -3.4e38}.get(kind, float("-inf"))
