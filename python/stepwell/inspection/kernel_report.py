"""What was decided about a kernel, read from its function at the levels linalg and affine."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stepwell import assembly, pipeline
from stepwell.attributes import i64
from stepwell.kernels.cpu.attention import KIND as ATTENTION
from stepwell.kernels.cpu.contraction_strategy import ContractionShape
from stepwell.kernels.library_call import ATTRIBUTE as LIBRARY_FUNCTION
from stepwell.kernels.library_call import KIND as LIBRARY_CALL
from stepwell.kernels.library_call import LibraryCall
from stepwell.kernels.sparse_product import SparseProduct
from stepwell.kernels.strategy import Candidate, Decision
from stepwell.kernels.structured import Structured, contraction_operands, element_type, shape_of
from stepwell.mlir import ir
from stepwell.passes.buffers.plan_arena import element_bytes
from stepwell.passes.linalg._packed_weights import PACKED
from stepwell.passes.llvm._host_program import HostProgram, KernelCall
from stepwell.targets.nvidia import NvidiaTarget
from stepwell.tuning_record import ALGORITHM, STRATEGY

_CHOICE = "stepwell.choice"
"""Marks what a cost model looked at with the number of the decision, on its way down."""

_CONSIDERED = {ALGORITHM: "algorithm", STRATEGY: "tile"}
"""What the candidates of a kind of choices are."""

_CONVOLUTION = "convolution"
_OF_PRODUCTS = ("contraction", ATTENTION)

_WINDOW = re.compile(r"d\d+[^,]*\+[^,]*d\d+")
"""An index that is a sum of loops: where the window of a filter slides."""


@dataclass(frozen=True)
class Operand:
    """A buffer of a kernel: which, where it lies ("input", "output", "weights", "arena"), whether
    it is a weight in an order of its own, and its bytes."""

    name: str
    place: str
    type: str
    packed: bool
    bytes: int


@dataclass(frozen=True)
class KernelReport:
    """What was decided about one call of a kernel.

    `computes` says what its main operations are, `layout` in what order its images are,
    `parameters` how it is tiled (fields of its strategy), `candidates` what was considered, the
    chosen one first: for "algorithm", for "tile".
    `tasks` are shared among the threads of a CPU, or are blocks of `threads_of_block` threads of a
    GPU. `remark` says why it is slow, where it is. `decisions` are what a tuning record may say,
    with the keys of its entries.
    """

    number: int
    name: str
    sources: tuple[str, ...]
    kind: str
    computes: str
    layout: str
    precision: str
    parameters: Mapping[str, object]
    candidates: Mapping[str, tuple[Candidate, ...]]
    operands: tuple[Operand, ...]
    tasks: int
    threads_of_block: int
    flops: int
    bytes: int
    arena_bytes: int
    remark: str = ""
    decisions: tuple[Decision, ...] = ()

    @property
    def packed_bytes(self) -> int:
        """Bytes of weights that are stored in an order of the kernel's own."""
        return sum(operand.bytes for operand in self.operands if operand.packed)


class Choices:
    """Keeps what was decided, for `State.on_choice`: of kernels here by name, and of operations,
    which passes will copy into kernels, by the number that an attribute on them has."""

    def __init__(self) -> None:
        self.of_kernels: dict[str, Decision] = {}
        self.of_operations: list[Decision] = []

    def keep(self, op: ir.Operation, decision: Decision) -> None:
        """Note what was decided for `op`."""
        if "sym_name" in op.attributes:
            self.of_kernels[ir.StringAttr(op.attributes["sym_name"]).value] = decision
        else:
            op.attributes[_CHOICE] = i64(len(self.of_operations))
            self.of_operations.append(decision)

    def of(self, kernel: str, anchor: Anchor) -> tuple[Decision, ...]:
        """What was decided for a kernel, and for the operation in it."""
        found = [] if anchor.choice is None else [self.of_operations[anchor.choice]]
        return (*found, *([self.of_kernels[kernel]] if kernel in self.of_kernels else []))


