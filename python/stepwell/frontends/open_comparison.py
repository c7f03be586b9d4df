"""Models with open sizes, imported once for any of them.

A frontend imports a model for shapes that it knows. Here it does so for a few of them, and what
differs is put down as a function of the open sizes (`open_sizes`).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from stepwell.attributes import strings
from stepwell.dense import is_complex, read_complex
from stepwell.dialects import stablehlo as hlo
from stepwell.errors import Error, ModelError
from stepwell.extents import Extent, Points, fit, has, limited, quotients, rounded_elsewhere
from stepwell.frontends import Imported
from stepwell.frontends.open_join import Operations, Together, join
from stepwell.frontends.open_sizes import BOUNDS, CAPACITIES, EXTENTS, OVER, RESULT_EXTENTS, SCALARS
from stepwell.frontends.open_windows import (
    UntoldSizesError,
    first_few,
    has_free_sizes,
    has_unlike_ends,
    moved,
    moves,
    numbers,
    paddings,
    same_places,
    takes_steps,
)
from stepwell.kernels.structured import source_name
from stepwell.mlir import ir
from stepwell.sizes import OpenShapes

_MOST_FORMULAS = 64
_LEAST_POINTS, _MOST_POINTS = 6, 24

Shapes = dict[str, tuple[int, ...]]

_Joined = tuple[Operations, Sequence[Together]]
"""Operations that belong together, and their results."""


def load(open_shapes: OpenShapes, load_for: Callable[[Shapes], Imported]) -> Imported:
    """The program of `load_for(shapes)` at the capacities, with what depends on the sizes.

    Models may be others for the smallest sizes, whose slices reach beyond the end, or refuse these:
    `open_shapes.least` of the program says from where on it is right. Raises ModelError when the
    programs for other sizes are not the same but for numbers that follow from the sizes, and what
    `load_for` does.
    """
    large = [load_for(open_shapes.shapes_at(point)) for point in open_shapes.samples()]
    base = large[0]
    if base.results:
        raise ModelError("the model has results that are sequences")
    if base.checks:
        raise ModelError("the model has checks, which compare results of known shapes")
    points = open_shapes.samples()
    if takes_steps(base.module.operation):
        found = open_shapes.rounding_sampled(lambda point: load_for(open_shapes.shapes_at(point)))
        points += [point for point, _ in found]
        large += [program for _, program in found]
    sizes = _SmallSizes(open_shapes, load_for, _Comparison(large, Points(points)))
    small = sizes.compared()
    least = sizes.least(small)
    if open_shapes.seen:
        sizes.check_kinds(least)
    sizes.comparison.run(base.module.operation)
    with base.context:
        main = _main(base.module.operation)
        main.attributes[CAPACITIES] = ir.DenseI64ArrayAttr.get(list(open_shapes.samples()[0]))
    return replace(base, open_shapes=replace(open_shapes, least=least))


def _main(module: ir.Operation) -> ir.Operation:
    return module.regions[0].blocks[0].operations[0].operation


@dataclass
class _SmallSizes:
    """Which small sizes the program that `comparison` makes of large ones is right for."""

    open_shapes: OpenShapes
    load_for: Callable[[Shapes], Imported]
    comparison: _Comparison
    _programs: dict[tuple[int, ...], Imported] = field(default_factory=dict)
    """Those for sizes that were looked at besides."""

    def compared(self) -> tuple[int, ...]:
        """Small sizes for which it is the same, with which `comparison` goes on. Raises Error
        when there are none: that of the largest, which a model is likeliest to take."""
        found: Error | None = None
        for point in self.open_shapes.small_samples():
            try:
                self.comparison = self._told(point)
                return point
            except Error as error:
                found = error
        assert found is not None
        raise found

    def check_kinds(self, least: tuple[int, ...]) -> None:
        """Compare with the programs for the sizes of calls, too, and for small ones that ascend and
        descend, as far as the model takes these: all others that are looked at may be of one kind,
        as slices that end before they begin. Raises Error as `_with` does."""
        for point in self.open_shapes.seen:
            if point not in self.comparison.points:
                self.comparison = self._with(point, self.comparison)
        for point in self.open_shapes.orders(least):
            with contextlib.suppress(ModelError):
                self._programs[point] = self.load_for(self.open_shapes.shapes_at(point))
            if point in self._programs and point not in self.comparison.points:
                self.comparison = self._with(point, self.comparison)

    def _told(self, small: tuple[int, ...]) -> _Comparison:
        """The comparison with the program for `small` sizes, too, and with those for as many larger
        ones as it takes. Raises Error as `_with` does, or where no others tell."""
        known = self.comparison
        while True:
            try:
                return self._with(small, known)
            except UntoldSizesError as error:
                point = self.open_shapes.sample_with(error.wanted, above=small)
                if point is None or len(known.points) > _MOST_POINTS:
                    raise ModelError(str(error)) from error
                known = self._and(point, known)

    def least(self, small: tuple[int, ...]) -> tuple[int, ...]:
        """The smallest that each open size may be, which is right for `small` ones; empty where
        they may all be 1."""
        tried = [tuple(map(min, point, small)) for point in self.open_shapes.least_samples()]
        found = next((p for p in tried if p == small or self._is_the_same(p)), small)
        if self.open_shapes.are_many:
            return () if max(found) == 1 else found
        alone = [
            size == 1 or self._is_the_same((*found[:number], 1, *found[number + 1 :]))
            for number, size in enumerate(found)
        ]
        if all(alone):
            return () if max(found) == 1 else found
        mixed = tuple(1 if one else size for one, size in zip(alone, found, strict=True))
        return mixed if mixed == found or self._is_the_same(mixed) else found

    def _is_the_same(self, point: tuple[int, ...]) -> bool:
        """Whether the program for sizes `point` is that of the samples, of which it becomes one."""
        if point in self.comparison.points:
            return True
        try:
            self.comparison = self._with(point, self.comparison)
        except Error:
            return False
        return True

    def _with(self, point: tuple[int, ...], known: _Comparison) -> _Comparison:
        """The comparison `known` with the program for sizes `point`, too. Raises ModelError where
        that is another, and what `load_for` does."""
        found = self._and(point, known)
        found.run(known.samples[0].module.operation.clone())
        return found

    def _and(self, point: tuple[int, ...], known: _Comparison) -> _Comparison:
        if point not in self._programs:
            self._programs[point] = self.load_for(self.open_shapes.shapes_at(point))
        samples = [*known.samples, self._programs[point]]
        return _Comparison(samples, Points([*known.points, point]))


@dataclass
class _Comparison:
    """The same program for several sizes."""

    samples: list[Imported]
    points: Points
    _entered: list[_Joined] = field(default_factory=list)
    """Those of values before their users."""
    _known: dict[ir.Value, list[Extent]] = field(default_factory=dict)
    """Extents of values of the joint program."""
    _sides: dict[Extent, None] = field(default_factory=dict)
    """Open extents of dimensions, of which others are made."""

    def run(self, module: ir.Operation) -> None:
        """Make `module`, the first program or a copy of it, that of all. Raises ModelError when the
        others are not the same."""
        modules = [module, *(sample.module.operation for sample in self.samples[1:])]
        mains = [_main(module) for module in modules]
        blocks = [main.regions[0].blocks[0] for main in mains]
        inputs = [[value.type for value in block.arguments] for block in blocks]
        with self.samples[0].context:
            for kept in (self._entered, self._known, self._sides):
                kept.clear()
            join(blocks, lambda ops, results: self._entered.append((ops, results)))
            columns = zip(*inputs, strict=True)
            arguments = [self._extents(list(column), mains[0], []) for column in columns]
            self._known.update(zip(blocks[0].arguments, arguments, strict=True))
            self._results()
            for ops, _ in self._entered:
                self._attributes(ops)
            end = list(blocks[0].operations)[-1].operation
            results = [self._known[value] for value in end.operands]
            mains[0].attributes[EXTENTS] = _texts(arguments)
            mains[0].attributes[RESULT_EXTENTS] = _texts(results)

    def _results(self) -> None:
        """The extents of all results: those that the sizes, operands or users tell, and only where
        there are no more of these, one that is made of any others. Raises ModelError."""
        rest = self._entered
        while rest:
            left = [item for item in rest if not self._is_told(*item)]
            left = [item for item in left[::-1] if not self._is_told(*item)][::-1]
            rest = left if len(left) < len(rest) else self._without_one(left)

    def _without_one(self, rest: list[_Joined]) -> list[_Joined]:
        """`rest` without the first operation of known operands whose extents are made of any
        others. Raises ModelError when there is none: what windows ask for, if they do."""
        errors: list[ModelError] = []
        for number, (ops, results) in enumerate(rest):
            assert ops[0] is not None
            if all(operand in self._known for operand in ops[0].operands):
                try:
                    self._operation(ops, results, sides=self._sides)
                except ModelError as error:
                    errors.append(error)
                else:
                    return [*rest[:number], *rest[number + 1 :]]
        raise min(errors, key=lambda error: not isinstance(error, UntoldSizesError))

    def _is_told(self, ops: Operations, results: Sequence[Together]) -> bool:
        """Whether the extents of `results` are told by those of operands or users."""
        try:
            self._operation(ops, results)
        except ModelError:
            return False
        return True

    def _operation(
        self, ops: Operations, results: Sequence[Together], sides: Iterable[Extent] = ()
    ) -> None:
        first = ops[0]
        assert first is not None
        present = [op for op in ops if op is not None]
        unknown = any(operand not in self._known for operand in first.operands)
        known: dict[int, Extent] = {}
        free = bool(sides) or unknown or has_free_sizes(present)
        if free and [type(value[0].type) for value in results] == [ir.RankedTensorType]:
            known = self._forced(first)
        if first.name == "stablehlo.slice" and not unknown:
            shapes = [hlo.shape(value) for value in results[0]]
            known |= first_few(first, shapes, self._known[first.operands[0]], self.points)
        if len(present) == len(ops) and moves(first):
            if unknown:
                raise ModelError(f"{source_name(first)}: its operand has unknown sizes")
            known |= moved(present, self._known[first.operands[0]], self.points)
        if first.name == "stablehlo.concatenate" and not unknown:
            known |= self._joined(first)
        near = self._near(first.operands)
        extents = []
        for column in results:
            types = [value.type for value in column]
            extents.append(self._extents(types, first, near, sides, known, free=free))
        self._known.update(zip(first.results, extents, strict=True))
        if any(not e.is_constant for shape in extents for e in shape):
            first.attributes[EXTENTS] = _texts(extents)

    def _forced(self, op: ir.Operation) -> dict[int, Extent]:
        """Extents of dimensions of the result of `op` that are those of operands, or of what it is
        used with."""
        found: dict[int, Extent] = {}
        shape = hlo.shape(op.results[0])
        repeats = op.name == "stablehlo.broadcast_in_dim"
        if repeats and op.operands[0] in self._known:
            known, sizes = self._known[op.operands[0]], hlo.shape(op.operands[0])
            places = same_places(op, len(sizes))
            found |= {at: known[d] for d, at in places.items() if sizes[d] > 1}
        users = [use.owner.operation for use in op.results[0].uses]
        for user in users if repeats else [op, *users]:
            places = same_places(user, len(shape))
            for value in (*user.results, *user.operands) if places else ():
                known = self._known.get(value, [])
                if len(known) == len(hlo.shape(user.results[0])):
                    found |= {d: known[at] for d, at in places.items() if shape[d] > 1}
        return found

    def _joined(self, op: ir.Operation) -> dict[int, Extent]:
        """The extent of the dimension along which `op` concatenates."""
        along = ir.IntegerAttr(op.attributes["dimension"]).value
        parts = [self._known[operand][along] for operand in op.operands]
        return {along: functools.reduce(Extent.plus, parts)}

    def _near(self, values: Iterable[ir.Value]) -> list[Extent]:
        """The open extents of `values`, where strides divide one of them."""
        known = dict.fromkeys(e for value in values for e in self._known.get(value, ()))
        found = [extent for extent in known if not extent.is_constant]
        return found if any(not extent.is_polynomial for extent in found) else []

    def _limits(self, ops: list[ir.Operation], extents: list[Extent]) -> None:
        """Of slices from the beginning on, which are left out where they are all that there is."""
        first = ops[0]
        for name in ("start_indices", "strides"):
            if len({str(op.attributes[name]) for op in ops}) > 1:
                raise ModelError(f"{source_name(first)}: its {name} is another for other sizes")
        if not all(extent.is_constant for extent in extents):
            first.attributes[f"{BOUNDS}limit_indices"] = strings(map(str, extents))

    def _extents(
        self,
        types: list[ir.Type],
        op: ir.Operation,
        near: Sequence[Extent],
        sides: Iterable[Extent] = (),
        known: Mapping[int, Extent] | None = None,
        *,
        free: bool = False,
    ) -> list[Extent]:
        """The extents of a value of `types`: those that are `known`, dimensions by number, and
        others as `_fit` has them. Where they are `free`, operands do not tell them."""
        if not isinstance(types[0], ir.RankedTensorType):
            return []
        kinds = [ir.RankedTensorType(kind) for kind in types]
        if len({(kind.rank, str(kind.element_type)) for kind in kinds}) > 1:
            raise ModelError(f"{source_name(op)}: the model is another for other sizes")
        found = []
        for d, sizes in enumerate(zip(*(tuple(kind.shape) for kind in kinds), strict=True)):
            extent = (known or {}).get(d)
            if extent is None or not has(self.points, sizes, extent):
                extent = None if free else self._same(sizes, op)
            found.append(extent or self._fit(sizes, op, near, sides, free=free))
        self._sides.update((extent, None) for extent in found if _is_side(extent))
        return found

    def _same(self, values: Sequence[int], op: ir.Operation) -> Extent | None:
        """That of a dimension of an operand which has `values`."""
        if min(values) == max(values):
            return Extent.of(values[0])
        known = dict.fromkeys(e for value in op.operands for e in self._known.get(value, ()))
        return next((extent for extent in known if has(self.points, values, extent)), None)

    def _fit(
        self,
        values: Sequence[int],
        op: ir.Operation,
        near: Sequence[Extent],
        sides: Iterable[Extent],
        *,
        free: bool = True,
    ) -> Extent:
        """What `values` are: made of sizes, of those extents that are `near`, or of `sides`. Raises
        ModelError, for those that are `free` also where they may be rounded in another place."""
        found = fit(self.points, values, near) or fit(self.points, values, sides)
        if found is None and sides:
            found = self._quotient(values, op)
        if found is None:
            listed = ", ".join(map(str, values))
            raise ModelError(
                f"{source_name(op)}: the numbers {listed} are no simple function of the open sizes"
            )
        if free:
            self._check_rounding(found, op)
        return found

    def _quotient(self, values: Sequence[int], op: ir.Operation) -> Extent | None:
        """The one quotient of a size that `values` are, None where there is none. Raises
        UntoldSizesError where there are several."""
        every = itertools.chain(dict.fromkeys(quotients(self.points, values)), (None, None))
        found, other = itertools.islice(every, 2)
        if found is not None and other is not None:
            raise UntoldSizesError(
                f"{source_name(op)}: whether a size is {found} or {other} is not known",
                lambda point: found.at(point) != other.at(point),
            )
        if found is not None and len(self.points) < _LEAST_POINTS:
            raise UntoldSizesError(
                f"{source_name(op)}: {found} was seen for few sizes",
                lambda point: all(tuple(point) != tuple(seen) for seen in self.points),
            )
        limit = None if found is None else limited(self.points, values)
        if found is not None and limit is not None:
            raise UntoldSizesError(
                f"{source_name(op)}: whether a size is {found} or has a limit is not known",
                lambda point: found.at(point) != limit(point),
            )
        return found

    def _check_rounding(self, extent: Extent, op: ir.Operation) -> None:
        other = rounded_elsewhere(self.points, extent)
        if other is not None:
            raise UntoldSizesError(
                f"{source_name(op)}: how {extent} is rounded is not known",
                lambda point: extent.at(point) != other.at(point),
            )

    def _attributes(self, ops: Operations) -> None:
        first, *_ = present = [op for op in ops if op is not None]
        extents = [self._known[result] for result in first.results]
        if len(present) < len(ops):
            if first.name == "stablehlo.slice":
                self._limits(present, extents[0])
            return
        if first.name == "stablehlo.constant":
            self._constant(present, extents[0])
            return
        near = self._near([*first.operands, *first.results])
        for name in [name for name in first.attributes if name != EXTENTS]:
            found = [op.attributes.get(name) for op in present]
            if len({str(attribute) for attribute in found}) == 1:
                continue
            if name == "padding" and has_unlike_ends(present):
                continue
            if name == "padding" and first.operands[0] in self._known:
                shape = self._known[first.operands[0]]
                edges = paddings(present, shape, extents[0], self.points)
                if edges is not None:
                    first.attributes[BOUNDS + name] = strings(map(str, edges))
                    continue
            arrays = [numbers(attribute) for attribute in found]
            if len({len(array or ()) for array in arrays} | {0}) > 2 or None in arrays:
                raise ModelError(f"{source_name(first)}: its {name} is another for other sizes")
            columns = zip(*arrays, strict=True)
            fitted = [self._fit(values, first, near, self._sides) for values in columns]
            first.attributes[BOUNDS + name] = strings(map(str, fitted))

    def _constant(self, ops: list[ir.Operation], extents: list[Extent]) -> None:
        if is_complex(ops[0]):
            arrays = [
                np.broadcast_to(read_complex(op, sample.weights), hlo.shape(op.results[0]))
                for sample, op in zip(self.samples, ops, strict=True)
            ]
        else:
            texts = {str(op.attributes["value"])[:200] for op in ops}
            if len(texts) == 1 and all("dense_resource" not in text for text in texts):
                return
            arrays = [
                sample.weights.array(op.attributes["value"])
                for sample, op in zip(self.samples, ops, strict=True)
            ]
        base = arrays[0]
        if all(_begins(base, array) for array in arrays[1:]):
            return
        if any(not array.size for array in arrays):
            raise ModelError(f"{source_name(ops[0])}: it has no elements for some sizes")
        if any(not extent.is_constant for extent in extents):
            parts = [array.reshape(-1)[:1] for array in arrays]
            same = all((array == part).all() for array, part in zip(arrays, parts, strict=True))
        else:
            same = all((array == array.reshape(-1)[:1]).all() for array in arrays)
            parts = [array.reshape(-1)[: 1 if same else None] for array in arrays]
            same = True
        if not same or parts[0].size > _MOST_FORMULAS:
            raise ModelError(f"{source_name(ops[0])}: its data is other for other sizes")
        formulas = [self._formula(values, ops[0]) for values in zip(*parts, strict=True)]
        ops[0].attributes[SCALARS] = strings(formulas)

    def _formula(self, values: Sequence[np.generic], op: ir.Operation) -> str:
        """What `values` are, as a text: an extent, or one divided by another."""
        numbers = [value.item() for value in values]
        if isinstance(numbers[0], (int, float)) and not isinstance(numbers[0], bool):
            if all(float(number).is_integer() for number in numbers):
                found = fit(self.points, [int(number) for number in numbers], self._sides)
                if found is not None:
                    self._check_rounding(found, op)
                    return str(found)
            elif all(map(math.isfinite, numbers)) and all(numbers):
                found = self._ratio(values, [round(1 / number) for number in numbers])
                if found is not None:
                    for extent in found:
                        self._check_rounding(extent, op)
                    return OVER.join(map(str, found))
        listed = ", ".join(map(str, numbers))
        raise ModelError(
            f"{source_name(op)}: the values {listed} are no simple function of the open sizes"
        )

    def _ratio(
        self, values: Sequence[np.generic], inverses: Sequence[int]
    ) -> tuple[Extent, Extent] | None:
        """What `values` are quotients of: of 1, or of two sides or what is one less."""
        one = Extent.of(1)
        divisor = fit(self.points, inverses, self._sides)
        if divisor is not None and self._is_ratio(values, one, divisor):
            return one, divisor
        sides = dict.fromkeys([*self._sides, *(side.plus(one, -1) for side in self._sides)])
        pairs = itertools.permutations(sides, 2)
        fitting = [pair for pair in pairs if self._is_ratio(values, *pair)]
        return fitting[0] if len(fitting) == 1 else None

    def _is_ratio(self, values: Sequence[np.generic], dividend: Extent, divisor: Extent) -> bool:
        """Whether `values` are the quotients of the two, rounded once."""
        kind = values[0].dtype
        for point, value in zip(self.points, values, strict=True):
            over, under = (np.array(extent.at(point), kind) for extent in (dividend, divisor))
            if not under or np.divide(over, under, dtype=kind) != value:
                return False
        return True


def _is_side(extent: Extent) -> bool:
    """Whether it is open, and no product of sizes itself."""
    return not extent.is_constant and all(len(monomial) < 2 for monomial, _ in extent.terms)


def _begins(base: np.ndarray, other: np.ndarray) -> bool:
    """Whether `other` is the beginning of `base` in each dimension."""
    part = base[tuple(slice(0, n) for n in other.shape)]
    return part.shape == other.shape and np.array_equal(part, other, equal_nan=_has_nan(base))


def _has_nan(array: np.ndarray) -> bool:
    return array.dtype.kind in "fc"


def _texts(extents: Sequence[Sequence[Extent]]) -> ir.Attribute:
    return strings(", ".join(map(str, shape)) for shape in extents)
