"""What sm_90a adds: bulk copies of boxes of an array, barriers that count threads and bytes, and
products of a warpgroup (128 threads) whose operands are in shared memory.

PTX ISA: "cp.async.bulk.tensor", "mbarrier", "Asynchronous Warpgroup Level Matrix Instructions".
Addresses in shared memory are pointers of address space 3; words are values of type i32. Lines of
operands are 128 bytes, swizzled by as many: chunk c of line r lies at c xor (r mod 8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from stepwell.attributes import i64
from stepwell.kernels.builder import arith, vector
from stepwell.kernels.gpu.tensor_core import MatrixType
from stepwell.mlir import dialect, ir

llvm = dialect("llvm")
nvvm = dialect("nvvm")
scf = dialect("scf")

WARPGROUP = 128
ROWS = 64
"""Rows of one instruction."""

LINE_BYTES = 128
STEP_BYTES = 32
"""What one instruction takes of each row and column."""

MATRIX_BYTES = 2
"""Of an element of the matrices that a warp writes to shared memory at once."""

ATOM_BYTES = 8 * LINE_BYTES
"""The swizzle repeats after so many, and tiles are so aligned."""

SHARED, MAP = "kernel.dynamic_shared", "kernel.tensor_map"
"""Attributes of casts that stand for the shared memory that a launch asks for, and for a tensor map
among a kernel's parameters."""

WAIT_FOR_KERNEL = "griddepcontrol.wait;"
"""From sm_90 on."""

_EQUAL, _NOT_EQUAL, _ABOVE, _BELOW = 0, 1, 4, 6
_DYNAMIC_INDEX = -(1 << 31)


def word(value: int) -> ir.Value:
    """A constant."""
    return arith.ConstantOp(ir.IntegerType.get_signless(32), value).result


def plus(value: ir.Value, other: ir.Value | int) -> ir.Value:
    """The sum of words."""
    return arith.AddIOp(value, word(other) if isinstance(other, int) else other).result


def minus(value: ir.Value, other: ir.Value) -> ir.Value:
    """The difference of words."""
    return arith.SubIOp(value, other).result


def least(value: ir.Value, other: ir.Value) -> ir.Value:
    """The lesser of two words with a sign."""
    return arith.MinSIOp(value, other).result


def times(value: ir.Value, factor: int) -> ir.Value:
    """A word times a constant."""
    return arith.MulIOp(value, word(factor)).result


def as_word(value: ir.Value) -> ir.Value:
    """A value of type index as a word."""
    return arith.IndexCastOp(ir.IntegerType.get_signless(32), value).result


def exclusive_or(one: ir.Value, other: ir.Value) -> ir.Value:
    """The bits in which two words differ."""
    return arith.XOrIOp(one, other).result


def is_equal(value: ir.Value, other: int) -> ir.Value:
    """Whether a word is `other`."""
    return arith.CmpIOp(_EQUAL, value, word(other)).result


def is_below(value: ir.Value, other: int) -> ir.Value:
    """Whether a word that is not negative is less than `other`."""
    return arith.CmpIOp(_BELOW, value, word(other)).result


def is_above(value: ir.Value, other: int) -> ir.Value:
    """Whether a word with a sign is greater than `other`."""
    return arith.CmpIOp(_ABOVE, value, word(other)).result


def is_false(condition: ir.Value) -> ir.Value:
    """Whether a condition does not hold."""
    false = arith.ConstantOp(condition.type, 0).result
    return arith.CmpIOp(_EQUAL, condition, false).result


def is_not(value: ir.Value, other: ir.Value | int) -> ir.Value:
    """Whether a word is not `other`."""
    other = word(other) if isinstance(other, int) else other
    return arith.CmpIOp(_NOT_EQUAL, value, other).result


def choose(condition: ir.Value, one: ir.Value, other: ir.Value) -> ir.Value:
    """`one` where the condition holds."""
    return arith.SelectOp(condition, one, other).result


