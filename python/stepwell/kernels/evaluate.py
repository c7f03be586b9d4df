"""Evaluating values of a fusion group at points of a loop nest.

A group is a small graph of tensor operations. An emitter writes the loops of its anchor (a
contraction, a reduction, or plain elementwise loops) and asks for values at indices; the evaluator
pulls them through the graph: elementwise bodies are cloned onto vectors, reshapes, slices,
broadcasts and transposes become index arithmetic, arguments become loads.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from stepwell.errors import LoweringError
from stepwell.kernels import vector_math
from stepwell.kernels.arithmetic import CONTRACT, NO_SIGNED_ZEROS, Lanes, arith, vector
from stepwell.kernels.builder import NestBuilder
from stepwell.kernels.index import Index, Variable, apply_map, linearize, reshaped, same
from stepwell.kernels.scan import SCAN
from stepwell.kernels.slices import TakenSlices
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

Computed = ir.Value | Index
"""What a body operand can be: an SSA value, or an index still in symbolic form."""

SKIPS_NAN = "kernel.skips_nan"
"""On a maximum: nobody asks whether one of its elements is no number."""

ROUNDED = "kernel.rounded"
"""Attribute of an elementwise operation whose result is rounded before another one uses it: a
product is not fused with the sum that it goes to."""

FUSABLE = frozenset(["arith.addf", "arith.subf", "arith.mulf"])
"""Sums and products that may be fused with each other, rounded once."""

_TO_INTEGER = {"arith.uitofp": "arith.fptoui", "arith.sitofp": "arith.fptosi"}
"""What makes a float of an integer, and an integer of a float."""

_SMALL = 16
"""Bits of integers all of which f32 holds."""

_EXTREMA = {"arith.maximumf": "ogt", "arith.minimumf": "olt"}
_EXTREME_PREDICATES = {"ogt": 2, "olt": 4}


class Evaluator:
    """Values at points. `buffers` maps tensor arguments of the group to memrefs."""

    def __init__(self, nest: NestBuilder, buffers: dict[ir.Value, ir.Value]) -> None:
        self.nest = nest
        self.buffers = buffers
        self._bound: list[dict[ir.Value, tuple[list[Index], ir.Value]]] = [{}]
        self._cache: list[dict[object, ir.Value]] = [{}]
        self._kept: list[dict[ir.Value, tuple[ir.Value, Index]]] = [{}]
        self._offsets: dict[ir.Value, ir.Value] = {}
        self._slices: dict[ir.Operation, TakenSlices | None] = {}
        self._numbers: list[dict[object, Index]] = [{}]

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Values made inside are forgotten at the end: enter one scope a loop body or branch."""
        self._cache.append({})
        self._bound.append({})
        self._kept.append({})
        self._numbers.append({})
        try:
            yield
        finally:
            self._cache.pop()
            self._bound.pop()
            self._kept.pop()
            self._numbers.pop()

    def keep(self, value: ir.Value, scratch: ir.Value, start: Index) -> None:
        """Say that in this scope the elements of `value` from flat position `start` on lie in the
        1-D buffer `scratch`."""
        self._kept[-1][value] = (scratch, start)

    def bind(self, value: ir.Value, indices: Sequence[Index], computed: ir.Value) -> None:
        """Say what `value` is at `indices` (an accumulator, a row's reduction), in this scope."""
        self._bound[-1][value] = (list(indices), computed)

    def at(self, value: ir.Value, indices: Sequence[Index], lanes: Lanes) -> ir.Value:
        """`value` at `indices`: a vector over the lanes, a scalar when all lanes are the same."""
        place, keys = list(indices), []
        while (result := self._found(value, place, lanes)) is None:
            keys.append((value, tuple(place), lanes.variable))
            viewed = self._behind_view(value, place)
            if viewed is None:
                result = self._compute(value, place, lanes)
                break
            value, place = viewed
        self._cache[-1].update(dict.fromkeys(keys, result))
        return result

    def _found(self, value: ir.Value, indices: list[Index], lanes: Lanes) -> ir.Value | None:
        """What is known already of `value` at `indices`."""
        for frame in reversed(self._bound):
            if value in frame:
                point, computed = frame[value]
                if not same(point, indices, shape_of(value)):
                    raise LoweringError(
                        f"{_where(value)}: a fused value is needed at a point of the loop nest "
                        "other than the one where it is computed"
                    )
                return computed
        key = (value, tuple(indices), lanes.variable)
        return next((frame[key] for frame in reversed(self._cache) if key in frame), None)

    def _behind_view(
        self, value: ir.Value, indices: list[Index]
    ) -> tuple[ir.Value, list[Index]] | None:
        """What `value` shows in another shape or in part, and where its element at `indices` is."""
        op = defining_op(value)
        if op is None or value in self.buffers or any(value in frame for frame in self._kept):
            return None
        if op.name in RESHAPES:
            known = {*self.buffers, *itertools.chain(*self._bound, *self._kept)}
            source = reshape_source(op, known)
            return source, reshaped(indices, shape_of(value), shape_of(source))
        if op.name == "tensor.extract_slice":
            offsets = slice_offsets(op, self.offset)
            return op.operands[0], slice_source(op, indices, offsets)
        structured = Structured.of(op)
        copied = None if structured is None else structured.copied_input()
        if structured is None or copied is None:
            return None
        source = structured.inputs[copied]
        if element_type(source) != element_type(value):  # the code of a float, as the float
            return None
        return source, apply_map(structured.maps[copied], indices)

    def _compute(self, value: ir.Value, indices: list[Index], lanes: Lanes) -> ir.Value:
        for frame in reversed(self._kept):
            if value in frame:
                scratch, start = frame[value]
                flat = linearize(indices, shape_of(value))
                return self.nest.load(scratch, [flat - start], lanes)
        if value in self.buffers:
            loaded = self.nest.load(self.buffers[value], indices, lanes)
            return from_storage(loaded, element_type(value))
        op = defining_op(value)
        if op is None:
            raise LoweringError(f"{_where(value)}: an argument has no buffer")
        if op.name == "arith.constant":
            return self._constant(op, value)
        if op.name == "linalg.fill":
            return self.at_scalar(op.operands[0])
        structured = Structured.of(op)
        if structured is not None and structured.is_elementwise:
            return self._elementwise(structured, indices, lanes)
        raise LoweringError(f"{source_name(op)}: {op.name} cannot be computed inside a fused loop")

    def _constant(self, op: ir.Operation, value: ir.Value) -> ir.Value:
        attribute = op.attributes["value"]
        if isinstance(value.type, ir.ShapedType):
            dense = ir.DenseElementsAttr(attribute)
            if not dense.is_splat:
                raise LoweringError(f"{source_name(op)}: a constant array was not hoisted")
            attribute = dense.get_splat_value()
        return self.nest.constant(attribute)

    def at_scalar(self, value: ir.Value) -> ir.Value:
        """A scalar that the group captures: computed from constants and elements of tensors."""
        op = defining_op(value)
        if op is not None and op.name == "arith.constant":
            return self._constant(op, value)
        if op is not None and op.name == "tensor.extract":
            known = {v: self.at_scalar(v) for v in list(op.operands)[1:]}
            return self._value({value: self._extract(op, known, Lanes.of(1))}, value, Lanes.of(1))
        if op is not None and op.name.startswith(("arith.", "math.")) and not op.regions:
            operands = [self.at_scalar(v) for v in op.operands]
            return self.elementwise_op(op, operands, Lanes.of(1))
        raise LoweringError(f"{_where(value)}: this scalar is not known inside a fused loop")

    def offset(self, value: ir.Value) -> ir.Value:
        """A captured index that the whole kernel shares, made at its top so that addresses may be
        affine in it."""
        if value not in self._offsets:
            inside = self._cache, self._bound, self._kept  # of loops, which come later
            self._cache, self._bound, self._kept = [{}], [{}], [{}]
            try:
                with self.nest.at_top():
                    self._offsets[value] = self.at_scalar(value)
            finally:
                self._cache, self._bound, self._kept = inside
        return self._offsets[value]

    def slices(self, op: Structured) -> TakenSlices | None:
        """`op` as one that copies slices of an array, if it does."""
        if op.op not in self._slices:
            self._slices[op.op] = TakenSlices.of(op)
        return self._slices[op.op]

    def slice_number(self, slices: TakenSlices, lead: Sequence[Index]) -> Index:
        """The number of the slice at `lead`, loaded once in a scope; where loops have no variables
        yet, one without a value."""
        if any(v.value is None for index in lead for v in index.variables()):
            return Index.of(Variable("slice", 0, slices.count - 1, computed=True))
        key = (slices.op.op, tuple(lead))
        for frame in reversed(self._numbers):
            if key in frame:
                return frame[key]
        known: dict[ir.Value, Computed] = {}
        for operation in slices.number_operations():
            known[operation.results[0]] = self._body_op(operation, known, lead, Lanes.of(1))
        number = self._known(known, slices.number)
        if not isinstance(number, Index):
            number = Index.of(Variable("slice", 0, slices.count - 1, number, computed=True))
        self._numbers[-1][key] = number
        return number

    def _elementwise(self, op: Structured, dims: list[Index], lanes: Lanes) -> ir.Value:
        slices = self.slices(op)
        if slices is not None and not any(lanes.stride(d) != 0 for d in dims[: slices.lead]):
            place = [self.slice_number(slices, dims[: slices.lead]), *dims[slices.lead :]]
            return self.at(slices.source, place, lanes)
        arguments: dict[ir.Value, Computed] = {}
        body = op.body
        for number, (value, affine_map) in enumerate(zip(op.inputs, op.maps, strict=False)):
            argument = body.arguments[number]
            if any(True for _ in argument.uses):
                arguments[argument] = self.at(value, apply_map(affine_map, dims), lanes)
        return self.run_body(op, dims, arguments, lanes)

    def run_body(
        self,
        op: Structured,
        dims: Sequence[Index],
        arguments: dict[ir.Value, Computed],
        lanes: Lanes,
    ) -> ir.Value:
        """Clone the scalar body of `op` onto vectors; returns the first value it yields."""
        return self.run_whole_body(op, dims, arguments, lanes)[0]

    def run_whole_body(
        self,
        op: Structured,
        dims: Sequence[Index],
        arguments: dict[ir.Value, Computed],
        lanes: Lanes,
    ) -> list[ir.Value]:
        """Clone the scalar body of `op` onto vectors; returns all that it yields."""
        known = dict(arguments)
        for child in op.body.operations:
            operation = child.operation
            if operation.name == "linalg.yield":
                return [self._value(known, value, lanes) for value in operation.operands]
            known[operation.results[0]] = self._body_op(operation, known, dims, lanes)
        raise LoweringError(f"{source_name(op.op)}: the body yields nothing")

    def _value(self, known: dict[ir.Value, Computed], value: ir.Value, lanes: Lanes) -> ir.Value:
        found = self._known(known, value)
        return self.nest.index_value(found, lanes) if isinstance(found, Index) else found

    def _known(self, known: dict[ir.Value, Computed], value: ir.Value) -> Computed:
        if value in known:
            return known[value]
        op = defining_op(value)
        if op is not None and op.name == "arith.constant" and str(value.type) == "index":
            return Index((), ir.IntegerAttr(op.attributes["value"]).value)
        return self.at_scalar(value)

    def _body_op(
        self,
        op: ir.Operation,
        known: dict[ir.Value, Computed],
        dims: Sequence[Index],
        lanes: Lanes,
    ) -> Computed:
        if op.name == "linalg.index":
            return dims[ir.IntegerAttr(op.attributes["dim"]).value]
        if op.name == "arith.constant":
            return self._known({}, op.results[0])
        if op.name == "tensor.extract":
            return self._extract(op, known, lanes)
        symbolic = self._symbolic(op, [self._known(known, v) for v in op.operands])
        if symbolic is not None:
            return symbolic
        if op.regions or not op.name.startswith(("arith.", "math.", "complex.")):
            raise LoweringError(f"{source_name(op)}: {op.name} has no vector form")
        operands = [self._value(known, v, lanes) for v in op.operands]
        return self.elementwise_op(op, operands, lanes)

    def _symbolic(self, op: ir.Operation, operands: list[Computed]) -> Index | None:
        """Index arithmetic that stays symbolic, so that addresses keep their form."""
        if not operands or not all(isinstance(operand, Index) for operand in operands):
            return None
        first, *rest = [operand for operand in operands if isinstance(operand, Index)]
        if op.name == "arith.addi":
            return first + rest[0]
        if op.name == "arith.subi":
            return first - rest[0]
        if op.name == "arith.muli" and (first.is_constant or rest[0].is_constant):
            return first * rest[0].constant if rest[0].is_constant else rest[0] * first.constant
        if op.name == "arith.maxsi" and first.low >= rest[0].high:
            return first
        if op.name == "arith.minsi" and first.high <= rest[0].low:
            return first
        return None

    def _extract(self, op: ir.Operation, known: dict[ir.Value, Computed], lanes: Lanes) -> ir.Value:
        """`tensor.extract` in a body: an indexed read, vectorised when only a symbolic last index
        moves with the lane."""
        source = op.operands[0]
        indices = [self._known(known, v) for v in list(op.operands)[1:]]
        if all(isinstance(index, Index) for index in indices):
            return self.at(source, [i for i in indices if isinstance(i, Index)], lanes)
        buffer = self._in_memory(source)
        if buffer is None:
            return self._gather_computed(source, indices, lanes)
        loaded = self.nest.gather(buffer, indices, lanes)
        return from_storage(loaded, element_type(source))

    def _gather_computed(
        self, source: ir.Value, indices: Sequence[Computed], lanes: Lanes
    ) -> ir.Value:
        """Elements of a value that is not in memory as it is (a slice, a repetition), at indices
        inside of it that were computed: lane by lane."""

        def element(lane: int) -> ir.Value:
            at = [
                self._computed_index(index, size, lane, lanes)
                for index, size in zip(indices, shape_of(source), strict=True)
            ]
            return self.at(source, at, Lanes.of(1))

        if all(self.nest.is_uniform(index, lanes) for index in indices):
            return element(0)
        parts = [element(lane) for lane in range(lanes.count)]
        return vector.FromElementsOp(ir.VectorType.get([lanes.count], parts[0].type), parts).result

    def _computed_index(self, index: Computed, size: int, lane: int, lanes: Lanes) -> Index:
        """An index below `size` as `lane` has it."""
        if isinstance(index, Index):
            return lanes.at(index, lane)
        return Index.of(Variable("gathered", 0, size - 1, self.nest.lane(index, lane, lanes), True))

    def _in_memory(self, value: ir.Value) -> ir.Value | None:
        """The buffer that holds `value` as it is, or by other dimensions."""
        op = defining_op(value)
        if value in self.buffers or op is None:
            return self.buffers.get(value)
        if op.name == "tensor.collapse_shape":
            buffer = self._in_memory(op.operands[0])
            merged = ir.ArrayAttr(op.attributes["reassociation"])
            return None if buffer is None else self.nest.collapsed(buffer, shape_of(value), merged)
        if op.name == "tensor.expand_shape":
            buffer = self._in_memory(op.operands[0])
            split = ir.ArrayAttr(op.attributes["reassociation"])
            return None if buffer is None else self.nest.expanded(buffer, shape_of(value), split)
        return None

    def elementwise_op(self, op: ir.Operation, operands: list[ir.Value], lanes: Lanes) -> ir.Value:
        """`op` on vectors when any operand is one, else on scalars."""
        is_vector = any(isinstance(v.type, ir.VectorType) for v in operands)
        kind = op.results[0].type
        if op.name in _TO_INTEGER:
            whole = self._without_fraction(op, operands[0])
            if whole is not None:
                return whole
        is_quotient = op.name == "arith.divf" and not is_rounded(op.results[0])
        if is_quotient and is_vector:
            quotient = self._divide_by_uniform(operands, lanes)
            if quotient is not None:
                return quotient
        if is_vector:
            operands = [self.nest.as_vector(v, lanes) for v in operands]
            kind = ir.VectorType.get([lanes.count], kind)
        if is_quotient:
            quotient = self.nest.quotient(*operands)
            if quotient is not None:
                return quotient
        if op.name in _EXTREMA:
            bounded = self._extreme_of_constant(op, operands)
            if bounded is not None:
                return bounded
        attributes = {name: op.attributes[name] for name in op.attributes}
        if op.name in _EXTREMA and _is_combiner(op):
            if SKIPS_NAN in op.parent.attributes and not self.nest.keeps_nan:
                greater = arith.CmpFOp(_EXTREME_PREDICATES["ogt"], *operands).result
                return arith.SelectOp(greater, *operands).result
            attributes["fastmath"] = ir.Attribute.parse(NO_SIGNED_ZEROS)
        if op.name in FUSABLE and not _keeps_rounding(op):
            attributes["fastmath"] = ir.Attribute.parse(CONTRACT)
        return ir.Operation.create(
            op.name, results=[kind], operands=operands, attributes=attributes
        ).results[0]

    def _without_fraction(self, op: ir.Operation, value: ir.Value) -> ir.Value | None:
        """f32 made of a small integer that was made of f32, without the way there and back."""
        made = defining_op(value)
        if made is None or made.name != _TO_INTEGER[op.name]:
            return None
        source = made.operands[0]
        kinds = [_scalar(v.type) for v in (source, value)]
        width = ir.IntegerType(kinds[1]).width
        if str(kinds[0]) != "f32" or op.results[0].type != kinds[0] or width > _SMALL:
            return None
        signed = op.name == "arith.sitofp"
        return vector_math.by_way_of_integer(source, width, signed=signed)

    def _divide_by_uniform(self, operands: list[ir.Value], lanes: Lanes) -> ir.Value | None:
        """x / s with one s for all lanes, as x * (1 / s): one division instead of a vector of them;
        the result differs by at most one unit in the last place. Not in 16 bits, where that is
        much, and the division is made in 32."""
        numerator, denominator = operands
        if str(denominator.type) not in ("f32", "f64"):
            return None
        one = self.nest.float_constant(1.0, denominator.type)
        inverse = arith.DivFOp(one, denominator).result
        return arith.MulFOp(
            numerator,
            self.nest.as_vector(inverse, lanes),
            fastmath=ir.Attribute.parse(CONTRACT),
        ).result

    def _extreme_of_constant(self, op: ir.Operation, operands: list[ir.Value]) -> ir.Value | None:
        """max(x, c) and min(x, c) with a constant c that is no NaN, as one compare and select that
        keeps a NaN in x (a single vmaxps), instead of the five operations a maximum takes."""
        number = next(
            (i for i, v in enumerate(op.operands) if _is_ordered_constant(v)),
            None,
        )
        if number is None:
            return None
        bound, other = operands[number], operands[1 - number]
        predicate = _EXTREMA[op.name]
        nsz = ir.Attribute.parse(NO_SIGNED_ZEROS)
        keep = arith.CmpFOp(_EXTREME_PREDICATES[predicate], bound, other, fastmath=nsz).result
        return ir.Operation.create(
            "arith.select",
            results=[other.type],
            operands=[keep, bound, other],
            attributes={"fastmath": nsz},
        ).results[0]


