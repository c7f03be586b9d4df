"""The graph that `form-fusion-groups` decides on: operations by role, groups, what may join what.

Roles: an *inline* operation (constant, reshape, broadcast, slice, transpose that keeps the
innermost dimension, weights that are widened where they are read, masks that compare indices) costs
nothing to repeat and is cloned into every group that reads through it; the others belong to exactly
one group. A group has an anchor (contraction or reduction over outer dimensions, whose consumers
become its epilogue) or is a set of *rows* (elementwise operations and reductions over the same
trailing dimensions)."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum

from stepwell.errors import LoweringError
from stepwell.kernels.evaluate import slice_source
from stepwell.kernels.group import extracted
from stepwell.kernels.index import Index, Variable, apply_map, linearize, reshaped
from stepwell.kernels.scan import is_scan
from stepwell.kernels.slices import TakenSlices
from stepwell.kernels.sparse_product import SPARSE
from stepwell.kernels.structured import (
    RESHAPES,
    Structured,
    contraction_operands,
    defining_op,
    elements,
    is_multiply_add,
    map_dims,
    shape_of,
)
from stepwell.kernels.triangle import TRIANGLE
from stepwell.kernels.widened_weights import WIDENED
from stepwell.mlir import ir
from stepwell.passes.linalg._captured import captured

MAX_DEPTH = 256
"""Operations of a group that read one another in a row. Special functions have less than 100; ten
steps of a Runge-Kutta method fit, and take 1.8 times as long in four kernels as in one. CPUs
overlap the rows of several vectors where these are short: a chain of 1,000 sums, products and
maxima takes 1.2 times as long in one kernel as in eight. Emitters go along such a row by calls
within calls (`lower_groups_to_affine`)."""


class Role(Enum):
    """What an operation is to fusion."""

    INLINE = "inline"
    ELEMENTWISE = "elementwise"
    TRANSPOSE = "transpose"
    CONTRACTION = "contraction"
    ATTENTION = "attention"
    ROW_REDUCTION = "row-reduction"
    OUTER_REDUCTION = "outer-reduction"
    SPARSE_PRODUCT = "sparse-product"
    SCAN = "scan"
    PAD = "pad"
    CONCATENATE = "concatenate"
    UPDATE = "update"
    CONTROL = "control"
    CALL = "call"
    OTHER = "other"


RESULT = "kernel.result"
"""Marks a copy that makes a result of the host: never inline."""

HOST = "stepwell.host"
"""Marks control flow of StableHLO that the host program runs itself."""

_SOURCES = ("arith.constant", "ub.poison", "tensor.empty", "linalg.fill")
"""What reads no tensor."""

ANCHORED = (Role.CONTRACTION, Role.OUTER_REDUCTION, Role.SPARSE_PRODUCT)
STANDING = (Role.CONTROL, Role.CALL)
"""What stays in the host as it is: control flow, and calls of library functions."""

CLOSED = (Role.TRANSPOSE, Role.CONCATENATE, Role.UPDATE, *STANDING, Role.OTHER)
"""Groups of these roles take no consumers; a transpose or a concatenation may still be padded."""


@dataclass(eq=False)
class Node:
    """An operation of the host function in program order."""

    op: ir.Operation
    order: int
    role: Role
    structured: Structured | None
    group: Group | None = None
    depth: int = 1
    """Operations on the longest path to this one within its group, as it was placed."""


@dataclass(eq=False)
class Group:
    """Operations that become one kernel. `domain` is the element count of its full values, `rows`
    that of its reduced ones (None while nothing is reduced). `attributes` are the kernel's own."""

    kind: Role
    domain: int
    rows: int | None = None
    nodes: list[Node] = field(default_factory=list)
    padded: bool = False
    attributes: dict[str, ir.Attribute] = field(default_factory=dict)

    @property
    def first(self) -> int:
        return self.nodes[0].order

    @property
    def last(self) -> int:
        return self.nodes[-1].order