@contextmanager
def when(condition: ir.Value) -> Iterator[None]:
    """What is written inside is done where the condition holds."""
    branch = scf.IfOp(condition)
    with ir.InsertionPoint(branch.then_block):
        yield
        scf.YieldOp([])


def changed(
    condition: ir.Value, values: Sequence[ir.Value], change: Callable[[], Sequence[ir.Value]]
) -> list[ir.Value]:
    """What `change` makes of `values` where the condition holds, by a branch; else they."""
    branches = scf.IfOp(condition, [value.type for value in values], has_else=True)
    with ir.InsertionPoint(branches.then_block):
        scf.YieldOp(list(change()))
    with ir.InsertionPoint(branches.else_block):
        scf.YieldOp(list(values))
    return list(branches.results)


def either(condition: ir.Value, one: Callable[[], None], other: Callable[[], None]) -> None:
    """Do one or the other."""
    branches = scf.IfOp(condition, has_else=True)
    for block, write in ((branches.then_block, one), (branches.else_block, other)):
        with ir.InsertionPoint(block):
            write()
            scf.YieldOp([])


def shared_memory() -> ir.Value:
    """Where the shared memory begins that the launch asks for."""
    return _placeholder("!llvm.ptr<3>", SHARED, ir.UnitAttr.get())


def tensor_map(number: int) -> ir.Value:
    """A pointer to a tensor map among the kernel's parameters."""
    attribute = i64(number)
    return _placeholder("!llvm.ptr", MAP, attribute)


def _placeholder(kind: str, name: str, attribute: ir.Attribute) -> ir.Value:
    return ir.Operation.create(
        "builtin.unrealized_conversion_cast",
        results=[ir.Type.parse(kind)],
        attributes={name: attribute},
    ).results[0]


def at(pointer: ir.Value, offset: ir.Value | int) -> ir.Value:
    """The address `offset` bytes on."""
    moved = word(offset) if isinstance(offset, int) else offset
    byte = ir.IntegerType.get_signless(8)
    places = ir.DenseI32ArrayAttr.get([_DYNAMIC_INDEX])
    return llvm.getelementptr(pointer.type, pointer, [moved], places, byte, 0)


def uniform(value: ir.Value) -> ir.Value:
    """A word that is the same in all threads of a warp, so that it is known to be."""
    operands = [word(-1), value, word(0), word(31)]
    kind = ir.Attribute.parse("#nvvm<shfl_kind idx>")
    return ir.Operation.create(
        "nvvm.shfl.sync", results=[value.type], operands=operands, attributes={"kind": kind}
    ).results[0]


def elected() -> ir.Value:
    """Whether this thread is the one of its warp that is chosen."""
    return nvvm.elect_sync()


def more_registers(count: int) -> None:
    """Let each thread of the warpgroup have `count` registers, once others have given theirs."""
    nvvm.setmaxregister(count, nvvm.SetMaxRegisterAction.increase)


def fewer_registers(count: int) -> None:
    """Give back all but `count` registers a thread of the warpgroup."""
    nvvm.setmaxregister(count, nvvm.SetMaxRegisterAction.decrease)


# Barriers


def init_barrier(address: ir.Value, arrivals: int) -> None:
    """A barrier whose phases end after so many arrivals, and all bytes that are expected."""
    nvvm.mbarrier_init(address, word(arrivals))


def show_barriers() -> None:
    """Let the copies' engine see barriers that this thread has made."""
    nvvm.fence_mbarrier_init()


def arrive(address: ir.Value) -> None:
    """Arrive at a barrier."""
    nvvm.mbarrier_arrive(address)


def arrive_at(address: ir.Value, rank: ir.Value) -> None:
    """Arrive at the barrier that block `rank` (a word) of the cluster has at this address."""
    llvm.inline_asm(
        None,
        [address, rank],
        "{ .reg .b32 a; mapa.shared::cluster.u32 a, $0, $1; "
        "mbarrier.arrive.shared::cluster.b64 _, [a]; }",
        "r,r,~{memory}",
        has_side_effects=True,
        asm_dialect=0,
    )