_ROUNDING = frozenset(
    ["arith.bitcast", "arith.fptosi", "arith.fptoui", "math.ceil", "math.floor", "math.round",
     "math.roundeven", "math.trunc"]
)  # fmt: skip
_CARRYING = frozenset(
    ["arith.extf", "arith.maximumf", "arith.maxnumf", "arith.minimumf", "arith.minnumf",
     "arith.select", "arith.truncf", "tensor.collapse_shape", "tensor.expand_shape",
     "tensor.extract_slice"]
)  # fmt: skip


def _scalar(kind: ir.Type) -> ir.Type:
    return kind.element_type if isinstance(kind, ir.VectorType) else kind


def _is_combiner(op: ir.Operation) -> bool:
    """Whether `op` joins an element to the accumulator of a reduction."""
    parent = op.parent
    return (
        parent is not None
        and parent.name == "linalg.generic"
        and SCAN not in parent.attributes
        and any("reduction" in str(kind) for kind in parent.attributes["iterator_types"])
        and all(use.owner.name == "linalg.yield" for use in op.results[0].uses)
    )


def _keeps_rounding(op: ir.Operation) -> bool:
    """Whether `op` is in the body of an operation that is marked as `ROUNDED`."""
    return op.parent is not None and ROUNDED in op.parent.attributes


