"""What is better computed again than stored, and the other way round, before groups are formed.

Cheap operations between two reductions over outer dimensions are repeated for each reader:

    %m = mean(%x); %d = %x - %m; %v = sum(%d * %d); %y = %d * rsqrt(%v)

No kernel computes both the variance and the result, so that %d would be written once and read
twice. %x is in memory, since its mean was taken before: each of the two reads that instead.

Bytes that a contraction reads are in memory: who needs them as floats too converts them there.

What is put beyond the part of an image in use, for a sum over all of it, is left out there: the
image is stored as it is, and neither is computed further than it is in use.

Numbers of groups of channels are stored for each channel where the channels of a group are no whole
vectors: 320 numbers once, for all points of an image, instead of lane by lane at each.
"""

from __future__ import annotations

from stepwell.kernels.rows import is_costly
from stepwell.kernels.structured import RESHAPES, Structured, elements, map_dims, shape_of
from stepwell.mlir import ir
from stepwell.passes.linalg._fusion_graph import ANCHORED, RESULT, FusionGraph, Node, Role

_VECTOR = 8
_TIMES_READ = 16
"""A stored broadcast is read so often at least."""


def store_uneven_broadcasts(block: ir.Block) -> None:
    """Let broadcasts in `block` whose innermost runs are no whole vectors be kernels' results."""
    for child in block.operations:
        op = child.operation
        structured = Structured.of(op)
        copied = None if structured is None else structured.copied_input()
        if structured is None or copied is None or not structured.iterators:
            continue
        run = shape_of(op.results[0])[-1]
        repeated = len(structured.iterators) - 1 not in map_dims(structured.maps[copied])
        uneven = repeated and run > 1 and run % _VECTOR != 0
        if uneven and _is_read_often(op.results[0], _TIMES_READ * elements(op.results[0])):
            op.attributes[RESULT] = ir.UnitAttr.get()


def _is_read_often(value: ir.Value, least: int) -> bool:
    """Whether `value` is broadcast to `least` elements and more."""
    for use in value.uses:
        op = use.owner.operation
        structured = Structured.of(op)
        if op.name in RESHAPES and _is_read_often(op.results[0], least):
            return True
        if structured is not None and structured.copied_input() is not None:
            return elements(op.results[0]) >= least
    return False


def repeat_between_reductions(block: ir.Block) -> None:
    """Give each reader of such an operation in `block` one of its own."""
    graph = FusionGraph(block)
    for node in graph.nodes:
        if _is_worth_it(graph, node):
            for reader in _readers(node.op.results[0])[1:]:
                with ir.InsertionPoint(reader):
                    clone = node.op.clone()
                for number, operand in enumerate(reader.operands):
                    if operand == node.op.results[0]:
                        reader.operands[number] = clone.results[0]


def _is_worth_it(graph: FusionGraph, node: Node) -> bool:
    if node.role is not Role.ELEMENTWISE or node.structured is None:
        return False
    result = node.op.results[0]
    read = [base for operand in node.structured.inputs for base in graph.bases(operand)]
    whole = [base for base in read if elements(base) == elements(result)]
    if len(whole) != 1:
        return False
    readers = [graph.by_value.get(op.results[0]) for op in _readers(result) if op.results]
    if len(readers) < 2 or any(r is None or r.role is not Role.ELEMENTWISE for r in readers):
        return False
    stored = any(n is not None and _reduces(n) for n in graph.reading_nodes(whole[0]))
    if not stored or _is_costly_here(node):
        return False
    return any(_is_reduced(graph, r) for r in readers if r is not None)


def is_converted_by_reader(graph: FusionGraph, node: Node) -> bool:
    """Whether `node` converts bytes, of which a contraction reads what integers became of them, for
    one reader that computes at the same elements: a residual, say. The floats would take four times
    the memory."""
    if node.role is not Role.ELEMENTWISE or node.structured is None:
        return False
    bytes = _whole_operand(graph, node)
    if bytes is None or _bits(bytes) != 8 or _bits(node.op.results[0]) is not None:
        return False
    if not _is_contracted(graph, bytes):
        return False
    while node.role is Role.ELEMENTWISE and _whole_operand(graph, node) is not None:
        (reader, *others) = graph.reading_nodes(node.op.results[0]) or {None}
        if reader is None or others:
            return False
        node = reader
    return node.role in (Role.ELEMENTWISE, Role.ROW_REDUCTION)


