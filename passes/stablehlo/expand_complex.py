"""expand-complex: complex tensors become pairs of real ones.

    func.func @main(%x: tensor<4xcomplex<f32>>) -> tensor<4xcomplex<f32>> {
      %0 = stablehlo.add %x, %x : tensor<4xcomplex<f32>>

becomes

    func.func @main(%x: tensor<4x2xf32>) -> tensor<4x2xf32> {
      %re, %im = ...                                  // %x[:, 0], %x[:, 1]: tensor<4xf32>
      %0 = stablehlo.add %re, %re : tensor<4xf32>
      %1 = stablehlo.add %im, %im : tensor<4xf32>
      %2 = ...                                        // both again side by side: tensor<4x2xf32>

In memory an argument or result is what it was. What moves elements moves both parts; contractions
are four real ones, but for sums of few products, which are formed one after another; elementwise
functions are those of `_complex_math`; ops with regions (loops, branches, reductions, scatter,
sort) carry two values for one, and their regions are expanded too. Everything below sees real
numbers only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from stepwell.dense import read_complex
from stepwell.dialects import fourier
from stepwell.dialects import stablehlo as hlo
from stepwell.errors import LoweringError
from stepwell.kernels.structured import source_name
from stepwell.mlir import ir
from stepwell.mlir import stablehlo as bindings
from stepwell.passes.base import Pass, State
from stepwell.passes.stablehlo import _complex_arithmetic as arithmetic
from stepwell.passes.stablehlo import _complex_linear_algebra as linear_algebra
from stepwell.passes.stablehlo import _complex_math as complex_math
from stepwell.passes.stablehlo._complex_arithmetic import Pair
from stepwell.targets.nvidia import NvidiaTarget

_MOVEMENT = frozenset(
    [
        "all_gather",
        "all_to_all",
        "broadcast_in_dim",
        "collective_broadcast",
        "collective_permute",
        "concatenate",
        "dynamic_broadcast_in_dim",
        "dynamic_gather",
        "dynamic_pad",
        "dynamic_reshape",
        "dynamic_slice",
        "dynamic_update_slice",
        "gather",
        "optimization_barrier",
        "pad",
        "real_dynamic_slice",
        "reshape",
        "reverse",
        "select",
        "slice",
        "torch_index_select",
        "transpose",
    ]
)
"""Ops that only move elements."""

_CARRIERS = frozenset(["case", "if", "reduce", "reduce_window", "scatter", "sort", "while"])
"""Ops with regions that take any number of values."""

_BILINEAR = frozenset(["convolution", "dot_general", "dot", "dynamic_conv"])

_FEW = 8
"""So many products of a sum are formed one by one: no contraction kernel is faster."""

Expanded = Pair | ir.Value


@dataclass(frozen=True)
class ExpandComplex(Pass):
    """Expand every op that has to do with complex numbers; functions change their types."""

    name: ClassVar[str] = "expand-complex"
    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation, state: State) -> None:
        """Raises LoweringError that names an op which has no form in real numbers."""
        if len(op.regions[0].blocks) and _has_complex(op):
            _Expander(state).function(op)


def is_complex(kind: ir.Type) -> bool:
    """Whether `kind` is a tensor of complex numbers."""
    return isinstance(kind, ir.RankedTensorType) and isinstance(kind.element_type, ir.ComplexType)


def _has_complex(function: ir.Operation) -> bool:
    found = False

    def look(op: ir.Operation) -> ir.WalkResult:
        nonlocal found
        found = found or any(is_complex(v.type) for v in (*op.operands, *op.results))
        found = found or any(is_complex(a.type) for r in op.regions for b in r for a in b.arguments)
        return ir.WalkResult.INTERRUPT if found else ir.WalkResult.ADVANCE

    function.walk(look)
    return found


def _part_type(kind: ir.Type) -> ir.RankedTensorType:
    tensor = ir.RankedTensorType(kind)
    element = ir.ComplexType(tensor.element_type).element_type
    return ir.RankedTensorType.get(list(tensor.shape), element)


def _flat_types(kinds: Sequence[ir.Type]) -> list[ir.Type]:
    return [
        part for kind in kinds for part in ([_part_type(kind)] * 2 if is_complex(kind) else [kind])
    ]


def _boundary_type(kind: ir.Type) -> ir.Type:
    """The type of an argument or result of a function: parts side by side."""
    if not is_complex(kind):
        return kind
    part = _part_type(kind)
    return ir.RankedTensorType.get([*part.shape, 2], part.element_type)


class _Expander:
    """Parts by complex value; what was expanded is erased at the end."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.parts: dict[ir.Value, Pair] = {}
        self.wholes: dict[Pair, ir.Value] = {}
        """Parts that came from one tensor, parts side by side."""
        self.dead: list[ir.Operation] = []

    def function(self, op: ir.Operation) -> None:
        block = op.regions[0].blocks[0]
        kind = ir.FunctionType(ir.TypeAttr(op.attributes["function_type"]).value)
        body = [child.operation for child in block.operations]
        with ir.InsertionPoint.at_block_begin(block), ir.Location.unknown():
            for argument in list(block.arguments):
                if is_complex(argument.type):
                    argument.set_type(_boundary_type(argument.type))
                    self.parts[argument] = self.taken_apart(argument)
        self._operations(body)
        for dead in reversed(self.dead):
            dead.erase()
        inputs = [argument.type for argument in block.arguments]
        results = [_boundary_type(result) for result in kind.results]
        op.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, results))

    def _operations(self, operations: Sequence[ir.Operation]) -> None:
        for op in operations:
            values = (*op.operands, *op.results)
            if any(is_complex(v.type) or v in self.parts for v in values) or _region_has_complex(
                op
            ):
                with ir.InsertionPoint(op), op.location:
                    self._expand(op)
            else:
                for inner in [block for region in op.regions for block in region.blocks]:
                    self._operations([child.operation for child in inner.operations])

    def _expand(self, op: ir.Operation) -> None:
        name = op.name.partition(".")[2]
        if op.name in ("func.return", "stablehlo.return"):
            self._return(op)
            return
        if name in complex_math.FUNCTIONS:
            values: list[Expanded] = [complex_math.FUNCTIONS[name](*self._pairs(op))]
        elif name in _SPECIAL:
            values = [_SPECIAL[name](self, op)]
        elif name in _MOVEMENT:
            values = self._moved(op)
        elif name in _BILINEAR:
            values = [self._product(op)]
        elif name in _SEPARABLE and self._is_sum(op):
            values = self._summed(op)
        elif name in _CARRIERS:
            values = self._carried(op)
        else:
            raise LoweringError(
                f"{source_name(op)}: {op.name} of complex numbers is not supported; "
                "compute with their real and imaginary parts"
            )
        for result, value in zip(op.results, values, strict=True):
            if isinstance(value, Pair):
                self.parts[result] = value
            else:
                result.replace_all_uses_with(value)
        self.dead.append(op)

    def taken_apart(self, both: ir.Value) -> Pair:
        """The parts of [..., 2]."""
        pair = _taken_apart(both)
        self.wholes[pair] = both
        return pair

    def side_by_side(self, pair: Pair) -> ir.Value:
        """[..., 2] of both parts."""
        return self.wholes.get(pair) or _side_by_side(pair)

    def pair(self, value: ir.Value) -> Pair:
        """The parts of a complex value."""
        return self.parts[value]

    def _pairs(self, op: ir.Operation) -> list[Pair]:
        return [self.parts[value] for value in op.operands]

    def _flat(self, values: Sequence[ir.Value]) -> list[ir.Value]:
        return [p for v in values for p in self.parts.get(v, (v,))]

    def _return(self, op: ir.Operation) -> None:
        operands = list(op.operands)
        if op.name == "func.return":
            values = [self.side_by_side(self.parts[v]) if v in self.parts else v for v in operands]
        else:
            values = self._flat(operands)
        ir.Operation.create(op.name, operands=values)
        self.dead.append(op)

    def _moved(self, op: ir.Operation) -> list[Expanded]:
        halves = [self._with_part(op, part) for part in range(2)]
        return [
            Pair(real, imaginary) if is_complex(old.type) else real
            for old, real, imaginary in zip(op.results, *halves, strict=True)
        ]

    def _with_part(
        self, op: ir.Operation, part: int, other: dict[int, ir.Value] | None = None
    ) -> list[ir.Value]:
        """A copy of `op` on one part of its complex operands, or on `other` by position."""
        operands = [self.parts[v][part] if v in self.parts else v for v in op.operands]
        for position, value in (other or {}).items():
            operands[position] = value
        results = [_part_type(r.type) if is_complex(r.type) else r.type for r in op.results]
        attributes = {name: op.attributes[name] for name in op.attributes}
        return list(ir.Operation.create(op.name, results, operands, attributes).results)

    def _product(self, op: ir.Operation) -> Pair:
        """(a + ib)(c + id) by parts; b and d may be absent."""
        if op.operands[0] not in self.parts:
            (real,) = self._with_part(op, 0)
            return Pair(real, hlo.full_like(real, 0))
        if op.name == "stablehlo.dot_general":
            short = self._short_product(op)
            if short is not None:
                return short

        def of(left: int, right: int) -> ir.Value:
            sides = [(op.operands[0], left), (op.operands[1], right)]
            chosen = {i: self.parts[v][part] for i, (v, part) in enumerate(sides)}
            return self._with_part(op, 0, chosen)[0]

        return Pair(
            hlo.subtract(of(0, 0), of(1, 1)),
            hlo.add(of(0, 1), of(1, 0)),
        )

    def _short_product(self, op: ir.Operation) -> Pair | None:
        """A dot_general that adds few products: complex ones, in the order of their index. Four
        real contractions would give sums that cancel in their difference."""
        numbers = bindings.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
        batch = list(numbers.lhs_batching_dimensions), list(numbers.rhs_batching_dimensions)
        summed = list(numbers.lhs_contracting_dimensions), list(numbers.rhs_contracting_dimensions)
        pairs = self._pairs(op)
        if not 0 < prod(hlo.shape(pairs[0].real)[d] for d in summed[0]) <= _FEW:
            return None
        left, right = map(_terms, pairs, batch, summed)
        rank, shared = len(hlo.shape(left[0].real)), len(batch[0])
        sizes = hlo.shape(op.results[0])
        places = (
            [*range(rank)],
            [*range(shared), *range(rank, len(sizes))],
        )
        kind = _numpy_kind(_part_type(op.results[0].type))
        total: Pair | None = None
        for terms in zip(left, right, strict=True):
            factors = [
                Pair(*(hlo.convert(hlo.broadcast_in_dim(part, sizes, at), kind) for part in term))
                for term, at in zip(terms, places, strict=True)
            ]
            term = arithmetic.rounded_multiply(*factors)
            total = term if total is None else arithmetic.add(total, term)
        return total

    def _is_sum(self, op: ir.Operation) -> bool:
        """Whether the op's region adds, and it has one result: parts then do not meet."""
        body = list(op.regions[0].blocks[0].operations)
        return len(op.results) == 1 and len(body) == 2 and body[0].operation.name == "stablehlo.add"

    def _summed(self, op: ir.Operation) -> list[Expanded]:
        halves = []
        for part in range(2):
            operands = [self.parts[v][part] if v in self.parts else v for v in op.operands]
            kind = _part_type(op.results[0].type)
            attributes = {name: op.attributes[name] for name in op.attributes}
            half = ir.Operation.create(op.name, [kind], operands, attributes, regions=1)
            scalar = ir.RankedTensorType.get([], kind.element_type)
            block = half.regions[0].blocks.append(scalar, scalar)
            with ir.InsertionPoint(block):
                total = hlo.add(*block.arguments)
                ir.Operation.create("stablehlo.return", operands=[total])
            halves.append(half.results[0])
        return [Pair(*halves)]

    def _carried(self, op: ir.Operation) -> list[Expanded]:
        attributes = {name: op.attributes[name] for name in op.attributes}
        copy = ir.Operation.create(
            op.name,
            _flat_types([r.type for r in op.results]),
            self._flat(list(op.operands)),
            attributes,
            regions=len(op.regions),
        )
        for source, target in zip(op.regions, copy.regions, strict=True):
            if not len(source.blocks):
                continue
            source.blocks[0].append_to(target)
            block = target.blocks[0]
            body = [child.operation for child in block.operations]
            self._arguments(block, 2 if op.name == "stablehlo.sort" else 1)
            self._operations(body)
        results = iter(copy.results)
        return [
            Pair(next(results), next(results)) if is_complex(r.type) else next(results)
            for r in op.results
        ]

    def _arguments(self, block: ir.Block, together: int) -> None:
        """Two arguments for a complex one; its users, which are erased at the end, get a cast.

        All real parts of `together` arguments come before their imaginary ones: a comparator is
        given both sides of one operand after another.
        """
        old = list(block.arguments)
        if not any(is_complex(argument.type) for argument in old):
            return
        unknown = ir.Location.unknown()
        for start in range(0, len(old), together):
            group = old[start : start + together]
            parts = 2 if is_complex(group[0].type) else 1
            kinds = [_flat_types([argument.type])[0] for argument in group]
            added = [block.add_argument(kind, unknown) for _ in range(parts) for kind in kinds]
            for position, argument in enumerate(group):
                if parts == 2:
                    self.parts[argument] = Pair(*added[position::together])
                else:
                    argument.replace_all_uses_with(added[position])
        with ir.InsertionPoint.at_block_begin(block), unknown:
            for argument in old:
                if is_complex(argument.type):
                    parts = self.parts.pop(argument)
                    cast = "builtin.unrealized_conversion_cast"
                    stand_in = ir.Operation.create(cast, [argument.type], list(parts)).results[0]
                    self.parts[stand_in] = parts
                    argument.replace_all_uses_with(stand_in)
                    self.dead.append(stand_in.owner.operation)
        for _ in old:
            block.erase_argument(0)