def wait_for_kernel() -> None:
    """Wait until the kernel before this one has ended and all it wrote is there: what comes before
    this reads what no kernel writes."""
    llvm.inline_asm(None, [], WAIT_FOR_KERNEL, "~{memory}", has_side_effects=True, asm_dialect=0)


def arrive_at_cluster(*, shows: bool = True) -> None:
    """Arrive where `wait_for_cluster` waits for all blocks of the cluster, and show them what was
    done before if it `shows`, for which a thread waits until all it wrote is there."""
    if shows:
        nvvm.cluster_arrive()
    else:
        nvvm.cluster_arrive_relaxed()


def wait_for_cluster() -> None:
    """Wait until all threads of all blocks of the cluster have arrived: what they did before is
    seen from here on. Each `arrive_at_cluster` is followed by one."""
    nvvm.cluster_wait()


def cluster_barrier() -> None:
    """Wait for all threads of all blocks of the cluster; what they did is seen from here on."""
    arrive_at_cluster()
    wait_for_cluster()


def store_in_block(address: ir.Value, rank: ir.Value, bits: ir.Value, barrier: ir.Value) -> None:
    """Begin to write a word to this address in the shared memory of block `rank` (a word) of the
    cluster, whose barrier at the address `barrier` counts its bytes."""
    llvm.inline_asm(
        None,
        [address, rank, barrier, bits],
        "{ .reg .b32 a, b; mapa.shared::cluster.u32 a, $0, $1; mapa.shared::cluster.u32 b, $2, $1; "
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [a], $3, [b]; }",
        "r,r,r,r,~{memory}",
        has_side_effects=True,
        asm_dialect=0,
    )


def load_word(address: ir.Value) -> ir.Value:
    """The word at an address of shared memory."""
    return llvm.load(ir.IntegerType.get_signless(32), address, alignment=4)


def expect_bytes(address: ir.Value, count: int) -> None:
    """Arrive at a barrier, and say that so many bytes are to come in this phase."""
    nvvm.mbarrier_arrive_expect_tx(address, word(count))


def wait(address: ir.Value, parity: ir.Value) -> None:
    """Wait until the phase of a barrier that has `parity` ends: phases count from 0, and the one
    before the first has ended."""
    loop = scf.WhileOp([], [])
    before = ir.Block.create_at_start(loop.before, [])
    after = ir.Block.create_at_start(loop.after, [])
    with ir.InsertionPoint(before):
        done = llvm.inline_asm(
            ir.IntegerType.get_signless(32),
            [address, parity],
            "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [$1], $2; "
            "selp.b32 $0, 1, 0, p; }",
            "=r,r,r,~{memory}",
            has_side_effects=True,
            asm_dialect=0,
        )
        scf.ConditionOp(is_equal(done, 0), [])
    with ir.InsertionPoint(after):
        scf.YieldOp([])


def following(stage: ir.Value, phase: ir.Value, stages: int) -> tuple[ir.Value, ir.Value]:
    """The stage after `stage` of a ring of `stages`, and how often it was gone round, modulo 2."""
    wraps = is_equal(stage, stages - 1)
    return choose(wraps, word(0), plus(stage, 1)), choose(wraps, other_phase(phase), phase)


def other_phase(phase: ir.Value) -> ir.Value:
    """1 for 0 and 0 for 1."""
    return plus(times(phase, -1), 1)


# Copies


def prefetch_map(pointer: ir.Value) -> None:
    """Fetch a tensor map before its first use."""
    nvvm.prefetch(pointer, tensormap=True)


