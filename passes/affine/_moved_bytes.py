"""How many bytes a kernel reads and writes: of slices, no more than these."""

from __future__ import annotations

import math
from collections.abc import Collection

from stepwell.kernels.structured import defining_op, element_type, shape_of
from stepwell.mlir import ir
from stepwell.passes.buffers.plan_arena import element_bytes

MOVED_BYTES = "kernel.bytes"
"""Of a kernel: how many bytes it reads and writes."""


def moved_bytes(kernel: ir.Operation) -> int:
    """Of an outlined tensor function: the bytes of its inputs and results, each counted once."""
    block = kernel.regions[0].blocks[0]
    returned = list(list(block.operations)[-1].operation.operands)
    count = len(block.arguments) - len(returned)
    inputs, destinations = list(block.arguments)[:count], list(block.arguments)[count:]
    return sum(map(_read, inputs)) + sum(_written(value, destinations) for value in returned)


def declared_bytes(kernel: ir.Operation) -> int:
    """Of the declaration of a kernel: the bytes of its inputs and results."""
    kind = ir.FunctionType(ir.TypeAttr(kernel.attributes["function_type"]).value)
    tensors = map(ir.RankedTensorType, kind.inputs)
    return sum(math.prod(t.shape) * element_bytes(t.element_type) for t in tensors)


def _size(value: ir.Value) -> int:
    return math.prod(shape_of(value)) * element_bytes(element_type(value))


def _read(argument: ir.Value) -> int:
    """The bytes of an input, or of its slices where only these are read."""
    if not isinstance(argument.type, ir.ShapedType):
        return 0
    readers = [use.owner.operation for use in argument.uses]
    if any(reader.name != "tensor.extract_slice" for reader in readers):
        return _size(argument)
    return min(_size(argument), sum(_size(reader.results[0]) for reader in readers))


def _written(value: ir.Value, destinations: Collection[ir.Value]) -> int:
    """The bytes of a result, without what its destination holds already."""
    op = defining_op(value)
    if value in destinations or op is None:
        return 0 if value in destinations else _size(value)
    if op.name == "tensor.insert_slice":
        return sum(_written(operand, destinations) for operand in list(op.operands)[:2])
    if op.name == "tensor.pad":
        inside = op.operands[0]
        return _size(value) - _size(inside) + _written(inside, destinations)
    if op.name == "tensor.extract_slice" and op.operands[0] in destinations:
        return 0
    return _size(value)