def is_rounded(value: ir.Value) -> bool:
    """Whether `value` is rounded to an integer, or its bits are read, here or in a later op of its
    group: there one unit in the last place may decide."""
    seen, waiting = {value}, [value]
    while waiting:
        for use in waiting.pop().uses:
            user = use.owner.operation
            if user.name in _ROUNDING:
                return True
            following = _carried(user, use.operand_number)
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    return False


def _carried(user: ir.Operation, operand: int) -> ir.Value | None:
    """The value that an operand of `user` becomes without arithmetic, if any."""
    if user.name in _CARRYING:
        return user.results[0]
    if user.name == "linalg.generic":
        return user.regions[0].blocks[0].arguments[operand]
    if user.name == "linalg.yield":
        results = user.parent.operation.results
        return results[operand] if operand < len(results) else None
    return None


def slice_source(
    op: ir.Operation, indices: Sequence[Index], offsets: Sequence[Index] | None = None
) -> list[Index]:
    """Where a `tensor.extract_slice` reads, or a `tensor.insert_slice` writes, for the element of
    the slice at `indices`. Without `offsets`, those that are known only at run time are variables
    without a value."""
    sizes, strides = (list(op.attributes[name]) for name in ("static_sizes", "static_strides"))
    if any(value < 0 for value in (*sizes, *strides)):
        raise LoweringError(
            f"{source_name(op)}: a slice has sizes or strides that are known only at run time"
        )
    inserts = op.name == "tensor.insert_slice"
    whole, part = (op.operands[1], op.operands[0]) if inserts else (op.operands[0], op.results[0])
    if offsets is None:
        offsets = slice_offsets(op, lambda value: None)
    kept = iter(indices)
    remaining = list(shape_of(part))
    expanded: list[Index] = []
    for size in sizes:
        dropped = len(remaining) < len(sizes) - len(expanded) and size == 1
        if not dropped and remaining and remaining[0] == size:
            remaining.pop(0)
            expanded.append(next(kept))
        else:
            expanded.append(Index())
    assert len(expanded) == len(shape_of(whole))
    return [i * s + o for i, s, o in zip(expanded, strides, offsets, strict=True)]


