"""Rules for operations on whole rows and matrices, of which there may be any number: Fourier
transforms, LAPACK's functions, generators of random bits. See `_open_rules`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.errors import LoweringError
from stepwell.extents import Extent
from stepwell.mlir import ir
from stepwell.open_dimensions import Dimension, Layout, closed, is_open, prefix, unified
from stepwell.passes.stablehlo._lapack_call import zeros
from stepwell.passes.stablehlo._lapack_signatures import batch_rank
from stepwell.passes.stablehlo._open_program import OpenProgram
from stepwell.passes.stablehlo._open_rules import Extents, Rule, elementwise, entering

RULES: dict[str, Rule] = {}

on = entering(RULES)


# --- Rows and matrices ---------------------------------------------------------------------------


@on("fft")
def fft(program: OpenProgram, op: ir.Operation, extents: Extents) -> list[Layout]:
    """Any number of transforms of closed length."""
    shape = hlo.shape(op.results[0])
    outer = len(shape) - len(ir.DenseI64ArrayAttr(op.attributes["fft_length"]))
    layout = program.layout(op.operands[0])
    if any(map(is_open, layout[outer:])):
        raise LoweringError("a dimension of open size is transformed")
    return [(*layout[:outer], *map(closed, shape[outer:]))]


@on("cholesky", "triangular_solve")
def matrices(program: OpenProgram, op: ir.Operation, extents: Extents) -> list[Layout]:
    """Any number of matrices of closed sizes."""
    return _matrices(program, op, len(hlo.shape(op.operands[0])) - 2)


@on("custom_call")
def custom_call(program: OpenProgram, op: ir.Operation, extents: Extents) -> list[Layout]:
    """LAPACK's functions, on any number of matrices of closed sizes; nothing is known of others."""
    rank = batch_rank(op)
    if rank is not None:
        return _matrices(program, op, rank)
    if any(is_open(d) for value in op.operands for d in program.layout(value)) or any(
        not extent.is_constant for shape in extents for extent in shape
    ):
        target = ir.StringAttr(op.attributes["call_target_name"]).value
        raise LoweringError(f"stablehlo.custom_call @{target} does not take open dimensions")
    return [_closed(result) for result in op.results]


def _closed(value: ir.Value) -> Layout:
    return tuple(map(closed, hlo.shape(value)))


def _matrices(program: OpenProgram, op: ir.Operation, rank: int) -> list[Layout]:
    """Operands and results are batches, of `rank` dimensions. Matrices beyond the part in use are
    zero: of numbers that are none, LAPACK may not come to an end."""
    batch: tuple[Dimension, ...] = (None,) * rank
    for operand in op.operands:
        layout = program.settled(operand, range(rank))
        if any(map(is_open, layout[rank:])):
            raise LoweringError("matrices of open size are factored or solved")
        batch = tuple(unified(a, b) for a, b in zip(batch, layout[:rank], strict=True))
    if any(map(is_open, batch)):
        for number, operand in enumerate(op.operands):
            op.operands[number] = _zero_beyond(program, operand, batch)
    return [(*batch, *_closed(result)[rank:]) for result in op.results]


def _zero_beyond(program: OpenProgram, value: ir.Value, batch: Sequence[Dimension]) -> ir.Value:
    """`value` with zeros beyond the part of its first dimensions in use."""
    layout = program.layout(value)
    for number, dimension in enumerate(batch):
        if dimension is not None and is_open(dimension):
            used = hlo.broadcast_in_dim(program.in_use(dimension), hlo.shape(value), [number])
            value = hlo.select(used, value, zeros(value))
    program.layouts[value] = layout
    return value


@on("bitcast_convert")
def bitcast_convert(program: OpenProgram, op: ir.Operation, extents: Extents) -> list[Layout]:
    """Elements of another width have a last dimension more, or less, which is closed."""
    source, target = op.operands[0], op.results[0]
    shape, sizes = hlo.shape(source), hlo.shape(target)
    if len(shape) == len(sizes):
        return elementwise(program, op, extents) or []
    layout = program.layout(source)
    if len(shape) < len(sizes):
        return [(*layout, closed(sizes[-1]))]
    if is_open(layout[-1]):
        raise LoweringError("the bits of an open dimension become one element")
    return [layout[:-1]]


