"""Sliding windows: the strides, dilations and padding of convolutions and poolings."""

from __future__ import annotations

from dataclasses import dataclass

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


def read_window(node: Node, size: list[int], spatial: tuple[int, ...]) -> Window:
    """The window of `node` over input dimensions `spatial`, `auto_pad` resolved."""
    rank = len(spatial)
    strides = node.integers("strides", [1] * rank)
    dilations = node.integers("dilations", [1] * rank)
    if not len(size) == len(strides) == len(dilations) == rank:
        node.unsupported(
            f"the window {size} with strides {strides} and dilations {dilations} does not fit "
            f"an input of {rank} spatial dimensions"
        )
    window = Window(size, strides, dilations, [(0, 0)] * rank)
    mode = node.text("auto_pad", "NOTSET")
    if mode == "VALID":
        return window
    if mode == "NOTSET":
        pads = node.integers("pads", [0] * 2 * rank)
        if len(pads) != 2 * rank:
            node.unsupported(f"pads {pads} should have {2 * rank} entries")
        return Window(size, strides, dilations, list(zip(pads[:rank], pads[rank:], strict=True)))
    padding = [_same(window, d, spatial[d], upper=mode == "SAME_UPPER") for d in range(rank)]
    return Window(size, strides, dilations, padding)


def _same(window: Window, d: int, size: int, *, upper: bool) -> tuple[int, int]:
    """Padding with which the output has ceil(size / stride) elements."""
    count = -(-size // window.strides[d])
    total = max((count - 1) * window.strides[d] + window.extent(d) - size, 0)
    return (total // 2, total - total // 2) if upper else (total - total // 2, total // 2)
