"""Results of a graph that share their memory, or lie in it in another order.

    %b = aten.mul(%a, 2)                      %b = aten.mul(%a, 2)
    %c = aten.permute(%b, [1, 0])      ->     return (%b)        // views: %b as it is, and turned
    return (%b, %c)

Compiled code fills contiguous arrays that it shares with nobody. So it returns the tensor that
others are views of, in the order of its memory, and a call makes the views, as PyTorch itself
would: without a copy, and with a change of the one seen in the other.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeGuard

import torch
import torch.fx

from stepwell.frontends.torch.memory_order import memory_order

aten = torch.ops.aten


@dataclass(frozen=True)
class View:
    """A result: the tensor of compiled code at `position`, or what is seen in its memory with the
    sizes, strides and offset of `layout`."""

    position: int
    layout: tuple[tuple[int, ...], tuple[int, ...], int] | None = None

    def of(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """The result, given what compiled code returns."""
        tensor = tensors[self.position]
        return tensor if self.layout is None else tensor.as_strided(*self.layout)


def whole_results(graph: torch.fx.Graph) -> dict[int, View]:
    """The results of `graph` that are tensors, by number, as they are; it returns them alone."""
    (output,) = (node for node in graph.nodes if node.op == "output")
    results = output.args[0]
    numbers = [i for i, node in enumerate(results) if is_tensor(node)]
    output.args = (tuple(results[i] for i in numbers),)
    return {number: View(position) for position, number in enumerate(numbers)}


def views(graph: torch.fx.Graph) -> dict[int, View]:
    """Makes `graph`, of known sizes, return each memory once; the results that are tensors, by
    number, as views of what it returns."""
    (output,) = (node for node in graph.nodes if node.op == "output")
    results: Sequence[torch.fx.Node | None] = output.args[0]
    tensors = {i: node for i, node in enumerate(results) if is_tensor(node)}
    bases = {i: _base(node) for i, node in tensors.items()}
    counts = Counter(bases.values())
    returned: dict[torch.fx.Node, int] = {}
    found: dict[int, View] = {}
    for number, node in tensors.items():
        base, value = bases[number], node.meta["val"]
        whole = base.meta["val"]
        order = _order(whole)
        # A part alone: the rest need not be computed.
        is_part = counts[base] == 1 and value.numel() < whole.numel()
        if order is None or is_part or base.op == "placeholder":
            found[number] = View(returned.setdefault(node, len(returned)))
            continue
        position = returned.setdefault(_turned(graph, output, base, order), len(returned))
        is_whole = base is node and order == sorted(order)
        layout = tuple(value.shape), tuple(value.stride()), int(value.storage_offset())
        found[number] = View(position, None if is_whole else layout)
    output.args = (tuple(returned),)
    return found


def is_tensor(node: object) -> TypeGuard[torch.fx.Node]:
    """Whether a node gives a tensor."""
    return isinstance(node, torch.fx.Node) and isinstance(node.meta.get("val"), torch.Tensor)


def _base(node: torch.fx.Node) -> torch.fx.Node:
    """The node whose result `node` is a view of: itself, if it is none."""
    while True:
        is_item = node.target is operator.getitem  # of what a split gives, for instance
        source = _viewed(node.args[0] if is_item else node)
        if source is None or not _same_elements(source, node):
            return node
        node = source


def _viewed(node: object) -> torch.fx.Node | None:
    """What a node gives views of, None if it gives none."""
    if not isinstance(node, torch.fx.Node) or not isinstance(node.target, torch._ops.OpOverload):
        return None
    source = node.args[0] if node.target.is_view and node.args else None
    return source if isinstance(source, torch.fx.Node) else None


def _same_elements(source: torch.fx.Node, node: torch.fx.Node) -> bool:
    """Whether both have elements of one kind: a view may turn their bits into others, or signs."""
    if not is_tensor(source) or not is_tensor(node):
        return False
    values = (source.meta["val"], node.meta["val"])
    turned = any(value.is_conj() or value.is_neg() for value in values)
    return not turned and values[0].dtype == values[1].dtype


def _order(value: torch.Tensor) -> list[int] | None:
    """The dimensions as they follow each other in memory; None for a tensor with gaps."""
    order = memory_order(value.stride())
    return order if value.permute(order).is_contiguous() else None


def _turned(
    graph: torch.fx.Graph, output: torch.fx.Node, node: torch.fx.Node, order: list[int]
) -> torch.fx.Node:
    """`node` with its dimensions in this order."""
    if order == sorted(order):
        return node
    known = [user for user in node.users if user.meta.get("order") == order]
    if known:
        return known[0]
    with graph.inserting_before(output):
        turned = graph.call_function(aten.permute.default, (node, order))
    turned.meta = {"val": node.meta["val"].permute(order), "order": order}
    return turned
