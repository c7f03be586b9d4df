"""propagate-transposes: push transposes down through the network until they cancel.

    %t = stablehlo.transpose %x, dims = [0, 3, 1, 2]      // NHWC to NCHW
    %r = stablehlo.maximum %t, %zero
    %u = stablehlo.transpose %r, dims = [0, 2, 3, 1]      // and back
    %y = stablehlo.convolution(%u, %w) ...

becomes

    %r = stablehlo.maximum %x, %zero
    %y = stablehlo.convolution(%r, %w) ...

An op whose operands are all transposed alike, or cost nothing to transpose (constants, broadcasts),
works on what was there before, and one transpose follows it. Transposes move down, so the rewriting
ends; those into NHWC do not move but wait for others to arrive. Up they move only to vanish: past
broadcasts and what is computed from them (an upsampling repeats pixels so), to another transpose
or where nothing moves; and one into NHWC to a tensor that others read too, so that they find it in
that order. Before a product with constant weights a flattened NCHW tensor stays NHWC, and the rows
of the weights move instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir
from stepwell.mlir import stablehlo as bindings
from stepwell.passes.base import Pass, State
from stepwell.passes.stablehlo import (
    _joined_results,
    _merged_dimensions,
    _split_dimensions,
    simplify_algebra,
)
from stepwell.passes.stablehlo._reshapes import (
    Regrouping,
    groups_of,
    order_before_reshape,
    regroup,
)
from stepwell.passes.stablehlo._rules import Rules
from stepwell.passes.stablehlo._values import (
    ELEMENTWISE,
    constant_attribute,
    full_name,
    has_one_use,
    i64_pairs,
    i64s,
    integer,
    integers,
    inverse,
    optional_integers,
    padding,
    producer,
    rebuild,
    splat,
)
from stepwell.targets.nvidia import NvidiaTarget
from stepwell.weights import WeightTable

RULES = Rules()

for _rule in (simplify_algebra.transpose_chain, simplify_algebra.transpose_of_unit_dimensions):
    RULES.on("transpose")(_rule)
RULES.on("reshape")(simplify_algebra.reshape_chain)
RULES.on("reshape", "transpose", "slice")(simplify_algebra.identity_shape)
RULES.on(*sorted(ELEMENTWISE))(_merged_dimensions.through_elementwise)
RULES.on("reduce")(_merged_dimensions.through_reduce)
RULES.on(*sorted(ELEMENTWISE))(_split_dimensions.through_elementwise)
RULES.on("reduce")(_split_dimensions.through_reduce)


def _transposed(value: ir.Value) -> tuple[ir.Value, list[int]] | None:
    """The operand and the permutation of the transpose that makes `value`, if it should move.

    A transpose into NHWC stays where choose-layout has put it: just before its convolution.
    """
    op = producer(value, "transpose")
    if op is None:
        return None
    source, permutation = op.operands[0], integers(op, "permutation")
    rank, sizes = len(permutation), hlo.shape(source)
    long = [d for d in permutation if sizes[d] != 1]
    if long == sorted(long):  # it becomes a reshape
        return None
    into_nhwc = permutation == [0, *range(2, rank), 1]
    # In rank 3, into and out of NHWC are the same permutation; an input is in NCHW.
    if into_nhwc and (rank > 3 or not isinstance(source, ir.OpResult)) and _is_for_windows(value):
        return None
    if producer(source, *_COMPUTED) is not None and _moves_up(source, permutation):
        return None
    return source, permutation


def _is_for_windows(value: ir.Value) -> bool:
    """Whether a convolution or a pooling reads `value`, or a padding, into which a transpose is
    written, or one of them reads what is computed element by element from it."""
    values = [value]
    for known in values:
        users = [use.owner.operation for use in known.uses]
        names = {user.name.removeprefix("stablehlo.") for user in users}
        if not names.isdisjoint(("convolution", "reduce_window", "pad")):
            return True
        results = [user.results[0] for user in users if user.name in _ELEMENTWISE_NAMES]
        values += [result for result in results if result not in values]
    return False


_ELEMENTWISE_NAMES = frozenset(full_name(name) for name in ELEMENTWISE)
_COMPUTED = (*sorted(ELEMENTWISE), "concatenate", "reshape")
"""Ops that a transpose passes on its way up to broadcasts."""


def _is_free(value: ir.Value, permutation: Sequence[int]) -> bool:
    """Whether a transpose of `value` by `permutation` costs nothing at run time."""
    op = producer(value, "constant", "iota", "broadcast_in_dim")
    if op is None:
        return not hlo.shape(value) or _moves_up(value, permutation)
    return op.name != "stablehlo.broadcast_in_dim" or hlo.shape(op.operands[0]) != hlo.shape(value)


def _moves_up(value: ir.Value, permutation: Sequence[int]) -> bool:
    """Whether a transpose of `value` by `permutation` can move up, past what is computed element by
    element and past broadcasts, to where it moves nothing or, above a broadcast, meets another
    transpose."""
    queue, seen = [(value, tuple(permutation), False)], set()
    while queue:
        value, order, above_broadcast = entry = queue.pop()
        shape = hlo.shape(value)
        long = [d for d in order if shape[d] != 1]
        if entry in seen or long == sorted(long) or constant_attribute(value) is not None:
            continue
        seen.add(entry)
        op = producer(value, "iota", "transpose", "broadcast_in_dim", *_COMPUTED)
        name = None if op is None else op.name.removeprefix("stablehlo.")
        if op is None or (name == "transpose" and not above_broadcast):
            return False
        if name == "broadcast_in_dim":
            if hlo.shape(op.operands[0]) == shape:
                return False
            queue.append((op.operands[0], _order_before_broadcast(op, order), True))
        elif name == "reshape":
            source = op.operands[0]
            before = order_before_reshape(hlo.shape(source), shape, order)
            if before is None or constant_attribute(source) is not None:
                return False
            queue.append((source, before, above_broadcast))
        elif name in _COMPUTED:
            values = [operand for operand in op.operands if hlo.shape(operand)]
            queue += [(operand, order, above_broadcast) for operand in values]
    return True


def _order_before_broadcast(op: ir.Operation, permutation: Sequence[int]) -> tuple[int, ...]:
    """The order of the operand's dimensions after a transpose of the broadcast `op`."""
    where = inverse(permutation)
    targets = [where[d] for d in integers(op, "broadcast_dimensions")]
    return tuple(sorted(range(len(targets)), key=targets.__getitem__))


