"""Models with open sizes, imported once for any of them.

A frontend imports a model for shapes that it knows. Here it does so for a few of them, and what
differs is put down as a function of the open sizes: the extents of dimensions, bounds of slices,
numbers that were computed from shapes. The program is that of the capacities, with

    %3 = stablehlo.add %1, %2 {stepwell.extents = ["s0, 768"]} : tensor<512x768xf32>

where only `s0` of 512 rows are in use. `legalize-open-sizes` makes it correct for each of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from stepwell.attributes import strings
from stepwell.dense import is_complex, read_complex
from stepwell.dialects import stablehlo as hlo
from stepwell.errors import Error, LoweringError, ModelError
from stepwell.frontends import Imported
from stepwell.frontends.open_join import Operations, Together, join
from stepwell.kernels.structured import source_name
from stepwell.mlir import ir
from stepwell.sizes import Extent, OpenShapes, OpenSizes, fit

EXTENTS = "stepwell.extents"
"""Of an operation: for each result, of the function: for each argument, the extents of its
dimensions; left out where none is open."""

RESULT_EXTENTS = "stepwell.result_extents"
"""Of the function: the extents of its results."""

SCALARS = "stepwell.scalars"
"""Of a constant whose elements are functions of the sizes: what they are, in order; one for all."""

RECIPROCAL = "1/"
"""Before an extent: the number is one divided by it."""

BOUNDS = "stepwell.bounds."
"""Before the name of an array attribute: its elements as extents."""

CAPACITIES = "stepwell.capacities"
"""Of the function: the capacities of `s0`, `s1`, ..."""

PREFIXES = "stepwell.prefixes"
"""Of the function, once legalized: the extents and capacities of the vectors of booleans it takes
last. `stepwell.scalars` has the elements of the vector of sizes in front of them."""

EXACT_INPUTS = "stepwell.exact_inputs"
"""Of the function, once it is one of buffers: the inputs, by number, of which no more is read than
is in use (`mark-exact-arguments`)."""

EXACT_RESULTS = "stepwell.exact_results"
"""The results, by number, of which no more is written."""

_MOST_FORMULAS = 64

Shapes = dict[str, tuple[int, ...]]


def load(open_shapes: OpenShapes, load_for: Callable[[Shapes], Imported]) -> Imported:
    """The program of `load_for(shapes)` at the capacities, with what depends on the sizes.

    Models may be others for the smallest sizes, whose slices reach beyond the end, or refuse these:
    `open_shapes.least` of the program says from where on it is right. Raises ModelError when the
    programs for other sizes are not the same but for numbers that follow from the sizes, and what
    `load_for` does.
    """
    large = [load_for(open_shapes.shapes_at(point)) for point in open_shapes.samples()]
    base = large[0]
    if base.cuts or base.results:
        raise ModelError("the model has results whose shape depends on data, or sequences of them")
    if base.checks:
        raise ModelError("the model has checks, which compare results of known shapes")
    comparison = _Comparison(large, open_shapes.samples())
    sizes = _SmallSizes(open_shapes, load_for, comparison)
    least = sizes.least(sizes.compared())
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

    def compared(self) -> tuple[int, ...]:
        """Small sizes for which it is the same, with which `comparison` goes on. Raises ModelError
        when there are none."""
        first, *larger = self.open_shapes.small_samples()
        try:
            self.comparison = self._with(first)
            return first
        except ModelError:
            for point in larger:
                with contextlib.suppress(Error):
                    self.comparison = self._with(point)
                    return point
            raise

    def least(self, small: tuple[int, ...]) -> tuple[int, ...]:
        """The smallest that each open size may be, which is right for `small` ones; empty where
        they may all be 1."""
        tried = [tuple(map(min, point, small)) for point in self.open_shapes.least_samples()]
        found = next((p for p in tried if p == small or self._is_the_same(p)), small)
        alone = [
            size == 1 or self._is_the_same((*found[:number], 1, *found[number + 1 :]))
            for number, size in enumerate(found)
        ]
        if all(alone):
            return () if max(found) == 1 else found
        mixed = tuple(1 if one else size for one, size in zip(alone, found, strict=True))
        return mixed if mixed == found or self._is_the_same(mixed) else found

    def _is_the_same(self, point: Sequence[int]) -> bool:
        """Whether the program for sizes `point` is that of the samples."""
        try:
            self._with(point)
        except Error:
            return False
        return True

    def _with(self, point: Sequence[int]) -> _Comparison:
        """The comparison with the program for sizes `point`, too. Raises ModelError where that is
        another, and what `load_for` does."""
        smaller = self.load_for(self.open_shapes.shapes_at(point))
        known = self.comparison
        found = _Comparison([*known.samples, smaller], [*known.points, point])
        found.run(known.samples[0].module.operation.clone())
        return found


@dataclass
class _Comparison:
    """The same program for several sizes."""

    samples: list[Imported]
    points: Sequence[Sequence[int]]
    _sides: dict[Extent, None] = field(default_factory=dict)
    """Open extents of dimensions, of which others are products."""
    _constants: list[tuple[list[ir.Operation], list[Extent]]] = field(default_factory=list)
    """Constants, with their extents: they are looked at when all of `_sides` are known."""

    def run(self, module: ir.Operation) -> None:
        """Make `module`, the first program or a copy of it, that of all. Raises ModelError when the
        others are not the same."""
        modules = [module, *(sample.module.operation for sample in self.samples[1:])]
        mains = [_main(module) for module in modules]
        blocks = [main.regions[0].blocks[0] for main in mains]
        inputs = [[value.type for value in block.arguments] for block in blocks]
        with self.samples[0].context:
            self._sides.clear()
            self._constants.clear()
            join(blocks, self._operation)
            for constants, extents in self._constants:
                self._constant(constants, extents)
            ends = [list(block.operations)[-1].operation for block in blocks]
            outputs = [[value.type for value in end.operands] for end in ends]
            for name, types in ((EXTENTS, inputs), (RESULT_EXTENTS, outputs)):
                columns = zip(*types, strict=True)
                found = [self._extents(list(column), mains[0]) for column in columns]
                mains[0].attributes[name] = _texts(found)

    def _operation(self, ops: Operations, results: Sequence[Together]) -> None:
        first = ops[0]
        assert first is not None
        extents = [self._extents([value.type for value in column], first) for column in results]
        if any(not e.is_constant for shape in extents for e in shape):
            first.attributes[EXTENTS] = _texts(extents)
        present = [op for op in ops if op is not None]
        if len(present) == len(ops):
            self._attributes(present, extents)
        elif first.name == "stablehlo.slice":
            self._limits(present, extents[0])

    def _limits(self, ops: list[ir.Operation], extents: list[Extent]) -> None:
        """Of slices from the beginning on, which are left out where they are all that there is."""
        first = ops[0]
        for name in ("start_indices", "strides"):
            if len({str(op.attributes[name]) for op in ops}) > 1:
                raise ModelError(f"{source_name(first)}: its {name} is another for other sizes")
        if not all(extent.is_constant for extent in extents):
            first.attributes[f"{BOUNDS}limit_indices"] = strings(map(str, extents))

    def _extents(self, types: list[ir.Type], op: ir.Operation) -> list[Extent]:
        if not isinstance(types[0], ir.RankedTensorType):
            return []
        kinds = [ir.RankedTensorType(kind) for kind in types]
        if len({(kind.rank, str(kind.element_type)) for kind in kinds}) > 1:
            raise ModelError(f"{source_name(op)}: the model is another for other sizes")
        found = [
            self._fit(sizes, op) for sizes in zip(*(tuple(k.shape) for k in kinds), strict=True)
        ]
        self._sides.update((extent, None) for extent in found if _is_side(extent))
        return found

    def _fit(self, values: Sequence[int], op: ir.Operation) -> Extent:
        found = fit(self.points, values, self._sides)
        if found is None:
            listed = ", ".join(map(str, values))
            raise ModelError(
                f"{source_name(op)}: the numbers {listed} are no simple function of the open sizes"
            )
        return found

    def _attributes(self, ops: list[ir.Operation], extents: list[list[Extent]]) -> None:
        first = ops[0]
        if first.name == "stablehlo.constant":
            self._constants.append((ops, extents[0]))
            return
        for name in [name for name in first.attributes if name != EXTENTS]:
            found = [op.attributes.get(name) for op in ops]
            if len({str(attribute) for attribute in found}) == 1:
                continue
            arrays = [_numbers(attribute) for attribute in found]
            if len({len(array or ()) for array in arrays} | {0}) > 2 or None in arrays:
                raise ModelError(f"{source_name(first)}: its {name} is another for other sizes")
            fitted = [self._fit(values, first) for values in zip(*arrays, strict=True)]
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
        """What `values` are, as a text: an extent, or one divided by it."""
        numbers = [value.item() for value in values]
        if isinstance(numbers[0], (int, float)) and not isinstance(numbers[0], bool):
            if all(float(number).is_integer() for number in numbers):
                found = fit(self.points, [int(number) for number in numbers], self._sides)
                if found is not None:
                    return str(found)
            elif all(numbers):
                found = fit(self.points, [round(1 / number) for number in numbers], self._sides)
                kind = values[0].dtype
                if found is not None and all(
                    np.divide(1, np.array(found.at(point), kind), dtype=kind) == value
                    for point, value in zip(self.points, values, strict=True)
                ):
                    return f"{RECIPROCAL}({found})"
        listed = ", ".join(map(str, numbers))
        raise ModelError(
            f"{source_name(op)}: the values {listed} are no simple function of the open sizes"
        )


def _is_side(extent: Extent) -> bool:
    """Whether it is open, and no product of sizes itself."""
    return not extent.is_constant and all(len(monomial) < 2 for monomial, _ in extent.terms)


def _numbers(attribute: ir.Attribute) -> list[int] | None:
    """The elements of an array attribute in order; None for other attributes."""
    if isinstance(attribute, ir.DenseI64ArrayAttr):
        return list(attribute)
    if isinstance(attribute, ir.DenseIntElementsAttr):
        return np.array(attribute).reshape(-1).tolist()
    return None


def _begins(base: np.ndarray, other: np.ndarray) -> bool:
    """Whether `other` is the beginning of `base` in each dimension."""
    part = base[tuple(slice(0, n) for n in other.shape)]
    return part.shape == other.shape and np.array_equal(part, other, equal_nan=_has_nan(base))


def _has_nan(array: np.ndarray) -> bool:
    return array.dtype.kind in "fc"


def _texts(extents: Sequence[Sequence[Extent]]) -> ir.Attribute:
    return strings(", ".join(map(str, shape)) for shape in extents)


def read(main: ir.Operation, imported: Imported) -> OpenSizes | None:
    """What the host function of a program with open sizes says of them; None for other programs."""
    shapes = imported.open_shapes
    if shapes is None:
        return None
    scalars = tuple(Extent.parse(ir.StringAttr(text).value) for text in main.attributes[SCALARS])
    prefixes = tuple(
        (Extent.parse(ir.StringAttr(extent).value), ir.IntegerAttr(capacity).value)
        for extent, capacity in main.attributes[PREFIXES]
    )
    inputs, outputs = (tuple(read_extents(main, n) or ()) for n in (EXTENTS, RESULT_EXTENTS))
    names, capacities = tuple(shapes.names), tuple(shapes.capacities.values())
    exact = (tuple(ir.DenseI64ArrayAttr(main.attributes[n])) for n in (EXACT_INPUTS, EXACT_RESULTS))
    least = shapes.least
    return OpenSizes(names, capacities, inputs, outputs, scalars, prefixes, *exact, least=least)


def read_extents(op: ir.Operation, name: str = EXTENTS) -> list[tuple[Extent, ...]] | None:
    """What the attribute `name` of `op` says; None where it is left out. Raises LoweringError."""
    if name not in op.attributes:
        return None
    found = []
    for text in op.attributes[name]:
        parts = ir.StringAttr(text).value.split(",")
        try:
            found.append(tuple(Extent.parse(p) for p in parts if p.strip()))
        except ValueError as error:
            raise LoweringError(f"{source_name(op)}: {name}: {error}") from None
    return found
