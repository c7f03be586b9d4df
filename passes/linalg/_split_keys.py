"""Splitting the keys of an attention among blocks ("flash-decoding", T. Dao et al., 2023).

Few queries make few blocks, each of which walks over all keys. So a kernel gives each part of the
keys blocks of their own, and another one joins what they found: with the maximum m_i, the sum l_i
of weights and the output o_i of each part,

    m = max m_i      output = sum l_i exp(m_i - m) o_i / sum l_i exp(m_i - m)

The kernel of the parts bears how many there are. What it returns is written as if every part were
the whole, of which the second kernel makes the same output:

    %o = linalg.generic (weights @ values)        %o = linalg.generic (weights @ values)
    %y = linalg.generic (epilogue of %o)     ->   %parts = linalg.generic (%o for each part)
                                                  %maxima, %sums = the same of the softmax's
                                                  %joined = linalg.generic (%parts, %maxima, %sums)
                                                  %y = linalg.generic (epilogue of %joined)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from stepwell.attributes import i64
from stepwell.kernels.expressions import constant_of
from stepwell.kernels.gpu.attention import PARTS, AttentionParts
from stepwell.kernels.index import Index, Variable, apply_map, linearize
from stepwell.kernels.online_softmax import UEQ
from stepwell.kernels.structured import Structured, defining_op, element_type, shape_of
from stepwell.mlir import dialect, ir
from stepwell.passes.linalg._fusion_graph import FusionGraph, Group, Role

arith, math, tensor = dialect("arith"), dialect("math"), dialect("tensor")


def can_split(graph: FusionGraph, groups: Sequence[Group], parts: AttentionParts) -> bool:
    """Whether the attention of `groups`, scores, rows and values, can be split: its sums are in the
    order (batch, query, feature), start at zero, and nothing behind them reads the softmax."""
    *before, values = groups
    dims = [Variable(f"d{i}", 0, max(n, 1) - 1) for i, n in enumerate(parts.values_shape.sizes)]
    points = [Index.of(dim) for dim in dims]
    shape = parts.values_shape
    order = (*shape.batch, *shape.rows, shape.column)
    place = linearize([points[d] for d in order], [shape.sizes[d] for d in order])
    result = parts.values.op.results[0]
    return (
        linearize(apply_map(parts.values.output_map, points), shape_of(result)) == place
        and constant_of(parts.values.outputs[0]) == 0
        and not any(p.group in before for node in values.nodes[1:] for p in graph.producers(node))
        and len(shape_of(parts.softmax.maximum.op.results[0])) > 0
    )


def split_keys(
    graph: FusionGraph, groups: Sequence[Group], parts: AttentionParts, count: int
) -> Group:
    """Make `count` parts of the keys of the attention of `groups`; returns the group of the parts,
    behind which the rest is placed anew."""
    values = groups[-1]
    product, *epilogue = values.nodes
    result = product.op.results[0]
    uses = [(use.owner.operation, use.operand_number) for use in result.uses]
    readers = graph.reading_nodes(result)
    rows, features = parts.batch * parts.queries, parts.values_shape.n
    maximum, total = (r.op.results[0] for r in (parts.softmax.maximum, parts.softmax.total))
    with ir.InsertionPoint.after(product.op), product.op.location:
        whole = [
            _reshaped(value, shape)
            for value, shape in ((result, (rows, features)), (maximum, (rows,)), (total, (rows,)))
        ]
        found = [_repeated(value, count) for value in whole]
        joined = _joined(found, parts.softmax.zero_where)
        output = _reshaped(joined, shape_of(result))
    for user, number in uses:
        user.operands[number] = output
    for reader in readers:
        if reader is not None:
            reader.structured = Structured.of(reader.op)
    for node in epilogue:
        values.nodes.remove(node)
        node.group = None
    joining = graph.insert(joined, product, Role.ELEMENTWISE)
    for value in (*whole, output, *(_destination(value) for value in (*found, joined))):
        graph.insert(value, product, Role.INLINE)
    for value in found:
        node = graph.insert(value, product, Role.ELEMENTWISE)
        node.group = values
        values.nodes.append(node)
    group = graph.merge(list(groups), Role.ATTENTION)
    group.attributes[PARTS] = i64(count)
    graph.place(joining)
    for node in epilogue:
        graph.place(node)
    return group


def _reshaped(value: ir.Value, shape: tuple[int, ...]) -> ir.Value:
    """`value` with its outer dimensions as one, or that one as several again."""
    have = shape_of(value)
    if have == shape:
        return value
    long, short = max(have, shape, key=len), min(have, shape, key=len)
    joined = len(long) - len(short) + 1
    i64 = ir.IntegerType.get_signless(64)
    axes = [list(range(joined)), *([i] for i in range(joined, len(long)))]
    groups = ir.ArrayAttr.get(
        [ir.ArrayAttr.get([ir.IntegerAttr.get(i64, i) for i in group]) for group in axes]
    )
    kind = ir.RankedTensorType.get(shape, element_type(value))
    if len(have) > len(shape):
        return tensor.CollapseShapeOp(kind, value, groups).result
    return tensor.ExpandShapeOp(kind, value, groups, [], list(shape)).result


def _repeated(value: ir.Value, count: int) -> ir.Value:
    """`value`, in f32, `count` times."""
    shape = shape_of(value)
    dims = [ir.AffineExpr.get_dim(1 + i) for i in range(len(shape))]
    f32 = ir.F32Type.get()

    def wide(values: list[ir.Value]) -> ir.Value:
        return values[0] if values[0].type == f32 else arith.ExtFOp(f32, values[0]).result

    return _generic([value], [dims], (count, *shape), wide)


def _joined(found: list[ir.Value], zero_where: int | None) -> ir.Value:
    """The output of all parts, whose outputs, maxima and sums are `found`; 0 where no key was seen,
    or with `UEQ` where it is no number, if `zero_where` is a predicate."""
    count, *shape = shape_of(found[0])
    inputs, maps = [], []
    for value in found:
        for part in range(count):
            dims = [ir.AffineExpr.get_dim(i) for i in range(len(shape_of(value)) - 1)]
            inputs.append(value)
            maps.append([ir.AffineExpr.get_constant(part), *dims])

    def join(values: list[ir.Value]) -> ir.Value:
        outputs, maxima, sums = (values[i * count :][:count] for i in range(3))
        top = functools.reduce(lambda a, b: arith.MaximumFOp(a, b).result, maxima)
        weights = [
            arith.MulFOp(total, math.ExpOp(arith.SubFOp(low, top).result).result).result
            for low, total in zip(maxima, sums, strict=True)
        ]
        pairs = zip(weights, outputs, strict=True)
        weighed = _sum([arith.MulFOp(weight, output).result for weight, output in pairs])
        total = _sum(weights)
        result = arith.DivFOp(weighed, total).result
        if zero_where is None:
            return result
        zero, lowest = (arith.ConstantOp(result.type, n).result for n in (0.0, float("-inf")))
        known = (total, zero) if zero_where == UEQ else (top, lowest)
        none = arith.CmpFOp(zero_where, *known).result
        return arith.SelectOp(none, zero, result).result

    return _generic(inputs, maps, tuple(shape), join)


def _destination(value: ir.Value) -> ir.Value:
    """The `tensor.empty` that an operation of `_generic` writes into."""
    op = defining_op(value)
    assert op is not None
    return op.operands[len(op.operands) - 1]


def _sum(values: list[ir.Value]) -> ir.Value:
    return functools.reduce(lambda a, b: arith.AddFOp(a, b).result, values)


def _generic(
    inputs: list[ir.Value],
    maps: list[list[ir.AffineExpr]],
    shape: tuple[int, ...],
    body: Callable[[list[ir.Value]], ir.Value],
) -> ir.Value:
    """An elementwise operation that gives f32."""
    kind = ir.RankedTensorType.get(shape, ir.F32Type.get())
    rank = len(shape)
    identity = ir.AffineMap.get_identity(rank)
    all_maps = [*(ir.AffineMap.get(rank, 0, results) for results in maps), identity]
    op = ir.Operation.create(
        "linalg.generic",
        results=[kind],
        operands=[*inputs, tensor.EmptyOp(list(shape), kind.element_type).result],
        attributes={
            "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in all_maps]),
            "iterator_types": ir.ArrayAttr.get(
                [ir.Attribute.parse("#linalg.iterator_type<parallel>")] * rank
            ),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs), 1]),
        },
        regions=1,
    )
    block = op.regions[0].blocks.append(*map(element_type, inputs), kind.element_type)
    with ir.InsertionPoint(block):
        ir.Operation.create("linalg.yield", operands=[body(list(block.arguments)[:-1])])
    return op.results[0]