def _region_has_complex(op: ir.Operation) -> bool:
    return op.name.startswith("stablehlo.") and any(
        is_complex(a.type) for region in op.regions for b in region.blocks for a in b.arguments
    )


def _terms(value: Pair, batch: list[int], summed: list[int]) -> list[Pair]:
    """What `value` gives to each product of a sum: [batch.., other dimensions..]."""
    shape = hlo.shape(value.real)
    free = [d for d in range(len(shape)) if d not in (*batch, *summed)]
    rest = [shape[d] for d in (*batch, *free)]
    count = prod(shape[d] for d in summed)
    ordered = [
        hlo.reshape(hlo.transpose(part, [*summed, *batch, *free]), [count, *rest]) for part in value
    ]
    zeros = [0] * len(rest)
    return [
        Pair(*(hlo.reshape(hlo.slice(part, [k, *zeros], [k + 1, *rest]), rest) for part in ordered))
        for k in range(count)
    ]


# --- The boundary --------------------------------------------------------------------------------


def _taken_apart(argument: ir.Value) -> Pair:
    *shape, _ = hlo.shape(argument)
    halves = []
    for part in range(2):
        start = [0] * len(shape) + [part]
        half = hlo.slice(argument, start, [*shape, part + 1])
        halves.append(hlo.reshape(half, shape))
    return Pair(*halves)


