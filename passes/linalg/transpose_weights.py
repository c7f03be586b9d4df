"""transpose-weights: on GPUs, weights that tensor cores want along k are stored so.

Matrix instructions take operands of 16 bits along either dimension; those of 32 and of 8 bits they
take along k only: `wgmma` takes no others at all, and `mma.sync` needs registers and shuffles for
them. A weight that is the rhs of such a product, or of whose slices (matrices of groups) it is, is
transposed here, for good; so is one whose outputs are split into groups (a grouped convolution's).
Another operand of 32 bits gets a transpose of its own, a kernel, where the cost model says that
warpgroups multiply it in less time with that than warps do without; not in a batch of products,
which may be attention.

    %z = linalg.generic {(m, n, k) -> (m, k), (m, n, k) -> (k, n), ...} ins(%x, %w : .., tensor<8x4xi8>)
      ->
    %z = linalg.generic {(m, n, k) -> (m, k), (m, n, k) -> (n, k), ...} ins(%x, %t : .., tensor<4x8xi8>)
"""  # noqa: E501

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stepwell.kernels.cpu.contraction_strategy import ContractionShape
from stepwell.kernels.gpu import mma_tile, wgmma_tile
from stepwell.kernels.gpu.tensor_core import MatrixType
from stepwell.kernels.slices import slices_behind
from stepwell.kernels.structured import (
    Structured,
    contraction_operands,
    defining_op,
    element_type,
    shape_of,
)
from stepwell.mlir import dialect, ir, nested_operations
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg.hoist_constants import WEIGHT, add_argument, weight_name
from stepwell.passes.stablehlo._product_cycles import LAUNCH_CYCLES, MEMORY_BYTES
from stepwell.targets.nvidia import NvidiaTarget

tensor = dialect("tensor")

_BOTH_WAYS_BYTES, _WORD_BYTES = 2, 4
"""Operands of the first size may lie along either dimension."""


@dataclass(frozen=True)
class TransposeWeights(Pass):
    """Look at every contraction of a host function; nothing on CPUs."""

    name: ClassVar[str] = "transpose-weights"
    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation, state: State) -> None:
        if not isinstance(state.target, NvidiaTarget) or not len(op.regions[0].blocks):
            return
        made: dict[tuple[str, tuple[int, ...], tuple[int, ...]], ir.Value] = {}
        for inner in nested_operations(op):
            structured = Structured.of(inner)
            if structured is not None and "reduction" in structured.iterators:
                _transpose(op, structured, state, state.target, made)


def _transpose(
    host: ir.Operation,
    op: Structured,
    state: State,
    target: NvidiaTarget,
    made: dict[tuple[str, tuple[int, ...], tuple[int, ...]], ir.Value],
) -> None:
    operands = contraction_operands(op) if len(op.inputs) == 2 else None
    if operands is None:
        return
    shape = ContractionShape.of(op, operands)
    kind = mma_tile.matrix_type(op, shape, target, state.f32_products)
    if kind is not None and kind.bytes == _WORD_BYTES:
        _transpose_values(host, op, shape, kind, target)
    rhs = op.inputs[shape.rhs]
    codes = _codes_of(rhs)
    slices = slices_behind(rhs)
    weight = rhs if codes is None else codes
    if slices is not None:
        weight = slices.source
    name = _weight_name(host, _whole(weight))
    order = _order(op.maps[shape.rhs], shape)
    if kind is None or kind.bytes == _BOTH_WAYS_BYTES or name is None or order is None:
        return
    if slices is not None and (slices.lead > 1 or order[0] != 0):
        return
    given = tuple(shape_of(weight))
    if (name, given, order) not in made:
        moved = np.ascontiguousarray(state.weights[name].reshape(given).transpose(order))
        sizes = [given[axis] for axis in order]
        made[name, given, order] = add_argument(
            host,
            ir.RankedTensorType.get(sizes, element_type(weight)),
            WEIGHT,
            state.weights.add(f"{name}_along_k", moved),
        )
    maps = list(op.op.attributes["indexing_maps"])
    results = [op.maps[shape.rhs].results[axis] for axis in order]
    maps[shape.rhs] = ir.AffineMapAttr.get(
        ir.AffineMap.get(op.maps[shape.rhs].n_dims, 0, list(results))
    )
    op.op.attributes["indexing_maps"] = ir.ArrayAttr.get(maps)
    transposed = made[name, given, order]
    if codes is not None:
        transposed = _decoded(op, rhs, transposed)
    elif slices is not None:
        with ir.InsertionPoint(op.op), op.op.location:
            transposed = slices.taking(transposed)
    op.op.operands[shape.rhs] = transposed


