"""Matrix instructions and asynchronous copies of sm_80 and later, as operations on shared memory.

Fragments are those of PTX ISA, "Matrix Fragments for mma.m16n8k16" and its neighbours for other
types: in units of 32 bytes of k, all types look alike. A fragment of the left operand is a vector
of 4 registers, of the right one 2, of the sums 2 x 2 numbers: rows r and r + 8 of two columns.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

from stepwell.attributes import i64
from stepwell.kernels.builder import arith, vector
from stepwell.mlir import dialect, ir
from stepwell.targets.nvidia import NvidiaTarget

llvm = dialect("llvm")

ROWS, COLUMNS = 16, 8
"""The sums of one instruction."""

STEP_BYTES = 32
"""What one instruction takes of each row and column: two chunks."""

CHUNK_BYTES = 16
"""What one thread copies at a time."""

_TOKEN = "!nvgpu.device.async.token"


@dataclass(frozen=True)
class MatrixType:
    """Operands that are multiplied: the name that PTX has for them, the type in memory and its
    bytes, that of the sums; PTX's name and the type of the right one, where they are others. Those
    that are `split` are multiplied as sums of two of PTX's type (`split_f32`)."""

    ptx: str
    element: str
    bytes: int
    sum: str
    right_ptx: str = ""
    right_element: str = ""
    split: bool = False

    @property
    def operands(self) -> str:
        """PTX's names of both."""
        return f"{self.ptx}.{self.right_ptx or self.ptx}"

    @property
    def elements(self) -> tuple[str, str]:
        """The types of both."""
        return self.element, self.right_element or self.element

    @property
    def is_float8(self) -> bool:
        """Whether operands are floats of 8 bits: in memory they are codes."""
        return self.element in FLOAT8_TYPES

    @property
    def stored(self) -> ir.Type:
        """The type of operands in shared memory."""
        return ir.Type.parse("i8" if self.is_float8 else self.element)

    @property
    def products(self) -> int:
        """Products of PTX's type for one of the operands."""
        return 3 if self.split else 1

    @property
    def chunk(self) -> int:
        """Elements of a chunk."""
        return CHUNK_BYTES // self.bytes

    @property
    def step(self) -> int:
        """Places of k of one instruction."""
        return STEP_BYTES // self.bytes


F32Products = Literal["exact", "split", "tf32"]
"""How f32 is multiplied: by multiply-adds of f32; on tensor cores, as three products of tf32; or
rounded to tf32."""

FLOAT8_TYPES = {"f8E4M3FN": "e4m3", "f8E5M2": "e5m2"}
"""MLIR's and PTX's names of the floats of 8 bits that are multiplied."""

MATRIX_TYPES = (
    MatrixType("f16", "f16", 2, "f32"),
    MatrixType("bf16", "bf16", 2, "f32"),
    MatrixType("s8", "i8", 1, "i32"),
    *(
        MatrixType(ptx, element, 1, "f32", right_ptx, right)
        for element, ptx in FLOAT8_TYPES.items()
        for right, right_ptx in FLOAT8_TYPES.items()
    ),
)

TF32 = MatrixType("tf32", "f32", 4, "f32")
SPLIT_F32 = dataclasses.replace(TF32, split=True)


def matrix_type(
    operands: tuple[str, str], total: str, target: NvidiaTarget, f32: F32Products
) -> MatrixType | None:
    """What tensor cores of `target` multiply operands of these types as, where sums are `total`;
    None where they do not."""
    known = dict(target.matrix_instructions).get("mma.sync", ())
    kinds = list(MATRIX_TYPES)
    if f32 == "tf32":
        kinds.append(TF32)
    elif f32 == "split" and target.splits_f32:
        kinds.append(SPLIT_F32)
    for kind in kinds:
        if operands == kind.elements and total == kind.sum and kind.ptx in known:
            return kind
    return None


def copy_async(
    source: ir.Value,
    at: ir.Value,
    target: ir.Value,
    to: ir.Value,
    kind: MatrixType,
    elements: ir.Value | None,
) -> None:
    """Begin to copy a chunk from the 1-D buffer `source` to shared memory, past L1; only the first
    `elements` of it are read, and zeros follow."""
    index = ir.IndexType.get()
    operands = [target, to, source, at, *([] if elements is None else [elements])]
    ir.Operation.create(
        "nvgpu.device_async_copy",
        results=[ir.Type.parse(_TOKEN)],
        operands=operands,
        attributes={
            "dstElements": ir.IntegerAttr.get(index, kind.chunk),
            "bypassL1": ir.UnitAttr.get(),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1, 1, 1, len(operands) - 4]),
        },
    )