def _side_by_side(value: Pair) -> ir.Value:
    shape = hlo.shape(value.real)
    return hlo.concatenate([hlo.reshape(part, [*shape, 1]) for part in value], len(shape))


# --- Ops of their own ----------------------------------------------------------------------------


def _constant(expander: _Expander, op: ir.Operation) -> Expanded:
    array = read_complex(op, expander.state.weights)
    kind = ir.RankedTensorType(op.results[0].type)
    parts = (np.real(array), np.imag(array))
    if array.ndim == 0:
        return Pair(*(hlo.full(part.item(), list(kind.shape), part.dtype) for part in parts))
    return Pair(
        *(hlo.constant(np.ascontiguousarray(p), expander.state.weights, "complex") for p in parts)
    )


def _complex(expander: _Expander, op: ir.Operation) -> Expanded:
    return Pair(*op.operands)


def _real(expander: _Expander, op: ir.Operation) -> Expanded:
    value = op.operands[0]
    return expander.parts[value].real if value in expander.parts else value


def _imaginary(expander: _Expander, op: ir.Operation) -> Expanded:
    value = op.operands[0]
    return expander.parts[value].imaginary if value in expander.parts else hlo.full_like(value, 0)


def _absolute(expander: _Expander, op: ir.Operation) -> Expanded:
    return arithmetic.absolute(expander.pair(op.operands[0]))


