"""Graphs of PyTorch inside of others: the functions that `torch.cond`, `scan` and others take.

    %scan = call_function[target=scan](args = (%step_graph, [%state], [%xs], (%w,)))

where `%step_graph` is a submodule. See `control_flow` for what they become.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.fx
from torch.utils import _pytree

from stepwell.mlir import rewrite_as_strided

aten = torch.ops.aten

_SUPPORTED = frozenset(["cond", "while_loop", "scan", "map_impl"])


def why_unsupported(
    node: torch.fx.Node, why_unsupported_inside: Callable[[torch.fx.Node], str]
) -> str:
    """Why an operator that takes functions cannot be compiled, "" where it may be."""
    if str(node.target) not in _SUPPORTED:
        return f"the operator {node.target}, which takes functions, is not supported"
    arguments = _pytree.tree_leaves(node.args)
    graphs = set(graphs_of(node))
    values = [a for a in arguments if not (isinstance(a, torch.fx.Node) and _is_graph(a, graphs))]
    if not all(isinstance(v, torch.fx.Node) and _is_tensor(v.meta.get("val")) for v in values):
        return "it carries numbers; make tensors of them"
    if not all(map(_is_tensor, node.meta["val"])):
        return "its functions give something else than tensors"
    for graph in graphs:
        for inner in graph.graph.nodes:
            if inner.op == "call_function" and (reason := why_unsupported_inside(inner)):
                return f"{inner.target} in its function: {reason}"
    return ""


def prepare(module: torch.fx.GraphModule) -> None:
    """Bring the graphs inside of `module` into the form that the importer takes, and mark scans
    that go backwards."""
    _mark_reverse(module.graph)
    module.graph.eliminate_dead_code()
    used = {node.target for node in module.graph.nodes if node.op == "get_attr"}
    for name, child in list(module.named_children()):
        if name not in used:
            delattr(module, name)
            continue
        assert isinstance(child, torch.fx.GraphModule)
        prepare(child)
        rewrite_as_strided(child.graph)
        child.graph.eliminate_dead_code()


def graphs_of(node: torch.fx.Node) -> Iterator[torch.fx.GraphModule]:
    """The functions that a node takes."""
    module = node.graph.owning_module
    for argument in node.all_input_nodes:
        if argument.op == "get_attr" and module is not None:
            value = operator.attrgetter(str(argument.target))(module)
            if isinstance(value, torch.fx.GraphModule):
                yield value


def _is_graph(node: torch.fx.Node, graphs: set[torch.fx.GraphModule]) -> bool:
    module = node.graph.owning_module
    return node.op == "get_attr" and operator.attrgetter(str(node.target))(module) in graphs


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


def _mark_reverse(graph: torch.fx.Graph) -> None:
    """A scan of sequences that are flipped, and of which all results are, too, goes backwards over
    the sequences as they are."""
    for node in list(graph.nodes):
        if node.op != "call_function" or str(node.target) != "scan":
            continue
        arguments: Any = node.args
        _, states, sequences, _ = arguments
        users: list[Any] = list(node.users)
        results = [user for user in users if user.args[1] >= len(states)]
        flips = [user for result in results for user in result.users]
        if all(map(_is_flip, [*sequences, *flips])) and len(flips) >= len(results):
            before = [sequence.args[0] for sequence in sequences]
            node.update_arg(2, before)
            node.meta["reverse"] = True
            for flip in flips:
                flip.replace_all_uses_with(flip.args[0])


def _is_flip(node: torch.fx.Node) -> bool:
    arguments: Any = node.args
    return node.target is aten.flip.default and list(arguments[1]) == [0]
