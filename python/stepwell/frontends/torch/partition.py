"""Graphs of PyTorch of which some nodes cannot be compiled: cut into parts, which are compiled, and
what lies between them, which runs in PyTorch.

    y = relu(x @ w); v = eigvalsh(y); z = exp(v) * 2        // eigvalsh has no lowering

becomes `part_0` (x @ w, relu), `aten._linalg_eigh` and `part_1` (exp, multiply). An operator that
has no lowering somewhere runs in PyTorch wherever the graph has it, and so does a node that is
alone between two of them: calling compiled code would cost more than it saves.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.fx
from torch.fx.node import _get_qualified_name
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase
from torch.fx.passes.utils.fuser_utils import fuse_by_partitions

from stepwell.errors import Error, Unsupported, UnsupportedError
from stepwell.frontends.torch.compiled import Compiled, Settings
from stepwell.frontends.torch.graph import node_name, why_unsupported

_aten = torch.ops.aten

_VIEWS = tuple(
    _get_qualified_name(target)
    for target in (
        operator.getitem,
        _aten._unsafe_view.default,
        _aten.alias.default,
        _aten.clone.default,
        _aten.detach.default,
        _aten.expand.default,
        _aten.permute.default,
        _aten.slice.Tensor,
        _aten.squeeze.dim,
        _aten.squeeze.dims,
        _aten.t.default,
        _aten.transpose.int,
        _aten.unsqueeze.default,
        _aten.view.default,
    )
)
"""Nodes without arithmetic: a part has at least two others."""

_PREFIX = "part_"
ALONE = "fewer than two nodes stand between others that run in PyTorch"
"""Why a node runs in PyTorch that could be compiled."""

_WITH_FUNCTIONS = (
    "operators that take functions (torch.cond, scan) are compiled in whole graphs only"
)


@dataclass(frozen=True)
class Partitioned:
    """A graph of which parts are compiled. `nodes` are those that run in PyTorch, with reasons."""

    run: Callable[..., Sequence[object]]
    parts: int
    nodes: tuple[Unsupported, ...]


def partition(
    trace: Callable[[], torch.fx.GraphModule],
    constants: Mapping[int, torch.Tensor],
    settings: Settings,
    error: UnsupportedError,
) -> Partitioned | None:
    """Compile what can be compiled of a graph, which `trace` gives anew at each call and of which
    `error` has the first nodes that cannot. `constants` are values of placeholders by number.

    None when no part is left, or when the error is of no node of the graph.
    """
    reasons: dict[object, str] = {}
    """Why, by operator."""
    findings: Sequence[Unsupported] = error.findings
    while True:
        module = trace()
        found = _operators(module, findings)
        if findings is not error.findings and not found.keys() - reasons.keys():
            return None
        reasons |= found
        fused = _cut(module, reasons)
        parts = [node for node in fused.graph.nodes if node.op == "call_module"]
        if not parts:
            return None
        try:
            built, failed = _build(fused, parts, constants, settings)
        except UnsupportedError as other:
            findings = other.findings
            continue
        if not built:
            return None
        nodes = _left(fused, reasons, failed)
        for name, compiled in built.items():
            delattr(fused, name)
            setattr(fused, name, compiled)
        return Partitioned(fused.forward, len(built), nodes)


def _operators(module: torch.fx.GraphModule, findings: Sequence[Unsupported]) -> dict[object, str]:
    """The operators of the nodes that `findings` name, with the reason of each, but for nodes that
    are refused by themselves."""
    reasons = {finding.node: finding.reason for finding in findings}
    return {
        node.target: reasons[node_name(node)]
        for node in module.graph.nodes
        if node.op == "call_function" and node_name(node) in reasons and not why_unsupported(node)
    }


class _Support(OperatorSupportBase):
    def __init__(self, refused: Mapping[object, str]) -> None:
        self._refused = refused

    def is_node_supported(
        self, submodules: Mapping[str, torch.nn.Module], node: torch.fx.Node
    ) -> bool:
        if node.op != "call_function" or node.target in self._refused or why_unsupported(node):
            return False
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            return False
        if node.target is operator.getitem:
            source = node.args[0]
            return isinstance(source, torch.fx.Node) and self.is_node_supported(submodules, source)
        value = node.meta.get("val")
        values = value if isinstance(value, (tuple, list)) else [value]
        return all(isinstance(v, torch.Tensor) for v in values)


def _cut(module: torch.fx.GraphModule, refused: Mapping[object, str]) -> torch.fx.GraphModule:
    """`module` with a call of a submodule for each part."""
    cutter = CapabilityBasedPartitioner(module, _Support(refused), non_compute_ops=_VIEWS)
    parts = [part.nodes for part in cutter.propose_partitions()]
    fused = fuse_by_partitions(module, parts, prefix=_PREFIX, always_return_tuple=True)
    fused.recompile()
    return fused


def _build(
    fused: torch.fx.GraphModule,
    parts: Sequence[torch.fx.Node],
    constants: Mapping[int, torch.Tensor],
    settings: Settings,
) -> tuple[dict[str, Callable[..., object]], dict[str, str]]:
    """Compiled parts by name, and why others could not be compiled."""
    placeholders = [node for node in fused.graph.nodes if node.op == "placeholder"]
    values = {placeholders[number]: value for number, value in constants.items()}
    built: dict[str, Callable[..., object]] = {}
    failed: dict[str, str] = {}
    for part in parts:
        name = str(part.target)
        known = {
            number: value
            for number, node in enumerate(part.args)
            if isinstance(node, torch.fx.Node)
            and (value := _constant(fused, node, values)) is not None
        }
        strides = [_strides(value) for value in part.meta["val"]]
        try:
            # Compiling changes the module, which is needed as it is when that fails.
            copy = torch.fx.GraphModule(fused, _copied(fused.get_submodule(name)))
            built[name] = _WithStrides(Compiled.of(copy, known, settings), strides)
        except UnsupportedError:
            raise
        except Error as error:
            failed[name] = str(error)
    return built, failed


def _copied(module: torch.nn.Module) -> torch.fx.Graph:
    assert isinstance(module, torch.fx.GraphModule)
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    return graph


def _constant(
    fused: torch.fx.GraphModule, node: torch.fx.Node, values: Mapping[torch.fx.Node, torch.Tensor]
) -> torch.Tensor | None:
    if node.op != "get_attr":
        return values.get(node)
    value = operator.attrgetter(str(node.target))(fused)
    return value if isinstance(value, torch.Tensor) else None


class _WithStrides:
    """A compiled part whose results have the strides that the graph was traced with: operators of
    PyTorch that read them, `as_strided` for one, were traced so."""

    def __init__(self, compiled: Compiled, strides: Sequence[tuple[int, ...] | None]) -> None:
        self._compiled, self._strides = compiled, tuple(strides)

    def __call__(self, *values: object) -> list[object]:
        results = self._compiled(*values)
        return [
            result if strides is None else _strided(result, strides)
            for result, strides in zip(results, self._strides, strict=True)
        ]


def _strides(value: torch.Tensor) -> tuple[int, ...] | None:
    """The strides of a tensor unless they are those of compiled code."""
    return None if value.is_contiguous() else tuple(value.stride())


def _strided(result: object, strides: tuple[int, ...]) -> torch.Tensor:
    assert isinstance(result, torch.Tensor)
    if result.stride() == strides:
        return result
    return torch.empty_strided(result.shape, strides, dtype=result.dtype).copy_(result)


def _left(
    fused: torch.fx.GraphModule, refused: Mapping[object, str], failed: Mapping[str, str]
) -> tuple[Unsupported, ...]:
    """All nodes that run in PyTorch, in the order of the graph."""
    found = []
    for node in fused.graph.nodes:
        if node.op == "call_module" and node.target in failed:
            part = fused.get_submodule(str(node.target))
            assert isinstance(part, torch.fx.GraphModule)
            reason = failed[node.target]
            found += [_finding(inner, reason) for inner in part.graph.nodes if _computes(inner)]
        elif _computes(node):
            reason = refused.get(node.target) or why_unsupported(node)
            if not reason and isinstance(node.target, torch._ops.HigherOrderOperator):
                reason = _WITH_FUNCTIONS
            reason = reason or ALONE
            found.append(_finding(node, reason))
    return tuple(found)


def _computes(node: torch.fx.Node) -> bool:
    return node.op == "call_function" and node.target is not operator.getitem


def _finding(node: torch.fx.Node, reason: str) -> Unsupported:
    return Unsupported(node_name(node), str(node.target).removesuffix(".default"), reason)
