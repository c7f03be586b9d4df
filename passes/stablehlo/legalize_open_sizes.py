"""legalize-open-sizes: a program for one size becomes one for all sizes up to that, its capacity.

    func.func @main(%x: tensor<512x768xf32>) attributes {stepwell.extents = ["s0, 768"], ...} {
      %m = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]

becomes

    func.func @main(%x: tensor<512x768xf32>, %sizes: tensor<1xi64>, %used: tensor<512xi1>) {
      %where = stablehlo.broadcast_in_dim %used, dims = [0]
      %y = stablehlo.select %where, %x, %zeros
      %m = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [0]

Shapes stay those of the capacities; `stepwell.extents` (see frontends/open_sizes.py) says how much
of each dimension is in use. Operations that mix elements along an open dimension are given what
changes nothing beyond that; bounds and numbers that depend on sizes are computed from `%sizes`. An
operation for which there is no rule may not have open dimensions. The added arguments are said in
`stepwell.scalars` and `stepwell.prefixes`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from stepwell.artifact import hidden_inputs
from stepwell.attributes import i64, spec, strings
from stepwell.dialects import stablehlo as hlo
from stepwell.errors import LoweringError
from stepwell.extents import Extent
from stepwell.frontends.open_sizes import (
    BOUNDS,
    CAPACITIES,
    EXTENTS,
    OVER,
    PREFIXES,
    SCALARS,
    read_extents,
)
from stepwell.kernels.structured import source_name
from stepwell.mlir import ir, nested_operations
from stepwell.open_dimensions import Layout, as_prefix, is_open, prefix, unified
from stepwell.passes.base import Pass, State
from stepwell.passes.stablehlo import _open_batches, _open_places, _open_rules, _open_sums
from stepwell.passes.stablehlo._moved_elements import put_in_front
from stepwell.passes.stablehlo._open_program import OpenProgram
from stepwell.passes.stablehlo._open_rules import BOUNDED

INPUTS = "stepwell.inputs"
"""Of the function: what its arguments are, as users see them."""

RULES = {
    **_open_rules.RULES,
    **_open_sums.RULES,
    **_open_places.RULES,
    **_open_batches.RULES,
}
"""What to do with each operation."""

_TERMINATORS = ("func.return", "stablehlo.return")
_CONTROL = ("stablehlo.while", "stablehlo.if", "stablehlo.case")


@dataclass(frozen=True)
class LegalizeOpenSizes(Pass):
    """Run on the functions that say their capacities."""

    name: ClassVar[str] = "legalize-open-sizes"
    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation, state: State) -> None:
        if CAPACITIES in op.attributes:
            _Legalizer(op).run()


class _Legalizer:
    def __init__(self, main: ir.Operation) -> None:
        self.main = main
        arguments = list(main.regions[0].blocks[0].arguments)
        self.program = OpenProgram(main, _all_extents(main))
        for argument, extents in zip(arguments, read_extents(main) or [], strict=True):
            self.program.extents[argument] = extents
            self.program.layouts[argument] = tuple(map(prefix, hlo.shape(argument), extents))

    def run(self) -> None:
        program, main = self.program, self.main
        self._block(program.entry)
        end = list(program.entry.operations)[-1]
        for number, value in enumerate(end.operands):
            with ir.InsertionPoint(end), end.location:
                for dimension, found in enumerate(program.layout(value)):
                    if found is not None and as_prefix(found) is None:
                        value = put_in_front(program, value, dimension)
            end.operands[number] = value
        inputs = [argument.type for argument in program.entry.arguments]
        kind = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
        main.attributes["function_type"] = ir.TypeAttr.get(
            ir.FunctionType.get(inputs, kind.results)
        )
        main.attributes[SCALARS] = strings(map(str, program.scalars))
        main.attributes[PREFIXES] = ir.ArrayAttr.get(
            [
                ir.ArrayAttr.get([ir.StringAttr.get(str(extent)), i64(capacity)])
                for extent, capacity in program.prefixes
            ]
        )
        if INPUTS in main.attributes:
            hidden = hidden_inputs(program.scalars, list(program.prefixes))
            specs = [spec(hide.name, hide.dtype, hide.shape) for hide in hidden]
            main.attributes[INPUTS] = ir.ArrayAttr.get([*main.attributes[INPUTS], *specs])
        for inner in nested_operations(main):
            if inner != main:
                for name in [n for n in inner.attributes if _is_annotation(n)]:
                    del inner.attributes[name]

    def _block(self, block: ir.Block) -> None:
        for child in list(block.operations):
            op = child.operation
            self.program.done.update(op.results)
            try:
                with ir.InsertionPoint(op), op.location:
                    self._operation(op)
            except LoweringError as error:
                raise LoweringError(f"{source_name(op)}: {error}") from None

    def _operation(self, op: ir.Operation) -> None:
        program = self.program
        if op.name in _TERMINATORS:
            return
        extents = read_extents(op) or [
            [Extent.of(n) for n in _shape(result)] for result in op.results
        ]
        for result, shape in zip(op.results, extents, strict=True):
            program.extents[result] = shape
        if SCALARS in op.attributes:
            self._number(op, extents[0])
            return
        if op.name in _CONTROL:
            self._control(op)
            return
        rule = RULES.get(op.name)
        if rule is None and op.name.startswith("chlo.") and _is_elementwise(op):
            rule = RULES["stablehlo.add"]
        for name in op.attributes:
            bounded = name.removeprefix(BOUNDS)
            if name != bounded and bounded not in BOUNDED.get(op.name, ()):
                raise LoweringError(f"its {bounded} depends on the sizes")
        if rule is None:
            self._closed(op)
            return
        layouts = rule(program, op, extents)
        if layouts is not None:
            for result, layout in zip(op.results, layouts, strict=True):
                program.layouts[result] = layout

    def _closed(self, op: ir.Operation) -> None:
        """Without a rule, nothing may be open."""
        values = [*op.operands, *op.results]
        if any(
            not extent.is_constant
            for value in values
            for extent in self.program.extents.get(value, ())
        ) or any(is_open(d) for value in op.operands for d in self.program.layout(value)):
            raise LoweringError(f"{op.name} does not take open dimensions")

    def _number(self, op: ir.Operation, extents: Sequence[Extent]) -> None:
        """A constant that depends on sizes."""
        result = op.results[0]
        shape, kind = hlo.shape(result), hlo.dtype(result)
        numbers = []
        for text in op.attributes[SCALARS]:
            parts = map(self.program.scalar, _extents_in(text))
            converted = (hlo.convert(part, kind) for part in parts)
            numbers.append(functools.reduce(hlo.divide, converted))
        if len(numbers) == 1:
            value = hlo.broadcast_in_dim(numbers[0], shape, [])
        else:
            parts = [hlo.reshape(number, [1]) for number in numbers]
            value = hlo.reshape(hlo.concatenate(parts, 0), shape)
        equal = len(numbers) == 1
        self.program.layouts[value] = (
            (None,) * len(shape) if equal else tuple(map(prefix, shape, extents))
        )
        result.replace_all_uses_with(value)
        op.erase()

    def _control(self, op: ir.Operation) -> None:
        """What a loop carries, and what branches give, has one layout throughout."""
        program = self.program
        layouts: list[Layout] = []
        if op.name == "stablehlo.while":
            layouts = [program.settled(operand) for operand in op.operands]
        for region in op.regions:
            block = region.blocks[0]
            for argument, layout in zip(block.arguments, layouts, strict=False):
                program.layouts[argument] = layout
            self._block(block)
            ends = [program.settled(v) for v in list(block.operations)[-1].operands]
            if op.name == "stablehlo.while" and region == op.regions[0]:
                continue
            layouts = layouts or ends
            for expected, found in zip(layouts, ends, strict=True):
                for first, second in zip(expected, found, strict=True):
                    unified(first, second)
        for result, layout in zip(op.results, layouts, strict=True):
            program.layouts[result] = layout


def _extents_in(text: ir.Attribute) -> list[Extent]:
    """The extent that a text of `stepwell.scalars` has, or the two of a quotient."""
    return [Extent.parse(part) for part in ir.StringAttr(text).value.split(OVER)]


def _is_annotation(name: str) -> bool:
    return name in (EXTENTS, SCALARS) or name.startswith(BOUNDS)


def _is_elementwise(op: ir.Operation) -> bool:
    return len({_shape(value) for value in (*op.operands, *op.results)}) == 1


def _shape(value: ir.Value) -> tuple[int, ...]:
    return hlo.shape(value) if isinstance(value.type, ir.RankedTensorType) else ()


def _all_extents(main: ir.Operation) -> list[Extent]:
    """The open sizes, and all open extents that the annotations of the function name."""
    sizes = range(len(main.attributes[CAPACITIES]))
    found: dict[Extent, None] = dict.fromkeys(map(Extent.size, sizes))
    for op in nested_operations(main):
        for shape in read_extents(op) or ():
            found.update(dict.fromkeys(shape))
        for name in op.attributes:
            if name == SCALARS or name.startswith(BOUNDS):
                for text in op.attributes[name]:
                    found.update(dict.fromkeys(_extents_in(text)))
    return [extent for extent in found if not extent.is_constant]
