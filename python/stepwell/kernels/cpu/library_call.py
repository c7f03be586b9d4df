"""Kernels that call a function of another library, once for each matrix of a batch.

The function's address comes as an argument of the kernel, after its operands. Numbers and
characters of the call lie on the stack; a task takes every so-manieth matrix and has working memory
of its own.

    affine.parallel (%task) = (0) to (4) {
      scf.for %i = %task to 9 step 4 {
        llvm.call %dgetrf(%n, %n, %a + 32 * %i, %n, %pivots + 8 * %i, %info + 4 * %i)
"""

from __future__ import annotations

import math

from stepwell.attributes import i64
from stepwell.kernels.library_call import ATTRIBUTE, KIND, Buffer, LibraryCall, buffer_of
from stepwell.mlir import ir


def emit(kernel: ir.Operation, body: ir.Block, symbol: str) -> list[ir.MemRefType]:
    """Add `symbol` to `body`, the memref form of the declaration `kernel`; returns the types of the
    working memory that it takes after its results."""
    call = LibraryCall.from_attribute(kernel.attributes[ATTRIBUTE])
    kind = ir.FunctionType(ir.TypeAttr(kernel.attributes["function_type"]).value)
    results = len(kind.results)
    inputs = [_memref(value) for value in kind.inputs]
    work = [_memref(value, call.tasks) for value in call.work]
    parsed = ir.Module.parse(_Text(call, inputs, work, results).function(symbol))
    function = parsed.body.operations[0].operation.clone(ip=ir.InsertionPoint(body))
    function.attributes["kernel.kind"] = ir.StringAttr.get(KIND)
    count = i64(results)
    function.attributes["kernel.results"] = count
    return work


def _memref(kind: ir.Type, times: int = 1) -> ir.MemRefType:
    tensor = ir.RankedTensorType(kind)
    shape = list(tensor.shape) if times == 1 else [times, *tensor.shape]
    return ir.MemRefType.get(shape, tensor.element_type)


class _Text:
    """Writes the function, line by line."""

    def __init__(
        self,
        call: LibraryCall,
        inputs: list[ir.MemRefType],
        work: list[ir.MemRefType],
        results: int,
    ) -> None:
        self.call = call
        self.kinds = [*inputs, *work]
        self.operands = len(inputs) - results - 1
        self.first = {"operand": 0, "result": self.operands + 1, "work": len(inputs)}
        self.lines: list[str] = []

    def function(self, symbol: str) -> str:
        """The text of the whole function."""
        first = [self._first(number, text) for number, text in enumerate(self.call.arguments)]
        self._pointer("f", self.operands)
        if self.call.batch == 1:
            self._call(first)
        else:
            self.lines.append(f"affine.parallel (%task) = (0) to ({self.call.tasks}) {{")
            self._constant("batch", self.call.batch, "index")
            self._constant("step", self.call.tasks, "index")
            self.lines.append("scf.for %i = %task to %batch step %step {")
            self._call([self._next(n, first[n], t) for n, t in enumerate(self.call.arguments)])
            self.lines += ["}", "}"]
        self.lines.append("func.return")
        arguments = ", ".join(f"%arg{i}: {kind}" for i, kind in enumerate(self.kinds))
        text = "\n".join(f"  {line}" for line in self.lines)
        return f"func.func private @{symbol}({arguments}) {{\n{text}\n}}"

    def _call(self, pointers: list[str]) -> None:
        types = ", ".join(["!llvm.ptr"] * len(pointers))
        self.lines.append(f"llvm.call %f({', '.join(pointers)}) : !llvm.ptr, ({types}) -> ()")

    def _first(self, number: int, text: str) -> str:
        """The address of argument `number`, for a buffer that of the first matrix."""
        name = f"%p{number}"
        buffer = buffer_of(text)
        if text == "null" or (buffer is not None and 0 in self._kind(buffer).shape):
            self.lines.append(f"{name} = llvm.mlir.zero : !llvm.ptr")
        elif buffer is None:
            self._stored(number, text)
        else:
            self._pointer(f"p{number}", self._argument(buffer))
            if buffer.offset:
                kind = self._kind(buffer).element_type
                self.lines.append(
                    f"{name}_from = llvm.getelementptr {name}[{buffer.offset}] : "
                    f"(!llvm.ptr) -> !llvm.ptr, {kind}"
                )
                return f"{name}_from"
        return name

    def _next(self, number: int, name: str, text: str) -> str:
        """The address for matrix %i."""
        buffer = buffer_of(text)
        if buffer is None or 0 in self._kind(buffer).shape:
            return name
        kind = self._kind(buffer)
        is_work = buffer.kind == "work"
        parts = self.call.tasks if is_work else self.call.batch
        stride = math.prod(kind.shape) // max(parts, 1)
        self.lines.append(
            f"%n{number} = arith.index_cast {'%task' if is_work else '%i'} : index to i64"
        )
        self._constant(f"s{number}", stride, "i64")
        self.lines += [
            f"%o{number} = arith.muli %n{number}, %s{number} : i64",
            f"%q{number} = llvm.getelementptr {name}[%o{number}] : "
            f"(!llvm.ptr, i64) -> !llvm.ptr, {kind.element_type}",
        ]
        return f"%q{number}"

    def _argument(self, buffer: Buffer) -> int:
        return self.first[buffer.kind] + buffer.number

    def _kind(self, buffer: Buffer) -> ir.MemRefType:
        return self.kinds[self._argument(buffer)]

    def _constant(self, name: str, value: int, kind: str) -> None:
        self.lines.append(f"%{name} = arith.constant {value} : {kind}")

    def _pointer(self, name: str, argument: int) -> None:
        self.lines += [
            f"%{name}_index = memref.extract_aligned_pointer_as_index %arg{argument} : "
            f"{self.kinds[argument]} -> index",
            f"%{name}_bits = arith.index_cast %{name}_index : index to i64",
            f"%{name} = llvm.inttoptr %{name}_bits : i64 to !llvm.ptr",
        ]

    def _stored(self, number: int, text: str) -> None:
        """Put a constant on the stack."""
        kind, *values = text.split(" ")
        if kind == "char":
            kind, values = "i8", [str(ord(values[0]))]
        self._constant(f"c{number}", len(values), "i64")
        self.lines.append(f"%p{number} = llvm.alloca %c{number} x {kind} : (i64) -> !llvm.ptr")
        for place, value in enumerate(values):
            at = f"%p{number}_{place}"
            self.lines += [
                f"%v{number}_{place} = llvm.mlir.constant({value} : {kind}) : {kind}",
                f"{at} = llvm.getelementptr %p{number}[{place}] : (!llvm.ptr) -> !llvm.ptr, {kind}",
                f"llvm.store %v{number}_{place}, {at} : {kind}, !llvm.ptr",
            ]