def commit() -> None:
    """Make a group of the copies that this thread has begun since the last one."""
    ir.Operation.create("nvvm.cp.async.commit.group")


def wait(pending: int) -> None:
    """Wait until no more than `pending` of this thread's groups are under way."""
    count = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), pending)
    ir.Operation.create("nvvm.cp.async.wait.group", attributes={"n": count})


def load_matrices(
    buffer: ir.Value, at: ir.Value, kind: MatrixType, *, transpose: bool = False
) -> ir.Value:
    """Four matrices of 8 rows of a chunk: thread t of the warp says where row t mod 8 of matrix
    t / 8 starts, and gets its 4 bytes of each."""
    fragment = ir.VectorType.get([4, 4 // kind.bytes], buffer.type.element_type)
    return ir.Operation.create(
        "nvgpu.ldmatrix",
        results=[fragment],
        operands=[buffer, at],
        attributes={
            "numTiles": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 4),
            "transpose": ir.BoolAttr.get(transpose),
        },
    ).results[0]


def half(fragment: ir.Value, number: int) -> ir.Value:
    """Two of the four registers of a fragment."""
    kind = ir.VectorType(fragment.type)
    first, size, stride = (ir.ArrayAttr.get([i64(n)]) for n in (2 * number, 2, 1))
    part = ir.VectorType.get([2, kind.shape[1]], kind.element_type)
    return vector.ExtractStridedSliceOp(part, fragment, first, size, stride).result


def from_registers(values: list[ir.Value]) -> ir.Value:
    """A fragment of one number a register."""
    kind = ir.VectorType.get([len(values), 1], values[0].type)
    return vector.FromElementsOp(kind, values).result


def multiply(left: ir.Value, right: ir.Value, sums: ir.Value, kind: MatrixType) -> ir.Value:
    """`sums` and the products of one step; all threads of the warp take part."""
    if kind.is_float8:
        return _multiply_float8(left, right, sums, kind)
    extents = ir.Attribute.parse(f"[{ROWS}, {COLUMNS}, {kind.step}]")
    attributes: dict[str, ir.Attribute] = {"mmaShape": extents}
    if kind.ptx == "tf32":
        attributes["tf32Enabled"] = ir.UnitAttr.get()
    return ir.Operation.create(
        "nvgpu.mma.sync", results=[sums.type], operands=[left, right, sums], attributes=attributes
    ).results[0]


def _multiply_float8(left: ir.Value, right: ir.Value, sums: ir.Value, kind: MatrixType) -> ir.Value:
    """The instruction that the dialects lack, as assembly: operands are words of 4 codes."""
    word = ir.VectorType.get([1], ir.IntegerType.get_signless(32))
    f32 = ir.F32Type.get()
    places = [(i, j) for i in range(2) for j in range(2)]
    operands = [
        vector.ExtractOp(
            vector.BitCastOp(word, vector.ExtractOp(fragment, [], [i]).result).result, [], [0]
        ).result
        for fragment, count in ((left, 4), (right, 2))
        for i in range(count)
    ]
    operands += [vector.ExtractOp(sums, [], list(place)).result for place in places]
    found = llvm.inline_asm(
        ir.Type.parse(f"!llvm.struct<({', '.join([kind.sum] * 4)})>"),
        operands,
        f"mma.sync.aligned.m{ROWS}n{COLUMNS}k{kind.step}.row.col.f32.{kind.operands}.f32 "
        "{$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};",
        ",".join(["=f"] * 4 + ["r"] * 6 + ["f"] * 4),
        asm_dialect=0,
    )
    numbers = [llvm.extractvalue(f32, found, ir.DenseI64ArrayAttr.get([i])) for i in range(4)]
    return vector.FromElementsOp(sums.type, numbers).result


def no_sums(kind: MatrixType) -> ir.Value:
    """Sums of nothing."""
    element = ir.Type.parse(kind.sum)
    zero = ir.FloatAttr.get(element, 0.0) if kind.sum == "f32" else ir.IntegerAttr.get(element, 0)
    fragment = ir.VectorType.get([2, 2], element)
    return arith.ConstantOp(fragment, ir.DenseElementsAttr.get_splat(fragment, zero)).result
