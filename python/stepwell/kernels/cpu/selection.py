"""Kernels that select the first few elements of each row (`stepwell.kernels.selection`).

Rows are scanned one by one (`selection_rows.py`), or many side by side (`selection_columns.py`).
"""

from __future__ import annotations

import math

from stepwell.attributes import i64
from stepwell.kernels.builder import NestBuilder
from stepwell.kernels.cpu.selection_columns import SelectionOfColumns
from stepwell.kernels.cpu.selection_rows import SelectionOfRows
from stepwell.kernels.selection import ATTRIBUTE, KIND, Selection, is_by_columns, lanes_of_keys
from stepwell.mlir import dialect, ir
from stepwell.targets import Target

func = dialect("func")


def emit(
    kernel: ir.Operation, body: ir.Block, symbol: str, target: Target, *, alone: bool
) -> ir.Operation:
    """Add `symbol` to `body`: the kernel of the declaration `kernel`; `alone`: as one task."""
    declared = ir.FunctionType(ir.TypeAttr(kernel.attributes["function_type"]).value)
    types = [_memref(kind) for kind in declared.inputs]
    with ir.InsertionPoint(body):
        function = func.FuncOp(symbol, ir.FunctionType.get(types, []), visibility="private")
    function.attributes["kernel.kind"] = ir.StringAttr.get(KIND)
    function.attributes["kernel.results"] = i64(len(declared.results))
    entry = function.add_entry_block()
    nest = NestBuilder()
    nest.alone = alone
    selection = Selection.from_attribute(kernel.attributes[ATTRIBUTE])
    source, values, positions = entry.arguments
    lanes = lanes_of_keys(source.type.element_type, target)
    with ir.InsertionPoint(entry):
        nest.start(entry)
        if math.prod(values.type.shape):
            outer, length, inner = source.type.shape
            by_columns = is_by_columns((outer, length, inner), values.type.shape[1], lanes)
            emitter = SelectionOfColumns if by_columns else SelectionOfRows
            emitter(nest, selection, (source, values, positions), lanes, target.vector_bits).emit()
        func.ReturnOp([])
    return function.operation


def _memref(kind: ir.Type) -> ir.MemRefType:
    tensor = ir.RankedTensorType(kind)
    return ir.MemRefType.get(list(tensor.shape), tensor.element_type)
