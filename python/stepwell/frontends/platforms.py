"""JAX's exports for several platforms take the number of theirs as an argument, and branch on it:

    func.func @main(%i: tensor<i32> {jax.global_constant = "_platform_index"}, %x: ..) {
      %0 = "stablehlo.case"(%i) ({ .. }, { .. })

becomes what stands in the branch of one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir
from stepwell.sources import PLATFORM_INDEX

_ATTRIBUTE = "jax.global_constant"
_CASE = "stablehlo.case"


def choose(module: ir.Module, main: ir.Operation, number: int | None) -> None:
    """Take the argument of `main` out, and the branches of other platforms than `number` or the one
    that the module says. Where neither is known, the argument stays an input."""
    for function in [op.operation for op in module.body.operations]:
        for place, said in reversed(_arguments(function)):
            known = number if said is None else said
            if known is None:
                continue
            block = function.regions[0].blocks[0]
            with ir.InsertionPoint.at_block_begin(block), ir.Location.unknown():
                constant = hlo.full(known, [], np.int32)
            block.arguments[place].replace_all_uses_with(constant)
            if function == main:
                _erase_argument(main, place)
            _take_branches(block.operations)


def _arguments(function: ir.Operation) -> list[tuple[int, int | None]]:
    """Arguments that are the number of the platform, and what that is, as far as is said."""
    if function.name != "func.func" or "arg_attrs" not in function.attributes:
        return []
    found = []
    arguments = map(ir.DictAttr, ir.ArrayAttr(function.attributes["arg_attrs"]))
    for place, attributes in enumerate(arguments):
        if _ATTRIBUTE in attributes:
            said = ir.StringAttr(attributes[_ATTRIBUTE]).value
            match = re.fullmatch(rf"{PLATFORM_INDEX}(?:=(\d+))?", said)
            if match:
                found.append((place, None if match[1] is None else int(match[1])))
    return found


def _erase_argument(function: ir.Operation, place: int) -> None:
    function.regions[0].blocks[0].erase_argument(place)
    kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    inputs = [*kind.inputs[:place], *kind.inputs[place + 1 :]]
    function.attributes["function_type"] = ir.TypeAttr.get(
        ir.FunctionType.get(inputs, kind.results)
    )
    attributes = list(ir.ArrayAttr(function.attributes["arg_attrs"]))
    del attributes[place]
    function.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)


def _take_branches(operations: Iterable[ir.OpView]) -> None:
    """Put the branch that is taken in the place of each case on a constant, in their order: what a
    branch gives may be the constant of the next one."""
    for op in [op.operation for op in operations]:
        branch = _taken(op) if op.name == _CASE else None
        if branch is None:
            for block in (block for region in op.regions for block in region.blocks):
                _take_branches(block.operations)
            continue
        *inner, last = [child.operation for child in branch.operations]
        for child in inner:
            child.move_before(op)
        for result, value in zip(op.results, last.operands, strict=True):
            result.replace_all_uses_with(value)
        op.erase()
        _take_branches(inner)


def _taken(case: ir.Operation) -> ir.Block | None:
    """The branch that a case takes, if that is known; an index out of range is the last one."""
    index = case.operands[0]
    if not isinstance(index, ir.OpResult) or index.owner.name != "stablehlo.constant":
        return None
    number = ir.DenseIntElementsAttr(index.owner.attributes["value"])[0]
    last = len(case.regions) - 1
    return case.regions[number if 0 <= number <= last else last].blocks[0]
