"""The host program as data: kernel calls, copies, loops and branches on buffers at fixed places.

`read_host` makes it of a bufferized, planned host function. Every buffer of the host is a constant
distance from an input, an output, the weights or the arena.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from stepwell.attributes import CHAIN, PARTS, PRIVATE
from stepwell.errors import LoweringError
from stepwell.kernels.library_call import FUNCTION
from stepwell.kernels.structured import defining_op
from stepwell.mlir import ir
from stepwell.packing import DerivedWeight, derived_from_dict
from stepwell.passes.base import State
from stepwell.passes.buffers.plan_arena import ARENA_BYTES, VIEWS, ZEROED_BYTES, element_bytes
from stepwell.passes.linalg.hoist_constants import (
    derived_arguments,
    marked_arguments,
    weight_arguments,
)

_ALIGNMENT = 64

_TURNING = 8
"""How many times what L2 holds a thread's share of a loop's buffers may be where it turns: the part
that L2 still holds is then worth more than reading in the order that prefetching expects."""

_SILENT = ("memref.view", "arith.constant", "func.return", "scf.yield", "scf.condition")


@dataclass(frozen=True)
class Place:
    """Where a buffer lies: "input" or "output" by number, "weights" or "arena" by offset; "derived"
    is a packed weight whose place behind the constants is not known yet."""

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
class Chain:
    """Calls that take turns, band by band. The tasks of each call are so many `runs`; for each band
    there is [begin, end) of what it needs of each run of each call, some of which the band in front
    has done."""

    calls: tuple[KernelCall, ...]
    runs: tuple[int, ...]
    bands: tuple[tuple[tuple[int, int], ...], ...]


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
    `before` again. Where it `turns`, kernels do their tasks in the opposite order every other time:
    they begin with what they read last, which lies in a cache still."""

    before: tuple[Statement, ...]
    condition: int
    body: tuple[Statement, ...]
    turns: bool = False


@dataclass(frozen=True)
class Parts:
    """A loop in `count` parts of `iterations` each, which threads may run at the same time. The
    counter begins at 0 and grows by `step`. What lies in `size` bytes of the arena from `begin` on
    each part has for itself: part n as many bytes further on, n times."""

    loop: Loop
    count: int
    iterations: int
    step: int
    counter: Place
    begin: int
    size: int

    def has_for_itself(self, place: Place) -> bool:
        """Whether each part has its own memory there."""
        return place.base == "arena" and self.begin <= place.offset < self.begin + self.size


Statement = KernelCall | Chain | Copy | Load | Branch | Loop | Parts


@dataclass
class HostProgram:
    """The host as data: what the entry point does, where the weights lie (constants by name, behind
    them the `sources` of which the runtime makes packed forms, and those), and the library
    functions whose addresses follow the inputs."""

    body: list[Statement] = field(default_factory=list)
    weights: dict[str, int] = field(default_factory=dict)
    sources: dict[str, int] = field(default_factory=dict)
    derived: list[DerivedWeight] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    weights_bytes: int = 0
    arena_bytes: int = 0
    zeroed_bytes: int = 0

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


def _joined(chain: Chain, link: Chain) -> Chain:
    """`chain` with the call of `link` behind it."""
    if len(chain.bands) != len(link.bands):
        raise LoweringError(f"{CHAIN} of {link.calls[0].kernel} has another number of bands")
    together = zip(chain.bands, link.bands, strict=True)
    bands = tuple((*before, *need) for before, need in together)
    return Chain((*chain.calls, *link.calls), (*chain.runs, *link.runs), bands)


def _inner(statement: Statement) -> tuple[tuple[Statement, ...], ...]:
    if isinstance(statement, Loop):
        return statement.before, statement.body
    if isinstance(statement, Branch):
        return statement.then, statement.otherwise
    if isinstance(statement, Chain):
        return (statement.calls,)
    return ((statement.loop,),) if isinstance(statement, Parts) else ()


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
    if isinstance(statement, Parts):
        (loop,) = all_of((statement.loop,))
        return dataclasses.replace(statement, loop=loop)
    if isinstance(statement, Chain):
        calls = (call for call in all_of(statement.calls) if isinstance(call, KernelCall))
        return dataclasses.replace(statement, calls=tuple(calls))
    return change(statement)


def places(statement: Statement) -> tuple[Place, ...]:
    if isinstance(statement, KernelCall):
        return statement.operands
    if isinstance(statement, Copy):
        return statement.source, statement.target
    return (statement.place,) if isinstance(statement, Load) else ()


def read_host(host: ir.Operation, tasks: dict[str, int], state: State) -> HostProgram:
    """Resolve every kernel call of a bufferized, planned host function."""
    entry = host.regions[0].blocks[0]
    weights, derived = weight_arguments(host), derived_arguments(host)
    program = HostProgram()
    arena = None
    if ARENA_BYTES in host.attributes:
        program.arena_bytes = ir.IntegerAttr(host.attributes[ARENA_BYTES]).value
        arena = len(entry.arguments) - 1
    if ZEROED_BYTES in host.attributes:
        program.zeroed_bytes = ir.IntegerAttr(host.attributes[ZEROED_BYTES]).value
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
    packed = [json.loads(text) for text in derived.values()]
    bases |= {number: Place("derived", i, 0) for i, number in enumerate(derived)}

    def place(value: ir.Value) -> Place:
        op = defining_op(value)
        if op is None:
            number = ir.BlockArgument(value).arg_number
            if number in weights:
                name = weights[number]
                return Place("weights", 0, _weight_offset(program, program.weights, name, state))
            return bases[number]
        if op.name in VIEWS:
            return place(op.operands[0])
        if op.name == "memref.view":
            base = place(op.operands[0])
            return Place(base.base, base.number, base.offset + _constant(op.operands[1]))
        raise LoweringError(f"{op.name}: a buffer of the host has no fixed place")

    program.body = list(_HostReader(place, tasks, state).block(entry))
    _place_derived(program, packed, state)
    return program