def role_of(op: ir.Operation, structured: Structured | None) -> Role:
    """The role that `op` has, from its structure alone."""
    if op.name in (*_SOURCES, *RESHAPES) or _is_repeated(op):
        return Role.INLINE
    if op.results and not any(isinstance(r.type, ir.ShapedType) for r in op.results):
        return Role.INLINE
    if is_control(op):
        return Role.CONTROL
    if op.name == "func.call":
        return Role.CALL
    if op.name == "tensor.extract_slice":
        return Role.INLINE if _has_known_sizes(op) else Role.OTHER
    if op.name == "tensor.insert_slice":
        return Role.UPDATE if _has_known_sizes(op) else Role.OTHER
    if op.name == "tensor.pad":
        return Role.PAD if _is_constant_pad(op) else Role.OTHER
    if op.name == "tensor.concat":
        return Role.CONCATENATE
    if is_scan(op):
        return Role.SCAN
    if structured is None or len(structured.outputs) != 1:
        return Role.OTHER
    if structured.is_elementwise:
        return Role.ELEMENTWISE if RESULT in op.attributes else _elementwise_role(structured)
    if "reduction" in structured.iterators:
        return _reduction_role(structured)
    return Role.OTHER


def _is_repeated(op: ir.Operation) -> bool:
    """Whether `op` computes what is computed again wherever it is read: widened weights, masks that
    compare indices."""
    return WIDENED in op.attributes or TRIANGLE in op.attributes


def is_control(op: ir.Operation) -> bool:
    """Whether `op` is a loop or a branch that the host program can run: on nothing but tensors."""
    if op.name not in ("scf.while", "scf.if") or not op.results:
        return False
    arguments = [argument for region in op.regions for argument in region.blocks[0].arguments]
    operands = list(op.operands)[1 if op.name == "scf.if" else 0 :]
    return all(
        isinstance(value.type, ir.RankedTensorType) and value.type.has_static_shape
        for value in (*operands, *op.results, *arguments)
    )


def is_host_block(block: ir.Block) -> bool:
    """Whether operations of `block` are the host program's: it is that of a function, or of a loop
    or a branch that the host runs."""
    owner = block.owner.operation
    while owner.name != "func.func":
        if HOST not in owner.attributes and not is_control(owner):
            return False
        owner = owner.parent.operation
    return True


def _has_known_sizes(op: ir.Operation) -> bool:
    return all(v >= 0 for name in ("static_sizes", "static_strides") for v in op.attributes[name])


def _is_constant_pad(op: ir.Operation) -> bool:
    static = all(v >= 0 for name in ("static_low", "static_high") for v in op.attributes[name])
    yielded = op.regions[0].blocks[0].operations[0].operands[0]
    source = defining_op(yielded)
    return static and source is not None and source.name == "arith.constant"


def _elementwise_role(structured: Structured) -> Role:
    copied = structured.copied_input()
    if copied is None:
        return Role.ELEMENTWISE
    source, result = structured.inputs[copied], structured.op.results[0]
    if elements(source) < elements(result):
        return Role.INLINE
    sizes = structured.loop_sizes()
    dims = [Variable(f"d{i}", 0, size - 1) for i, size in enumerate(sizes)]
    point = apply_map(structured.maps[copied], [Index.of(d) for d in dims])
    inner = _innermost(dims)
    if inner is None:
        return Role.INLINE
    flat = linearize(point, shape_of(source))
    return Role.INLINE if flat.coefficient(inner) == 1 else Role.TRANSPOSE


