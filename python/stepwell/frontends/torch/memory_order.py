"""In which order the dimensions of a tensor follow each other in memory."""

from __future__ import annotations

from collections.abc import Sequence


def memory_order(stride: Sequence[int]) -> list[int]:
    """The dimensions, the one with the longest stride first; equal ones in their own order."""
    return sorted(range(len(stride)), key=lambda d: -stride[d])


def inverse(order: Sequence[int]) -> list[int]:
    """What `permute` takes to undo a permutation by `order`."""
    return [order.index(d) for d in range(len(order))]
