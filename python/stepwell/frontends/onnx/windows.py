"""Sliding windows: the strides, dilations and padding of convolutions and poolings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from stepwell.frontends.onnx.node import Node


@dataclass(frozen=True)
class Window:
    """Geometry of a sliding window, one entry a spatial dimension."""

    size: list[int]
    strides: list[int]
    dilations: list[int]
    padding: list[tuple[int, int]]

    def extent(self, d: int) -> int:
        """How many elements the window spans in dimension d, holes included."""
        return (self.size[d] - 1) * self.dilations[d] + 1

    def places(self, spatial: Sequence[int]) -> list[int]:
        """How often the window fits along each dimension."""
        return [
            (size + sum(self.padding[d]) - self.extent(d)) // self.strides[d] + 1
            for d, size in enumerate(spatial)
        ]

    def require_room(self, node: Node, spatial: Sequence[int]) -> None:
        """Refuse `node` where the window is larger than its padded input; where the input has no
        elements, there may be no places."""
        for d, size in enumerate(spatial):
            low, high = self.padding[d]
            if size and low + size + high < self.extent(d):
                node.unsupported(
                    f"the window spans {self.extent(d)} elements of spatial dimension {d}, where "
                    f"the input has {size}, padded by {low} and {high}"
                )


def read_window(node: Node, size: list[int], spatial: Sequence[int]) -> Window:
    """The window of `node` over input dimensions `spatial`, `auto_pad` resolved."""
    rank = len(spatial)
    window = read_kernel(node, size, rank)
    mode = padding_mode(node)
    if mode == "VALID":
        return window
    if mode == "NOTSET":
        return replace(window, padding=read_pads(node, rank))
    padding = [_same(window, d, spatial[d], upper=mode == "SAME_UPPER") for d in range(rank)]
    return replace(window, padding=padding)


def read_kernel(node: Node, size: list[int], rank: int) -> Window:
    """The window of `node` in `rank` dimensions, without padding."""
    require_positive(node, "kernel_shape", size, rank)
    declared = node.integers("kernel_shape", size)
    if declared != size:
        node.unsupported(f"kernel_shape {declared} contradicts the kernel, which is of {size}")
    return Window(size, *read_steps(node, rank), [(0, 0)] * rank)


def read_steps(node: Node, rank: int) -> tuple[list[int], list[int]]:
    """Strides and dilations of `rank` dimensions."""
    strides = node.integers("strides", [1] * rank)
    dilations = node.integers("dilations", [1] * rank)
    require_positive(node, "strides", strides, rank)
    require_positive(node, "dilations", dilations, rank)
    return strides, dilations


def require_positive(node: Node, name: str, numbers: Sequence[int], count: int) -> None:
    """Refuse `node` unless `name` has `count` numbers, all above zero."""
    if len(numbers) != count or any(number < 1 for number in numbers):
        noun = "one positive number" if count == 1 else f"{count} positive numbers"
        node.unsupported(f"{name} {list(numbers)} should be {noun}: one for each spatial dimension")


def padding_mode(node: Node) -> str:
    """`auto_pad`: NOTSET, VALID, SAME_UPPER or SAME_LOWER."""
    mode = node.text("auto_pad", "NOTSET") or "NOTSET"
    if mode not in _PADDING_MODES:
        node.unsupported(f'auto_pad "{mode}" is not one of {", ".join(_PADDING_MODES)}')
    return mode


_PADDING_MODES = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


def read_pads(node: Node, rank: int) -> list[tuple[int, int]]:
    """`pads` at both ends of `rank` dimensions."""
    pads = node.integers("pads", [0] * 2 * rank)
    if len(pads) != 2 * rank:
        node.unsupported(f"pads {pads} should have {2 * rank} entries")
    return list(zip(pads[:rank], pads[rank:], strict=True))


def _same(window: Window, d: int, size: int, *, upper: bool) -> tuple[int, int]:
    """Padding with which the output has ceil(size / stride) elements."""
    count = -(-size // window.strides[d])
    total = max((count - 1) * window.strides[d] + window.extent(d) - size, 0)
    return (total // 2, total - total // 2) if upper else (total - total // 2, total // 2)
