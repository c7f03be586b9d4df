"""`lower-host-to-llvm`: the host program as the model's C entry point, in the LLVM dialect.

Every buffer of the host is a constant distance from an input, an output, the weights or the arena,
so the entry computes pointers and hands each kernel to the context's `parallel_for`
(runtime/stepwell_runtime.h). Kernels get a task function of the C ABI that unpacks their arguments.

    func.call @kernel_0(%x, %w, %out)
      ->  store the three pointers into %arguments
          llvm.call %parallel_for(%context, @kernel_0_task, %arguments, 48)

Loops (`scf.while`) and branches (`scf.if`) of the host carry nothing but buffers: they become
blocks of the entry, on conditions that kernels have written.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from stepwell.errors import LoweringError
from stepwell.kernels.library_call import FUNCTION
from stepwell.kernels.structured import defining_op
from stepwell.mlir import ir
from stepwell.packing import DerivedWeight, derived_from_dict, derived_to_dict
from stepwell.passes.base import Pass, State
from stepwell.passes.buffers.plan_arena import ARENA_BYTES, VIEWS, element_bytes
from stepwell.passes.linalg.hoist_constants import (
    derived_arguments,
    marked_arguments,
    weight_arguments,
)

ENTRY = "stepwell_main"
TASK_SUFFIX = "_task"
_ALIGNMENT = 64
_SILENT = ("memref.view", "arith.constant", "func.return", "scf.yield", "scf.condition")
_KEPT = (
    "stepwell.inputs",
    "stepwell.outputs",
    ARENA_BYTES,
    "stepwell.scalars",
    "stepwell.prefixes",
    "stepwell.extents",
    "stepwell.result_extents",
)


@dataclass(frozen=True)
class Place:
    """Where a buffer lies: "input" or "output" by number, "weights" or "arena" by offset; "derived"
    is a packed parameter whose place behind the constants is not known yet."""

    base: str
    number: int
    offset: int


@dataclass(frozen=True)
class KernelCall:
    """One call of the host: the kernel, its source nodes, and how many tasks it has."""

    kernel: str
    sources: tuple[str, ...]
    tasks: int
    operands: tuple[Place, ...]


@dataclass(frozen=True)
class Copy:
    """`bytes` bytes of the host from one place to another."""

    source: Place
    target: Place
    bytes: int


@dataclass(frozen=True)
class Load:
    """Read a condition, a byte, from where a kernel wrote it; `number` names it."""

    number: int
    place: Place


@dataclass(frozen=True)
class Branch:
    """Run `then` where the condition holds that load `condition` has read, else `otherwise`."""

    condition: int
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...]


@dataclass(frozen=True)
class Loop:
    """Run `before`, and while the condition holds that load `condition` reads there, `body`, then
    `before` again."""

    before: tuple[Statement, ...]
    condition: int
    body: tuple[Statement, ...]


Statement = KernelCall | Copy | Load | Branch | Loop


@dataclass
class HostProgram:
    """The host as data: what the entry point does, where the weights lie (constants by name, and
    packed parameters), and the library functions whose addresses follow the inputs."""

    body: list[Statement] = field(default_factory=list)
    weights: dict[str, int] = field(default_factory=dict)
    derived: list[DerivedWeight] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    weights_bytes: int = 0
    arena_bytes: int = 0

    @property
    def calls(self) -> list[KernelCall]:
        """All kernel calls in the order of the text; a call's position here is its number in
        traces."""
        return [s for s in self.statements() if isinstance(s, KernelCall)]

    def statements(self) -> Iterator[Statement]:
        """All statements at any depth, in the order of the text."""

        def walk(statements: Sequence[Statement]) -> Iterator[Statement]:
            for statement in statements:
                yield statement
                for inner in _inner(statement):
                    yield from walk(inner)

        return walk(self.body)

    def rename_kernels(self, symbols: dict[str, str]) -> None:
        """Let every call name the symbol that its kernel has."""

        def rename(statement: Statement) -> Statement:
            if isinstance(statement, KernelCall):
                return dataclasses.replace(statement, kernel=symbols[statement.kernel])
            return statement

        self.body = [_mapped(statement, rename) for statement in self.body]


def _inner(statement: Statement) -> tuple[tuple[Statement, ...], ...]:
    if isinstance(statement, Loop):
        return statement.before, statement.body
    if isinstance(statement, Branch):
        return statement.then, statement.otherwise
    return ()


def _mapped(statement: Statement, change: Callable[[Statement], Statement]) -> Statement:
    """`statement` with `change` applied to it and to all that it holds."""

    def all_of(statements: tuple[Statement, ...]) -> tuple[Statement, ...]:
        return tuple(_mapped(inner, change) for inner in statements)

    if isinstance(statement, Loop):
        before, body = all_of(statement.before), all_of(statement.body)
        return dataclasses.replace(statement, before=before, body=body)
    if isinstance(statement, Branch):
        then, otherwise = all_of(statement.then), all_of(statement.otherwise)
        return dataclasses.replace(statement, then=then, otherwise=otherwise)
    return change(statement)


def _places(statement: Statement) -> tuple[Place, ...]:
    if isinstance(statement, KernelCall):
        return statement.operands
    if isinstance(statement, Copy):
        return statement.source, statement.target
    return (statement.place,) if isinstance(statement, Load) else ()


@dataclass(frozen=True)
class LowerHostToLlvm(Pass):
    """Replace the host, the one `func.func` among lowered kernels, by `stepwell_main`, and add the
    task functions."""

    name: ClassVar[str] = "lower-host-to-llvm"

    def run(self, op: ir.Operation, state: State) -> None:
        body = op.regions[0].blocks[0]
        operations = [c.operation for c in body.operations]
        hosts = [f for f in operations if f.name == "func.func"]
        if len(hosts) != 1:
            raise LoweringError(f"expected one host function, found {len(hosts)}")
        tasks = {
            f.attributes["sym_name"].value: ir.IntegerAttr(f.attributes["kernel.tasks"]).value
            for f in operations
            if "kernel.tasks" in f.attributes
        }
        program = read_host(hosts[0], tasks, state)
        state.host = program  # pyright: ignore[reportAttributeAccessIssue]
        signature = {n: hosts[0].attributes[n] for n in hosts[0].attributes if n in _KEPT}
        hosts[0].erase()
        counts = {call.kernel: len(call.operands) for call in program.calls}
        text = "\n".join([entry_text(program), *(task_text(k, n) for k, n in counts.items())])
        declared = "\n".join(
            f"llvm.func @{name}({'!llvm.ptr, ' * count}i64, i64)" for name, count in counts.items()
        )
        parsed = ir.Module.parse(f"{declared}\n{text}")
        for child in list(parsed.body.operations):
            if not len(child.operation.regions[0].blocks):
                continue
            clone = child.operation.clone()
            ir.InsertionPoint(body).insert(clone)
            if clone.attributes["sym_name"].value == ENTRY:
                for name, attribute in signature.items():
                    clone.attributes[name] = attribute
                clone.attributes["stepwell.weights"] = _offsets(program)
                clone.attributes["stepwell.derived"] = ir.StringAttr.get(
                    json.dumps([derived_to_dict(weight) for weight in program.derived])
                )
                clone.attributes["stepwell.functions"] = ir.ArrayAttr.get(
                    [ir.StringAttr.get(name) for name in program.functions]
                )


def _offsets(program: HostProgram) -> ir.Attribute:
    i64 = ir.IntegerType.get_signless(64)
    return ir.DictAttr.get({n: ir.IntegerAttr.get(i64, o) for n, o in program.weights.items()})


def read_host(host: ir.Operation, tasks: dict[str, int], state: State) -> HostProgram:
    """Resolve every kernel call of a bufferized, planned host function."""
    entry = host.regions[0].blocks[0]
    weights, derived = weight_arguments(host), derived_arguments(host)
    program = HostProgram()
    arena = None
    if ARENA_BYTES in host.attributes:
        program.arena_bytes = ir.IntegerAttr(host.attributes[ARENA_BYTES]).value
        arena = len(entry.arguments) - 1
    if "stepwell.inputs" not in host.attributes:
        raise LoweringError("the host function does not say how many inputs it has")
    inputs = len(host.attributes["stepwell.inputs"])
    functions = marked_arguments(host, FUNCTION)
    program.functions = list(functions.values())
    placed = {*weights, *derived, *functions, arena}
    outputs = [n for n in range(inputs, len(entry.arguments)) if n not in placed]
    bases = {number: Place("input", number, 0) for number in range(inputs)}
    bases |= {number: Place("output", i, 0) for i, number in enumerate(outputs)}
    bases |= {number: Place("input", inputs + i, 0) for i, number in enumerate(functions)}
    if arena is not None:
        bases[arena] = Place("arena", 0, 0)
    for number, text in derived.items():
        bases[number] = Place("derived", len(program.derived), 0)
        program.derived.append(derived_from_dict({**json.loads(text), "offset": 0}))

    def place(value: ir.Value) -> Place:
        op = defining_op(value)
        if op is None:
            number = ir.BlockArgument(value).arg_number
            if number in weights:
                return Place("weights", 0, _weight_offset(program, weights[number], state))
            return bases[number]
        if op.name in VIEWS:
            return place(op.operands[0])
        if op.name == "memref.view":
            base = place(op.operands[0])
            return Place(base.base, base.number, base.offset + _constant(op.operands[1]))
        raise LoweringError(f"{op.name}: a buffer of the host has no fixed place")

    program.body = list(_HostReader(place, tasks).block(entry))
    _place_derived(program)
    return program


class _HostReader:
    """Reads the blocks of a host function; `place` resolves buffers."""

    def __init__(self, place: Callable[[ir.Value], Place], tasks: dict[str, int]) -> None:
        self.place = place
        self.tasks = tasks
        self.loads: dict[ir.Value, int] = {}

    def block(self, block: ir.Block) -> tuple[Statement, ...]:
        read = (self._statement(child.operation) for child in block.operations)
        return tuple(statement for statement in read if statement is not None)

    def _statement(self, op: ir.Operation) -> Statement | None:
        if op.name == "func.call":
            kernel = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
            names = op.attributes.get("kernel.names", [])
            sources = tuple(ir.StringAttr(name).value for name in names)
            operands = tuple(self.place(value) for value in op.operands)
            return KernelCall(kernel, sources, self.tasks.get(kernel, 1), operands)
        if op.name == "memref.copy":
            source, target = (self.place(value) for value in op.operands)
            kind = ir.MemRefType(op.operands[1].type)
            return Copy(source, target, math.prod(kind.shape) * element_bytes(kind.element_type))
        if op.name == "memref.load" and str(op.results[0].type) == "i1":
            self.loads[op.results[0]] = len(self.loads)
            return Load(self.loads[op.results[0]], self.place(op.operands[0]))
        if op.name == "scf.while" and not op.results:
            before, after = (region.blocks[0] for region in op.regions)
            statements = self.block(before)
            end = list(before.operations)[-1].operation
            return Loop(statements, self._condition(end.operands[0]), self.block(after))
        if op.name == "scf.if" and not op.results:
            condition = self._condition(op.operands[0])
            then, otherwise = (
                self.block(region.blocks[0]) if len(region.blocks) else () for region in op.regions
            )
            return Branch(condition, then, otherwise)
        if op.name not in (*VIEWS, *_SILENT):
            raise LoweringError(f"{op.name} cannot stand in the host program")
        return None

    def _condition(self, value: ir.Value) -> int:
        if value not in self.loads:
            raise LoweringError("a condition of the host program was not read from a buffer")
        return self.loads[value]


def _place_derived(program: HostProgram) -> None:
    """Let the packed parameters follow the constants."""
    end = program.weights_bytes
    for number, weight in enumerate(program.derived):
        program.derived[number] = dataclasses.replace(weight, offset=end)
        end += -(-weight.bytes // _ALIGNMENT) * _ALIGNMENT

    def moved(place: Place) -> Place:
        if place.base != "derived":
            return place
        return Place("weights", 0, program.derived[place.number].offset)

    def change(statement: Statement) -> Statement:
        if isinstance(statement, KernelCall):
            operands = tuple(moved(place) for place in statement.operands)
            return dataclasses.replace(statement, operands=operands)
        if isinstance(statement, Copy):
            return dataclasses.replace(statement, source=moved(statement.source))
        return statement

    program.body = [_mapped(statement, change) for statement in program.body]


def _weight_offset(program: HostProgram, name: str, state: State) -> int:
    if name not in program.weights:
        program.weights[name] = program.weights_bytes
        size = state.weights[name].nbytes
        program.weights_bytes += -(-size // _ALIGNMENT) * _ALIGNMENT
    return program.weights[name]


def _constant(value: ir.Value) -> int:
    op = defining_op(value)
    if op is None or op.name != "arith.constant":
        raise LoweringError("an arena offset is not a constant")
    return ir.IntegerAttr(op.attributes["value"]).value


def entry_text(program: HostProgram) -> str:
    """`stepwell_main` in the LLVM dialect's text."""
    width = max((len(call.operands) for call in program.calls), default=1)
    lines = [
        f"llvm.func @{ENTRY}(%context: !llvm.ptr, %inputs: !llvm.ptr, %outputs: !llvm.ptr, "
        "%weights: !llvm.ptr, %arena: !llvm.ptr) {",
        "  %one = llvm.mlir.constant(1 : i64) : i64",
        "  %zero = llvm.mlir.constant(0 : i64) : i64",
        "  %none = llvm.mlir.zero : !llvm.ptr",
        f"  %list = llvm.alloca %one x !llvm.array<{width} x ptr> : (i64) -> !llvm.ptr",
        "  %parallel_for = llvm.load %context : !llvm.ptr -> !llvm.ptr",
        "  %trace_place = llvm.getelementptr %context[8] : (!llvm.ptr) -> !llvm.ptr, i8",
        "  %trace = llvm.load %trace_place : !llvm.ptr -> !llvm.ptr",
        '  %traced = llvm.icmp "ne" %trace, %none : !llvm.ptr',
    ]
    names: dict[Place, str] = {}
    for place in dict.fromkeys(p for s in program.statements() for p in _places(s)):
        names[place] = f"%p{len(names)}"
        lines += _pointer_text(place, names[place])
    body = _EntryText(names)
    lines += body.statements(program.body)
    lines += [*_trace_text(body.calls, -1), "  llvm.return", "}"]
    return "\n".join(lines)


