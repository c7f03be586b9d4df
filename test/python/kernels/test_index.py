"""Index arithmetic: what reshapes undo disappears, and every form has the value it should."""

from __future__ import annotations

import itertools
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.kernels.index import Index, Quotient, Variable, delinearize, linearize, reshaped

SHAPES = st.lists(st.sampled_from([1, 2, 3, 5, 7, 8, 16, 56, 57]), min_size=1, max_size=5)


def value(index: Index, point: dict[Variable, int]) -> int:
    """`index` where its variables have the values of `point`."""
    total = index.constant
    for atom, factor in index.terms:
        if isinstance(atom, Quotient):
            inner = value(atom.dividend, point)
            part = inner % atom.divisor if atom.remainder else inner // atom.divisor
        else:
            part = point[atom]
        total += factor * part
    return total


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(SHAPES, st.integers(0, 70))
def test_a_position_comes_back(shape: list[int], most: int) -> None:
    count = math.prod(shape)
    offset = min(most, max(count - 4, 0))
    row, lane = Variable("i", 0, max(count - 4, 0) - offset), Variable("lane", 0, min(count, 4) - 1)
    flat = Index.of(row) + Index.of(lane) + offset
    assert linearize(delinearize(flat, shape), shape) == flat


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(SHAPES, st.integers(1, 40), st.integers(1, 12), st.integers(0, 7))
def test_values(shape: list[int], step: int, lanes: int, offset: int) -> None:
    i, lane = Variable("i", 0, 9), Variable("lane", 0, lanes - 1)
    flat = Index.of(i) * step + Index.of(lane) + offset
    parts = delinearize(flat, shape)
    inner = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    for at in itertools.product(range(10), range(lanes)):
        point = dict(zip((i, lane), at, strict=True))
        number = at[0] * step + at[1] + offset
        if number >= math.prod(shape):
            break
        wanted = [number // n % size for n, size in zip(inner, shape, strict=True)]
        assert [value(part, point) for part in parts] == wanted


def test_an_index_beyond_its_dimension_stays_beside_dimensions_of_one_element() -> None:
    channel, row = Index.of(Variable("c", 0, 15)), Index.of(Variable("i", 0, 55))
    apart, together = (1, 1, 49, 16), (1, 49, 16)
    here = [Index(), Index(), row, channel]
    assert reshaped(here, apart, together) == [Index(), row, channel]
    assert reshaped([Index(), row, channel], together, apart) == here
