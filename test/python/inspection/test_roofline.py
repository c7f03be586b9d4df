"""The roofline: which resource bounds a kernel, and how near it comes."""

from __future__ import annotations

import pytest

from stepwell.artifact import KernelInfo
from stepwell.inspection.roofline import Roofline, measured

ROOFLINE = Roofline(flops=100e9, bandwidth=10e9)


def kernel(flops: int, moved: int) -> KernelInfo:
    return KernelInfo("k", (), "contraction", flops, moved)


def test_the_longer_time_bounds() -> None:
    assert ROOFLINE.bound(kernel(flops=1_000_000, moved=1_000)) == "compute"
    assert ROOFLINE.bound(kernel(flops=1_000, moved=1_000_000)) == "memory"


def test_share_is_the_least_time_over_the_time() -> None:
    assert ROOFLINE.share(kernel(1_000_000, 1_000), 20e-6) == pytest.approx(0.5)
    assert ROOFLINE.share(kernel(1_000, 1_000_000), 400e-6) == pytest.approx(0.25)


def test_this_machine_has_a_peak() -> None:
    one, two = measured(1), measured(2)
    assert one.flops > 1e9
    assert one.bandwidth > 1e8
    assert two.flops > one.flops
