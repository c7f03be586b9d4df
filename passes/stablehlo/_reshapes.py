"""How a reshape groups dimensions, and what becomes of a transpose before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from stepwell.passes.stablehlo._values import inverse


@dataclass(frozen=True)
class Regrouping:
    """Neighbouring operand dimensions of a reshape that become neighbouring result dimensions."""

    operands: tuple[int, ...]
    results: tuple[int, ...]


@dataclass(frozen=True)
class TransposedReshape:
    """reshape(transpose(x)) as transpose(reshape(transpose(x, inner_permutation)), permutation).

    `shape` is that of the new reshape. Where `in_order` the inner permutation moves nothing but
    dimensions of size 1 and can be left out; else `reordered` are the groups that it is needed for.
    """

    inner_permutation: list[int]
    shape: list[int]
    permutation: list[int]
    reordered: list[Regrouping]

    @property
    def in_order(self) -> bool:
        """Whether no inner transpose is needed."""
        return not self.reordered


def groups_of(operand: Sequence[int], result: Sequence[int]) -> list[Regrouping]:
    """The smallest groups of dimensions between which elements do not move."""
    groups: list[Regrouping] = []
    i = j = 0
    while i < len(operand) or j < len(result):
        first, second = i, j
        i, j = min(i + 1, len(operand)), min(j + 1, len(result))
        while (left := prod(operand[first:i])) != (right := prod(result[second:j])):
            if left < right:
                i += 1
            else:
                j += 1
        groups.append(Regrouping(tuple(range(first, i)), tuple(range(second, j))))
    return groups


def regroup(
    operand: Sequence[int], result: Sequence[int], permutation: Sequence[int]
) -> TransposedReshape | None:
    """How a transpose by `permutation` passes a reshape from shape `operand` to `result`.

    None when the dimensions of some group do not stand together before the transpose.
    """
    if 0 in operand:
        return None
    groups = groups_of(operand, result)
    lead = [[permutation[d] for d in g.operands if operand[d] != 1] for g in groups]
    place, keys = -1.0, []
    for dimensions in lead:
        place = min(dimensions) if dimensions else place + 0.001
        keys.append(place)
    order = sorted(range(len(groups)), key=keys.__getitem__)
    last = -1
    for index in order:
        if lead[index]:
            if min(lead[index]) < last:
                return None
            last = max(lead[index])
    results = [d for index in order for d in groups[index].results]
    return TransposedReshape(
        [permutation[d] for index in order for d in groups[index].operands],
        [result[d] for d in results],
        inverse(results),
        [g for g, dims in zip(groups, lead, strict=True) if dims != sorted(dims)],
    )


def order_before_reshape(
    operand: Sequence[int], result: Sequence[int], permutation: Sequence[int]
) -> tuple[int, ...] | None:
    """The order in which transpose(reshape(x), permutation) is a reshape of transpose(x, order).

    None when `permutation` moves apart, or out of order, what the reshape from shape `operand` to
    `result` splits.
    """
    if 0 in operand:
        return None
    long = [d for d in permutation if result[d] != 1]
    groups = [
        ([long.index(d) for d in group.results if result[d] != 1], group.operands)
        for group in groups_of(operand, result)
    ]
    groups.sort()
    if [place for places, _ in groups for place in places] != list(range(len(long))):
        return None
    return tuple(d for _, operands in groups for d in operands)