def copy_box(
    pointer: ir.Value,
    first: Sequence[ir.Value],
    target: ir.Value,
    barrier: ir.Value,
    blocks: int = 1,
) -> None:
    """Begin to copy the box at `first`, innermost place first, of the array that a tensor map
    describes; its bytes are counted at `barrier`. What lies outside of the array is zeros. With
    several `blocks`, all of a cluster get it, at the same address, and count it."""
    cluster = llvm.addrspacecast(ir.Type.parse("!llvm.ptr<7>"), target)
    short = ir.IntegerType.get_signless(16)
    mask = arith.ConstantOp(short, (1 << blocks) - 1).result if blocks > 1 else None
    nvvm.cp_async_bulk_tensor_shared_cluster_global(
        cluster, pointer, list(first), barrier, [], multicast_mask=mask
    )


def copy_window(
    pointer: ir.Value,
    first: Sequence[ir.Value],
    offsets: Sequence[ir.Value],
    target: ir.Value,
    barrier: ir.Value,
) -> None:
    """Begin to copy what an im2col map's window sees: `first` is the channel, then the first pixel
    of the first row, innermost place first, `offsets` how far (words) the window's place lies from
    rows' first pixels. Bytes and what lies outside are as with `copy_box`."""
    cluster = llvm.addrspacecast(ir.Type.parse("!llvm.ptr<7>"), target)
    short = ir.IntegerType.get_signless(16)
    nvvm.cp_async_bulk_tensor_shared_cluster_global(
        cluster,
        pointer,
        list(first),
        barrier,
        [arith.TruncIOp(short, offset).result for offset in offsets],
        mode=nvvm.TMALoadMode.IM2COL,
    )


def store_shared(value: ir.Value, pointer: ir.Value) -> None:
    """Write a vector to shared memory, at a multiple of its size."""
    llvm.store(value, pointer, alignment=_bytes_of(ir.VectorType(value.type)))


def _bytes_of(kind: ir.VectorType) -> int:
    return kind.shape[0] * (4 if str(kind.element_type) in ("f32", "i32") else 2)


def packed(numbers: Sequence[ir.Value], kind: MatrixType) -> ir.Value:
    """Two numbers of f32 as a register of two operands of 16 bits."""
    pair = vector.FromElementsOp(ir.VectorType.get([2], ir.F32Type.get()), list(numbers)).result
    rounded = arith.TruncFOp(ir.VectorType.get([2], ir.Type.parse(kind.element)), pair).result
    return _register(rounded)


def _register(pair: ir.Value) -> ir.Value:
    """A vector of two elements of 16 bits as a word."""
    one = ir.VectorType.get([1], ir.IntegerType.get_signless(32))
    return vector.ExtractOp(vector.BitCastOp(one, pair).result, [], [0]).result


def store_matrices(registers: Sequence[ir.Value], pointer: ir.Value) -> None:
    """Write four matrices of 8 rows of 16 bytes to shared memory: thread t of the warp has bytes
    4 (t mod 4) and the following three of row t / 4 of each, as vectors of two elements of 16 bits,
    and says by `pointer` where row t mod 8 of matrix t / 8 starts. All threads take part."""
    nvvm.stmatrix(
        pointer,
        [_register(register) for register in registers],
        layout=nvvm.MMALayout.row,
        shape=ir.Attribute.parse("#nvvm.ld_st_matrix_shape<m = 8, n = 8>"),
        elt_type=nvvm.LdStMatrixEltType.B16,
    )


def show_stores() -> None:
    """Let the copies' engine see what this thread has written to shared memory."""
    nvvm.fence_proxy(nvvm.ProxyKind.async_shared, space=nvvm.SharedSpace.shared_cta)


def store_box(pointer: ir.Value, first: Sequence[ir.Value], source: ir.Value) -> None:
    """Begin to copy a box from shared memory to the array that a tensor map describes, to where
    `first` says, innermost place first; what lies outside of the array is left out."""
    nvvm.cp_async_bulk_tensor_global_shared_cta(pointer, source, list(first))
    nvvm.cp_async_bulk_commit_group()