def slice_offsets(op: ir.Operation, value_of: Callable[[ir.Value], ir.Value | None]) -> list[Index]:
    """The offsets of a `tensor.extract_slice` or `tensor.insert_slice`. One that is known only at
    run time is a variable with the value that `value_of` gives, within the bounds of the slice."""
    inserts = op.name == "tensor.insert_slice"
    whole = op.operands[1 if inserts else 0]
    dynamic = iter(list(op.operands)[2 if inserts else 1 :])
    offsets = []
    for offset, extent, size, stride in zip(
        op.attributes["static_offsets"],
        shape_of(whole),
        op.attributes["static_sizes"],
        op.attributes["static_strides"],
        strict=True,
    ):
        if offset >= 0:
            offsets.append(Index((), offset))
            continue
        last = max(extent - (size - 1) * stride - 1, 0)
        offsets.append(Index.of(Variable("offset", 0, last, value_of(next(dynamic)))))
    return offsets


def from_storage(value: ir.Value, element: ir.Type) -> ir.Value:
    """Booleans lie in memory as bytes; compare them with zero after loading."""
    if str(element) != "i1":
        return value
    kind = value.type
    byte = ir.IntegerType.get_signless(8)
    zero = ir.IntegerAttr.get(byte, 0)
    if isinstance(kind, ir.VectorType):
        attribute: ir.Attribute = ir.DenseElementsAttr.get_splat(kind, zero)
    else:
        attribute = zero
    return arith.CmpIOp(1, value, arith.ConstantOp(kind, attribute).result).result


def to_storage(value: ir.Value, element: ir.Type) -> ir.Value:
    """The inverse of `from_storage`."""
    if str(element) != "i1":
        return value
    byte: ir.Type = ir.IntegerType.get_signless(8)
    if isinstance(value.type, ir.VectorType):
        byte = ir.VectorType.get(list(value.type.shape), byte)
    return arith.ExtUIOp(byte, value).result


def storage_type(element: ir.Type) -> ir.Type:
    """The element type that values of `element` have in memory."""
    return ir.IntegerType.get_signless(8) if str(element) == "i1" else element


def _is_ordered_constant(value: ir.Value) -> bool:
    op = defining_op(value)
    if op is None or op.name != "arith.constant" or isinstance(value.type, ir.ShapedType):
        return False
    return not math.isnan(ir.FloatAttr(op.attributes["value"]).value)


def _where(value: ir.Value) -> str:
    op = defining_op(value)
    return source_name(op) if op is not None else str(value.type)
