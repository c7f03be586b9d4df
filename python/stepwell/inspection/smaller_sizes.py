"""Dimensions made smaller, for `stepwell-reduce`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from stepwell.inspection.intermediates import set_results
from stepwell.inspection.program import CONSTANT, Program, is_splat
from stepwell.mlir import ir

Take = Callable[[], bool]


def shrink(program: Program, take: Take, *, to: int) -> None:
    """Each size above `to` becomes `to`, wherever it stands in a type. What says sizes by itself (a
    slice, a window) does not verify then, which leaves the size as it is."""
    values = list(_values(program))
    found = {size for value in values for size in _shape(value) if size > to}
    taken = {size for size in sorted(found, reverse=True) if take()}
    for op in program.operations() if taken else ():
        if op.name == CONSTANT and is_splat(op):
            _retype_splat(op, taken, to)
    for value in values if taken else ():
        value.set_type(_smaller(value.type, taken, to))
    set_results(program.main, program.results())


to_16 = functools.partial(shrink, to=16)
"""Sizes of which a vector register is full."""

to_2 = functools.partial(shrink, to=2)
"""The least that are no special case."""


def _values(program: Program) -> Iterator[ir.Value]:
    for op in program.operations():
        yield from op.results
        for region in op.regions:
            for block in region.blocks:
                yield from block.arguments
    yield from program.block.arguments


def _shape(value: ir.Value) -> list[int]:
    return list(value.type.shape) if isinstance(value.type, ir.RankedTensorType) else []


def _smaller(kind: ir.Type, sizes: set[int], to: int) -> ir.Type:
    if not isinstance(kind, ir.RankedTensorType):
        return kind
    shape = [to if size in sizes else size for size in kind.shape]
    return ir.RankedTensorType.get(shape, kind.element_type, kind.encoding)


def _retype_splat(op: ir.Operation, sizes: set[int], to: int) -> None:
    kind = _smaller(op.results[0].type, sizes, to)
    value = ir.DenseElementsAttr(op.attributes["value"])
    op.attributes["value"] = ir.DenseElementsAttr.get_splat(kind, value.get_splat_value())