def _reduction_role(structured: Structured) -> Role:
    iterators = structured.iterators
    reduced = [i for i, kind in enumerate(iterators) if kind == "reduction"]
    parallel = [i for i, kind in enumerate(iterators) if kind != "reduction"]
    output = map_dims(structured.output_map)
    if output != set(parallel) or not structured.reads_output:
        return Role.OTHER
    if SPARSE in structured.op.attributes:
        return Role.SPARSE_PRODUCT
    contracts = is_multiply_add(structured, widening=True)
    if contracts and contraction_operands(structured) is not None:
        return Role.CONTRACTION
    sizes = structured.loop_sizes()
    main = max(structured.inputs, key=elements)
    dims = [Variable(f"d{i}", 0, max(size, 1) - 1) for i, size in enumerate(sizes)]
    point = apply_map(structured.maps[structured.inputs.index(main)], [Index.of(d) for d in dims])
    flat = linearize(point, shape_of(main))
    by_stride = sorted(range(len(dims)), key=lambda i: -flat.coefficient(dims[i]))
    moving = [i for i in by_stride if sizes[i] > 1]
    if not moving or any(flat.coefficient(dims[i]) == 0 for i in moving):
        return Role.OTHER
    trailing = [i for i in moving if i in reduced]
    if moving[len(moving) - len(trailing) :] == trailing and _covers(flat, dims, sizes, main):
        in_order = [i for i in moving if i in parallel] == [i for i in parallel if sizes[i] > 1]
        return Role.ROW_REDUCTION if in_order else Role.OTHER
    inner_output = next((i for i in reversed(parallel) if sizes[i] > 1), None)
    if inner_output is None:
        return Role.OTHER
    in_windows = any(flat.coefficient(dims[i]) == 1 for i in trailing)  # of one channel
    contiguous = flat.coefficient(dims[inner_output]) == 1
    return Role.OUTER_REDUCTION if contiguous or in_windows else Role.OTHER


def _covers(flat: Index, dims: list[Variable], sizes: list[int], main: ir.Value) -> bool:
    """Whether the loops visit every element of `main` once (no windows that overlap)."""
    return math.prod(sizes) == elements(main) and flat.high == elements(main) - 1


def _innermost(dims: list[Variable]) -> Variable | None:
    return next((d for d in reversed(dims) if d.high > 0), None)


@dataclass(frozen=True)
class _Reads:
    """All values that a node reads, and those that it reads at computed indices."""

    values: list[ir.Value]
    gathered: list[ir.Value]

    @staticmethod
    def of(node: Node) -> _Reads:
        values, direct = [*node.op.operands, *captured(node.op)], set(node.op.operands)
        if node.structured is not None and len(values) > len(direct):
            dims = [Index.of(d) for d in _dims_of(node.structured)]
            direct.update(value for value, _ in extracted(node.structured, dims))
        return _Reads(values, [value for value in values if value not in direct])