class _HostReader:
    """Reads the blocks of a host function; `place` resolves buffers."""

    def __init__(
        self, place: Callable[[ir.Value], Place], tasks: dict[str, int], state: State
    ) -> None:
        self.place = place
        self.tasks = tasks
        self.state = state
        self.loads: dict[ir.Value, int] = {}

    def block(self, block: ir.Block) -> tuple[Statement, ...]:
        read: list[Statement] = []
        known: set[int] = set()
        last = None
        for child in block.operations:
            statement = self._statement(child.operation)
            if statement is None:
                continue
            if not isinstance(statement, KernelCall) or CHAIN not in child.operation.attributes:
                read.append(statement)
                last = None
                continue
            number, *numbers = ir.DenseI64ArrayAttr(child.operation.attributes[CHAIN])
            link = self._link(statement, numbers)
            if number == last and isinstance(begun := read[-1], Chain):
                read[-1] = _joined(begun, link)
            elif number in known:
                raise LoweringError(f"the calls of chain {number} do not follow each other")
            else:
                read.append(link)
            known.add(number)
            last = number
        return tuple(read)

    def _link(self, call: KernelCall, numbers: list[int]) -> Chain:
        """A call as a chain of its own: `numbers` are that of its runs, then what bands need."""
        runs, *tasks = numbers or [0]
        if runs < 1 or not tasks or len(tasks) % (2 * runs):
            raise LoweringError(
                f"{CHAIN} of {call.kernel} has {len(tasks)} numbers behind that of its runs, "
                f"{runs}: it should have begin and end of the tasks of each run for each band"
            )
        needs = list(zip(tasks[::2], tasks[1::2], strict=True))
        if call.kernel in self.tasks and max(end for _, end in needs) != call.tasks:
            raise LoweringError(
                f"{CHAIN} of {call.kernel} is about other tasks than its {call.tasks}"
            )
        bands = (tuple(needs[at : at + runs]) for at in range(0, len(needs), runs))
        return Chain((call,), (runs,), tuple(bands))

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
            condition, turns = self._condition(end.operands[0]), self._turns(after)
            loop = Loop(statements, condition, self.block(after), turns)
            return self._parts(op, loop) if PARTS in op.attributes else loop
        if op.name == "scf.if" and not op.results:
            condition = self._condition(op.operands[0])
            then, otherwise = (
                self.block(region.blocks[0]) if len(region.blocks) else () for region in op.regions
            )
            return Branch(condition, then, otherwise)
        if op.name not in (*VIEWS, *_SILENT):
            raise LoweringError(f"{op.name} cannot stand in the host program")
        return None

    def _turns(self, block: ir.Block) -> bool:
        """Whether the kernels of a loop's body, each thread with its share of their buffers, find
        a part of these in L2 or L1 when they come back, and not all of them in L1."""
        buffers: dict[Place, float] = {}
        for child in block.operations:
            if child.operation.name != "func.call":
                continue
            for value in child.operation.operands:
                kind = ir.MemRefType(value.type)
                open_size = not kind.has_static_shape
                size = math.inf if open_size else math.prod(kind.shape)
                buffers[self.place(value)] = size * element_bytes(kind.element_type)
        share, target = sum(buffers.values()) / self.state.threads, self.state.target
        return target.l1_bytes < share <= _TURNING * target.l2_bytes

    def _parts(self, op: ir.Operation, loop: Loop) -> Statement:
        """The loop in parts; as it is where its body copies to memory that parts would share."""
        count, iterations, step = ir.DenseI64ArrayAttr(op.attributes[PARTS])
        if PRIVATE not in op.attributes:
            raise LoweringError(
                "a loop in parts does not say which memory each part has for itself"
            )
        begin, size = ir.DenseI64ArrayAttr(op.attributes[PRIVATE])
        calls = [s for s in loop.before if isinstance(s, KernelCall)]
        if len(calls) != 1:
            raise LoweringError("the condition of a loop in parts is not one kernel")
        counter = calls[0].operands[0]
        parts = Parts(loop, count, iterations, step, counter, begin, size)
        copies = [s for s in HostProgram([*loop.body]).statements() if isinstance(s, Copy)]
        return parts if all(parts.has_for_itself(copy.target) for copy in copies) else loop

    def _condition(self, value: ir.Value) -> int:
        if value not in self.loads:
            raise LoweringError("a condition of the host program was not read from a buffer")
        return self.loads[value]


def _place_derived(program: HostProgram, packed: list[dict], state: State) -> None:
    """Let what packed forms are made of follow the constants, and `packed`, as their arguments say
    them, all of these."""
    for data in packed:
        if (name := data.pop("weight", None)) is not None:
            data["constant"] = _weight_offset(program, program.sources, name, state)
    end = program.weights_bytes
    for data in packed:
        weight = derived_from_dict({**data, "offset": end})
        program.derived.append(weight)
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


def _weight_offset(program: HostProgram, offsets: dict[str, int], name: str, state: State) -> int:
    """The place of a weight among `offsets`, those of `program` that are of its kind."""
    if name not in offsets:
        offsets[name] = program.weights_bytes
        size = state.weights[name].nbytes
        program.weights_bytes += -(-size // _ALIGNMENT) * _ALIGNMENT
    return offsets[name]


def _constant(value: ir.Value) -> int:
    op = defining_op(value)
    if op is None or op.name != "arith.constant":
        raise LoweringError("an arena offset is not a constant")
    return ir.IntegerAttr(op.attributes["value"]).value
