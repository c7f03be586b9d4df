"""`mark-exponents`: find the exponentials of what is never positive.

In a softmax the largest element is subtracted before the exponential is taken. Of such arguments
nothing overflows, which makes the function cheaper (`vector_math.exp_of_nonpositive`). And where
nothing is made of the largest element but with the sum of the exponentials, which is no number if
one of the elements is none, the maximum need not look for such.

    %m = linalg.generic (maximum of %x over its rows)   ->   {kernel.skips_nan}
    %d = linalg.generic (%x - %m)
    %e = linalg.generic { math.exp %in }   ->   linalg.generic { math.exp %in {kernel.nonpositive} }
    %s = linalg.generic (sum of %e over its rows)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stepwell.kernels.evaluate import SKIPS_NAN
from stepwell.kernels.expressions import Reader, is_plain
from stepwell.kernels.index import Index, Variable, apply_map, delinearize, linearize
from stepwell.kernels.structured import RESHAPES, Structured, elements, shape_of
from stepwell.kernels.vector_math import NONPOSITIVE
from stepwell.mlir import ir, nested_operations
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg._uses import reached


@dataclass(frozen=True)
class MarkExponents(Pass):
    """Look at every pair of a maximum and an exponential."""

    name: ClassVar[str] = "mark-exponents"
    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation, state: State) -> None:
        maxima: list[Structured] = []
        exponentials: list[tuple[Structured, ir.Operation]] = []
        for inner in nested_operations(op):
            if inner.name == "math.exp":
                around = Structured.of(inner.parent.operation)
                if around is not None and around.is_elementwise:
                    exponentials.append((around, inner))
            elif (structured := Structured.of(inner)) is not None and _combines(
                structured, "arith.maximumf"
            ):
                maxima.append(structured)
        made_of = [reached(maximum.op, _is_elementwise) for maximum in maxima]
        for around, exponential in exponentials:
            near = (m for m, made in zip(maxima, made_of, strict=True) if around.op in made)
            below = [m for m in near if _is_below(around, exponential, m)]
            if not below:
                continue
            exponential.attributes[NONPOSITIVE] = ir.UnitAttr.get()
            for maximum in below:
                if any(_needs_both(maximum, total) for total in _sums(around, maximum)):
                    maximum.op.attributes[SKIPS_NAN] = ir.UnitAttr.get()


def _combines(op: Structured, combiner: str) -> bool:
    """Whether `op` reduces one operand by `combiner`."""
    first = op.body.operations[0].operation.name
    return "reduction" in op.iterators and is_plain(op) and first == combiner


def _is_below(around: Structured, exponential: ir.Operation, maximum: Structured) -> bool:
    """Whether `exponential`, in the body of `around`, is of x - max x with that `maximum`."""
    (values,), result = maximum.inputs, maximum.op.results[0]
    if elements(around.op.results[0]) != elements(values):
        return False
    dims = [
        Index.of(Variable(f"d{i}", 0, max(size, 1) - 1))
        for i, size in enumerate(maximum.loop_sizes())
    ]
    read = apply_map(maximum.maps[0], dims)
    reader = Reader({result})
    top = reader.at(result, apply_map(maximum.output_map, dims))
    point = delinearize(linearize(read, shape_of(values)), list(around.loop_sizes()))
    argument = reader.body(around, point).get(exponential.operands[0])
    return argument == ("arith.subf", "", reader.at(values, read), top)


def _sums(exponentials: Structured, maximum: Structured) -> list[Structured]:
    """The sums of exponentials over the rows of `maximum`."""
    value = exponentials.op.results[0]
    found = []
    for use in value.uses:
        total = Structured.of(use.owner.operation)
        if (
            total is not None
            and _combines(total, "arith.addf")
            and shape_of(value) == shape_of(maximum.inputs[0])
            and (total.iterators, total.maps[0], total.output_map)
            == (maximum.iterators, maximum.maps[0], maximum.output_map)
        ):
            found.append(total)
    return found


def _needs_both(maximum: Structured, total: Structured) -> bool:
    """Whether all that is made of `maximum` is made of `total`, too, or is `total`."""
    made_of_total = {total.op, *filter(_is_of_all, reached(total.op, _is_of_all))}
    alone = reached(maximum.op, lambda user: user not in made_of_total) - made_of_total
    return all(_is_elementwise(op) for op in alone)


def _is_of_all(op: ir.Operation) -> bool:
    """Whether elements of its result are made of one of each operand; not so are the results of a
    function."""
    return op.name in RESHAPES or op.name == "linalg.generic"


def _is_elementwise(op: ir.Operation) -> bool:
    structured = Structured.of(op)
    return op.name in RESHAPES or (structured is not None and structured.is_elementwise)
