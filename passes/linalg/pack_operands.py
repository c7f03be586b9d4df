"""`pack-operands`: choose the strategy of each contraction kernel and pack its weights for it.

The rhs of a contraction is read a panel of columns at a time. Where it is a weight at every call,
it is stored in that order: `[n / panel][k...][panel]`, zeros filling the last panel; the kernel
reads it through the map that says so. Constants are packed here; a parameter gets a second
argument, its packed form, which the runtime makes.

    (d0, d1, d2) -> (d2, d1)  on tensor<768x3072xf32>
      ->  (d0, d1, d2) -> (d1 floordiv 64, d2, d1 mod 64)  on tensor<48x768x64xf32>
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from stepwell.kernels.cpu import (
    attention,
    attention_strategy,
    contraction_choice,
    dot_products,
    strassen_strategy,
    winograd_strategy,
)
from stepwell.kernels.cpu.contraction_strategy import ContractionShape
from stepwell.kernels.cpu.winograd_shape import ConvolutionShape
from stepwell.kernels.slices import TakenSlices, slices_behind
from stepwell.kernels.structured import (
    RESHAPES,
    Structured,
    contraction_operands,
    defining_op,
    element_type,
    shape_of,
)
from stepwell.kernels.used_elements import KERNEL_EXTENTS
from stepwell.kernels.widened_weights import WidenedWeights
from stepwell.mlir import dialect, ir
from stepwell.packing import Packing, PanelPacking
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg._fusion_graph import is_control
from stepwell.passes.linalg._pack_widened import prepare_widened
from stepwell.passes.linalg._packed_weights import (
    Weight,
    add_packed,
    erase_unread,
    replace_operand,
    retype_argument,
    weight_of,
)
from stepwell.passes.linalg.hoist_constants import bytes_of_weights

arith = dialect("arith")


@dataclass(frozen=True)
class PackOperands(Pass):
    """Set `kernel.strategy` on contraction and attention kernels; with `pack`, also reorder
    constant operands of contractions."""

    name: ClassVar[str] = "pack-operands"
    pack: bool = True

    def run(self, op: ir.Operation, state: State) -> None:
        functions = {
            child.operation.attributes["sym_name"].value: child.operation
            for child in op.regions[0].blocks[0].operations
            if child.operation.name == "func.func"
        }
        calls: dict[str, list[tuple[ir.Operation, ir.Operation]]] = {}
        for function in functions.values():
            for call in _calls(function):
                callee = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
                calls.setdefault(callee, []).append((function, call))
        packed: dict[tuple[Weight, Packing], ir.Value] = {}
        weights = sum(map(bytes_of_weights, functions.values()))
        state = dataclasses.replace(state, target=state.target.reading(weights, state.threads))
        for name, kernel in functions.items():
            kind = kernel.attributes.get("kernel.kind", None)
            if _is_contraction(kernel):
                self._prepare(kernel, calls.get(name, []), state, packed)
            elif kind is not None and ir.StringAttr(kind).value == attention.KIND:
                operations = [c.operation for c in kernel.regions[0].blocks[0].operations]
                bits = attention_strategy.bits_of_scores(operations)
                choice = attention_strategy.choice(operations, state.target.for_elements(bits))
                kernel.attributes["kernel.strategy"] = state.decide(kernel, choice).to_attribute()

    def _prepare(
        self,
        kernel: ir.Operation,
        calls: list[tuple[ir.Operation, ir.Operation]],
        state: State,
        packed: dict[tuple[Weight, Packing], ir.Value],
    ) -> None:
        anchor = next(
            s
            for child in kernel.regions[0].blocks[0].operations
            if (s := Structured.of(child.operation)) is not None and "reduction" in s.iterators
        )
        operands = contraction_operands(anchor)
        assert operands is not None
        bits = element_type(anchor.op.results[0]).width
        state = dataclasses.replace(state, target=state.target.for_elements(bits))
        shape = ContractionShape.of(anchor, operands)
        narrow = WidenedWeights.of(anchor.inputs[shape.rhs])
        if narrow is not None:
            prepare_widened(kernel, anchor, shape, narrow, calls, state, packed, pack=self.pack)
            return
        slices = slices_behind(anchor.inputs[shape.rhs])
        number = _argument_behind(slices.source if slices else anchor.inputs[shape.rhs])
        weights = [weight_of(host, call, number) for host, call in calls]
        known = bool(weights) and all(weight is not None for weight in weights)
        if winograd_strategy.ATTRIBUTE in anchor.op.attributes:
            if number is not None and known and slices is None:
                _pack_winograd(kernel, anchor, number, calls, weights, state, packed)
                return
            del anchor.op.attributes[winograd_strategy.ATTRIBUTE]
        is_weight = self.pack and number is not None and known and _is_read_once(kernel, number)
        packed_bytes = is_weight and _plan(anchor, shape, 1, slices) is not None
        terms = dot_products.terms_of(anchor, operands, state.target, packed_bytes)
        shape = ContractionShape.of(anchor, operands, terms)
        is_whole = slices is None and KERNEL_EXTENTS not in kernel.attributes
        if strassen_strategy.ATTRIBUTE in anchor.op.attributes and packed_bytes and is_whole:
            halves = strassen_strategy.choice(shape, state.target, state.threads)
            strategy = state.decide(kernel, halves)
        else:
            if strassen_strategy.ATTRIBUTE in anchor.op.attributes:
                del anchor.op.attributes[strassen_strategy.ATTRIBUTE]
            choice = contraction_choice.choice(anchor, shape, state.target, is_weight)
            strategy = state.decide(kernel, choice)
        kernel.attributes["kernel.strategy"] = strategy.to_attribute()
        panel = strategy.columns(state.target.vector_lanes)
        plan = _plan(anchor, shape, panel, slices) if is_weight else None
        if plan is None or number is None:
            return
        kind = ir.RankedTensorType.get(plan.packing.shape, element_type(anchor.inputs[shape.rhs]))
        retype_argument(kernel, number, kind)
        maps = list(anchor.op.attributes["indexing_maps"])
        maps[shape.rhs] = ir.AffineMapAttr.get(plan.map)
        anchor.op.attributes["indexing_maps"] = ir.ArrayAttr.get(maps)
        read = kernel.regions[0].blocks[0].arguments[number]
        if slices is None:
            replace_operand(anchor, shape.rhs, read)
        else:
            with ir.InsertionPoint(anchor.op), anchor.op.location:
                anchor.op.operands[shape.rhs] = slices.taking(read)
            slices.op.op.erase()
            erase_unread(slices.source)
        for (host, call), weight in zip(calls, weights, strict=True):
            assert weight is not None
            key = (weight, plan.packing)
            original = call.operands[number]
            if key not in packed:
                packed[key] = add_packed(host, weight, plan.packing, kind, state)
            call.operands[number] = packed[key]
            if isinstance(weight, str):
                self._share(host, original, plan, packed[key])

    def _share(
        self, host: ir.Operation, original: ir.Value, plan: PackPlan, packed: ir.Value
    ) -> None:
        """Let kernels that look up single elements of the weight (an embedding tied to the last
        layer) read the packed copy, so that the weight is stored once."""
        if len(plan.packing.source) != len(shape_of(original)) or plan.packing.terms > 1:
            return
        for use in list(original.uses):
            call, number = use.owner.operation, use.operand_number
            if call.name != "func.call":
                continue
            callee = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
            kernel = self._functions(host)[callee]
            once = len(self._calls_of(host, callee)) == 1
            if once and not _is_contraction(kernel) and _only_extracts(kernel, number):
                retype_argument(kernel, number, packed.type)
                for extract in _users(kernel, number):
                    _extract_packed(extract, plan)
                call.operands[number] = packed

    def _functions(self, host: ir.Operation) -> dict[str, ir.Operation]:
        module = host.parent.operation
        return {
            child.operation.attributes["sym_name"].value: child.operation
            for child in module.regions[0].blocks[0].operations
        }

    def _calls_of(self, host: ir.Operation, callee: str) -> list[ir.Operation]:
        return [
            call
            for function in self._functions(host).values()
            for call in _calls(function)
            if ir.FlatSymbolRefAttr(call.attributes["callee"]).value == callee
        ]


def _is_contraction(kernel: ir.Operation) -> bool:
    kind = kernel.attributes.get("kernel.kind", None)
    return kind is not None and ir.StringAttr(kind).value == "contraction"


def _users(kernel: ir.Operation, number: int) -> list[ir.Operation]:
    return [use.owner.operation for use in kernel.regions[0].blocks[0].arguments[number].uses]


def _only_extracts(kernel: ir.Operation, number: int) -> bool:
    users = _users(kernel, number)
    return bool(users) and all(user.name == "tensor.extract" for user in users)


def _extract_packed(extract: ir.Operation, plan: PackPlan) -> None:
    """Read the element where packing put it."""
    source, *indices = extract.operands
    with ir.InsertionPoint(extract), extract.location:
        panel = arith.ConstantOp(ir.IndexType.get(), plan.packing.panel).result
        column = indices[plan.packing.axes[-1]]
        block = arith.DivUIOp(column, panel).result
        lane = arith.RemUIOp(column, panel).result
        rest = [indices[axis] for axis in plan.packing.axes[:-1]]
        batch = plan.packing.batch
        place = [*rest[:batch], block, *rest[batch:], lane]
        value = ir.Operation.create(
            "tensor.extract", results=[extract.results[0].type], operands=[source, *place]
        ).results[0]
    extract.results[0].replace_all_uses_with(value)
    extract.erase()


def _pack_winograd(
    kernel: ir.Operation,
    anchor: Structured,
    number: int,
    calls: list[tuple[ir.Operation, ir.Operation]],
    weights: list[Weight | None],
    state: State,
    packed: dict[tuple[Weight, Packing], ir.Value],
) -> None:
    """Pass weights as the kernel takes them; in the body a cast stands for undoing that."""
    shape = ConvolutionShape.of(anchor)
    assert shape is not None
    tile = ir.IntegerAttr(anchor.op.attributes[winograd_strategy.ATTRIBUTE]).value
    choice = winograd_strategy.choice(tile, shape, state.target, state.threads)
    strategy = state.decide(kernel, choice)
    kernel.attributes["kernel.strategy"] = strategy.to_attribute()
    plain = anchor.inputs[1].type
    packing = winograd_strategy.packing(shape, strategy, state.target.vector_lanes)
    kind = ir.RankedTensorType.get(packing.shape, plain.element_type)
    retype_argument(kernel, number, kind)
    with ir.InsertionPoint(anchor.op), anchor.op.location:
        undone = ir.Operation.create(
            "builtin.unrealized_conversion_cast",
            results=[plain],
            operands=[kernel.regions[0].blocks[0].arguments[number]],
        ).results[0]
    replace_operand(anchor, 1, undone)
    for (host, call), weight in zip(calls, weights, strict=True):
        assert weight is not None
        key = (weight, packing)
        if key not in packed:
            packed[key] = add_packed(host, weight, packing, kind, state)
        call.operands[number] = packed[key]


@dataclass(frozen=True)
class PackPlan:
    """How a weight becomes panels, and the map through which the kernel then reads it."""

    packing: PanelPacking
    map: ir.AffineMap


def _plan(
    anchor: Structured, shape: ContractionShape, panel: int, slices: TakenSlices | None
) -> PackPlan | None:
    """The packing of the rhs, or of the array that its `slices` are of; None when it is not read at
    plain loop indices, or when slices would not be whole."""
    rhs_map = anchor.maps[shape.rhs]
    source_shape = shape_of(anchor.inputs[shape.rhs])
    if slices is not None:
        if slices.lead > 1:
            return None
        source_shape = (slices.count, *source_shape[1:])
    axis_of: dict[int, int] = {}
    unit_axes = []
    for axis, expression in enumerate(rhs_map.results):
        if isinstance(expression, ir.AffineDimExpr):
            axis_of[expression.position] = axis
        elif isinstance(expression, ir.AffineConstantExpr) and source_shape[axis] == 1:
            unit_axes.append(axis)
        else:
            return None
    batch = [d for d in shape.batch if d in axis_of]
    reduced = [d for d in shape.reduced if d in axis_of]
    order = [*batch, *reduced, shape.column]
    if len(order) != len(axis_of) or len(reduced) != len(shape.reduced):
        return None
    axes = [axis_of[d] for d in order[:-1]]
    if slices is not None and (not batch or axes[0] != 0):
        return None
    dim = ir.AffineExpr.get_dim
    column, terms = dim(shape.column), shape.terms
    words, place = [dim(d) for d in reduced], ir.AffineExpr.get_mod(column, panel)
    if terms > 1:
        last = words[-1]
        words[-1] = ir.AffineExpr.get_floor_div(last, terms)
        place = place * terms + ir.AffineExpr.get_mod(last, terms)
    results = [
        *(dim(d) for d in batch),
        ir.AffineExpr.get_floor_div(column, panel),
        *words,
        place,
    ]
    squeezed = tuple(n for axis, n in enumerate(source_shape) if axis not in unit_axes)
    renumber = {
        axis: i for i, axis in enumerate(a for a in range(len(source_shape)) if a not in unit_axes)
    }
    packing = PanelPacking(
        squeezed,
        tuple(renumber[a] for a in [*axes, axis_of[shape.column]]),
        len(batch),
        panel,
        terms,
    )
    return PackPlan(packing, ir.AffineMap.get(rhs_map.n_dims, 0, results))


def _calls(function: ir.Operation) -> Iterator[ir.Operation]:
    """The calls in `function`, those in its loops and branches included."""
    for region in function.regions:
        for block in region.blocks:
            for child in block.operations:
                if child.operation.name == "func.call":
                    yield child.operation
                elif is_control(child.operation):
                    yield from _calls(child.operation)


def _argument_behind(value: ir.Value) -> int | None:
    """The kernel argument that `value` is, or is a reshape of."""
    while (op := defining_op(value)) is not None:
        if op.name not in RESHAPES:
            return None
        value = op.operands[0]
    return ir.BlockArgument(value).arg_number


def _is_read_once(kernel: ir.Operation, number: int) -> bool:
    """Whether only one operation of the kernel reads its argument, so that it may change form."""
    return len(list(kernel.regions[0].blocks[0].arguments[number].uses)) == 1
