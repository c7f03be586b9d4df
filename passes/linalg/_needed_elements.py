"""Which part of each value of a program with open sizes is read, followed from the results back.

Of an image of h rows, a convolution with a window of three reads h + 1: where rows beyond h were
filled with zeros, the first of them is needed, and the others are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stepwell.errors import LoweringError
from stepwell.extents import Extent
from stepwell.kernels.cpu.winograd_shape import ConvolutionShape
from stepwell.kernels.cpu.winograd_strategy import ATTRIBUTE as WINOGRAD
from stepwell.kernels.group import accesses, extracted
from stepwell.kernels.index import Index, Variable, apply_map
from stepwell.kernels.structured import RESHAPES, Structured, shape_of
from stepwell.kernels.used_elements import prefixes_of
from stepwell.mlir import ir, nested_operations
from stepwell.open_dimensions import (
    Dimension,
    Layout,
    as_prefix,
    capacity,
    closed,
    joint,
    prefix,
    regrouped,
)

_Limit = tuple[Variable, Extent]
"""So many iterations of a loop count."""


class NeededElements:
    """What is needed of the values of a host function, of the results of the kernels it calls, and
    of those of the reductions in these. `known` are the extents that kernels are told."""

    def __init__(self, functions: dict[str, ir.Operation], known: Sequence[Extent]) -> None:
        self.functions = functions
        self.known = known
        self.values: dict[ir.Value, Layout] = {}
        self.kernels: dict[str, list[Layout]] = {}
        self.reductions: dict[ir.Operation, Layout] = {}

    def of(self, value: ir.Value) -> Layout:
        """What is needed of `value`: all of it where nobody was seen to read it."""
        known = self.values.get(value)
        return known if known is not None else _whole(value)

    def _need(self, value: ir.Value, layout: Layout) -> None:
        known = self.values.get(value)
        self.values[value] = layout if known is None else _joined(known, layout)

    def _need_whole(self, values: Sequence[ir.Value]) -> None:
        for value in values:
            if isinstance(value.type, ir.RankedTensorType):
                self._need(value, _whole(value))

    def follow(self, block: ir.Block, results: Sequence[Layout]) -> None:
        """The operations of `block`, of whose results so much is needed."""
        *operations, end = [child.operation for child in block.operations]
        for value, layout in zip(end.operands, results, strict=True):
            self._need(value, layout)
        for op in reversed(operations):
            structured = Structured.of(op)
            if op.name == "func.call":
                self._call(op)
            elif structured is not None:
                self._loops(structured)
            elif op.name in RESHAPES:
                self._reshape(op)
            elif op.name == "tensor.pad":
                lows = list(op.attributes["static_low"])
                self._need(op.operands[0], _moved_to(self.of(op.results[0]), op.operands[0], lows))
            elif op.name == "tensor.insert_slice":
                self._insert(op)
            else:
                self._everything(op)

    def _everything(self, op: ir.Operation) -> None:
        """Of all that `op` reads, and all that is computed in it."""
        for inner in nested_operations(op):
            self._need_whole(list(inner.operands))
            if inner.name == "func.call":
                self._call(inner)

    def _call(self, op: ir.Operation) -> None:
        name = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
        kernel = self.functions[name]
        if not len(kernel.regions[0].blocks):
            self._need_whole(list(op.operands))
            return
        block = kernel.regions[0].blocks[0]
        layouts = [self.of(result) for result in op.results]
        known = self.kernels.get(name, layouts)
        self.kernels[name] = [_joined(*pair) for pair in zip(known, layouts, strict=True)]
        for child in block.operations:
            for result in child.operation.results:
                self.values.pop(result, None)
        for argument in block.arguments:
            self.values.pop(argument, None)
        self.follow(block, layouts)
        for operand, argument in zip(op.operands, block.arguments, strict=True):
            if argument in self.values:
                self._need(operand, self.values[argument])

    def _reshape(self, op: ir.Operation) -> None:
        source, result = op.operands[0], op.results[0]
        try:
            layout = regrouped(self.of(result), shape_of(result), shape_of(source))
        except LoweringError:
            layout = _whole(source)
        self._need(source, layout)

    def _insert(self, op: ir.Operation) -> None:
        source, target = op.operands[0], op.operands[1]
        offsets = list(op.attributes["static_offsets"])
        strides = list(op.attributes["static_strides"])
        is_box = len(shape_of(source)) == len(offsets) and strides == [1] * len(strides)
        if not is_box or min(offsets, default=0) < 0:
            self._everything(op)
            return
        layout = self.of(op.results[0])
        self._need(source, _moved_to(layout, source, offsets))
        self._need(target, layout)

    def _loops(self, op: Structured) -> None:
        sizes = op.loop_sizes()
        variables = [Variable(f"d{i}", 0, max(size, 1) - 1) for i, size in enumerate(sizes)]
        loops = dict(zip(variables, self._needed_loops(op, sizes), strict=True))
        point = [Index.of(variable) for variable in variables]
        limited = dict(_chosen(op, point))
        reads = [
            (number, value, apply_map(affine_map, point))
            for number, (affine_map, value) in enumerate(
                zip(op.maps, (*op.inputs, *op.outputs), strict=True)
            )
        ]
        captured = list(extracted(op, point))
        reads += [(-1, value, indices) for value, indices in captured]
        for number, value, indices in reads:
            inside = dict(loops)
            for variable, extent in limited.get(number, ()):
                inside[variable] = _limited(inside[variable], extent)
            layout = [
                self._reach(index, inside, size)
                for index, size in zip(indices, shape_of(value), strict=True)
            ]
            if isinstance(value.type, ir.RankedTensorType):
                self._need(value, tuple(layout))
        followed = [value for value, _ in captured]
        for child in op.body.operations:
            if child.operation.name == "tensor.extract":
                source = child.operation.operands[0]
                self._need_whole([source] if source not in followed else [])
            elif len(child.operation.regions):
                self._everything(child.operation)

    def _needed_loops(self, op: Structured, sizes: Sequence[int]) -> list[Dimension]:
        """Of each loop of `op`, the part that its results are needed of."""
        loops: dict[int, Dimension] = {}
        written = op.maps[len(op.inputs) :]
        for result, affine_map in zip(op.op.results, written, strict=True):
            layout = self.of(result)
            for expression, dimension in zip(affine_map.results, layout, strict=True):
                if not isinstance(expression, ir.AffineDimExpr):
                    return list(map(closed, sizes))
                loop = expression.position
                loops[loop] = joint(loops.get(loop, dimension), dimension)
        if "reduction" in op.iterators:
            layout = self.of(op.op.results[0])
            known = self.reductions.get(op.op, layout)
            self.reductions[op.op] = _joined(known, layout)
        if WINOGRAD in op.op.attributes:
            shape = ConvolutionShape.of(op)
            assert shape is not None
            tile = ir.IntegerAttr(op.op.attributes[WINOGRAD]).value
            for side in shape.sides:
                reach = side.row(tile).tile * side.dilation
                loops[side.loop] = _grown(loops[side.loop], reach - 1)
        return [loops.get(loop, closed(size)) for loop, size in enumerate(sizes)]

    def _reach(self, index: Index, loops: dict[Variable, Dimension], size: int) -> Dimension:
        """What `index` reads of a dimension of `size` as `loops` run."""
        if len(index.terms) == 1 and not index.constant:
            (atom, factor), *_ = index.terms
            if isinstance(atom, Variable) and factor == 1 and capacity(loops[atom]) == size:
                return loops[atom]
        end = Extent.of(index.constant + 1)
        for atom, factor in index.terms:
            part = as_prefix(loops[atom]) if isinstance(atom, Variable) else None
            if part is None:
                return closed(size)
            if factor > 0:
                end = end.plus(part.extent, factor).plus(Extent.of(factor), -1)
        bound = None if end.is_constant else end.bound(self.known)
        return closed(size) if bound is None else prefix(size, bound)


def _chosen(op: Structured, point: Sequence[Index]) -> Iterator[tuple[int, list[_Limit]]]:
    """For inputs that are looked at where vectors of booleans are true alone: along which loops
    these lie, and how many of their elements are true."""
    if not op.is_elementwise:
        return
    arguments = list(op.body.arguments)
    for child in op.body.operations:
        select = child.operation
        if select.name != "arith.select":
            continue
        condition, value = (
            arguments.index(operand) if operand in arguments else None
            for operand in select.operands[:2]
        )
        if condition is None or value is None or len(list(arguments[value].uses)) > 1:
            continue
        indices = apply_map(op.maps[condition], point)
        prefixes = prefixes_of(op.op.parent.operation)
        found = [
            (atom, prefixes[leaf])
            for leaf, places in accesses(op.inputs[condition], indices, set(prefixes))
            for atom, _ in places[0].terms
            if isinstance(atom, Variable) and places == [Index.of(atom)]
        ]
        if len(found) == 1:
            yield value, found


def _limited(dimension: Dimension, extent: Extent) -> Dimension:
    """The part of `dimension` that is in its first `extent` elements."""
    part = as_prefix(dimension)
    if part is None:
        return dimension
    beyond = part.extent.plus(extent, -1)
    is_less = beyond.is_constant and beyond.at(()) < 0
    return dimension if is_less else prefix(part.capacity, extent)


def _grown(dimension: Dimension, count: int) -> Dimension:
    """`count` elements more, where a part is needed."""
    part = as_prefix(dimension)
    if part is None:
        return closed(capacity(dimension))
    return prefix(part.capacity, part.extent.plus(Extent.of(count))) if part.is_open else dimension


def _moved_to(layout: Layout, source: ir.Value, offsets: Sequence[int]) -> Layout:
    """What is needed of `source`, which begins at `offsets` of what `layout` is needed of."""
    found = []
    for dimension, size, offset in zip(layout, shape_of(source), offsets, strict=True):
        part = as_prefix(dimension)
        if capacity(dimension) == size and not offset:
            found.append(dimension)
        elif part is not None and part.is_open:
            found.append(prefix(size, part.extent.plus(Extent.of(offset), -1)))
        else:
            found.append(closed(size))
    return tuple(found)


def _whole(value: ir.Value) -> Layout:
    return tuple(map(closed, shape_of(value)))


def _joined(first: Layout, second: Layout) -> Layout:
    return tuple(joint(*pair) for pair in zip(first, second, strict=True))