def wait_stores(pending: int) -> None:
    """Wait until no more than `pending` of this thread's copies from shared memory have still to
    read it."""
    nvvm.cp_async_bulk_wait_group(pending, read=True)


def group_barrier(number: ir.Value, threads: int) -> None:
    """Wait for `threads` threads of the block at a barrier (a word) of their own; 0 is that of
    all."""
    nvvm.barrier(barrier_id=number, number_of_threads=word(threads))


def arrive_at_group_barrier(number: ir.Value, threads: int) -> None:
    """Be one of the `threads` threads for which others wait by `group_barrier`, without waiting."""
    nvvm.barrier_arrive(word(threads), barrier_id=number)


def any_of_warp(condition: ir.Value) -> ir.Value:
    """Whether the condition holds in a thread of the warp; all take part."""
    kind = ir.Attribute.parse("#nvvm<vote_sync_kind any>")
    return nvvm.vote_sync(word(-1), condition, kind)


# Products


def begin_products() -> None:
    """Before the first product: registers of sums are seen by it."""
    nvvm.wgmma_fence_aligned()


def commit_products() -> None:
    """Make a group of the products since the last one."""
    nvvm.wgmma_commit_group_sync_aligned()


def end_products(pending: int) -> None:
    """Make a group of the products since the last one; wait until no more than `pending` groups are
    under way."""
    commit_products()
    nvvm.wgmma_wait_group_sync_aligned(pending)


def wait_for(sums: Sequence[ir.Value], pending: int) -> list[ir.Value]:
    """Wait until no more than `pending` groups are under way, those of `sums` (f32) not among them:
    the sums to use from here on. That they pass through keeps their uses from moving up."""
    return _passed(sums, f"wgmma.wait_group.sync.aligned {pending};")


def computed(values: Sequence[ir.Value]) -> list[ir.Value]:
    """Values of f32, which are computed before what follows."""
    return _passed(values, "")


def _passed(values: Sequence[ir.Value], assembly: str) -> list[ir.Value]:
    """Values of f32 that go through an assembly that does not change them."""
    count = len(values)
    found = llvm.inline_asm(
        _floats(count),
        list(values),
        assembly,
        ",".join([*["=f"] * count, *map(str, range(count))]),
        has_side_effects=True,
        asm_dialect=0,
    )
    return _members(found, count)


def wait_products() -> None:
    """Wait for all products."""
    nvvm.wgmma_wait_group_sync_aligned(0)


def descriptor(address: ir.Value, leading_bytes: int) -> ir.Value:
    """How the operand at `address` (a word) lies: atoms of 8 lines follow one another, and, for one
    whose lines do not run along k, columns of atoms are `leading_bytes` apart. PTX ISA, "Matrix
    Descriptor Format"."""
    long = ir.IntegerType.get_signless(64)
    fixed = 1 << 62 | ATOM_BYTES >> 4 << 32 | leading_bytes >> 4 << 16
    chunk = arith.AndIOp(arith.ShRUIOp(address, word(4)).result, word(0x3FFF)).result
    low = arith.ExtUIOp(long, chunk).result
    return arith.OrIOp(low, arith.ConstantOp(long, fixed).result).result


def further(operand: ir.Value, count: int) -> ir.Value:
    """The descriptor of what lies `count` bytes on."""
    long = ir.IntegerType.get_signless(64)
    return arith.AddIOp(operand, arith.ConstantOp(long, count >> 4).result).result


def address_of(pointer: ir.Value) -> ir.Value:
    """A shared address as a word."""
    return llvm.ptrtoint(ir.IntegerType.get_signless(32), pointer)


def sums_type(columns: int, kind: MatrixType) -> ir.Type:
    """What a thread has of the sums of `ROWS` x `columns`: of every 8 columns, two of two rows."""
    return ir.Type.parse(f"!llvm.struct<({', '.join([kind.sum] * (columns // 2))})>")


