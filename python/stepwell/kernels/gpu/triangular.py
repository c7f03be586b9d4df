"""Cholesky factors and triangular systems of up to 32 rows on a grid.

A warp factors a matrix, which lies in shared memory: each thread has a row, from which it subtracts
what each finished column adds to it (right-looking; Golub and Van Loan, Matrix Computations, 4.2).
Rows in shared memory are one element longer: a column then lies in 32 different banks.

A system is solved by substitution, each right-hand side by a thread of its own: neighbouring ones
lie side by side, and all threads of a warp read the same element of the matrix.
"""

from __future__ import annotations

from stepwell.attributes import i64
from stepwell.kernels.builder import Lanes, arith
from stepwell.kernels.gpu.elementwise import element_bits
from stepwell.kernels.gpu.grid import GridBuilder
from stepwell.kernels.index import Index, Variable
from stepwell.kernels.triangular import ATTRIBUTE, BLOCK, KIND, Triangular
from stepwell.mlir import dialect, ir

func = dialect("func")
math = dialect("math")

THREADS = 64
"""Right-hand sides that a block solves for."""

_EQUAL, _AT_LEAST = 0, 5
_ONE = Lanes.of(1)


def emit(kernel: ir.Operation, body: ir.Block, symbol: str) -> ir.Operation:
    """Add `symbol` to `body`: the kernel of the declaration `kernel`."""
    kind = ir.FunctionType(ir.TypeAttr(kernel.attributes["function_type"]).value)
    tensors = [ir.RankedTensorType(value) for value in kind.inputs]
    types = [ir.MemRefType.get(list(tensor.shape), tensor.element_type) for tensor in tensors]
    with ir.InsertionPoint(body):
        function = func.FuncOp(symbol, ir.FunctionType.get(types, []), visibility="private")
    function.attributes["kernel.kind"] = ir.StringAttr.get(KIND)
    function.attributes["kernel.results"] = i64(1)
    entry = function.add_entry_block()
    nest = GridBuilder()
    described = Triangular.from_attribute(kernel.attributes[ATTRIBUTE])
    with ir.InsertionPoint(entry):
        nest.start(entry)
        if described.solves:
            _emit_solve(described, nest, *entry.arguments)
        else:
            _emit_cholesky(nest, entry.arguments[0])
        func.ReturnOp([])
    return function.operation


def _emit_solve(
    described: Triangular, nest: GridBuilder, matrix: ir.Value, target: ir.Value
) -> None:
    batch, size, columns = ir.MemRefType(target.type).shape
    strips = -(-columns // THREADS)
    with nest.grid(batch * strips, THREADS) as (block, thread):
        number = nest.named("matrix", block.floordiv(strips))
        column = nest.named("column", block.mod(strips) * THREADS + thread)
        with nest.where([(column, columns)]), nest.loop("i", 0, size) as i:

            def row(step: Index) -> Index:
                return step if described.lower else step * -1 + (size - 1)

            def subtracted(k: Variable, carried: list[ir.Value]) -> list[ir.Value]:
                known = row(Index.of(k))
                factor = nest.load(matrix, [number, own, known], _ONE)
                value = nest.load(target, [number, known, column], _ONE)
                negative = arith.NegFOp(factor).result
                return [math.FmaOp(negative, value, carried[0]).result]

            own = row(Index.of(i))
            value = nest.load(target, [number, own, column], _ONE)
            (value,) = nest.reduce_until("k", [Index.of(i)], size, [value], subtracted)
            if not described.unit:
                pivot = nest.load(matrix, [number, own, own], _ONE)
                value = arith.DivFOp(value, pivot).result
            nest.store(value, target, [number, own, column], _ONE)


def _emit_cholesky(nest: GridBuilder, matrix: ir.Value) -> None:
    kind = ir.MemRefType(matrix.type)
    batch, size, _ = kind.shape
    element = kind.element_type
    tile = nest.shared([BLOCK, BLOCK + 1], element, element_bits(element) // 8)
    zero = arith.ConstantOp(element, ir.FloatAttr.get(element, 0.0)).result
    with nest.grid(batch, BLOCK) as (block, thread):
        with nest.where([(thread, size)]), nest.loop("i", 0, size) as i:
            value = nest.load(matrix, [block, Index.of(i), thread], _ONE)
            nest.store(value, tile, [Index.of(i), thread], _ONE)
        nest.barrier()
        lane = nest.index_value(thread, _ONE)
        with nest.loop("k", 0, size) as k:
            # Rows above the pivot, and rows that are none, get numbers that nobody reads.
            place = Index.of(k)
            pivot = math.SqrtOp(nest.load(tile, [place, place], _ONE)).result
            below = nest.load(tile, [thread, place], _ONE)
            below = arith.DivFOp(below, pivot).result
            is_pivot = arith.CmpIOp(_EQUAL, lane, nest.index_value(place, _ONE)).result
            factor = arith.SelectOp(is_pivot, pivot, below).result
            nest.barrier()
            nest.store(factor, tile, [thread, place], _ONE)
            nest.barrier()
            negative = arith.NegFOp(factor).result
            with nest.each("j", place + 1, size, 1) as j:
                other = nest.load(tile, [Index.of(j), place], _ONE)
                value = nest.load(tile, [thread, Index.of(j)], _ONE)
                value = math.FmaOp(negative, other, value).result
                nest.store(value, tile, [thread, Index.of(j)], _ONE)
            nest.barrier()
        with nest.where([(thread, size)]), nest.loop("i", 0, size) as i:
            value = nest.load(tile, [Index.of(i), thread], _ONE)
            row = nest.index_value(Index.of(i), _ONE)
            inside = arith.CmpIOp(_AT_LEAST, row, lane).result
            value = arith.SelectOp(inside, value, zero).result
            nest.store(value, matrix, [block, Index.of(i), thread], _ONE)
