"""`form-fusion-groups`: put tensor operations into groups and outline each as one kernel.

A group is a contraction or an outer reduction with its whole epilogue (bias, activation, residual,
the zero halo of a following convolution), or a set of elementwise operations and reductions over
the same rows (a softmax, a normalisation), or a concatenation with what makes its parts. Kernels
take their inputs and one destination per result, and equal groups share one kernel.

    func.func @main(%x, %w, %b) {                     func.func private @kernel_0(%x, %w, %b, %out)
      %0 = linalg.generic (x @ w)                       %0 = linalg.generic (x @ w)
      %1 = linalg.generic (%0 + b)           ->         %1 = linalg.generic (%0 + b)
      return %1                                         return %1
                                                      func.func @main(%x, %w, %b) {
                                                        %e = tensor.empty()
                                                        %0 = call @kernel_0(%x, %w, %b, %e)
                                                        return %0

Loops and branches of the host stay where they are; the operations in them become calls of kernels
too. What a body reads through inline operations outside of it, these are repeated in it.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import ClassVar

from stepwell.kernels.structured import RESHAPES, Structured, defining_op, location_names
from stepwell.mlir import dialect, ir
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg._absorption import absorb_producers
from stepwell.passes.linalg._attention import fuse_attention
from stepwell.passes.linalg._captured import captured, nested_operands
from stepwell.passes.linalg._fusion_graph import (
    MAX_DEPTH,
    STANDING,
    FusionGraph,
    Group,
    Node,
    Role,
    is_control,
    role_of,
)
from stepwell.passes.linalg._host_control import (
    TERMINATORS,
    copy,
    materialize_operands,
    repeat_inline,
)
from stepwell.passes.linalg._slices import read_slices_in_place
from stepwell.passes.linalg._storage import (
    is_converted_by_reader,
    is_filled_by_reader,
    is_widened_by_reader,
    repeat_between_reductions,
    store_uneven_broadcasts,
)
from stepwell.passes.linalg._triangles import write_triangles
from stepwell.passes.linalg._written_order import leave_to_producer
from stepwell.targets.nvidia import NvidiaTarget

func = dialect("func")
tensor = dialect("tensor")


@dataclass(frozen=True)
class FormFusionGroups(Pass):
    """Outline fusion groups of every function that no kernel attribute marks as done.

    `max_operations` bounds the operations of one group (0: no bound), `max_depth` those of a group
    that read one another in a row.
    """

    name: ClassVar[str] = "form-fusion-groups"
    max_operations: int = 0
    max_depth: int = MAX_DEPTH

    def run(self, op: ir.Operation, state: State) -> None:
        body = op.regions[0].blocks[0]
        hosts = [
            child.operation
            for child in body.operations
            if child.operation.name == "func.func"
            and "kernel.strategy" not in child.operation.attributes
            and not child.operation.attributes["sym_name"].value.startswith("kernel_")
            and len(child.operation.regions[0].blocks)
        ]
        known: dict[str, str] = {}
        for host in hosts:
            self._form(body, host, host.regions[0].blocks[0], known, state)

    def _form(
        self,
        body: ir.Block,
        host: ir.Operation,
        block: ir.Block,
        known: dict[str, str],
        state: State,
    ) -> None:
        """Form the groups of `block`, those of the loops and branches in it first."""
        for child in list(block.operations):
            if is_control(child.operation):
                for region in child.operation.regions:
                    repeat_inline(region.blocks[0])
                    self._form(body, host, region.blocks[0], known, state)
        _Outliner(body, host, block, known, self, state).run()


class _Outliner:
    def __init__(
        self,
        module_body: ir.Block,
        host: ir.Operation,
        block: ir.Block,
        known: dict[str, str],
        options: FormFusionGroups,
        state: State,
    ) -> None:
        self.module_body = module_body
        self.host = host
        self.block = block
        self.known = known
        self.limit = options.max_operations
        self.max_depth = options.max_depth
        self.state = state

    def run(self) -> None:
        _erase_unused(self.block)
        materialize_operands(self.block)
        _materialize_results(self.block)
        is_gpu = isinstance(self.state.target, NvidiaTarget)
        if is_gpu:
            write_triangles(self.block, self.state.weights)
            _erase_unused(self.block)
        repeat_between_reductions(self.block)
        store_uneven_broadcasts(self.block)
        graph = FusionGraph(self.block, self.max_depth)
        for node in graph.nodes:
            if not self.limit:
                leave_to_producer(graph, node, self.state.target)
            if node.role is not Role.INLINE and node.op.name not in TERMINATORS:
                if self._stands_alone(graph, node):
                    graph.start(node, graph.producers(node))
                else:
                    graph.place(node)
        if not self.limit:
            absorb_producers(graph, self.state)
            fuse_attention(graph, self.state)
            read_slices_in_place(graph)
        terminator = graph.nodes[-1].op
        outlined: dict[ir.Value, ir.Value] = {}
        for group in graph.sorted_groups():
            if group.kind in STANDING:
                group.nodes[0].op.move_before(terminator)
                continue
            self._outline(graph, group, terminator, outlined)
        views = [n for n in graph.nodes if n.role is Role.INLINE]
        for value, replacement in outlined.items():
            value.replace_all_uses_with(replacement)
        for node in views:
            node.op.move_before(terminator)
        self._sort_host(terminator)
        _erase_unused(self.block)

    def _stands_alone(self, graph: FusionGraph, node: Node) -> bool:
        """Whether `node` starts a group, whatever it reads."""
        if not self.limit:
            waits = (is_converted_by_reader, is_filled_by_reader, is_widened_by_reader)
            return any(test(graph, node) for test in waits)
        full = (
            p.group is not None and len(p.group.nodes) >= self.limit for p in graph.producers(node)
        )
        return any(full)

    def _outline(
        self,
        graph: FusionGraph,
        group: Group,
        terminator: ir.Operation,
        outlined: dict[ir.Value, ir.Value],
    ) -> None:
        members = {node.op for node in group.nodes}
        results = [
            result
            for node in group.nodes
            for result in node.op.results
            if graph.readers(result) - {group}
        ]
        inputs: dict[ir.Value, None] = {}
        body: dict[Node, None] = {}

        def require(value: ir.Value) -> None:
            stack = [(value, False)]
            while stack:
                value, ready = stack.pop()
                node = graph.by_value.get(value)
                if node is None or not (node.op in members or node.role is Role.INLINE):
                    inputs[value] = None
                elif ready:
                    body[node] = None
                elif node not in body:
                    stack.append((value, True))
                    stack += [(operand, False) for operand in reversed(graph.operands(node))]

        updated = group.nodes[0].op.operands[1] if group.kind is Role.UPDATE else None
        for node in group.nodes:
            operands = graph.operands(node)
            if updated is not None:
                del operands[1]
            for operand in operands:
                require(operand)
            body[node] = None
        arguments = list(inputs)
        types = [v.type for v in arguments] + [r.type for r in results]
        names = list(
            dict.fromkeys(n for node in group.nodes for n in location_names(node.op.location))
        )
        symbol = self._kernel(list(body), arguments, results, types, group)
        with ir.InsertionPoint(terminator):
            location = _fused(names)
            destinations = [
                outlined.get(updated, updated)
                if updated is not None
                else tensor.EmptyOp(list(r.type.shape), r.type.element_type, loc=location).result
                for r in results
            ]
            call = func.CallOp(
                [r.type for r in results],
                ir.FlatSymbolRefAttr.get(symbol),
                [outlined.get(a, a) for a in arguments] + destinations,
                loc=location,
            )
        for result, new in zip(results, call.results, strict=True):
            outlined[result] = new

    def _kernel(
        self,
        nodes: list[Node],
        arguments: list[ir.Value],
        results: list[ir.Value],
        types: list[ir.Type],
        group: Group,
    ) -> str:
        symbol = f"kernel_{len(self.known)}"
        while _has_symbol(self.module_body, symbol):
            symbol = f"{symbol}_"
        kernel_type = ir.FunctionType.get(types, [r.type for r in results])
        with ir.InsertionPoint(self.module_body):
            kernel = func.FuncOp(symbol, kernel_type, visibility="private")
        kernel.attributes["kernel.kind"] = ir.StringAttr.get(group.kind.value)
        for name, attribute in group.attributes.items():
            kernel.attributes[name] = attribute
        entry = kernel.add_entry_block()
        mapping = dict(zip(arguments, entry.arguments, strict=False))
        destinations = dict(zip(results, list(entry.arguments)[len(arguments) :], strict=True))
        with ir.InsertionPoint(entry):
            for node in nodes:
                _clone(node.op, mapping, destinations)
            func.ReturnOp([mapping[r] for r in results])
        digest = hashlib.sha256(_canonical_text(kernel.operation, symbol).encode()).hexdigest()
        if digest in self.known:
            kernel.operation.erase()
            return self.known[digest]
        self.known[digest] = symbol
        return symbol

    def _sort_host(self, terminator: ir.Operation) -> None:
        """Order the host's operations so that each stands after what it reads."""
        pending = [c.operation for c in self.block.operations if c.operation != terminator]
        placed: set[ir.Operation] = set()

        def place(op: ir.Operation) -> None:
            stack = [(op, False)]
            while stack:
                current, ready = stack.pop()
                if current in placed:
                    continue
                if ready:
                    current.move_before(terminator)
                    placed.add(current)
                    continue
                stack.append((current, True))
                for value in (*current.operands, *captured(current)):
                    producer = defining_op(value)
                    inside = producer is not None and producer.block == self.block
                    if inside and producer not in placed:
                        stack.append((producer, False))

        for op in pending:
            place(op)