@dataclass(frozen=True)
class Anchor:
    """Of a kernel at level linalg: what its main operations compute, in which types, and the number
    of the decision on the first of them."""

    computes: str = ""
    precision: str = ""
    choice: int | None = None

    @staticmethod
    def of(kernel: ir.Operation) -> Anchor:
        """That of a function before it is lowered to affine."""
        blocks = list(kernel.regions[0].blocks)
        operations = [child.operation for block in blocks for child in block.operations]
        structured = [s for s in map(Structured.of, operations) if s is not None]
        reductions = [s for s in structured if "reduction" in s.iterators]
        kind = ir.StringAttr(kernel.attributes["kernel.kind"]).value
        return Anchor(
            _computes(kind, reductions),
            _precision((reductions or structured)[:1]),
            _number(reductions[0].op) if reductions else None,
        )


def _number(op: ir.Operation) -> int | None:
    return ir.IntegerAttr(op.attributes[_CHOICE]).value if _CHOICE in op.attributes else None


def _computes(kind: str, reductions: Sequence[Structured]) -> str:
    """In words: "convolution 3x3, m 3136, n 64, k 576"."""
    products = [(op, pair) for op in reductions if (pair := contraction_operands(op)) is not None]
    if kind in _OF_PRODUCTS and products:
        return "; ".join(_product(op, operands) for op, operands in products)
    if len(reductions) != 1:
        return f"{len(reductions)} reductions" if reductions else ""
    (op,) = reductions
    sparse = SparseProduct.of(op)
    if sparse is not None:
        return _sparse_product(sparse)
    loops = zip(op.loop_sizes(), op.iterators, strict=True)
    terms = math.prod(size for size, iterator in loops if iterator == "reduction")
    return f"reduction of {terms} numbers, {math.prod(shape_of(op.op.results[0]))} times"


def _sparse_product(product: SparseProduct) -> str:
    (batch, n, m), k = shape_of(product.op.op.results[0]), shape_of(product.dense)[1]
    terms = shape_of(product.values)[0]
    sizes = f"m {batch * m}, n {n}, k {k}"
    return f"sparse product, {sizes}, {100 * terms / (n * k):.0f} % of the weights"


def _product(op: Structured, operands: tuple[int, int]) -> str:
    shape = ContractionShape.of(op, operands)
    sizes = f"m {shape.m}, n {shape.n}, k {shape.k}"
    if (batch := shape.extent(shape.batch)) > 1:
        sizes = f"batch {batch}, {sizes}"
    if not any(_WINDOW.search(str(index)) for index in op.maps[shape.lhs].results):
        return f"product, {sizes}"
    taps = "x".join(str(shape.sizes[d]) for d in shape.reduced[:-1])
    return f"{_CONVOLUTION} {taps}, {sizes}"


def _precision(anchor: Sequence[Structured]) -> str:
    """Types of operands and result: "f32", "bf16 x bf16 -> f32"."""
    if not anchor:
        return ""
    inputs = [str(element_type(value)) for value in anchor[0].inputs]
    result = str(element_type(anchor[0].op.results[0]))
    return result if {*inputs} <= {result} else f"{' x '.join(inputs)} -> {result}"


