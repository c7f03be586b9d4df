"""A kernel function as emitters see it: its arguments, results, anchor, and where results go."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from stepwell.errors import LoweringError
from stepwell.kernels.builder import Lanes, NestBuilder
from stepwell.kernels.evaluate import Evaluator, slice_source, to_storage
from stepwell.kernels.index import (
    Atom,
    Index,
    Variable,
    apply_map,
    constant,
    linearize,
    reshaped,
)
from stepwell.kernels.structured import (
    RESHAPES,
    Structured,
    defining_op,
    element_type,
    reshape_source,
    shape_of,
    source_name,
)
from stepwell.mlir import ir


@dataclass(frozen=True, eq=False)
class Output:
    """One result of a kernel: the value to compute, the buffer for it, where it begins there (`low`
    elements before it in each dimension), and the constant halo around it when it is padded.
    Without one, the value may be a slice of what the buffer holds."""

    value: ir.Value
    buffer: ir.Value
    low: tuple[int, ...]
    halo: ir.Value | None

    @property
    def shape(self) -> tuple[int, ...]:
        return shape_of(self.value)


CONSTANTS = "kernel.constants"
"""Attribute of a kernel: the numbers of its inputs that are weights of the artifact, which nothing
writes."""


class KernelGroup:
    """The parsed body of an outlined tensor function and the memrefs of its emitted form."""

    def __init__(self, function: ir.Operation, buffers: list[ir.Value], nest: NestBuilder) -> None:
        self.function = function
        self.nest = nest
        block = function.regions[0].blocks[0]
        self.operations = [child.operation for child in block.operations]
        returned = list(self.operations[-1].operands)
        self.operations.pop()
        count = len(block.arguments) - len(returned)
        self.inputs = list(block.arguments)[:count]
        self.constants: set[ir.Value] = set()
        """Inputs that nothing writes."""
        if CONSTANTS in function.attributes:
            self.constants = {self.inputs[n] for n in function.attributes[CONSTANTS]}
        self.exact_reads: list[int] = []
        """Inputs of which the kernel reads what is in use alone."""
        self.counted: dict[ir.Value, Index] = {}
        """For vectors of booleans: how many are true, where that was counted at the top."""
        self.evaluator = Evaluator(nest, dict(zip(block.arguments, buffers, strict=True)))
        kind = ir.StringAttr(function.attributes["kernel.kind"]).value
        self.outputs = [
            _output(value, buffer, slices=kind != "update")
            for value, buffer in zip(returned, buffers[count:], strict=True)
        ]

    @property
    def name(self) -> str:
        return self.function.attributes["sym_name"].value

    def reductions(self) -> list[Structured]:
        """The operations with reduction loops, in order."""
        found = (Structured.of(op) for op in self.operations)
        return [s for s in found if s is not None and "reduction" in s.iterators]

    def anchor(self) -> Structured:
        """The one operation with reduction loops."""
        reductions = self.reductions()
        if len(reductions) != 1:
            raise LoweringError(f"{self.name}: expected one reduction, found {len(reductions)}")
        return reductions[0]

    def argument_behind(self, value: ir.Value) -> int | None:
        """The number of the input that `value` is read from, through views and copies."""
        while value not in self.inputs:
            op = defining_op(value)
            structured = Structured.of(op) if op is not None else None
            copied = structured.copied_input() if structured is not None else None
            if op is not None and op.name in RESHAPES:
                value = op.operands[0]
            elif structured is not None and copied is not None:
                value = structured.inputs[copied]
            else:
                return None
        return self.inputs.index(value)

    def point_of(self, output: Output, anchor: ir.Value, at: list[Index]) -> list[Index]:
        """The element of `output` that is computed from the element `at` of `anchor`."""
        shape = output.shape
        if output.value == anchor:
            return at
        dims = [Variable(f"d{i}", 0, max(size, 1) - 1) for i, size in enumerate(shape)]
        here = [Index.of(d) for d in dims]
        there = next((indices for _, indices in accesses(output.value, here, {anchor})), None)
        if there is None:
            raise LoweringError(f"{self.name}: a result does not come from the kernel's anchor")
        if there == here:
            return list(at)
        if linearize(there, shape_of(anchor)) == linearize(here, shape):
            return reshaped(at, shape_of(anchor), shape)
        digits: dict[_Digit, Index] = {}
        for index, value in zip(there, at, strict=True):
            digits |= _digits(index, value)
        return [_number(variable, digits) for variable in dims]

    def write(self, output: Output, point: list[Index], lanes: Lanes) -> None:
        """Evaluate `output` at `point` and store it."""
        value = self.evaluator.at(output.value, point, lanes)
        self.store(output, point, to_storage(value, element_type(output.value)), lanes)

    def store(self, output: Output, point: list[Index], value: ir.Value, lanes: Lanes) -> None:
        """Store what `output` is at `point`, where it lies in its buffer."""
        place = [index + low for index, low in zip(point, output.low, strict=True)]
        self.nest.store(value, output.buffer, place, lanes)

    def fill_halos(self, task: Index, lanes: int) -> None:
        """In the first task, write the constant halo of every padded output."""
        padded = [o for o in self.outputs if o.halo is not None and o.shape != _buffer_shape(o)]
        if not padded:
            return
        if task.is_constant:
            for output in padded:
                self._fill_halo(output, lanes)
            return
        with self.nest.when(task, equals=0) as branch, branch.then(), self.evaluator.scope():
            branch.set_apart()
            for output in padded:
                self._fill_halo(output, lanes)

    def _fill_halo(self, output: Output, lanes: int) -> None:
        """Each dimension's two margins, as boxes that do not overlap: interior in earlier
        dimensions, everything in later ones."""
        assert output.halo is not None
        halo = self.evaluator.at_scalar(output.halo)
        value = to_storage(halo, element_type(output.value))
        outer = _buffer_shape(output)
        for axis in range(len(outer)):
            box = [(low, low + n) for low, n in zip(output.low, output.shape, strict=True)]
            box[axis + 1 :] = [(0, n) for n in outer[axis + 1 :]]
            for start, stop in ((0, output.low[axis]), (box[axis][1], outer[axis])):
                if stop > start:
                    box[axis] = (start, stop)
                    self._fill_box(output.buffer, list(box), value, lanes)
            box[axis] = (output.low[axis], output.low[axis] + output.shape[axis])

    def _fill_box(
        self, buffer: ir.Value, box: list[tuple[int, int]], value: ir.Value, lanes: int
    ) -> None:
        def fill(prefix: list[Index], axes: list[tuple[int, int]]) -> None:
            start, stop = axes[0]
            if len(axes) == 1:
                for begin, end, width in widths(stop - start, lanes):
                    vector = Lanes.of(width)
                    with self.nest.loop("h", start + begin, start + end, width) as variable:
                        place = [*prefix, Index.of(variable) + vector.index]
                        self.nest.store(value, buffer, place, vector)
                return
            with self.nest.loop("h", start, stop) as variable:
                fill([*prefix, Index.of(variable)], axes[1:])

        fill([], box)


def widths(count: int, lanes: int) -> Iterator[tuple[int, int, int]]:
    """(begin, end, width) covering [0, count): full vectors first, then halving ones."""
    begin, width = 0, lanes
    while begin < count:
        end = begin + (count - begin) // width * width
        if end > begin:
            yield begin, end, width
            begin = end
        width //= 2


def accesses(
    value: ir.Value,
    indices: list[Index],
    leaves: set[ir.Value],
    evaluator: Evaluator | None = None,
) -> Iterator[tuple[ir.Value, list[Index]]]:
    """(leaf, indices) for every read of a leaf that computing `value` at `indices` makes.

    A read that is needed several times comes once, however many ways lead to it. What is read at
    indices from memory is left out, but for slices whose numbers `evaluator` gives.
    """
    seen: set[tuple[ir.Value, tuple[Index, ...]]] = set()
    waiting = [(value, indices)]
    while waiting:
        value, indices = waiting.pop()
        place = (value, tuple(indices))
        if place in seen:
            continue
        seen.add(place)
        if value in leaves:
            yield value, indices
        else:
            waiting += reversed(_reads(value, indices, leaves, evaluator))


def _reads(
    value: ir.Value, indices: list[Index], leaves: set[ir.Value], evaluator: Evaluator | None
) -> list[tuple[ir.Value, list[Index]]]:
    """What the operation that makes `value` reads for its element at `indices`, as `accesses` has
    it."""
    op = defining_op(value)
    if op is None:
        return []
    if op.name in RESHAPES:
        source = reshape_source(op, leaves)
        return [(source, reshaped(indices, shape_of(value), shape_of(source)))]
    if op.name == "tensor.extract_slice":
        return [(op.operands[0], slice_source(op, indices))]
    structured = Structured.of(op)
    slices = evaluator.slices(structured) if evaluator and structured else None
    if evaluator is not None and slices is not None:
        number = evaluator.slice_number(slices, indices[: slices.lead])
        return [(slices.source, [number, *indices[slices.lead :]])]
    if structured is None or not structured.is_elementwise:
        return []
    found = list(extracted(structured, indices))
    arguments = structured.body.arguments
    for number, source in enumerate(structured.inputs):
        if any(True for _ in arguments[number].uses):
            found.append((source, apply_map(structured.maps[number], indices)))
    return found


def extracted(op: Structured, dims: list[Index]) -> list[tuple[ir.Value, list[Index]]]:
    """(tensor, indices) for what the body of `op` takes out of captured tensors, at the point
    `dims` of its loops, where the indices are loop variables and constants. Tensors that are read
    at other indices, too, are left out."""
    known: dict[ir.Value, Index] = {}
    found: dict[ir.Value, list[Index]] = {}
    elsewhere: set[ir.Value] = set()
    for child in op.body.operations:
        inner = child.operation
        if inner.name == "linalg.index":
            known[inner.results[0]] = dims[ir.IntegerAttr(inner.attributes["dim"]).value]
        elif inner.name == "tensor.extract":
            source, *places = inner.operands
            indices = [known.get(place, _constant_index(place)) for place in places]
            point = [index for index in indices if index is not None]
            if len(point) < len(places) or found.get(source, point) != point:
                elsewhere.add(source)
            found[source] = point
    return [(source, point) for source, point in found.items() if source not in elsewhere]


def _constant_index(value: ir.Value) -> Index | None:
    op = defining_op(value)
    if op is None or op.name != "arith.constant":
        return None
    return constant(ir.IntegerAttr(op.attributes["value"]).value)


@dataclass(frozen=True)
class _Digit:
    """`(variable floordiv place) mod size`, for a variable from 0 on."""

    variable: Variable
    place: int
    size: int

    @staticmethod
    def of(atom: Atom) -> _Digit | None:
        """What `atom` is of a variable; None where it is no digit of one."""
        if isinstance(atom, Variable):
            return _Digit(atom, 1, atom.high + 1)
        if len(atom.dividend.terms) != 1 or atom.dividend.constant:
            return None
        ((inner, factor),) = atom.dividend.terms
        digit = _Digit.of(inner) if factor == 1 else None
        if digit is None or digit.size % atom.divisor:
            return None
        if atom.remainder:
            return _Digit(digit.variable, digit.place, atom.divisor)
        return _Digit(digit.variable, digit.place * atom.divisor, digit.size // atom.divisor)


def _digits(index: Index, value: Index) -> dict[_Digit, Index]:
    """What the digits that make up `index`, in any order, are where it is `value`; nothing where it
    is no number of digits. Some may be reversed, counted from their last down."""
    found: dict[_Digit, Index] = {}
    weight, highest = 1, 0
    terms = sorted(index.terms, key=lambda term: abs(term[1]))
    for number, (atom, factor) in enumerate(terms):
        digit = _Digit.of(atom)
        if abs(factor) != weight or digit is None:
            return {}
        read = value.floordiv(weight)
        read = read if number + 1 == len(terms) else read.mod(digit.size)
        if factor < 0:
            highest += weight * (digit.size - 1)
            read = constant(digit.size - 1) - read
        found[digit] = read
        weight *= digit.size
    return found if index.constant == highest else {}


def _number(variable: Variable, digits: dict[_Digit, Index]) -> Index:
    """`variable` by its `digits`, 0 where not all of them are there."""
    number, weight = Index(), 1
    own = (digit for digit in digits if digit.variable is variable)
    for digit in sorted(own, key=lambda digit: digit.place):
        if digit.place != weight:
            return Index()
        number = number + digits[digit] * digit.place
        weight *= digit.size
    return number if weight > variable.high else Index()


def _output(value: ir.Value, buffer: ir.Value, *, slices: bool) -> Output:
    """The result `value`; with `slices`, one that is put into its destination is what is put."""
    op = defining_op(value)
    if slices and op is not None and op.name == "tensor.insert_slice":
        return Output(op.operands[0], buffer, tuple(op.attributes["static_offsets"]), None)
    if op is not None and op.name == "tensor.pad":
        low = tuple(op.attributes["static_low"])
        if any(v < 0 for v in low):
            raise LoweringError(f"{source_name(op)}: padding is known only at run time")
        halo = op.regions[0].blocks[0].operations[0].operands[0]
        return Output(op.operands[0], buffer, low, halo)
    return Output(value, buffer, (0,) * len(shape_of(value)), None)


def _buffer_shape(output: Output) -> tuple[int, ...]:
    return tuple(output.buffer.type.shape)


def task_grain(total: int, minimum: int, most: int = 64) -> int:
    """How many of `total` units one task takes: at least `minimum`, for at most `most` tasks."""
    return max(minimum, math.ceil(total / most))