class FusionGraph:
    """Nodes of a host function, and the groups they are put in, in which no path is longer than
    `max_depth` operations."""

    def __init__(self, block: ir.Block, max_depth: int = MAX_DEPTH) -> None:
        self.max_depth = max_depth
        self.nodes: list[Node] = []
        self.by_value: dict[ir.Value, Node] = {}
        self.groups: list[Group] = []
        # While nodes are placed: the groups that read one, and the last node that one waits for,
        # of its own or of the groups it needs.
        self._group_readers: dict[Group, dict[Group, None]] = {}
        self._reach: dict[Group, int] = {}
        self._known: dict[Node, _Reads] | None = None
        for order, child in enumerate(block.operations):
            op = child.operation
            structured = Structured.of(op)
            role = role_of(op, structured)
            node = Node(op, order, role, structured)
            self.nodes.append(node)
            for result in op.results:
                self.by_value[result] = node

    # Reading through inline operations

    def bases(self, value: ir.Value) -> list[ir.Value]:
        """The values behind `value` that inline operations lead to (constants lead nowhere)."""
        found: dict[ir.Value, None] = {}
        waiting, seen = [value], {value}
        while waiting:
            value = waiting.pop()
            node = self.by_value.get(value)
            if node is None or node.group is not None or node.role is not Role.INLINE:
                found[value] = None
                continue
            read = [v for v in self._behind_inline(node, value) if v not in seen]
            seen.update(read)
            waiting += reversed(read)
        return list(found)

    def _behind_inline(self, node: Node, value: ir.Value) -> list[ir.Value]:
        """What the inline operation `node` reads to make `value`."""
        if node.op.name in _SOURCES or _is_repeated(node.op):
            return []
        if not isinstance(value.type, ir.ShapedType):
            return list(dict.fromkeys(node.op.operands))
        if node.structured is not None and TakenSlices.of(node.structured) is not None:
            return list(dict.fromkeys(captured(node.op)))
        return [inline_source(node)]

    def pull(self, value: ir.Value, indices: list[Index]) -> tuple[ir.Value, list[Index]] | None:
        """The base value behind `value`, and where it is read for the element at `indices`."""
        while True:
            node = self.by_value.get(value)
            if node is None or node.group is not None or node.role is not Role.INLINE:
                return value, indices
            op = node.op
            if op.name in RESHAPES:
                source = op.operands[0]
                indices = reshaped(indices, shape_of(value), shape_of(source))
            elif op.name == "tensor.extract_slice":
                source, indices = op.operands[0], slice_source(op, indices)
            elif node.structured is not None and not _is_repeated(op):
                copied = node.structured.copied_input()
                assert copied is not None
                source = node.structured.inputs[copied]
                indices = apply_map(node.structured.maps[copied], indices)
            else:
                return None
            value = source

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """While operations stay as they are, in whichever groups, what they read is found once."""
        self._known = {}
        try:
            yield
        finally:
            self._known = None

    def _reads(self, node: Node) -> _Reads:
        if self._known is None:
            return _Reads.of(node)
        if node not in self._known:
            self._known[node] = _Reads.of(node)
        return self._known[node]

    def operands(self, node: Node) -> list[ir.Value]:
        """All values that `node` reads, those its region captures included."""
        return self._reads(node).values

    def producers(self, node: Node) -> list[Node]:
        """The grouped nodes that `node` reads, through inline operations."""
        found: dict[Node, None] = {}
        for value in self.operands(node):
            for base in self.bases(value):
                producer = self.by_value.get(base)
                if producer is not None and producer.group is not None:
                    found[producer] = None
        return list(found)

    def readers(self, value: ir.Value) -> set[Group | None]:
        """The groups that read `value`, directly or through inline operations; None is the host."""
        return {n.group if n is not None else None for n in self.reading_nodes(value)}

    def reading_nodes(self, value: ir.Value) -> set[Node | None]:
        """The nodes that read `value`, as `readers` has them."""
        found: set[Node | None] = set()
        stack = [value]
        while stack:
            for use in stack.pop().uses:
                node = self._node_around(use.owner.operation)
                if node is not None and node.role is Role.INLINE and node.group is None:
                    stack.extend(node.op.results)
                else:
                    found.add(node)
        return found

    def _node_around(self, op: ir.Operation) -> Node | None:
        """The node that is `op`, or whose region holds it."""
        current: ir.Operation | None = op
        while current is not None:
            for result in current.results:
                if result in self.by_value:
                    return self.by_value[result]
            current = current.parent.operation if current.parent is not None else None
        return None

    def _is_placed_by(self, value: ir.Value, group: Group) -> bool:
        """Whether `value` is a slice whose offset `group` computes: it is needed before loops."""
        node = self.by_value.get(value)
        while node is not None and node.group is None and node.role is Role.INLINE:
            if node.op.name == "tensor.extract_slice":
                bases = [
                    base for offset in list(node.op.operands)[1:] for base in self.bases(offset)
                ]
                makers = [self.by_value.get(base) for base in bases]
                if any(maker is not None and maker.group is group for maker in makers):
                    return True
            is_view = node.op.name in (*RESHAPES, "tensor.extract_slice")
            if _is_repeated(node.op) or not (is_view or node.structured is not None):
                return False
            node = self.by_value.get(inline_source(node))
        return False

    # Joining

    def merge(self, groups: list[Group], kind: Role) -> Group:
        """Make one group of several that, but for the last, nothing else reads."""
        nodes = sorted((n for g in groups for n in g.nodes), key=lambda node: node.order)
        merged = Group(kind, groups[-1].domain, nodes=nodes)
        for node in nodes:
            node.group = merged
        self._reach[merged] = max(self._reach[group] for group in groups)
        self._group_readers[merged] = dict(self._group_readers.get(groups[-1], {}))
        self.groups = [g for g in self.groups if g not in groups] + [merged]
        return merged

    def insert(self, value: ir.Value, after: Node, role: Role) -> Node:
        """A node for what makes `value`, which stands behind `after`; there is one already where
        `value` is known."""
        known = self.by_value.get(value)
        if known is not None:
            return known
        op = defining_op(value)
        assert op is not None
        node = Node(op, after.order, role, Structured.of(op))
        self.nodes.insert(self.nodes.index(after) + 1, node)
        self.by_value[value] = node
        return node

    def absorb(self, group: Group, reader: Group) -> None:
        """Put the nodes of `group`, which only `reader` reads, into `reader`."""
        if reader.rows is None:
            reader.rows = group.rows
        self.move(list(group.nodes), reader)

    def is_too_deep(self, nodes: Sequence[Node]) -> bool:
        """Whether a group of `nodes` would have a path of more than `max_depth` operations."""
        if len(nodes) <= self.max_depth:
            return False
        depths: dict[Node, int] = {}
        for node in sorted(nodes, key=lambda node: node.order):
            depths[node] = 1 + max((depths.get(p, 0) for p in self.producers(node)), default=0)
        return max(depths.values()) > self.max_depth

    def repeat(self, node: Node) -> None:
        """Let each reader of `node`, which is alone in its group, compute it by itself."""
        assert node.group is not None
        self.groups.remove(node.group)
        node.group, node.role = None, Role.INLINE

    def move(self, nodes: list[Node], reader: Group) -> None:
        """Put `nodes` of other groups into `reader`; groups without nodes are gone."""
        for node in nodes:
            assert node.group is not None
            node.group.nodes.remove(node)
            node.group = reader
        reader.nodes = sorted([*reader.nodes, *nodes], key=lambda node: node.order)
        self.groups = [g for g in self.groups if g.nodes]

    def place(self, node: Node) -> None:
        """Put `node` into the latest group that can take it, or into one of its own. Beside an
        anchor, operations without rows come last: they may follow the node (`absorb_producers`),
        which an anchor never does."""
        producers = self.producers(node)
        candidates = {p.group: None for p in producers if p.group is not None}
        has_anchor = any(group.kind in ANCHORED for group in candidates)

        def rank(group: Group) -> tuple[bool, int]:
            follows = group.kind is Role.ELEMENTWISE and group.rows is None
            return has_anchor and follows, -group.last

        for group in sorted(candidates, key=rank):
            depth = 1 + max(p.depth for p in producers if p.group is group)
            if depth > self.max_depth or not self.can_join(node, group):
                continue
            if not self._makes_cycle(producers, group):
                node.depth = depth
                self._join(node, group)
                self._note_reach(node, producers)
                return
        self.start(node, producers)

    def start(self, node: Node, producers: list[Node]) -> None:
        """Put `node`, which reads `producers`, into a group of its own."""
        domain = elements(node.op.results[0]) if node.op.results else 0
        group = Group(node.role, domain)
        if node.role is Role.ROW_REDUCTION:
            assert node.structured is not None
            group = Group(Role.ELEMENTWISE, math.prod(node.structured.loop_sizes()), domain)
        elif node.role is Role.PAD:
            group.padded = True
        self.groups.append(group)
        node.group = group
        group.nodes.append(node)
        self._note_reach(node, producers)

    def _note_reach(self, node: Node, producers: list[Node]) -> None:
        """What the group of `node` needs, it now waits for, and so do the groups that read it."""
        assert node.group is not None
        makers = [p.group for p in producers if p.group is not None and p.group is not node.group]
        for maker in makers:
            self._group_readers.setdefault(maker, {})[node.group] = None
        reach = max(node.order, *(self._reach[maker] for maker in makers), -1)
        stack = [node.group]
        while stack:
            group = stack.pop()
            if self._reach.get(group, -1) < reach:
                self._reach[group] = reach
                stack.extend(self._group_readers.get(group, ()))

    def _join(self, node: Node, group: Group) -> None:
        node.group = group
        group.nodes.append(node)
        if node.role is Role.ROW_REDUCTION:
            group.rows = elements(node.op.results[0])
        if node.role is Role.PAD:
            group.padded = True

    def can_join(self, node: Node, group: Group) -> bool:
        """Whether `group` can take `node`, whatever else reads or needs it."""
        if group.kind is Role.SCAN:
            return self._follows_scan(node, group)
        takes_pad = group.kind not in (Role.OTHER, Role.PAD, Role.UPDATE, *STANDING)
        if group.padded or not takes_pad:
            return False
        if node.role is Role.PAD:
            base = self.by_value.get(node.op.operands[0])
            whole = base is not None and base.group is group and group.rows is None
            return whole and elements(node.op.operands[0]) == group.domain
        if group.kind in CLOSED:
            return False
        if node.structured is None:
            return False
        if node.role is Role.ROW_REDUCTION:
            return self._reduction_joins(node, group)
        return node.role is Role.ELEMENTWISE and self._elementwise_joins(node, group)

    def _follows_scan(self, node: Node, group: Group) -> bool:
        """Whether `node` is computed of the elements of a scan, and of nothing else that has to be
        read beside them."""
        if node.role is not Role.ELEMENTWISE or elements(node.op.results[0]) != group.domain:
            return False
        bases = [base for value in self.operands(node) for base in self.bases(value)]
        makers = [self.by_value.get(base) for base in bases if elements(base) > 1]
        inside = all(maker is not None and maker.group is group for maker in makers)
        return inside and self.reads_agree(node, group, None)

    def _reduction_joins(self, node: Node, group: Group) -> bool:
        assert node.structured is not None
        rows = elements(node.op.results[0])
        if group.kind is not Role.ELEMENTWISE or group.rows not in (None, rows):
            return False
        if math.prod(node.structured.loop_sizes()) != group.domain or rows == group.domain:
            return False
        return self.reads_agree(node, group, rows)

    def _elementwise_joins(self, node: Node, group: Group) -> bool:
        assert node.structured is not None
        size = elements(node.op.results[0])
        if size == group.domain or (group.rows is not None and size == group.rows):
            return self.reads_agree(node, group, group.rows)
        return False

    def reads_agree(self, node: Node, group: Group, rows: int | None) -> bool:
        """Whether every value of `group` that `node` reads is read where the group computes it: at
        the same element, or at the element's row for reduced values."""
        assert node.structured is not None
        sizes, dims = node.structured.loop_sizes(), _dims_of(node.structured)
        point = [Index.of(d) for d in dims]
        here = linearize(point, sizes)
        total = math.prod(sizes)
        agree = False
        reads = extracted(node.structured, point)
        for number, value in enumerate(node.structured.inputs):
            if any(True for _ in node.structured.body.arguments[number].uses):
                reads.append((value, apply_map(node.structured.maps[number], point)))
        for value, place in reads:
            if self._is_placed_by(value, group):
                return False
            pulled = self.pull(value, place)
            if pulled is None:
                continue
            base, indices = pulled
            producer = self.by_value.get(base)
            if producer is None or producer.group is not group:
                continue
            there = linearize(indices, shape_of(base))
            size = elements(base)
            if size == total:
                if not self._same_element(there, here, dims, sizes, group):
                    return False
            elif rows is None or size != rows or there != here.floordiv(total // rows):
                return False
            agree = True
        return agree and all(other.group is not group for other in self.gathered(node))

    def _same_element(
        self,
        there: Index,
        here: Index,
        dims: list[Variable],
        sizes: list[int],
        group: Group,
    ) -> bool:
        if there == here:
            anchor = shape_of(group.nodes[0].op.results[0])
            return group.kind not in ANCHORED or _comes_back(anchor, tuple(sizes))
        if group.kind not in ANCHORED:
            return False
        inner = _innermost(dims)
        if any(atom not in dims for atom, _ in there.terms):
            return False
        return inner is not None and there.coefficient(inner) == 1 and there.is_linear

    def gathered(self, node: Node) -> set[Node]:
        """The nodes that the body of `node` reads at computed indices."""
        bases = [b for v in self._reads(node).gathered for b in self.bases(v)]
        return {self.by_value[base] for base in bases if base in self.by_value}

    def _makes_cycle(self, producers: list[Node], group: Group) -> bool:
        """Whether one of `producers` depends on `group`, of which it is none, through its group."""
        stack = [p for p in producers if p.group is not group]
        seen: set[Group] = set()
        while stack:
            other = stack.pop().group
            if other is None or other in seen or self._reach[other] < group.first:
                continue
            seen.add(other)
            for member in other.nodes:
                for producer in self.producers(member):
                    if producer.group is group:
                        return True
                    if producer.group is not other:
                        stack.append(producer)
        return False

    def needs(self, group: Group, others: set[Group]) -> bool:
        """Whether `group` needs what one of `others` makes, if only through further groups."""
        stack, seen = [group], {group}
        while stack:
            for producer in self._group_producers(stack.pop()):
                if producer in others:
                    return True
                if producer not in seen:
                    seen.add(producer)
                    stack.append(producer)
        return False

    def sorted_groups(self) -> list[Group]:
        """Groups in an order in which each comes after those it reads."""
        done: dict[Group, None] = {}
        state: set[Group] = set()

        def visit(group: Group) -> None:
            stack = [(group, iter(self._group_producers(group)))]
            state.add(group)
            while stack:
                current, producers = stack[-1]
                following = next((p for p in producers if p not in done), None)
                if following is None:
                    done[current] = None
                    stack.pop()
                    continue
                if following in state and following not in done:
                    raise LoweringError("form-fusion-groups made groups that need each other")
                state.add(following)
                stack.append((following, iter(self._group_producers(following))))

        for group in sorted(self.groups, key=lambda g: g.first):
            if group not in done:
                visit(group)
        return list(done)

    def _group_producers(self, group: Group) -> list[Group]:
        found: dict[Group, None] = {}
        for node in group.nodes:
            for producer in self.producers(node):
                if producer.group is not group and producer.group is not None:
                    found[producer.group] = None
        return list(found)


@functools.lru_cache(1024)
def _comes_back(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether the indices of an element of `shape` are known again when it is reshaped to `other`:
    a kernel stores what it computes at the one by the other. Dimensions that cut one another, 15
    rows of 10 and 6 of 25, leave quotients of sums."""
    if math.prod(shape) != math.prod(other):
        return True
    here = [Index.of(Variable(f"d{i}", 0, max(n, 1) - 1)) for i, n in enumerate(shape)]
    return reshaped(reshaped(here, shape, other), other, shape) == here


def _dims_of(structured: Structured) -> list[Variable]:
    return [Variable(f"d{i}", 0, max(n, 1) - 1) for i, n in enumerate(structured.loop_sizes())]


def inline_source(node: Node) -> ir.Value:
    """The one value that an inline operation reads."""
    if node.structured is not None:
        copied = node.structured.copied_input()
        assert copied is not None
        return node.structured.inputs[copied]
    return node.op.operands[0]