def _compare(expander: _Expander, op: ir.Operation) -> Expanded:
    direction = str(op.attributes["comparison_direction"]).split()[-1].rstrip(">")
    lhs, rhs = op.operands
    if direction not in ("EQ", "NE"):
        raise LoweringError(f"{source_name(op)}: complex numbers have no order ({direction})")
    return arithmetic.compare(expander.pair(lhs), expander.pair(rhs), direction)


def _convert(expander: _Expander, op: ir.Operation) -> Expanded:
    """A real number has no imaginary part; a complex one gives its real part."""
    source, target = op.operands[0], op.results[0]
    if not is_complex(target.type):
        return hlo.convert(expander.pair(source).real, hlo.dtype(target))
    kind = _numpy_kind(_part_type(target.type))
    if source in expander.parts:
        return Pair(*(hlo.convert(part, kind) for part in expander.pair(source)))
    real = hlo.convert(source, kind)
    return Pair(real, hlo.full_like(real, 0.0))


def _iota(expander: _Expander, op: ir.Operation) -> Expanded:
    kind = _part_type(op.results[0].type)
    dimension = ir.IntegerAttr(op.attributes["iota_dimension"]).value
    real = hlo.iota(list(kind.shape), dimension, _numpy_kind(kind))
    return Pair(real, hlo.full_like(real, 0.0))