def _transpose_values(
    host: ir.Operation,
    op: Structured,
    shape: ContractionShape,
    kind: MatrixType,
    target: NvidiaTarget,
) -> None:
    """Transpose the operands that are no weights and do not lie along k, where that is faster and
    lets warpgroups multiply them: rows are whole chunks, and a lhs is no weight."""
    orders = {number: _order(op.maps[number], shape) for number in (shape.lhs, shape.rhs)}
    across = {number: order for number, order in orders.items() if order is not None}
    moved = {
        number: order
        for number, order in across.items()
        if _weight_name(host, _whole(op.inputs[number])) is None
    }
    if not moved or shape.batch or not wgmma_tile.takes(kind, target):
        return
    if shape.k % kind.chunk or (shape.lhs in across and shape.lhs not in moved):
        return
    by_warps = mma_tile.cycles(mma_tile.choose(shape, kind, target), shape, kind, target)
    tile = wgmma_tile.choose(shape, kind, target)
    by_groups = wgmma_tile.cycles(tile, shape, kind, target)
    bytes_moved = sum(2 * math.prod(shape_of(op.inputs[n])) * kind.bytes for n in moved)
    if by_groups + len(moved) * LAUNCH_CYCLES + bytes_moved / MEMORY_BYTES >= by_warps:
        return
    maps = list(op.op.attributes["indexing_maps"])
    for number, order in moved.items():
        results = [op.maps[number].results[axis] for axis in order]
        maps[number] = ir.AffineMapAttr.get(ir.AffineMap.get(op.maps[number].n_dims, 0, results))
        with ir.InsertionPoint(op.op), op.op.location:
            op.op.operands[number] = _transposed(op.inputs[number], order)
    op.op.attributes["indexing_maps"] = ir.ArrayAttr.get(maps)


def _transposed(value: ir.Value, order: tuple[int, ...]) -> ir.Value:
    """`value` with its axes in another order."""
    sizes, element, rank = shape_of(value), element_type(value), len(order)
    kind = ir.RankedTensorType.get([sizes[axis] for axis in order], element)
    places = [ir.AffineExpr.get_dim(order.index(axis)) for axis in range(rank)]
    maps = [ir.AffineMap.get(rank, 0, places), ir.AffineMap.get_identity(rank)]
    made = ir.Operation.create(
        "linalg.generic",
        results=[kind],
        operands=[value, tensor.EmptyOp(list(kind.shape), element).result],
        attributes={
            "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
            "iterator_types": ir.ArrayAttr.get(
                [ir.Attribute.parse("#linalg.iterator_type<parallel>")] * rank
            ),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1]),
        },
        regions=1,
    )
    block = made.regions[0].blocks.append(element, element)
    with ir.InsertionPoint(block):
        ir.Operation.create("linalg.yield", operands=[block.arguments[0]])
    return made.results[0]


def _codes_of(value: ir.Value) -> ir.Value | None:
    """The codes of floats of 8 bits: in memory they are integers."""
    op = defining_op(value)
    cast = Structured.of(op) if op is not None else None
    if cast is None or not cast.is_elementwise or len(cast.inputs) != 1:
        return None
    names = [inner.operation.name for inner in cast.body.operations]
    same = cast.maps[0] == cast.output_map == ir.AffineMap.get_identity(cast.output_map.n_dims)
    return cast.inputs[0] if same and names == ["arith.bitcast", "linalg.yield"] else None


def _decoded(op: Structured, floats: ir.Value, codes: ir.Value) -> ir.Value:
    """`codes` as what makes `floats` of other codes gives."""
    cast = defining_op(floats)
    assert cast is not None
    with ir.InsertionPoint(op.op), op.op.location:
        sizes = shape_of(codes)
        empty = tensor.EmptyOp(list(sizes), element_type(floats)).result
        made = cast.clone()
        made.operation.operands[0] = codes
        made.operation.operands[1] = empty
        made.operation.results[0].set_type(empty.type)
    return made.operation.results[0]


def _whole(value: ir.Value) -> ir.Value:
    """What `value` is with the dimensions in one that it has split."""
    op = defining_op(value)
    return op.operands[0] if op is not None and op.name == "tensor.expand_shape" else value


def _weight_name(host: ir.Operation, value: ir.Value) -> str | None:
    """The weight that an argument of `host` is."""
    if defining_op(value) is not None or value.owner != host.regions[0].blocks[0]:
        return None
    return weight_name(host, ir.BlockArgument(value).arg_number)


def _order(rhs_map: ir.AffineMap, shape: ContractionShape) -> tuple[int, ...] | None:
    """The axes of a rhs so that those of k come last, in their order; None where they do already,
    or where it is not read at plain dimensions."""
    if not all(isinstance(e, ir.AffineDimExpr) for e in rhs_map.results):
        return None
    dims = [ir.AffineDimExpr(e).position for e in rhs_map.results]
    others = [axis for axis, d in enumerate(dims) if d not in shape.reduced]
    reduced = [dims.index(d) for d in shape.reduced if d in dims]
    order = (*others, *reduced)
    return None if order == tuple(range(len(dims))) else order