# --- Random bits ---------------------------------------------------------------------------------


@on("rng_bit_generator")
def rng_bit_generator(program: OpenProgram, op: ir.Operation, extents: Extents) -> None:
    """Bits for the capacities, of which the first are those for fewer elements, in order; those in
    use stand elsewhere where a dimension behind the first is open. The state counts the words in
    use alone."""
    if any(is_open(d) for d in program.layout(op.operands[0])):
        raise LoweringError("the state of a generator has an open dimension")
    state, bits = op.results
    sizes = extents[1]
    for result in (state, bits):
        program.layouts[result] = _closed(result)
    if all(extent.is_constant for extent in sizes):
        return
    algorithm = str(op.attributes["rng_algorithm"]).split()[-1].rstrip(">")
    if algorithm == "THREE_FRY":
        raise LoweringError("the bits that Threefry generates depend on how many there are")
    program.layouts[bits] = tuple(map(prefix, hlo.shape(bits), sizes))
    with ir.InsertionPoint.after(op), op.location:
        moved = bits
        if not all(extent.is_constant for extent in sizes[1:]):
            moved = _in_order(program, bits, sizes)
            program.layouts[moved] = program.layouts[bits]
        counted = state
        if any(True for _ in state.uses):
            counted = _counted(program, state, bits, sizes)
            program.layouts[counted] = _closed(state)
    for old, new in ((bits, moved), (state, counted)):
        if new != old:
            _replace(program, old, new)


def _replace(program: OpenProgram, old: ir.Value, new: ir.Value) -> None:
    """`new` for `old`, but in what `new` is made of."""
    own = _making(new, old)
    for use in list(old.uses):
        user = use.owner.operation
        if not user.results or user.results[0] not in own:
            user.operands[use.operand_number] = new


def _making(value: ir.Value, source: ir.Value) -> set[ir.Value]:
    """The first results of the operations between `source` and `value`."""
    found: set[ir.Value] = set()
    pending = [value]
    while pending:
        current = pending.pop()
        if current == source or not isinstance(current, ir.OpResult):
            continue
        op = current.owner.operation
        if op.results[0] not in found and op.name.startswith("stablehlo."):
            found.add(op.results[0])
            pending.extend(op.operands)
    return found


def _in_order(program: OpenProgram, bits: ir.Value, sizes: Sequence[Extent]) -> ir.Value:
    """Element [i, j, ..] in use is number i * s1 * .. + j * .. of all."""
    shape = hlo.shape(bits)
    count = int(np.prod(shape))
    place, step = hlo.full(0, shape, np.int64), Extent.of(1)
    for number, extent in reversed(list(enumerate(sizes))):
        index = hlo.iota(shape, number, np.int64)
        factor = hlo.broadcast_in_dim(program.scalar(step), shape, [])
        place = hlo.add(place, hlo.multiply(index, factor))
        step = step.times(extent)
    numbers = hlo.GatherDimensions((), (0,), (0,), 1)
    flat = hlo.gather(hlo.reshape(bits, [count]), hlo.reshape(place, [count]), numbers, [1])
    return hlo.reshape(flat, shape)


_BLOCK_BYTES = 16
"""What Philox makes of one number of its counter: four words of 32 bits; elements of fewer take a
word each."""


def _counted(
    program: OpenProgram, state: ir.Value, bits: ir.Value, sizes: Sequence[Extent]
) -> ir.Value:
    """The state [key, counter] after as many blocks as the elements in use take."""
    if hlo.shape(state) != (2,) or hlo.dtype(state) != np.uint64:
        raise LoweringError("a generator's next state counts the elements of an open dimension")
    block = _BLOCK_BYTES // max(4, hlo.dtype(bits).itemsize)
    most = -(-int(np.prod(hlo.shape(bits))) // block)
    total = Extent.of(1)
    for extent in sizes:
        total = total.times(extent)
    used = hlo.add(program.scalar(total), hlo.full(block - 1, [], np.int64))
    used = hlo.divide(used, hlo.full(block, [], np.int64))
    unused = hlo.convert(hlo.subtract(hlo.full(most, [], np.int64), used), np.uint64)
    both = [hlo.full(0, [1], np.uint64), hlo.reshape(unused, [1])]
    return hlo.subtract(state, hlo.concatenate(both, 0))
