"""Loops of a kernel that no emitter takes, shared among the threads of one block.

Sequential code is run by all threads alike, each of its writes by the first thread alone; the
iterations of an `scf.parallel` are dealt out to the threads. Barriers stand around both, so that
what one thread wrote all others see; control flow is the same for all threads.

    scf.parallel (%i) = (0) to (64) { ... }
      ->  gpu.barrier; scf.for %n = %thread to 64 step 256 { ... }; gpu.barrier
"""

from __future__ import annotations

from stepwell.errors import LoweringError
from stepwell.kernels.gpu.grid import GridBuilder
from stepwell.mlir import dialect, ir

arith = dialect("arith")
scf = dialect("scf")

THREADS = 256
_CONTROL = ("scf.for", "scf.while", "scf.if", "scf.execute_region")
_WRITES = ("memref.store", "memref.atomic_rmw", "memref.copy")


def share_among_threads(kernel: ir.Operation) -> None:
    """Make the body of `kernel` that of a grid of one block. A kernel without parallel loops gets
    one thread."""
    entry = kernel.regions[0].blocks[0]
    operations = [child.operation for child in entry.operations]
    parallel = any(_holds(op, ("scf.parallel",)) for op in operations)
    count = THREADS if parallel else 1
    with ir.InsertionPoint.at_block_begin(entry), ir.Location.unknown():
        nest = GridBuilder()
        with nest.grid(1, count):
            pass
        grid = next(iter(entry.operations)).operation
    body = grid.regions[0].blocks[0]
    end = list(body.operations)[-1]
    for op in operations[:-1]:
        op.detach_from_parent()
        ir.InsertionPoint(end).insert(op)
    if parallel:
        _Sharing(body.arguments[1], count).block(body)


class _Sharing:
    def __init__(self, thread: ir.Value, threads: int) -> None:
        self.thread = thread
        self.threads = threads

    def block(self, block: ir.Block) -> None:
        """Share the operations of a block that all threads run."""
        for op in [child.operation for child in block.operations]:
            if op.name == "scf.parallel":
                self._deal(op)
            elif _runs_alone(op):
                self._first_thread_only(op)
            elif op.name in _CONTROL:
                for region in op.regions:
                    for inner in region.blocks:
                        self.block(inner)

    def _first_thread_only(self, op: ir.Operation) -> None:
        with ir.InsertionPoint(op), op.location:
            _barrier()
            zero = arith.ConstantOp(ir.IndexType.get(), 0).result
            first = arith.CmpIOp(0, self.thread, zero).result
            branch = scf.IfOp(first)
            _barrier()
        op.detach_from_parent()
        with ir.InsertionPoint(branch.operation.regions[0].blocks[0]) as point, op.location:
            point.insert(op)
            scf.YieldOp([])

    def _deal(self, loop: ir.Operation) -> None:
        """Replace an `scf.parallel` by one loop a thread, over every iteration that is its."""
        if loop.results:
            raise LoweringError("a parallel loop that reduces cannot be shared among threads")
        if _holds(loop, ("memref.alloc", "memref.alloca")):
            raise LoweringError("the iterations of a parallel loop need a buffer each")
        body = loop.regions[0].blocks[0]
        count = len(body.arguments)
        lower, upper, step = (list(loop.operands)[i * count : (i + 1) * count] for i in range(3))
        with ir.InsertionPoint(loop), loop.location:
            _barrier()
            index = ir.IndexType.get()
            one = arith.ConstantOp(index, 1).result
            extents = []
            for low, high, by in zip(lower, upper, step, strict=True):
                reach = arith.SubIOp(arith.AddIOp(arith.SubIOp(high, low).result, by).result, one)
                extents.append(arith.DivSIOp(reach.result, by).result)
            total = one
            for extent in extents:
                total = arith.MulIOp(total, extent).result
            threads = arith.ConstantOp(index, self.threads).result
            dealt = scf.ForOp(self.thread, total, threads)
            _barrier()
        with ir.InsertionPoint(dealt.body), loop.location:
            rest = dealt.induction_variable
            numbers: list[ir.Value] = []
            for extent in reversed(extents):
                numbers.insert(0, arith.RemSIOp(rest, extent).result)
                rest = arith.DivSIOp(rest, extent).result
            for argument, number, low, by in zip(body.arguments, numbers, lower, step, strict=True):
                place = arith.AddIOp(arith.MulIOp(number, by).result, low).result
                argument.replace_all_uses_with(place)
            end = scf.YieldOp([])
            for op in list(body.operations)[:-1]:
                op.operation.detach_from_parent()
                ir.InsertionPoint(end).insert(op)
        loop.erase()


def _barrier() -> None:
    ir.Operation.create("gpu.barrier")


def _runs_alone(op: ir.Operation) -> bool:
    """Whether the first thread runs `op` by itself: it writes, and gives nothing to what follows,
    and no thread has a part of it."""
    return not op.results and not _holds(op, ("scf.parallel",)) and _holds(op, _WRITES)


def _holds(op: ir.Operation, names: tuple[str, ...]) -> bool:
    found = False

    def look(inner: ir.Operation) -> ir.WalkResult:
        nonlocal found
        found = found or inner.name in names
        return ir.WalkResult.INTERRUPT if found else ir.WalkResult.ADVANCE

    op.walk(look)
    return found
