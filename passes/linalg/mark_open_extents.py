"""mark-open-extents: say of each kernel which part of its results anybody needs.

In a program with open sizes (`legalize-open-sizes`), `stepwell.extents` says how much of each
argument is in use. What a kernel computes from elements beyond that does not matter either, unless
it was told by a vector of booleans (`stepwell.prefixes`) what to put there: of such a result the
part matters that is read (`_needed_elements.py`), an element more than are in use by a convolution.

    func.func private @kernel_0(%x: tensor<512x768xf32>, ...) -> tensor<512x3072xf32>

becomes, where s0 rows of `%x` are in use

    func.func private @kernel_0(%x: tensor<512x768xf32>, %sizes: tensor<1xi64>, ...)
        attributes {kernel.extents = ["512/s0, 3072/3072"], kernel.sizes = ["s0"]}

A dimension is written as its factors, each a capacity and an extent. `kernel.needed` says the same
of what a reduction in the kernel gives. `skip-unused-elements` leaves out the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from stepwell.attributes import i64
from stepwell.errors import LoweringError
from stepwell.extents import Extent
from stepwell.frontends.open_sizes import (
    PREFIXES,
    RESULT_EXTENTS,
    SCALARS,
    read_extents,
)
from stepwell.kernels.group import extracted
from stepwell.kernels.index import Index, Variable, apply_map
from stepwell.kernels.structured import RESHAPES, Structured, shape_of
from stepwell.kernels.used_elements import KERNEL_EXTENTS, KERNEL_SIZES, NEEDED, OPEN
from stepwell.kernels.used_elements import PREFIXES as KERNEL_PREFIXES
from stepwell.mlir import ir, nested_operations
from stepwell.open_dimensions import (
    Dimension,
    Layout,
    capacity,
    closed,
    is_open,
    layout_text,
    parse_layout,
    prefix,
    regrouped,
)
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg._needed_elements import NeededElements

UNFILLED_EXTENTS = "kernel.unfilled_extents"
"""The same where what is put beyond the part in use is not needed: for kernels whose results are
read by such as read no more than what is in use."""


@dataclass(frozen=True)
class MarkOpenExtents(Pass):
    """Run on a module of a host function and outlined kernels."""

    name: ClassVar[str] = "mark-open-extents"

    def run(self, op: ir.Operation, state: State) -> None:
        body = op.regions[0].blocks[0]
        functions = {
            ir.StringAttr(child.operation.attributes["sym_name"]).value: child.operation
            for child in body.operations
            if child.operation.name == "func.func"
        }
        for function in functions.values():
            if PREFIXES in function.attributes:
                _mark(function, functions)


def _mark(host: ir.Operation, functions: dict[str, ir.Operation]) -> None:
    """Follow the parts in use through the host program."""
    flow = _Flow(functions)
    entry = host.regions[0].blocks[0]
    extents = read_extents(host) or []
    for argument, shape in zip(entry.arguments, extents, strict=False):
        size = shape_of(argument)
        parts = map(closed, size[len(shape) :])  # of complex numbers
        flow.layouts[argument] = (*map(prefix, size, shape), *parts)
    first = len(extents) + 1
    flow.vectors = list(entry.arguments)[first : first + len(host.attributes[PREFIXES])]
    for argument in flow.vectors:
        flow.filled[argument] = {0}
    flow.block(entry)
    unfilled = _Flow(functions)
    unfilled.layouts.update({a: flow.layouts[a] for a in entry.arguments if a in flow.layouts})
    unfilled.block(entry)
    for name, prefixes in flow.prefixes.items():
        if prefixes:
            pairs = [
                ir.ArrayAttr.get([i64(number), host.attributes[PREFIXES][which][0]])
                for number, which in sorted(prefixes)
            ]
            functions[name].attributes[KERNEL_PREFIXES] = ir.ArrayAttr.get(pairs)
    needed = _needed(host, functions)
    partial = set()
    for op, layout in needed.reductions.items():
        if any(map(is_open, layout)):
            op.attributes[NEEDED] = ir.StringAttr.get(layout_text(layout))
            partial.add(op.parent.operation)
    sizes = entry.arguments[len(read_extents(host) or ())]
    for name, layouts in flow.kernels.items():
        marked = functions[name] in partial
        for attribute, found in (
            (KERNEL_EXTENTS, layouts),
            (UNFILLED_EXTENTS, unfilled.kernels[name]),
        ):
            if attribute == KERNEL_EXTENTS or found != layouts:
                least = map(_least, found, needed.kernels[name])
                marked |= _state(functions[name], attribute, list(least))
        if marked:
            _give_sizes(host, functions[name], sizes)


def _needed(host: ir.Operation, functions: dict[str, ir.Operation]) -> NeededElements:
    """What is needed of the values of the program."""
    known = [Extent.parse(ir.StringAttr(text).value) for text in host.attributes[SCALARS]]
    found = NeededElements(functions, known)
    block = host.regions[0].blocks[0]
    results = []
    extents = read_extents(host, RESULT_EXTENTS) or []
    returned = list(list(block.operations)[-1].operands)
    for number, value in enumerate(returned):
        shape = extents[number] if extents else ()
        size = shape_of(value)
        parts = map(closed, size[len(shape) :])
        results.append((*map(prefix, size, shape), *parts))
    found.follow(block, results)
    return found


def _least(in_use: Layout, needed: Layout) -> Layout:
    """What is in use, or where that is not known what is needed."""
    return tuple(a if is_open(a) else b for a, b in zip(in_use, needed, strict=True))


def _state(function: ir.Operation, name: str, layouts: list[Layout]) -> bool:
    """Say the layouts of the results, if a part of one is enough."""
    is_part = any(is_open(dimension) for layout in layouts for dimension in layout)
    if is_part:
        texts = [ir.StringAttr.get(layout_text(layout)) for layout in layouts]
        function.attributes[name] = ir.ArrayAttr.get(texts)
    return is_part


def _give_sizes(host: ir.Operation, kernel: ir.Operation, sizes: ir.Value) -> None:
    """Let all calls of `kernel` hand the sizes over, before its results."""
    kernel.attributes[KERNEL_SIZES] = host.attributes[SCALARS]
    kind = ir.FunctionType(ir.TypeAttr(kernel.attributes["function_type"]).value)
    block = kernel.regions[0].blocks[0]
    first = len(block.arguments) - len(kind.results)
    results = list(block.arguments)[first:]
    block.add_argument(sizes.type, kernel.location)
    for old in results:
        old.replace_all_uses_with(block.add_argument(old.type, kernel.location))
    for _ in results:
        block.erase_argument(first)
    types = [argument.type for argument in block.arguments]
    kernel.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, kind.results))
    name = ir.StringAttr(kernel.attributes["sym_name"]).value
    for op in nested_operations(host):
        if op.name == "func.call" and ir.FlatSymbolRefAttr(op.attributes["callee"]).value == name:
            operands = list(op.operands)
            with ir.InsertionPoint(op), op.location:
                call = ir.Operation.create(
                    op.name,
                    [result.type for result in op.results],
                    [*operands[:first], sizes, *operands[first:]],
                    {key: op.attributes[key] for key in op.attributes},
                )
            for old, new in zip(op.results, call.results, strict=True):
                old.replace_all_uses_with(new)
            op.erase()


class _Flow:
    """Which part of each value is in use; and the dimensions along which values are `filled`:
    what stands beyond the part in use was put there."""

    def __init__(self, functions: dict[str, ir.Operation]) -> None:
        self.functions = functions
        self.layouts: dict[ir.Value, Layout] = {}
        self.filled: dict[ir.Value, set[int]] = {}
        self.kernels: dict[str, list[Layout]] = {}
        self.vectors: list[ir.Value] = []
        self.prefixes: dict[str, set[tuple[int, int]]] = {}

    def layout(self, value: ir.Value) -> Layout:
        known = self.layouts.get(value)
        return known if known is not None else tuple(map(closed, shape_of(value)))

    def block(self, block: ir.Block) -> None:
        """Follow all operations of `block`; what loops and branches give is in use as a whole."""
        for child in block.operations:
            op = child.operation
            if op.name == "func.call":
                self._call(op)
            elif op.name in RESHAPES:
                self._reshape(op)
            elif op.name in _SAME_DIMENSIONS:
                self._dimensions(op)
            else:
                structured = Structured.of(op)
                if structured is not None:
                    self._loops(structured)
                for region in op.regions if structured is None else ():
                    for inner in region.blocks:
                        self.block(inner)

    def _call(self, op: ir.Operation) -> None:
        name = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
        kernel = self.functions[name]
        if not len(kernel.regions[0].blocks):
            return
        block = kernel.regions[0].blocks[0]
        vectors = {
            (number, self.vectors.index(value))
            for number, value in enumerate(op.operands)
            if value in self.vectors
        }
        self.prefixes[name] = vectors & self.prefixes.get(name, vectors)
        for argument, value in zip(block.arguments, op.operands, strict=True):
            self.layouts[argument] = self.layout(value)
            self.filled[argument] = self.filled.get(value, set())
        self.block(block)
        returned = list(list(block.operations)[-1].operands)
        layouts = [self.layout(value) for value in returned]
        for result, value, layout in zip(op.results, returned, layouts, strict=True):
            self.layouts[result] = layout
            self.filled[result] = self.filled.get(value, set())
        known = self.kernels.get(name, layouts)
        self.kernels[name] = [_common(*pair) for pair in zip(known, layouts, strict=True)]

    def _reshape(self, op: ir.Operation) -> None:
        source, result = op.operands[0], op.results[0]
        shape, sizes = shape_of(source), shape_of(result)
        filled = self.filled.get(source, set())  # of vectors of booleans and what they told
        self.filled[result] = {
            place
            for taken, given in _regrouped_dimensions(shape, sizes)
            if not filled.isdisjoint(taken)
            for place in given
        }
        try:
            self.layouts[result] = regrouped(self.layout(source), shape, sizes)
        except LoweringError:  # in use as a whole
            return

    def _dimensions(self, op: ir.Operation) -> None:
        """A part, or a whole of parts: dimensions that stay as they are keep their extents."""
        result = op.results[0]
        sizes = shape_of(result)
        sources = [v for v in op.operands if len(shape_of(v)) == len(sizes) and sizes]
        layout = []
        for number, size in enumerate(sizes):
            found = {self.layout(source)[number] for source in sources}
            same = all(shape_of(source)[number] == size for source in sources)
            layout.append(found.pop() if same and len(found) == 1 else closed(size))
        self.layouts[result] = tuple(layout)
        self.filled[result] = set().union(*(self.filled.get(v, set()) for v in sources))

    def _loops(self, op: Structured) -> None:
        sizes = op.loop_sizes()
        loops: list[set[Dimension]] = [set() for _ in sizes]
        filled: set[int] = set()
        dims = [Variable(f"d{i}", 0, max(size, 1) - 1) for i, size in enumerate(sizes)]
        point = [Index.of(dim) for dim in dims]
        reads = [(v, apply_map(m, point)) for m, v in zip(op.maps, op.inputs, strict=False)]
        for value, indices in [*reads, *extracted(op, point)]:
            layout, known = self.layout(value), self.filled.get(value, set())
            for number, index in enumerate(indices):
                loop = next((i for i, p in enumerate(point) if p == index and p.terms), None)
                if loop is not None and is_open(layout[number]):
                    loops[loop].add(layout[number])
                if loop is not None and number in known:
                    filled.add(loop)
        for result, written in zip(op.op.results, op.maps[len(op.inputs) :], strict=True):
            layout = []
            places = set()
            for number, expression in enumerate(written.results):
                size = shape_of(result)[number]
                loop = expression.position if isinstance(expression, ir.AffineDimExpr) else -1
                if loop in filled:
                    places.add(number)
                is_known = loop >= 0 and len(loops[loop]) == 1 and loop not in filled
                layout.append(next(iter(loops[loop])) if is_known else closed(size))
            self.layouts[result] = tuple(layout)
            self.filled[result] = places
            if "reduction" in op.iterators and any(map(is_open, layout)):
                op.op.attributes[OPEN] = ir.StringAttr.get(layout_text(tuple(layout)))
            elif OPEN in op.op.attributes:  # of another call
                del op.op.attributes[OPEN]


_SAME_DIMENSIONS = ("tensor.extract_slice", "tensor.pad", "tensor.concat")


def _regrouped_dimensions(
    shape: Sequence[int], sizes: Sequence[int]
) -> Iterator[tuple[list[int], list[int]]]:
    """The dimensions of `shape` and those of `sizes` that a reshape makes of them, in the smallest
    groups that have as many elements; those of 1 make nothing."""
    ends: list[dict[int, list[int]]] = []
    for extents in (shape, sizes):
        count, groups = 1, {1: []}
        for dimension, size in enumerate(extents):
            count *= size
            groups.setdefault(count, []).append(dimension)
        ends.append(groups)
    taken: list[int] = []
    given: list[int] = []
    for count in sorted({*ends[0], *ends[1]}):
        taken += ends[0].get(count, [])
        given += ends[1].get(count, [])
        if count in ends[0] and count in ends[1]:
            yield taken, given
            taken, given = [], []


def _common(first: Layout, second: Layout) -> Layout:
    """What is in use of the results of two calls."""
    pairs = zip(first, second, strict=True)
    return tuple(a if a == b else closed(capacity(a)) for a, b in pairs)


def kernel_extents(function: ir.Operation, name: str = KERNEL_EXTENTS) -> list[Layout]:
    """The inverse of what this pass writes as `name`; nothing where it wrote nothing."""
    if name not in function.attributes:
        return []
    return [parse_layout(ir.StringAttr(text).value) for text in function.attributes[name]]