def no_sums(columns: int, kind: MatrixType) -> ir.Value:
    """Sums of nothing."""
    return llvm.mlir_zero(sums_type(columns, kind))


def numbers(sums: ir.Value, columns: int, kind: MatrixType) -> list[ir.Value]:
    """A thread's sums one by one: column by column of every 8, the lower row first."""
    element = ir.Type.parse(kind.sum)
    return [
        llvm.extractvalue(element, sums, ir.DenseI64ArrayAttr.get([i])) for i in range(columns // 2)
    ]


def multiply(
    sums: ir.Value,
    left: ir.Value,
    right: ir.Value,
    columns: int,
    kind: MatrixType,
    transposed: tuple[bool, bool],
) -> ir.Value:
    """`sums` and the products of one step, asked for; `transposed` operands lie along their rows or
    columns. All threads of the warpgroup take part."""
    count = columns // 2
    registers = ", ".join(f"${i}" for i in range(count))
    total = "s32" if kind.sum == "i32" else "f32"
    shape = f"m{ROWS}n{columns}k{STEP_BYTES // kind.bytes}"
    scales = "" if kind.ptx == "s8" else ", 1, 1"
    if kind.bytes == 2:
        scales += "".join(f", {int(flag)}" for flag in transposed)
    letter = "r" if total == "s32" else "f"
    constraints = [f"={letter}"] * count + [str(i) for i in range(count)] + ["l", "l"]
    return llvm.inline_asm(
        sums.type,
        [*numbers(sums, columns, kind), left, right],
        f"wgmma.mma_async.sync.aligned.{shape}.{total}.{kind.operands} {{{registers}}}, "
        f"${2 * count}, ${2 * count + 1}, 1{scales};",
        ",".join(constraints),
        has_side_effects=True,
        asm_dialect=0,
    )


def multiply_into(
    sums: Sequence[ir.Value] | None,
    left: ir.Value | Sequence[ir.Value],
    right: ir.Value,
    columns: int,
    kind: MatrixType,
    transposed: bool = False,
) -> list[ir.Value]:
    """`multiply` of sums of f32, one by one, or none yet; `left` is an operand in shared memory, or
    the thread's four registers of one of 16 bits (as `mma.sync` has them); `transposed` is the
    right one."""
    count = columns // 2
    before = [] if sums is None else list(sums)
    registers = [] if isinstance(left, ir.Value) else list(left)
    operands = registers if registers else [left]
    first = count + len(before)
    names = [f"${first + i}" for i in range(len(operands) + 1)]
    source = f"{{{', '.join(names[:-1])}}}" if registers else names[0]
    across = [] if kind.bytes != MATRIX_BYTES else [False, transposed][bool(registers) :]
    flags = ", ".join(str(int(flag)) for flag in (True, True, *across))
    found = llvm.inline_asm(
        _floats(count),
        [*before, *operands, right],
        f"wgmma.mma_async.sync.aligned.m{ROWS}n{columns}k{kind.step}.f32.{kind.operands} "
        f"{{{', '.join(f'${i}' for i in range(count))}}}, {source}, {names[-1]}, "
        f"{int(sums is not None)}, {flags};",
        ",".join(
            [
                *["=f"] * count,
                *(str(i) for i in range(len(before))),
                *(["r"] * len(registers) or ["l"]),
                "l",
            ]
        ),
        has_side_effects=True,
        asm_dialect=0,
    )
    return _members(found, count)


def _floats(count: int) -> ir.Type:
    return ir.Type.parse(f"!llvm.struct<({', '.join(['f32'] * count)})>")


def _members(value: ir.Value, count: int) -> list[ir.Value]:
    kind = ir.F32Type.get()
    return [llvm.extractvalue(kind, value, ir.DenseI64ArrayAttr.get([i])) for i in range(count)]