def _materialize_results(block: ir.Block) -> None:
    """Give results that are arguments, constants or inline values an operation that writes them."""
    terminator = list(block.operations)[-1].operation
    seen: set[ir.Value] = set()
    for number, value in enumerate(list(terminator.operands)):
        base = value
        while (op := defining_op(base)) is not None and op.name in RESHAPES:
            base = op.operands[0]
        op = defining_op(base)
        graph_role = None
        if op is not None:
            graph_role = role_of(op, Structured.of(op))
        returned = terminator.name == "func.return" and (op is None or base in seen)
        if (returned or graph_role is Role.INLINE) and isinstance(value.type, ir.RankedTensorType):
            with ir.InsertionPoint(terminator), (op or terminator).location:
                terminator.operands[number] = copy(value)
        seen.add(base)


def _clone(
    op: ir.Operation, mapping: dict[ir.Value, ir.Value], destinations: dict[ir.Value, ir.Value]
) -> None:
    """Copy `op` to the insertion point with mapped operands; a result that leaves the kernel is
    written into its destination where the operation allows."""
    clone = op.clone()
    for number, operand in enumerate(list(clone.operands)):
        if operand in mapping:
            clone.operands[number] = mapping[operand]
    for inner, number, operand in nested_operands(clone):
        if operand in mapping:
            inner.operands[number] = mapping[operand]
    for result, new in zip(op.results, clone.results, strict=True):
        mapping[result] = new
    if op.name == "linalg.generic":
        first = len(clone.operands) - len(op.results)
        for number, result in enumerate(op.results, first):
            target = defining_op(op.operands[number])
            if result in destinations and target is not None and target.name == "tensor.empty":
                clone.operands[number] = destinations[result]
    elif role_of(op, None) is Role.UPDATE and op.results[0] in destinations:
        clone.operands[1] = destinations[op.results[0]]


def _erase_unused(block: ir.Block) -> None:
    """Erase operations without uses; operands of the erased ones may follow."""
    pending = [child.operation for child in block.operations]
    while pending:
        kept = []
        for op in reversed(pending):
            if op.name in (*TERMINATORS, "func.call") or any(
                True for r in op.results for _ in r.uses
            ):
                kept.append(op)
            else:
                op.erase()
        pending = kept[::-1] if len(kept) < len(pending) else []


def _canonical_text(kernel: ir.Operation, symbol: str) -> str:
    text = kernel.get_asm(enable_debug_info=False, large_elements_limit=16, use_local_scope=True)
    return re.sub(rf"@{symbol}\b", "@kernel", text)


def _has_symbol(block: ir.Block, symbol: str) -> bool:
    return any(
        "sym_name" in c.operation.attributes and c.operation.attributes["sym_name"].value == symbol
        for c in block.operations
    )


def _fused(names: list[str]) -> ir.Location:
    if len(names) <= 1:
        return ir.Location.name(names[0]) if names else ir.Location.unknown()
    return ir.Location.fused([ir.Location.name(n) for n in names])
