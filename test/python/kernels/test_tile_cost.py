"""What the cost model of register tiles knows of windows over zeros, and of sums in chains."""

from __future__ import annotations

import dataclasses

import pytest

from stepwell import targets
from stepwell.kernels.cpu import halo
from stepwell.kernels.cpu.contraction_strategy import ContractionShape, tile_cost

FIVE = halo.Window(reduced=1, row=1, terms=5, stride=1, dilation=1, low=2, extent=13)
"""Columns of a 5x5 filter over 13 columns of an image, and two of zeros at each end."""


def shape(*reduced: int, rows: tuple[int, int] = (13, 13), columns: int = 64) -> ContractionShape:
    """A convolution on one image: rows, columns of the result, then what is summed over."""
    sizes = (*rows, columns, *reduced)
    return ContractionShape(0, 1, (), (0, 1), 2, tuple(range(3, len(sizes))), sizes)


@pytest.mark.parametrize(
    ("rows", "whole", "cut"), [(13, 1.0, 0.0), (12, 1.0, 3 / 5), (7, 1.0, 1.0), (11, 1.0, 4 / 5)]
)
def test_steps_that_tiles_need(rows: int, whole: float, cut: float) -> None:
    assert halo.used_parts([FIVE], shape(5, 5, 32), (1, rows)) == pytest.approx((whole, cut))


def test_rows_of_the_image_count_for_all_tiles() -> None:
    down = dataclasses.replace(FIVE, reduced=0, row=0)
    inside = (5 * 13 - 2 * (1 + 2)) / (5 * 13)
    parts = halo.used_parts([down, FIVE], shape(5, 5, 32), (1, 12))
    assert parts == pytest.approx((inside, inside * 3 / 5))


def test_a_short_tile_that_leaves_terms_out_still_costs_its_latency() -> None:
    """One column at the end takes as long as several."""
    target = dataclasses.replace(targets.get("x86_64-v4"), in_flight=8)
    found = shape(5, 5, 32)

    def cost(rows: int) -> float:
        used = halo.used_parts([FIVE], found, (1, rows))
        return tile_cost((1, rows), 2, 13, 13, found, target, used)

    assert cost(7) < cost(12)


def test_chains_of_short_sums_want_registers_for_their_totals() -> None:
    """A tile of 24 sums has none beside them, one of 14 has."""
    target = targets.get("x86_64-v4")

    def cost(rows: int, vectors: int, *reduced: int) -> float:
        found = shape(*reduced, rows=(84, 84))
        return tile_cost((1, rows), vectors, 84, 84, found, target)

    assert cost(7, 2, 7, 7, 3) < cost(6, 4, 7, 7, 3)
    assert cost(6, 4, 3, 3, 256) < cost(7, 2, 3, 3, 256)
