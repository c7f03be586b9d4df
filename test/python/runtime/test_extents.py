"""Functions of open sizes: as texts, in arithmetic, and found from values."""

from __future__ import annotations

import random
import re

import pytest

from stepwell.extents import Extent, fit
from stepwell.sizes import OpenShapes


@pytest.mark.parametrize(
    "text",
    [
        *("0", "7", "-3", "s0", "2*s0*s1 + s0 - 1", "-s1 + 4", "s0*s0 + s1"),
        *("s0 floordiv 4", "(s0 + 3) floordiv 4 + 1", "-2*(s1 floordiv 8) + s0"),
        "3*s1*((s0 + 1) floordiv 2)*((s1 + 7) floordiv 16) - 5",
        *("s0 min 6", "2*(s1 min 7) + (s0 + s1) min 20 - 1", "((s0 + 1) min 9) floordiv 2"),
    ],
)
def test_texts(text: str) -> None:
    extent = Extent.parse(text)
    assert str(extent) == str(Extent.parse(str(extent)))
    assert Extent.parse(str(extent)) == extent
    for sizes in ((5, 11), (8, 64), (1, 1)):
        names = {f"s{number}": size for number, size in enumerate(sizes)}
        python = re.sub(r"(\w+|\([^()]*\)) min (\d+)", r"min(\1, \2)", text)
        assert extent.at(sizes) == eval(python.replace("floordiv", "//"), names)


@pytest.mark.parametrize("text", ["", "s", "2*", "(s0", "s0 floordiv 0", "s0 floordiv s1", "s0 s1"])
def test_texts_of_none(text: str) -> None:
    with pytest.raises(ValueError, match="is not an extent"):
        Extent.parse(text)


def test_division() -> None:
    """Each quotient has one form; sums, products and quotients of random ones are right."""
    pairs = {
        "(s0 - 1) floordiv 2 + 1": "(s0 + 1) floordiv 2",
        "((s0 + 1) floordiv 2 + 1) floordiv 2": "(s0 + 3) floordiv 4",
        "(4*s0 + s1 + 9) floordiv 4": "s0 + (s1 + 1) floordiv 4 + 2",
        "(-s0) floordiv 3": "-s0 + 2*s0 floordiv 3",
        "(32*s0 - 1) floordiv 2 + 1": "16*s0",
    }
    for text, same in pairs.items():
        assert Extent.parse(text) == Extent.parse(same)
    chosen = random.Random(0)
    for _ in range(200):
        sizes = (chosen.randint(1, 99), chosen.randint(1, 99))
        extent, value = Extent.size(0), sizes[0]
        for _ in range(6):
            number = chosen.randint(1, 9)
            kind = chosen.choice(("divide", "add", "size", "multiply"))
            if kind == "divide":
                extent, value = extent.floordiv(number), value // number
            elif kind == "add":
                extent, value = extent.plus(Extent.of(number - 5)), value + number - 5
            elif kind == "size":
                extent, value = (
                    extent.plus(Extent.size(1), number - 5),
                    value + sizes[1] * (number - 5),
                )
            else:
                extent, value = extent.times(Extent.of(number)), value * number
        assert extent.at(sizes) == value
        assert Extent.parse(str(extent)) == extent


def test_functions_that_fit() -> None:
    shapes = OpenShapes({}, {"a": 64, "b": 512})
    points = [*shapes.samples(), shapes.small_samples()[0]]
    for text in ("3", "s0", "2*s1 + 1", "s0*s1", "s0 + s1", "s1*s1 - 2", "4*s0*s1 + 8"):
        extent = Extent.parse(text)
        assert fit(points, [extent.at(point) for point in points]) == extent
    assert fit(points, [-(-a // 2) for a, _ in points]) is None
    assert fit(points, [min(b, 100) for _, b in points]) is None


@pytest.mark.parametrize(
    ("sides", "text"),
    [
        (["s0 - 2", "s1 + 3"], "4*s0*s1 + 12*s0 - 8*s1 - 23"),
        (["(s0 + 1) floordiv 2"], "2*((s0 + 1) floordiv 2) - 1"),
        (["(s0 + 1) floordiv 2", "s1 floordiv 4"], "(s0 + 1) floordiv 2 + s1 floordiv 4"),
        (["(s0 + 1) floordiv 2", "s1"], "s1*((s0 + 1) floordiv 2)"),
    ],
)
def test_functions_of_sides(sides: list[str], text: str) -> None:
    shapes = OpenShapes({}, {"a": 64, "b": 512})
    rounding = [point for point, _ in shapes.rounding_sampled(lambda point: point)]
    points = [*shapes.samples(), *rounding, shapes.small_samples()[0]]
    extent = Extent.parse(text)
    values = [extent.at(point) for point in points]
    assert fit(points, values, map(Extent.parse, sides)) == extent
    assert fit(points, values) is None


def test_functions_that_are_not_told_apart() -> None:
    """Sizes that 4 divides, or that are one less, leave it open whether a half is rounded."""
    sides = [Extent.parse("(s0 + 1) floordiv 2"), Extent.parse("(s0 + 3) floordiv 4")]
    assert fit([(64,), (31,), (4,)], [32, 16, 2], sides) is None
    assert fit([(64,), (33,), (4,)], [32, 17, 2], sides) == sides[0]