class ReportReader:
    """Makes reports of kernel calls."""

    def __init__(
        self,
        walk: pipeline.Walk,
        program: HostProgram,
        functions: Mapping[str, ir.Operation],
        units: Mapping[str, assembly.KernelUnit],
        anchors: Mapping[str, Anchor],
        choices: Choices,
    ) -> None:
        self.walk, self.program = walk, program
        self.functions, self.units, self.anchors = functions, units, anchors
        self.choices = choices
        self.weights = {offset: name for name, offset in program.weights.items()}
        sources = {offset: name for name, offset in program.sources.items()}
        self.weights |= {
            weight.offset: f"input {weight.input}"
            if weight.constant is None
            else sources[weight.constant]
            for weight in program.derived
        }
        self.derived = {weight.offset for weight in program.derived}
        self.remarks = {
            name: text for name, _, text in (r.partition(": ") for r in walk.state.remarks)
        }

    def report(self, number: int, call: KernelCall) -> KernelReport:
        function = self.functions.get(call.kernel)
        unit = self.units.get(call.kernel)
        anchor = self.anchors.get(call.kernel, Anchor())
        decisions = self.choices.of(call.kernel, anchor)
        operands = self._operands(call, function)
        blocks, threads = self._launch(unit)
        in_arena = {o.name: o.bytes for o in operands if o.place == "arena"}
        return KernelReport(
            number,
            unit.symbol if unit is not None else call.kernel,
            call.sources,
            unit.strategy if unit is not None else LIBRARY_CALL,
            _library_function(function) or anchor.computes,
            "channels last" if anchor.computes.startswith(_CONVOLUTION) else "",
            anchor.precision,
            _parameters(function),
            {_CONSIDERED[d.kind]: d.candidates for d in decisions if d.candidates},
            operands,
            blocks if threads else call.tasks,
            threads,
            unit.flops if unit is not None else 0,
            unit.bytes if unit is not None else 0,
            sum(in_arena.values()),
            self.remarks.get(call.kernel, ""),
            tuple(dataclasses.replace(decision, candidates=()) for decision in decisions),
        )

    def _launch(self, unit: assembly.KernelUnit | None) -> tuple[int, int]:
        """Blocks and their threads on a GPU; zeros for a CPU, or the host."""
        if unit is None or not isinstance(self.walk.state.target, NvidiaTarget):
            return 0, 0
        from stepwell.cuda_assembly import Launch

        launch = Launch.of(unit)
        return launch.blocks, launch.threads

    def _operands(self, call: KernelCall, function: ir.Operation | None) -> tuple[Operand, ...]:
        if function is None:
            return ()
        kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
        found = []
        for place, buffer in zip(call.operands, kind.inputs, strict=False):
            name, packed = self._name(place.base, place.number, place.offset)
            text, size = str(buffer), 0
            if isinstance(buffer, ir.MemRefType):
                dims = [*map(str, buffer.shape), str(buffer.element_type)]
                text = "x".join(dims)
                size = math.prod(buffer.shape) * element_bytes(buffer.element_type)
            found.append(Operand(name, place.base, text, packed, size))
        return tuple(found)

    def _name(self, base: str, number: int, offset: int) -> tuple[str, bool]:
        """What a place is called, and whether a packed weight lies there."""
        imported = self.walk.imported
        if base == "weights":
            name = self.weights.get(offset, f"weights + {offset}")
            return name.replace(PACKED, ""), PACKED in name or offset in self.derived
        if base == "arena":
            return f"arena + {offset}", False
        specs = imported.inputs if base == "input" else imported.outputs
        return (specs[number].name if number < len(specs) else f"{base} {number}"), False


def _library_function(function: ir.Operation | None) -> str:
    if function is None or LIBRARY_FUNCTION not in function.attributes:
        return ""
    return LibraryCall.from_attribute(function.attributes[LIBRARY_FUNCTION]).function


def _parameters(function: ir.Operation | None) -> dict[str, object]:
    """The fields of a kernel's strategy."""
    if function is None or "kernel.strategy" not in function.attributes:
        return {}
    return _plain(ir.DictAttr(function.attributes["kernel.strategy"]))


def _plain(attributes: ir.DictAttr) -> dict[str, object]:
    found: dict[str, object] = {}
    for entry in attributes:
        value = entry.attr
        if isinstance(value, ir.DictAttr):
            found[entry.name] = _plain(value)
        elif isinstance(value, ir.DenseI64ArrayAttr):
            found[entry.name] = list(value)
        elif isinstance(value, ir.BoolAttr | ir.IntegerAttr | ir.FloatAttr | ir.StringAttr):
            found[entry.name] = value.value
        else:
            found[entry.name] = str(value)
    return found