class _EntryText:
    """Writes statements in order; counts calls, and labels of blocks."""

    def __init__(self, names: dict[Place, str]) -> None:
        self.names = names
        self.calls = 0
        self.labels = itertools.count()

    def statements(self, statements: Sequence[Statement]) -> list[str]:
        return [line for statement in statements for line in self._statement(statement)]

    def _statement(self, statement: Statement) -> list[str]:
        if isinstance(statement, KernelCall):
            return self._call(statement)
        if isinstance(statement, Load):
            byte, number = "i8", statement.number
            return [
                f"  %b{number} = llvm.load {self.names[statement.place]} : !llvm.ptr -> {byte}",
                f"  %z{number} = llvm.mlir.constant(0 : {byte}) : {byte}",
                f'  %c{number} = llvm.icmp "ne" %b{number}, %z{number} : {byte}',
            ]
        if isinstance(statement, Copy):
            size = f"%m{next(self.labels)}"
            target, source = self.names[statement.target], self.names[statement.source]
            return [
                f"  {size} = llvm.mlir.constant({statement.bytes} : i64) : i64",
                f'  "llvm.intr.memcpy"({target}, {source}, {size}) <{{isVolatile = false}}> : '
                "(!llvm.ptr, !llvm.ptr, i64) -> ()",
            ]
        label = next(self.labels)
        if isinstance(statement, Branch):
            return [
                f"  llvm.cond_br %c{statement.condition}, ^then{label}, ^else{label}",
                f"^then{label}:",
                *self.statements(statement.then),
                f"  llvm.br ^end{label}",
                f"^else{label}:",
                *self.statements(statement.otherwise),
                f"  llvm.br ^end{label}",
                f"^end{label}:",
            ]
        return [
            f"  llvm.br ^before{label}",
            f"^before{label}:",
            *self.statements(statement.before),
            f"  llvm.cond_br %c{statement.condition}, ^body{label}, ^end{label}",
            f"^body{label}:",
            *self.statements(statement.body),
            f"  llvm.br ^before{label}",
            f"^end{label}:",
        ]

    def _call(self, call: KernelCall) -> list[str]:
        number = self.calls
        self.calls += 1
        lines = _trace_text(number, number)
        for slot, place in enumerate(call.operands):
            target = f"%s{number}_{slot}"
            lines += [
                f"  {target} = llvm.getelementptr %list[{slot}] : "
                "(!llvm.ptr) -> !llvm.ptr, !llvm.ptr",
                f"  llvm.store {self.names[place]}, {target} : !llvm.ptr, !llvm.ptr",
            ]
        task = f"@{call.kernel}{TASK_SUFFIX}"
        if call.tasks == 1:
            lines.append(f"  llvm.call {task}(%list, %zero, %one) : (!llvm.ptr, i64, i64) -> ()")
        else:
            lines += [
                f"  %t{number} = llvm.mlir.addressof {task} : !llvm.ptr",
                f"  %n{number} = llvm.mlir.constant({call.tasks} : i64) : i64",
                f"  llvm.call %parallel_for(%context, %t{number}, %list, %n{number}) : "
                "!llvm.ptr, (!llvm.ptr, !llvm.ptr, !llvm.ptr, i64) -> ()",
            ]
        return lines