def _clamp(expander: _Expander, op: ir.Operation) -> Expanded:
    """In lexicographic order, as maximum and minimum."""
    shape = hlo.shape(op.results[0])
    low, value, high = (
        Pair(*(part if hlo.shape(part) else hlo.broadcast_in_dim(part, shape, []) for part in pair))
        for pair in (expander.pair(operand) for operand in op.operands)
    )
    return arithmetic.minimum(arithmetic.maximum(low, value), high)


def _bitcast(expander: _Expander, op: ir.Operation) -> Expanded:
    """The bits of the parts side by side."""
    source, target = op.operands[0], op.results[0]
    whole = source in expander.parts
    value = expander.side_by_side(expander.pair(source)) if whole else source
    if not is_complex(target.type):
        return _reinterpreted(value, hlo.shape(target), hlo.dtype(target))
    kind = _part_type(target.type)
    return expander.taken_apart(_reinterpreted(value, [*kind.shape, 2], _numpy_kind(kind)))


def _reinterpreted(value: ir.Value, shape: Sequence[int], kind: np.dtype) -> ir.Value:
    """The same bits in the same order as elements of `kind`."""
    before, after = hlo.dtype(value).itemsize, kind.itemsize
    if after > before:
        value = hlo.reshape(value, [*shape, after // before])
    narrower = [before // after] if after < before else []
    within = shape if after > before else [*hlo.shape(value), *narrower]
    return hlo.reshape(hlo.bitcast_convert(value, kind, within), shape)


def _flag(op: ir.Operation, name: str) -> bool:
    return name in op.attributes and ir.BoolAttr(op.attributes[name]).value


def _cholesky(expander: _Expander, op: ir.Operation) -> Expanded:
    return linear_algebra.cholesky(expander.pair(op.operands[0]), _flag(op, "lower"))


def _triangular_solve(expander: _Expander, op: ir.Operation) -> Expanded:
    """From the right, the transposed system is solved: x a = b is a' x' = b'."""
    matrix, right = (expander.pair(value) for value in op.operands)
    lower, left = _flag(op, "lower"), _flag(op, "left_side")
    kind = str(op.attributes["transpose_a"])
    if "NO_TRANSPOSE" not in kind:
        adjoint = "ADJOINT" in kind
        matrix = (linear_algebra.adjoint if adjoint else linear_algebra.transposed)(matrix)
        lower = not lower
    if left:
        return linear_algebra.triangular_solve(matrix, right, lower, _flag(op, "unit_diagonal"))
    turned = linear_algebra.transposed(matrix), linear_algebra.transposed(right)
    solved = linear_algebra.triangular_solve(*turned, not lower, _flag(op, "unit_diagonal"))
    return linear_algebra.transposed(solved)


def _numpy_kind(kind: ir.Type) -> np.dtype:
    """The element type of a tensor of f32 or f64."""
    return np.dtype(str(ir.RankedTensorType(kind).element_type).replace("f", "float"))


def _fft(expander: _Expander, op: ir.Operation) -> Expanded:
    """Transforms of the innermost dimensions, one after another; the one between real and complex
    numbers is that of the last dimension. On GPUs they are products with constant matrices, which
    all blocks share, but for those that would be of tf32."""
    lengths = list(ir.DenseI64ArrayAttr(op.attributes["fft_length"]))
    kind = str(op.attributes["fft_type"]).split()[-1].rstrip(">")
    inverse = kind in ("IFFT", "IRFFT")
    source = op.operands[0]
    rank = len(ir.RankedTensorType(op.results[0].type).shape)
    state = expander.state
    calls = not isinstance(state.target, NvidiaTarget) or state.multiplies_tf32
    if 0 in hlo.shape(op.results[0]):
        kinds = _flat_types([op.results[0].type])
        empty = [hlo.full(0, hlo.shape(op.results[0]), _numpy_kind(kind)) for kind in kinds]
        return Pair(*empty) if len(empty) == 2 else empty[0]

    def constant(array: np.ndarray, role: str) -> ir.Value:
        return hlo.constant(array, expander.state.weights, role)

    def along(value: ir.Value, axis: int, length: int, one_sided: bool = False) -> ir.Value:
        inner = prod(hlo.shape(value)[axis + 1 : rank])
        if calls and inner >= _NEIGHBOURS and fourier.factors(length) is not None:
            return fourier.along(value, axis, inverse)
        order = [*(d for d in range(rank) if d != axis), axis, rank]
        back = [order.index(d) for d in range(rank + 1)]
        moved = hlo.transpose(value, order) if axis != rank - 1 else value
        result = fourier.transform(
            constant, moved, length, inverse=inverse, onesided=one_sided, calls=calls
        )
        return hlo.transpose(result, back) if axis != rank - 1 else result

    if kind == "RFFT":
        value = hlo.reshape(source, [*hlo.shape(source), 1])
    else:
        value = expander.side_by_side(expander.pair(source))
    axes = list(zip(range(rank - len(lengths), rank), lengths, strict=True))
    if kind == "RFFT":
        value = along(value, *axes.pop(), one_sided=True)
    last = axes.pop() if kind == "IRFFT" else None
    for axis, length in axes:
        value = along(value, axis, length)
    if last is not None:
        value = along(value, *last, one_sided=True)
        return hlo.reshape(value, hlo.shape(op.results[0]))
    return expander.taken_apart(value)


_NEIGHBOURS = 4
"""Elements behind a dimension from which on it is transformed where it stands."""

_SEPARABLE = frozenset(["all_reduce", "reduce", "reduce_scatter", "reduce_window"])
"""Ops whose region combines two scalars; a sum is the sum of each part."""

_SPECIAL: dict[str, Callable[[_Expander, ir.Operation], Expanded]] = {
    "abs": _absolute,
    "bitcast_convert": _bitcast,
    "cholesky": _cholesky,
    "clamp": _clamp,
    "compare": _compare,
    "complex": _complex,
    "constant": _constant,
    "convert": _convert,
    "fft": _fft,
    "imag": _imaginary,
    "iota": _iota,
    "real": _real,
    "triangular_solve": _triangular_solve,
}
