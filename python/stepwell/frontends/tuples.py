"""Tuples in the signature of a function become its elements, in their order.

    func.func @main(%t: tuple<tensor<4xf32>, tensor<2xi32>>) -> tuple<tensor<4xf32>> {
      %0 = stablehlo.get_tuple_element %t[0] ..
      %1 = stablehlo.tuple %0 : tuple<tensor<4xf32>>
      return %1

becomes

    func.func @main(%a: tensor<4xf32>, %b: tensor<2xi32>) -> tensor<4xf32> {
      return %a
"""

from __future__ import annotations

from stepwell.errors import ModelError
from stepwell.mlir import ir, nested_operations

_TUPLE, _ELEMENT = "stablehlo.tuple", "stablehlo.get_tuple_element"


def flatten(main: ir.Operation) -> None:
    """Take the tuples of `main`, and those that it makes and takes apart, out of it; those of
    custom calls stay. Raises ModelError where an argument has a tuple in a tuple."""
    block = main.regions[0].blocks[0]
    tuples = [op for op in nested_operations(main) if op.name in (_TUPLE, _ELEMENT)]
    if not tuples and not any(_is_tuple(argument.type) for argument in block.arguments):
        return
    elements: dict[ir.Value, list[ir.Value]] = {}
    old = list(block.arguments)
    for argument in old:
        if _is_tuple(argument.type):
            elements[argument] = _added(block, argument.type)
        else:
            added = block.add_argument(argument.type, argument.location)
            argument.replace_all_uses_with(added)
    dead = []
    for op in tuples:
        if op.name == _TUPLE:
            elements[op.results[0]] = list(op.operands)
        else:
            whole = op.operands[0]
            if whole not in elements:  # of a custom call
                continue
            value = elements[whole][ir.IntegerAttr(op.attributes["index"]).value]
            op.results[0].replace_all_uses_with(value)
        dead.append(op)
    _return(block, elements)
    for op in reversed(dead):
        op.erase()
    for number in reversed(range(len(old))):
        block.erase_argument(number)
    inputs = [argument.type for argument in block.arguments]
    *_, last = block.operations
    results = [operand.type for operand in last.operation.operands]
    main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, results))


def _is_tuple(kind: ir.Type) -> bool:
    return isinstance(kind, ir.TupleType)


def _added(block: ir.Block, kind: ir.Type) -> list[ir.Value]:
    """New arguments for the elements of a tuple."""
    whole = ir.TupleType(kind)
    made: list[ir.Value] = []
    for part in (whole.get_type(i) for i in range(whole.num_types)):
        if _is_tuple(part):
            raise ModelError(f"an argument of main is {kind}; tuples in tuples are not supported")
        made.append(block.add_argument(part, ir.Location.unknown()))
    return made


def _return(block: ir.Block, elements: dict[ir.Value, list[ir.Value]]) -> None:
    *_, last = block.operations
    op = last.operation
    waiting, values = list(op.operands)[::-1], []
    while waiting:
        value = waiting.pop()
        if value in elements:
            waiting += elements[value][::-1]
        else:
            values.append(value)
    with ir.InsertionPoint(op), op.location:
        ir.Operation.create(op.name, operands=values)
    op.erase()