def _trace_text(label: int, kernel: int) -> list[str]:
    return [
        f"  llvm.cond_br %traced, ^trace{label}, ^run{label}",
        f"^trace{label}:",
        f"  %k{label} = llvm.mlir.constant({kernel} : i64) : i64",
        f"  llvm.call %trace(%context, %k{label}) : !llvm.ptr, (!llvm.ptr, i64) -> ()",
        f"  llvm.br ^run{label}",
        f"^run{label}:",
    ]


def _pointer_text(place: Place, name: str) -> list[str]:
    if place.base in ("weights", "arena"):
        return [
            f"  {name} = llvm.getelementptr %{place.base}[{place.offset}] : "
            "(!llvm.ptr) -> !llvm.ptr, i8"
        ]
    start = f"{name}_at"
    lines = [
        f"  {start} = llvm.getelementptr %{place.base}s[{place.number}] : "
        "(!llvm.ptr) -> !llvm.ptr, !llvm.ptr"
    ]
    loaded = name if not place.offset else f"{name}_base"
    lines.append(f"  {loaded} = llvm.load {start} : !llvm.ptr -> !llvm.ptr")
    if place.offset:
        lines.append(
            f"  {name} = llvm.getelementptr {loaded}[{place.offset}] : (!llvm.ptr) -> !llvm.ptr, i8"
        )
    return lines


def task_text(kernel: str, arguments: int) -> str:
    """The task function of `kernel`: unpack the argument pointers and call it on a range."""
    lines = [
        f"llvm.func @{kernel}{TASK_SUFFIX}(%list: !llvm.ptr, %begin: i64, %end: i64) {{",
    ]
    for slot in range(arguments):
        lines += [
            f"  %a{slot} = llvm.getelementptr %list[{slot}] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr",
            f"  %p{slot} = llvm.load %a{slot} : !llvm.ptr -> !llvm.ptr",
        ]
    pointers = "".join(f"%p{slot}, " for slot in range(arguments))
    types = "!llvm.ptr, " * arguments
    lines += [
        f"  llvm.call @{kernel}({pointers}%begin, %end) : ({types}i64, i64) -> ()",
        "  llvm.return",
        "}",
    ]
    return "\n".join(lines)