def _moved(value: ir.Value, permutation: Sequence[int]) -> ir.Value:
    """`value` transposed, by a new constant or broadcast where that is what it is."""
    shape = [hlo.shape(value)[d] for d in permutation]
    number = splat(value)
    if number is not None:
        return hlo.full(number, shape, hlo.dtype(value))
    op = producer(value, "iota", "broadcast_in_dim")
    if op is None:
        return hlo.transpose(value, permutation)
    where = inverse(permutation)
    if op.name == "stablehlo.iota":
        return hlo.iota(shape, where[integer(op, "iota_dimension")], hlo.dtype(value))
    targets = sorted(where[d] for d in integers(op, "broadcast_dimensions"))
    order = _order_before_broadcast(op, permutation)
    return hlo.broadcast_in_dim(_moved(op.operands[0], order), shape, targets)


@RULES.on("transpose")
def of_broadcast(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """A transpose of a broadcast or an iota is another broadcast or iota; one of what is computed
    from them element by element, or reshaped, moves up to them."""
    operand, permutation = op.operands[0], integers(op, "permutation")
    if not _is_free(operand, permutation) or constant_attribute(operand) is not None:
        return None
    above = producer(operand, *_COMPUTED)
    if above is None:
        return _moved(operand, permutation)
    if above.name == "stablehlo.reshape":
        source = above.operands[0]
        order = order_before_reshape(hlo.shape(source), hlo.shape(operand), permutation)
        assert order is not None
        return hlo.reshape(_moved(source, order), hlo.shape(op.results[0]))
    operands = [_moved(v, permutation) if hlo.shape(v) else v for v in above.operands]
    return _in_order(above, operands, permutation)


def _in_order(
    op: ir.Operation, operands: Sequence[ir.Value], permutation: Sequence[int]
) -> ir.Value:
    """The elementwise op or concatenation `op` of `operands`, which are those of `op` transposed by
    `permutation`."""
    attributes = {}
    if op.name == "stablehlo.concatenate":
        kind = ir.IntegerType.get_signless(64)
        dimension = permutation.index(integer(op, "dimension"))
        attributes["dimension"] = ir.IntegerAttr.get(kind, dimension)
    shape = hlo.shape(op.results[0])
    return rebuild(op, operands, [shape[d] for d in permutation], attributes)


@RULES.on("transpose")
def of_shared_source(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """A transpose into NHWC, before a convolution, of what is computed element by element from a
    tensor that others read too: the tensor itself is transposed, once, and they find it so."""
    permutation = integers(op, "permutation")
    rank = len(permutation)
    if rank < 3 or permutation != [0, *range(2, rank), 1] or not _is_for_windows(op.results[0]):
        return None
    chain = _down_from_shared(op)
    if not chain or producer(chain[0][0], "transpose") is not None:
        return None
    if rank == 3 and isinstance(chain[0][0], ir.OpResult):
        return None
    moved = hlo.transpose(chain[0][0], permutation)
    for value, reader in chain:
        operands = [
            moved if v == value else _moved(v, permutation) if hlo.shape(v) else v
            for v in reader.operands
        ]
        moved = _in_order(reader, operands, permutation)
    return moved


def _down_from_shared(transpose: ir.Operation) -> list[tuple[ir.Value, ir.Operation]]:
    """From a tensor that has other readers, too, down to the operand of `transpose`: tensors, each
    with the elementwise op that computes the next one from it and from what is free. Empty where
    there is no such tensor, or others than such transposes read the operand."""
    permutation = integers(transpose, "permutation")
    value, chain = transpose.operands[0], []
    for use in value.uses:
        user = use.owner.operation
        if user.name != transpose.name or integers(user, "permutation") != permutation:
            return []
    while (op := producer(value, *ELEMENTWISE)) is not None:
        costly = [v for v in op.operands if hlo.shape(v) and not _moves_up(v, permutation)]
        if not costly or any(v != costly[0] for v in costly):
            return []
        value = costly[0]
        chain.insert(0, (value, op))
        if any(use.owner.operation != op for use in value.uses):
            return chain
    return []


def _common(op: ir.Operation) -> list[int] | None:
    """The permutation that can be taken off the operands: some have it, the others are free.

    Operands that would need a transpose of their own are allowed where more are saved. Transposed
    constants are free, too: they are folded, and taking their transpose off would not end.
    """
    values = [value for value in op.operands if not _is_transposed_constant(value)]
    found = [(value, known[1]) for value in values if (known := _transposed(value))]
    if not found:
        return None
    permutation = found[0][1]
    with_it = frozenset(value for value, other in found if other == permutation)
    back = inverse(permutation)
    without = [value for value in values if value not in with_it and not _is_free(value, back)]
    # A value that is transposed back for another user is there in the other order already.
    costly = [value for value in without if not _is_undone(value, permutation, with_it)]
    gained = sum(has_one_use(value) and not _has_twin(value) for value in with_it)
    gained += _is_undone(op.results[0], permutation)
    return permutation if not without or gained > len(costly) else None


def _is_transposed_constant(value: ir.Value) -> bool:
    known = _transposed(value)
    return known is not None and constant_attribute(known[0]) is not None


def _is_undone(
    value: ir.Value, permutation: Sequence[int], beside: frozenset[ir.Value] = frozenset()
) -> bool:
    """Whether some use of `value` is the transpose that undoes `permutation`. Results in `beside`
    do not count: in x + x^T one operand is the other's transpose, and moving it would not end."""
    back = inverse(permutation)
    users = [use.owner.operation for use in value.uses]
    return any(
        user.name == "stablehlo.transpose"
        and integers(user, "permutation") == back
        and user.results[0] not in beside
        for user in users
    )


def _has_twin(value: ir.Value) -> bool:
    """Whether another transpose, which stays, makes the same as the one that makes `value`."""
    op = producer(value, "transpose")
    assert op is not None
    order = op.attributes["permutation"]
    users = (use.owner.operation for use in op.operands[0].uses)
    return any(
        user.name == op.name and user.attributes["permutation"] == order and user != op
        for user in users
    )


def _taken_off(value: ir.Value, permutation: Sequence[int]) -> ir.Value:
    """`value` as it was before `permutation`; scalars stay as they are."""
    if not hlo.shape(value):
        return value
    known = _transposed(value)
    if known and known[1] == list(permutation):
        return known[0]
    return _moved(value, inverse(permutation))


def _before(values: Sequence[int], permutation: Sequence[int]) -> list[int]:
    """Numbers that belong to the dimensions after `permutation`, in the order before it."""
    return [values[d] for d in inverse(permutation)]


# --- Ops that keep the dimensions ----------------------------------------------------------------


@RULES.on(*sorted(ELEMENTWISE), "concatenate")
def through_elementwise(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """Elementwise ops and concatenations."""
    permutation = _common(op)
    if permutation is None:
        return None
    operands = [_taken_off(value, permutation) for value in op.operands]
    return hlo.transpose(_in_order(op, operands, inverse(permutation)), permutation)


PER_DIMENSION = {
    "pad": ("edge_padding_low", "edge_padding_high", "interior_padding"),
    "slice": ("start_indices", "limit_indices", "strides"),
}
"""Attributes with one number a dimension."""


@RULES.on("pad", "slice")
def through_pad_or_slice(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """Pads and slices (of the first operand; the second of a pad is a scalar)."""
    known = _transposed(op.operands[0])
    if known is None:
        return None
    source, permutation = known
    names = PER_DIMENSION[op.name[10:]]
    attributes = {name: i64s(_before(integers(op, name), permutation)) for name in names}
    shape = _before(hlo.shape(op.results[0]), permutation)
    result = rebuild(op, [source, *list(op.operands)[1:]], shape, attributes)
    return hlo.transpose(result, permutation)


@RULES.on("reverse")
def through_reverse(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """Reversals."""
    known = _transposed(op.operands[0])
    if known is None:
        return None
    source, permutation = known
    reversed_dimensions = [permutation[d] for d in integers(op, "dimensions")]
    return hlo.transpose(hlo.reverse(source, reversed_dimensions), permutation)


@RULES.on("reduce_window")
def through_reduce_window(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """Poolings."""
    known = _transposed(op.operands[0])
    if known is None or len(op.operands) != 2:
        return None
    source, permutation = known
    rank = len(permutation)
    names = ("window_dimensions", "window_strides", "base_dilations", "window_dilations")
    attributes = {
        name: i64s(_before(optional_integers(op, name, rank, 1), permutation)) for name in names
    }
    pads = padding(op, rank)
    attributes["padding"] = i64_pairs([pads[d] for d in inverse(permutation)])
    shape = _before(hlo.shape(op.results[0]), permutation)
    result = rebuild(op, [source, op.operands[1]], shape, attributes)
    return hlo.transpose(result, permutation)


@RULES.on("gather")
def through_gather(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """Elements along one dimension by a vector of indices."""
    known = _transposed(op.operands[0])
    numbers = bindings.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    axes, shape = list(numbers.start_index_map), hlo.shape(op.operands[0])
    kept = [d for d in range(len(shape)) if d not in axes]
    sizes = [1 if d in axes else n for d, n in enumerate(shape)]
    if (
        known is None
        or len(axes) != 1
        or len(hlo.shape(op.operands[1])) != 1
        or numbers.index_vector_dim != 1
        or list(numbers.collapsed_slice_dims) != axes
        or list(numbers.offset_dims) != kept
        or integers(op, "slice_sizes") != sizes
    ):
        return None
    source, permutation = known
    axis = permutation[axes[0]]
    offsets = [d for d in range(len(shape)) if d != axis]
    dimensions = hlo.GatherDimensions(offsets, [axis], [axis], numbers.index_vector_dim)
    result = hlo.gather(source, op.operands[1], dimensions, _before(sizes, permutation))
    return hlo.transpose(result, permutation)


# --- Ops that change the dimensions --------------------------------------------------------------


@RULES.on("reduce")
def through_reduce(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """Reductions: other dimensions are reduced; what is left is often in order already."""
    known = _transposed(op.operands[0])
    if known is None or len(op.operands) != 2:
        return None
    source, permutation = known
    reduced = sorted(permutation[d] for d in integers(op, "dimensions"))
    left = [d for d in permutation if d not in reduced]
    order = sorted(left)
    shape = [hlo.shape(source)[d] for d in order]
    result = rebuild(op, [source, op.operands[1]], shape, {"dimensions": i64s(reduced)})
    return hlo.transpose(result, [order.index(d) for d in left])


@RULES.on("broadcast_in_dim")
def through_broadcast(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """Broadcasts of a transposed tensor: within one rank the transpose follows the broadcast, else
    the broadcast takes it up where its dimensions stay ascending."""
    known = _transposed(op.operands[0])
    if known is None:
        return None
    source, permutation = known
    targets, shape = integers(op, "broadcast_dimensions"), hlo.shape(op.results[0])
    if targets == list(range(len(shape))):
        result = hlo.broadcast_in_dim(source, _before(shape, permutation), targets)
        return hlo.transpose(result, permutation)
    composed = _before(targets, permutation)
    return hlo.broadcast_in_dim(source, shape, composed) if composed == sorted(composed) else None


@RULES.on("reshape")
def through_reshape(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """Reshapes that split and merge neighbouring dimensions; those of a channel shuffle, which
    reorder what they merge, keep a transpose before them when the one behind moves channels."""
    known = _transposed(op.operands[0])
    if known is None:
        return None
    source, permutation = known
    groups = regroup(hlo.shape(op.operands[0]), hlo.shape(op.results[0]), permutation)
    if groups is None:
        return None
    if groups.in_order:
        return hlo.transpose(hlo.reshape(source, groups.shape), groups.permutation)
    rank = len(groups.shape)
    if rank < 3 or groups.permutation != [0, rank - 1, *range(1, rank - 1)]:
        return None
    inner = hlo.transpose(source, groups.inner_permutation)
    return hlo.transpose(hlo.reshape(inner, groups.shape), groups.permutation)


def _sums_of_rows(op: ir.Operation, *, packs: bool) -> ir.Value | None:
    """A product with one row or one column, where the rows of the matrix lie along the sum, as a
    sum of each row. Where its columns do, it is read as it lies. A weight that is the second
    operand stays in the product; where the target `packs` weights, one that is the first does,
    too."""
    numbers = bindings.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    leading = list(range(len(numbers.lhs_batching_dimensions)))
    batches = (list(numbers.lhs_batching_dimensions), list(numbers.rhs_batching_dimensions))
    summed = (list(numbers.lhs_contracting_dimensions), list(numbers.rhs_contracting_dimensions))
    kinds = {str(hlo.element_type(value)) for value in (*op.operands, op.results[0])}
    if batches != (leading, leading) or len(summed[0]) != 1 or len(kinds) > 1:
        return None
    lhs, rhs = op.operands
    for matrix, along, vector in ((rhs, summed[1][0], lhs), (lhs, summed[0][0], rhs)):
        rows = _with_rows_along(matrix, along, len(leading))
        sizes = hlo.shape(matrix)
        vector_size = prod(sizes[: len(leading)]) * sizes[along]
        if prod(hlo.shape(vector)) != vector_size:
            continue
        if rows is None:
            source = producer(matrix, "transpose")
            if source is None or leading or len(sizes) != 2 or _is_weight(matrix):
                continue
            return _product_with_rows(op, matrix, source.operands[0])
        if _is_weight(matrix) and (matrix == rhs or (packs and not leading)):
            continue
        if not leading and _is_packed_for_loop(rows):
            return None if rows == matrix else _product_with_rows(op, matrix, rows)
        shape = hlo.shape(rows)
        flat = hlo.reshape(vector, [*shape[:-2], shape[-1]])
        repeated = hlo.broadcast_in_dim(flat, shape, [*leading, len(shape) - 1])
        kind = hlo.dtype(op.results[0])
        add = "or" if kind == np.bool_ else "add"
        zero = hlo.full(0, [], kind)
        sums = hlo.reduce(hlo.multiply(rows, repeated), zero, [len(shape) - 1], add)
        return hlo.reshape(sums, hlo.shape(op.results[0]))
    return None


def _is_weight(value: ir.Value) -> bool:
    """Whether `value` is a constant, but perhaps for the order of its elements."""
    moved = producer(value, "transpose", "reshape")
    return constant_attribute(value) is not None if moved is None else _is_weight(moved.operands[0])


_LEAST_PACKED = 1 << 10
"""Elements of a parameter that is packed for a loop at least, as `mark-parameters` has it."""


def _is_packed_for_loop(value: ir.Value) -> bool:
    """Whether `value` is a constant, or an argument of the model, by which a loop multiplies a
    vector again and again, and which nothing else reads; of arguments, `mark-parameters` will have
    it packed."""
    if prod(hlo.shape(value)) < _LEAST_PACKED or str(hlo.element_type(value)) != "f32":
        return False
    if not isinstance(value.owner, ir.Block):
        return False
    users = [use for use in value.uses if use.owner.operation.name != "stablehlo.return"]
    if len(users) != 1 or not _multiplies_vector(users[0]):
        return False
    loop, number = value.owner.owner.operation, ir.BlockArgument(value).arg_number
    in_loop = False
    while loop.name == "stablehlo.while":
        body = loop.regions[1].blocks[0]
        start = loop.operands[number]
        kept = list(body.operations)[-1].operation.operands[number] == body.arguments[number]
        if kept and constant_attribute(start) is not None:
            return True
        if not kept or not isinstance(start.owner, ir.Block) or not has_one_use(start):
            return False
        loop, number = start.owner.owner.operation, ir.BlockArgument(start).arg_number
        in_loop = True
    return in_loop and loop.name == "func.func"


def _multiplies_vector(use: ir.OpOperand) -> bool:
    op = use.owner.operation
    if op.name == "stablehlo.transpose":
        return has_one_use(op.results[0]) and _multiplies_vector(next(iter(op.results[0].uses)))
    if op.name != "stablehlo.dot_general":
        return False
    vector = op.operands[1 - use.operand_number]
    return len(hlo.shape(op.results[0])) == 1 and len(hlo.shape(vector)) == 1


def _product_with_rows(op: ir.Operation, matrix: ir.Value, rows: ir.Value) -> ir.Value:
    """The product with `rows`, of which `matrix` is the transpose."""
    numbers = bindings.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    summed = [list(numbers.lhs_contracting_dimensions), list(numbers.rhs_contracting_dimensions)]
    summed = [
        [1 - d for d in s] if v == matrix else s for v, s in zip(op.operands, summed, strict=True)
    ]
    attribute = bindings.DotDimensionNumbers.get([], [], *summed)
    operands = [rows if value == matrix else value for value in op.operands]
    return rebuild(op, operands, hlo.shape(op.results[0]), {"dot_dimension_numbers": attribute})


def _with_rows_along(matrix: ir.Value, along: int, batch: int) -> ir.Value | None:
    """`matrix` as [batch.., rows, k] where it lies so in memory, `along` being k."""
    if len(hlo.shape(matrix)) != batch + 2:
        return None
    move = producer(matrix, "transpose")
    if move is not None and integers(move, "permutation") == [*range(batch), batch + 1, batch]:
        matrix, along = move.operands[0], 2 * batch + 1 - along
    return matrix if along == batch + 1 else None


@RULES.on("dot_general")
def flattened_before_weights(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """A flattened transposed tensor times constant weights: the rows of the weights move."""
    lhs, rhs = op.operands
    flat = producer(lhs, "reshape")
    known = _transposed(flat.operands[0]) if flat else None
    if flat is None or known is None or constant_attribute(rhs) is None:
        return None
    source, permutation = known
    sizes, shape = hlo.shape(flat.operands[0]), hlo.shape(lhs)
    groups = regroup(sizes, shape, permutation)
    if groups is None or groups.in_order or groups.permutation != list(range(len(shape))):
        return None
    numbers = bindings.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    rows = dict(
        zip(numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions, strict=True)
    )
    for group in groups.reordered:
        if len(group.results) != 1 or group.results[0] not in rows:
            return None
    for group in groups.reordered:
        rhs = _with_moved_rows(rhs, rows[group.results[0]], sizes, group, permutation)
    return rebuild(op, [hlo.reshape(source, shape), rhs], hlo.shape(op.results[0]))


def _with_moved_rows(
    value: ir.Value,
    dimension: int,
    sizes: Sequence[int],
    group: Regrouping,
    permutation: Sequence[int],
) -> ir.Value:
    """`value` with dimension `dimension`, made of dimensions `group.operands`, in source order."""
    shape = hlo.shape(value)
    parts = [sizes[d] for d in group.operands]
    order = sorted(range(len(parts)), key=lambda i: permutation[group.operands[i]])
    split = hlo.reshape(value, [*shape[:dimension], *parts, *shape[dimension + 1 :]])
    after = range(dimension + len(parts), len(shape) + len(parts) - 1)
    moved = hlo.transpose(split, [*range(dimension), *(dimension + i for i in order), *after])
    return hlo.reshape(moved, shape)


@RULES.on("transpose")
def of_reshaped_product(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """A product whose result is reshaped to an image and put into NHWC (values times weights, in an
    attention over pixels): where the operands change places, it is written so."""
    reshape = producer(op.operands[0], "reshape")
    change = simplify_algebra.operands_changed(reshape.operands[0]) if reshape else None
    if reshape is None or change is None:
        return None
    permutation = integers(op, "permutation")
    groups = groups_of(hlo.shape(reshape.operands[0]), hlo.shape(op.operands[0]))
    groups.sort(key=lambda group: permutation.index(group.results[0]) if group.results else -1)
    if [d for group in groups for d in group.results] != permutation:
        return None
    order = [d for group in groups for d in group.operands]
    if order[-1] not in change.left:
        return None
    moved = hlo.transpose(change.build(), [change.order.index(d) for d in order])
    return hlo.reshape(moved, hlo.shape(op.results[0]))


RULES_OF_CPUS, RULES_OF_GPUS = Rules(RULES), Rules(RULES)
RULES_OF_CPUS.on(*sorted(ELEMENTWISE))(_joined_results.through_elementwise)


@RULES_OF_CPUS.on("dot_general")
def matrices_times_vectors(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """Products of matrices and vectors, also a batch of them: the scores of one query need no
    transpose of the keys."""
    return _sums_of_rows(op, packs=True)


@RULES_OF_GPUS.on("dot_general")
def matrix_times_vector(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """A product of a matrix and a vector. A batch stays one, of which attention is made."""
    numbers = bindings.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    return None if len(numbers.lhs_batching_dimensions) else _sums_of_rows(op, packs=False)


@dataclass(frozen=True)
class PropagateTransposes(Pass):
    """Push transposes down through the network until they cancel."""

    name: ClassVar[str] = "propagate-transposes"

    def run(self, op: ir.Operation, state: State) -> None:
        """Apply the rules until none matches."""
        rules = RULES_OF_GPUS if isinstance(state.target, NvidiaTarget) else RULES_OF_CPUS
        rules.apply(op, state.weights)
