"""Branches and loops: If, Loop, Scan.

A branch or body becomes a region of `stablehlo.if` or `stablehlo.while` where it can: where all it
has to know is known outside of it, and what it carries keeps its shape. Otherwise the branch is
chosen at compile time, which makes conditions values to be known, and the loop unrolled; where that
takes what is computed at run time, the loop runs on the host, which calls its compiled body.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, StuckError, Tensor, Value
from stepwell.frontends.onnx.registry import Result, operator
from stepwell.frontends.onnx.shaping import normalize_axis
from stepwell.mlir import ir

ENDLESS = np.iinfo(np.int32).max
"""A trip count from here on means that the condition alone ends the loop."""

UNROLLED_ITERATIONS = 4096
"""A loop that has to be unrolled may have as many iterations."""


@operator("If", folds=True, structures=True)
def if_(node: Node, condition: Tensor) -> Sequence[Result]:
    """A condition known at compile time picks its branch; branches that give different shapes, or
    sequences, make it a condition that has to be known."""
    node.require_number(condition, "cond")
    if condition.array is None:
        try:
            return _branches(node, condition)
        except StuckError:
            pass
    known = node.known_number(condition, "cond")
    return list(node.inline("then_branch" if known else "else_branch"))


def _branches(node: Node, condition: Tensor) -> list[ir.Value]:
    with hlo.detached_block() as on_true, hlo.detached_block() as on_false:
        with ir.InsertionPoint(on_true):
            first = [tensor.value for tensor in node.region("then_branch")]
        with ir.InsertionPoint(on_false):
            second = [tensor.value for tensor in node.region("else_branch")]
        if [value.type for value in first] != [value.type for value in second]:
            raise StuckError(["its branches give different shapes"])
        with ir.InsertionPoint(_holder(on_true)):
            return hlo.if_(hlo.reshape(condition.value, []), (on_true, first), (on_false, second))


def _holder(block: ir.Block) -> ir.Operation:
    return block.owner.operation  # pyright: ignore[reportReturnType]


@operator("Loop", structures=True)
def loop(
    node: Node, trips: Tensor | None = None, condition: Tensor | None = None, *states: Value
) -> Sequence[Result]:
    """At most `trips` iterations, while `condition` holds; results of the iterations are stacked.

    Body: (iteration, condition, states...) -> (condition, states..., stacked...).
    """
    for tensor, role in ((trips, "M"), (condition, "cond")):
        if tensor is not None:
            node.require_number(tensor, role)
    if condition is not None and condition.array is not None and condition.array.item():
        condition = None
    if trips is not None and trips.array is not None and trips.array.item() >= ENDLESS:
        trips = None
    tensors = [state for state in states if isinstance(state, Tensor)]
    if len(tensors) < len(states):
        return _unrolled_loop(node, trips, condition, states)
    try:
        return _while_loop(node, trips, condition, tensors)
    except StuckError as error:
        reason = error.reasons[0]
    return node.or_on_host(lambda: _unrolled_loop(node, trips, condition, states), reason)


def _while_loop(
    node: Node, trips: Tensor | None, condition: Tensor | None, states: Sequence[Tensor]
) -> Sequence[Result]:
    """The loop as `stablehlo.while` over (iteration, condition, states, stacks).

    The largest number of iterations sizes the stacks, so it has to be known when there are any;
    where it is not given, the loop runs once without stacks to count.
    """
    count = len(states)
    stacked = len(node.graph("body").output) - 1 - count
    zero, true = hlo.full(0, [], np.int64), hlo.full(True, [], np.bool_)
    start = true if condition is None else hlo.reshape(condition.value, [])
    initial = [zero, start, *(state.value for state in states)]
    bound: int | None = None
    if stacked and trips is not None:
        bound = max(int(node.known_number(trips, "M")), 0)
        if bound >= ENDLESS:
            return _while_loop(node, None, condition, states)
    with hlo.detached_block(*(value.type for value in initial)) as block:
        arguments = [node.scope.tensor(argument, "") for argument in block.arguments]
        results = node.region("body", arguments)
        proceed, *following = results
        if [f"{r.dtype}{r.shape}" for r in following[:count]] != [
            f"{s.dtype}{s.shape}" for s in states
        ]:
            raise StuckError(["a value that it carries changes its shape"])
        endless = condition is None and _is_always_true(proceed, arguments[1])
        if endless and trips is None:
            node.unsupported("it has neither a trip count nor a condition that ends it")
        parts = [tensor.value for tensor in following[count:]]
        limit = None if trips is None else _scalar(node, trips)

        def goes_on(values: Sequence[ir.Value]) -> ir.Value:
            checks = [] if endless else [values[1]]
            if limit is not None:
                checks.append(hlo.compare(values[0], limit, "LT"))
            return checks[0] if len(checks) == 1 else hlo.binary("and", *checks)

        def after(values: Sequence[ir.Value]) -> list[ir.Value]:
            one = hlo.full(1, [], np.int64)
            going = true if endless else hlo.reshape(proceed.value, [])
            stacks = values[2 + count :]
            updated = [
                _put(stack, part, values[0], 0) for stack, part in zip(stacks, parts, strict=False)
            ]
            nexts = [tensor.value for tensor in following[:count]]
            return [hlo.add(values[0], one), going, *nexts, *updated]

        if bound == 0:
            return [*states, *(_nothing(part, 0) for part in parts)]
        with ir.InsertionPoint(_holder(block)):
            if parts and bound is None:
                counted = hlo.while_(initial, goes_on, (block, after))[0]
                known = node.known(node.named(counted, "trips"), "its number of iterations")
                return _while_loop(node, node.constant_tensor(known, "M"), condition, states)
            stacks = [_room(part, 0, bound or 0) for part in parts]
            finals = hlo.while_([*initial, *stacks], goes_on, (block, after))
    ends = finals[2 + count :]
    if endless:
        return [*finals[2 : 2 + count], *ends]
    return [*finals[2 : 2 + count], *(node.bounded(end, {0: finals[0]}) for end in ends)]


def _scalar(node: Node, tensor: Tensor) -> ir.Value:
    """The only element of `tensor`, as a scalar."""
    if tensor.array is not None:
        return node.constant(tensor.array.reshape(()), "M")
    return hlo.reshape(tensor.value, [])


def _is_always_true(proceed: Tensor, argument: Tensor) -> bool:
    if proceed.array is not None:
        return bool(proceed.array.item())
    return proceed.value == argument.value


def _put(stack: ir.Value, part: ir.Value, index: ir.Value, axis: int) -> ir.Value:
    """`stack` with `part` at `index` of `axis`."""
    shape = list(hlo.shape(part))
    slab = hlo.reshape(part, [*shape[:axis], 1, *shape[axis:]])
    zero = hlo.full(0, [], np.int64)
    starts = [index if d == axis else zero for d in range(len(shape) + 1)]
    return hlo.dynamic_update_slice(stack, slab, starts)


def _take(stack: ir.Value, index: ir.Value, axis: int) -> ir.Value:
    """The part of `stack` at `index` of `axis`; zeros where the stack is empty."""
    shape = list(hlo.shape(stack))
    if not shape[axis]:
        return hlo.full(0, [*shape[:axis], *shape[axis + 1 :]], hlo.dtype(stack))
    zero = hlo.full(0, [], np.int64)
    starts = [index if d == axis else zero for d in range(len(shape))]
    slab = hlo.dynamic_slice(stack, starts, [*shape[:axis], 1, *shape[axis + 1 :]])
    return hlo.reshape(slab, [*shape[:axis], *shape[axis + 1 :]])


def _unrolled_loop(
    node: Node, trips: Tensor | None, condition: Tensor | None, states: Sequence[Value]
) -> Sequence[Result]:
    """One copy of the body for each iteration; its number and conditions have to be known."""
    limit = math.inf if trips is None else int(node.known_number(trips, "M"))
    goes_on = condition is None or bool(node.known_number(condition, "cond"))
    rows: list[Sequence[Value]] = []
    iteration = 0
    while goes_on and iteration < limit:
        if iteration >= UNROLLED_ITERATIONS:
            node.unsupported(
                f"it has more than {UNROLLED_ITERATIONS} iterations, and what it carries changes "
                "its shape, so that each becomes code of its own"
            )
        number = node.constant_tensor(np.array(iteration, np.int64), "iteration")
        proceed = node.constant_tensor(np.array(True), "cond")
        results = node.inline("body", [number, proceed, *states], str(iteration))
        states, row = results[1 : 1 + len(states)], results[1 + len(states) :]
        rows.append(row)
        assert isinstance(results[0], Tensor)
        iteration += 1
        if iteration < limit:
            goes_on = bool(node.known_number(results[0], "cond"))
    stacked = len(node.graph("body").output) - 1 - len(states)
    return [*states, *(_stack(node, [row[i] for row in rows], i) for i in range(stacked))]


def _stack(node: Node, parts: Sequence[Value], index: int) -> Result:
    """Results of iterations on a new first dimension."""
    tensors = [part for part in parts if isinstance(part, Tensor)]
    if not tensors:
        outputs = node.graph("body").output
        info = outputs[len(outputs) - 1 - index]
        node.unsupported(f'it has no iteration, so that the shape of "{info.name}" is not known')
    if any(tensor.shape != tensors[0].shape for tensor in tensors):
        node.unsupported("its iterations give different shapes, which do not stack")
    if all(tensor.array is not None for tensor in tensors):
        return np.stack([tensor.array for tensor in tensors])  # pyright: ignore[reportCallIssue, reportArgumentType]
    slabs = [hlo.reshape(tensor.value, [1, *tensor.shape]) for tensor in tensors]
    return hlo.concatenate(slabs, 0) if len(slabs) > 1 else slabs[0]


@operator("Scan", since=9)
def scan(node: Node, *operands: Tensor) -> Sequence[Result]:
    """Iterate over slices of the last `num_scan_inputs` inputs, and stack slices of the outputs.

    Body: (states..., slices...) -> (states..., stacked...).
    """
    sliced = node.integer("num_scan_inputs", 0)
    count = len(operands) - sliced
    states, sources = operands[:count], operands[count:]
    axes = [
        normalize_axis(axis, source.rank)
        for axis, source in zip(
            node.integers("scan_input_axes", [0] * sliced), sources, strict=True
        )
    ]
    lengths = {source.shape[axis] for source, axis in zip(sources, axes, strict=True)}
    if len(lengths) != 1:
        node.unsupported(f"its inputs have different lengths: {sorted(lengths)}")
    return _scan(node, states, sources, axes, lengths.pop())


@operator("Scan", since=8)
def scan_in_batches(node: Node, lengths: Tensor | None, *operands: Tensor) -> Sequence[Result]:
    """As Scan, for each element of dimension 0; inputs are sliced along dimension 1 and each
    element has its own length."""
    sliced = node.integer("num_scan_inputs", 0)
    count = len(operands) - sliced
    batch, longest = operands[count].shape[0], operands[count].shape[1]
    if not batch or not longest:
        node.unsupported("it has no iteration")
    sizes = [longest] * batch
    if lengths is not None:
        sizes = [int(n) for n in node.known(lengths, "sequence_lens").reshape(-1)]

    def element(tensor: Tensor, index: int) -> Tensor:
        limits = [index + 1, *tensor.shape[1:]]
        part = hlo.slice(tensor.value, [index, *[0] * (tensor.rank - 1)], limits)
        return node.scope.tensor(hlo.reshape(part, tensor.shape[1:]), "")

    rows: list[Sequence[ir.Value]] = []
    for index in range(batch):
        parts = [element(tensor, index) for tensor in operands]
        results = _scan(node, parts[:count], parts[count:], [0] * sliced, sizes[index], longest)
        values = [value for value in results if isinstance(value, ir.Value)]
        rows.append([hlo.reshape(value, [1, *hlo.shape(value)]) for value in values])
    columns = list(zip(*rows, strict=True))
    return [hlo.concatenate(column, 0) if batch > 1 else column[0] for column in columns]


def _scan(
    node: Node,
    states: Sequence[Tensor],
    sources: Sequence[Tensor],
    axes: Sequence[int],
    length: int,
    room: int | None = None,
) -> list[ir.Value | np.ndarray]:
    """`length` iterations; the stacks have `room` for more, which stays zero."""
    room = length if room is None else room
    directions = "directions" if node.opset < 9 else "scan_input_directions"
    backward = node.integers(directions, [0] * len(sources))
    count = len(states)
    stacked = len(node.graph("body").output) - count
    out_backward = node.integers("scan_output_directions", [0] * stacked)
    out_axes = node.integers("scan_output_axes", [0] * stacked)
    initial = [hlo.full(0, [], np.int64), *(state.value for state in states)]
    last = hlo.full(length - 1, [], np.int64)
    whole = [source.value for source in sources]
    with hlo.detached_block(*(value.type for value in initial)) as block:
        number, *carried = block.arguments
        mirrored = hlo.subtract(last, number)
        slices = [
            _take(source, mirrored if reverse else number, axis)
            for source, reverse, axis in zip(whole, backward, axes, strict=True)
        ]
        inputs = [node.scope.tensor(value, "") for value in (*carried, *slices)]
        results = [tensor.value for tensor in node.region("body", inputs)]
        following, parts = results[:count], results[count:]
        if [value.type for value in following] != [value.type for value in initial[1:]]:
            node.unsupported("a value that it carries changes its shape")
        places = [
            normalize_axis(axis, len(hlo.shape(part)) + 1)
            for axis, part in zip(out_axes, parts, strict=True)
        ]

        if not room:
            return [*initial[1:], *(_nothing(p, a) for p, a in zip(parts, places, strict=True))]

        def goes_on(values: Sequence[ir.Value]) -> ir.Value:
            return hlo.compare(values[0], hlo.full(length, [], np.int64), "LT")

        def after(values: Sequence[ir.Value]) -> list[ir.Value]:
            updated = [
                _put(stack, part, mirrored if reverse else number, axis)
                for stack, part, reverse, axis in zip(
                    values[1 + count :], parts, out_backward, places, strict=True
                )
            ]
            one = hlo.full(1, [], np.int64)
            return [hlo.add(values[0], one), *following, *updated]

        with ir.InsertionPoint(_holder(block)):
            stacks = [_room(part, axis, room) for part, axis in zip(parts, places, strict=True)]
            finals = hlo.while_([*initial, *stacks], goes_on, (block, after))
    return list(finals[1:])


def _nothing(part: ir.Value, axis: int) -> np.ndarray:
    """No such parts, stacked along `axis`."""
    shape = list(hlo.shape(part))
    return np.zeros([*shape[:axis], 0, *shape[axis:]], hlo.dtype(part))


def _room(part: ir.Value, axis: int, length: int) -> ir.Value:
    """Zeros for `length` such parts, stacked along `axis`."""
    shape = list(hlo.shape(part))
    return hlo.full(0, [*shape[:axis], length, *shape[axis:]], hlo.dtype(part))
