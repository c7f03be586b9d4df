"""Library functions that the host calls between the kernels of a GPU: LAPACK's.

A call stays a declaration, with the description of what is called (stepwell.kernels.library_call);
the launch program has it as data (stepwell.launch, CALL).

    func.func private @library_call_0(memref<4x4xf32>, memref<4xi32>, memref<i32>)
        attributes {kernel.library_call = {function = "lapack.sgetrf", ..}, kernel.results = 3}
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from stepwell.attributes import i64
from stepwell.kernels.library_call import ATTRIBUTE, Buffer, LibraryCall, buffer_of
from stepwell.launch import (
    BUFFER_PLACE,
    CALL,
    COPIED_IN,
    COPIED_OUT,
    LITERAL,
    NO_ADDRESS,
    WORK_PLACE,
)
from stepwell.mlir import dialect, ir
from stepwell.passes.affine._host_buffers import memref_type
from stepwell.passes.buffers.plan_arena import element_bytes

func = dialect("func")

_RESULTS = "kernel.results"
_FORMATS = {"i32": "i", "f32": "f", "f64": "d", "char": "c"}


@dataclass(frozen=True)
class HostCall:
    """What the host calls on which buffers, of which the last `results` are written."""

    call: LibraryCall
    buffers: tuple[ir.MemRefType, ...]
    results: int

    @staticmethod
    def of(declaration: ir.Operation) -> HostCall:
        """That of a function that `declare` has made."""
        kind = ir.FunctionType(ir.TypeAttr(declaration.attributes["function_type"]).value)
        return HostCall(
            LibraryCall.from_attribute(declaration.attributes[ATTRIBUTE]),
            tuple(ir.MemRefType(value) for value in kind.inputs),
            ir.IntegerAttr(declaration.attributes[_RESULTS]).value,
        )

    @property
    def bytes(self) -> int:
        """Bytes of all buffers."""
        return sum(map(_bytes, self.buffers))

    def instruction(self, function: int, places: Sequence[Sequence[int]]) -> list[int]:
        """The instruction that calls function number `function` on buffers at `places`."""
        operands = len(self.buffers) - self.results
        code = [CALL, function, self.call.batch]
        code += [len(self.buffers), len(self.call.work), len(self.call.arguments)]
        for number, (place, kind) in enumerate(zip(places, self.buffers, strict=True)):
            is_read = number < operands or number - operands in self.call.updated
            copies = (COPIED_IN if is_read else 0) | (COPIED_OUT if number >= operands else 0)
            code += [*place, _bytes(kind), copies]
        code += [_bytes(kind) for kind in self.call.work]
        for argument in self.call.arguments:
            code += self._argument(argument)
        return code

    def _argument(self, text: str) -> list[int]:
        buffer = buffer_of(text)
        if buffer is not None:
            return self._place(buffer)
        if text == "null":
            return [NO_ADDRESS, 0, 0, 0]
        kind, *values = text.split(" ")
        code = _FORMATS[kind]
        parse = {"i": int, "c": str.encode}.get(code, float)
        raw = struct.pack(f"<{len(values)}{code}", *map(parse, values))
        return [LITERAL, *struct.unpack("<2q", raw.ljust(16, b"\0")), 0]

    def _place(self, buffer: Buffer) -> list[int]:
        if buffer.kind == "work":
            kind = ir.RankedTensorType(self.call.work[buffer.number])
            return [WORK_PLACE, buffer.number, buffer.offset * element_bytes(kind.element_type), 0]
        first = len(self.buffers) - self.results if buffer.kind == "result" else 0
        number = first + buffer.number
        kind = self.buffers[number]
        if 0 in kind.shape:
            return [NO_ADDRESS, 0, 0, 0]
        stride = _bytes(kind) // max(self.call.batch, 1)
        return [BUFFER_PLACE, number, buffer.offset * element_bytes(kind.element_type), stride]


def declare(kernel: ir.Operation, body: ir.Block, symbol: str) -> HostCall:
    """Add `symbol` to `body`, the memref form of the declaration `kernel`."""
    kind = ir.FunctionType(ir.TypeAttr(kernel.attributes["function_type"]).value)
    inputs = [memref_type(value) for value in kind.inputs]
    with ir.InsertionPoint(body), kernel.location:
        function = func.FuncOp(symbol, ir.FunctionType.get(inputs, []), visibility="private")
    function.operation.attributes[ATTRIBUTE] = kernel.attributes[ATTRIBUTE]
    function.operation.attributes[_RESULTS] = i64(len(kind.results))
    return HostCall.of(function.operation)


def host_calls(module: ir.Module) -> dict[str, HostCall]:
    """What the host of a module of level affine calls, by the names of the declarations."""
    return {
        ir.StringAttr(child.operation.attributes["sym_name"]).value: HostCall.of(child.operation)
        for child in module.body.operations
        if ATTRIBUTE in child.operation.attributes
    }


def _bytes(kind: ir.Type) -> int:
    shaped = ir.ShapedType(kind)
    return math.prod(shaped.shape) * element_bytes(shaped.element_type)