def is_widened_by_reader(graph: FusionGraph, node: Node) -> bool:
    """Whether `node` widens floats that an anchor's group makes, for a reduction of rows, which is
    another kernel's: what lies between is narrow."""
    if node.role is not Role.ELEMENTWISE or node.structured is None:
        return False
    operation, *_ = node.structured.body.operations
    source = _whole_operand(graph, node)
    if operation.operation.name != "arith.extf" or source is None:
        return False
    maker = graph.by_value.get(source)
    if maker is None or maker.group is None or maker.group.kind not in ANCHORED:
        return False
    readers = graph.reading_nodes(node.op.results[0])
    return any(reader is not None and reader.role is Role.ROW_REDUCTION for reader in readers)


def is_filled_by_reader(graph: FusionGraph, node: Node) -> bool:
    """Whether `node` chooses between what an anchor computes and a constant, by one of the host's
    vectors of booleans, for a reduction over outer dimensions alone."""
    if node.structured is None or not _is_chosen_by_prefix(graph, node.structured):
        return False
    if not any(p.group is not None and p.group.kind in ANCHORED for p in graph.producers(node)):
        return False
    while node.role is Role.ELEMENTWISE:
        (reader, *others) = graph.reading_nodes(node.op.results[0]) or {None}
        if reader is None or others:
            return False
        node = reader
    return node.role is Role.OUTER_REDUCTION


def _is_chosen_by_prefix(graph: FusionGraph, op: Structured) -> bool:
    """Whether `op` is a `select` by a vector of booleans that is an argument of the host."""
    select, *rest = [child.operation for child in op.body.operations]
    if select.name != "arith.select" or len(rest) != 1:
        return False
    arguments = list(op.body.arguments)
    condition, _, other = select.operands
    if condition not in arguments[: len(op.inputs)] or other in arguments:
        return False
    bases = graph.bases(op.inputs[arguments.index(condition)])
    return all(
        isinstance(base.owner, ir.Block)
        and isinstance(base.owner.owner, ir.OpView)
        and base.owner.owner.operation.name == "func.func"
        and len(shape_of(base)) == 1
        for base in bases
    )


def _is_contracted(graph: FusionGraph, value: ir.Value) -> bool:
    """Whether a contraction reads integers that are `value`, or computed from it one by one."""
    waiting, seen = [value], {value}
    while waiting:
        for reader in graph.reading_nodes(waiting.pop()):
            if reader is None:
                continue
            if reader.role is Role.CONTRACTION:
                return True
            follows = reader.role in (Role.ELEMENTWISE, Role.PAD)
            if follows and _bits(result := reader.op.results[0]) is not None and result not in seen:
                seen.add(result)
                waiting.append(result)
    return False


def _whole_operand(graph: FusionGraph, node: Node) -> ir.Value | None:
    """What an elementwise operation reads that is as large as its result, where that is one."""
    assert node.structured is not None
    read = {base: None for operand in node.structured.inputs for base in graph.bases(operand)}
    whole = [base for base in read if elements(base) == elements(node.op.results[0])]
    return whole[0] if len(whole) == 1 else None


def _bits(value: ir.Value) -> int | None:
    """The width of the integers in `value`; None where it has others."""
    kind = ir.ShapedType(value.type).element_type
    return kind.width if isinstance(kind, ir.IntegerType) else None


def _readers(value: ir.Value) -> list[ir.Operation]:
    return list(dict.fromkeys(use.owner.operation for use in value.uses))


def _is_costly_here(node: Node) -> bool:
    """Whether the operation itself is; what it reads is stored or computed in either case."""
    assert node.structured is not None
    return is_costly(node.op.results[0]) or any(
        child.operation.name == "arith.divf" for child in node.structured.body.operations
    )


def _reduces(node: Node) -> bool:
    return node.role is Role.OUTER_REDUCTION


def _is_reduced(graph: FusionGraph, node: Node) -> bool:
    """Whether a reduction, and nothing else, reads what becomes of `node` element by element."""
    while node.role is Role.ELEMENTWISE:
        readers = graph.reading_nodes(node.op.results[0])
        (reader, *others) = readers or {None}
        if reader is None or others:
            return False
        node = reader
    return _reduces(node)
