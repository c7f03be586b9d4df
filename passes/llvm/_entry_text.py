"""The host program as text of the LLVM dialect: the model's C entry point, and task functions.

A loop in parts becomes a task function of its own, whose tasks are the parts: each sets the counter
to where it begins, and calls the kernels with all their tasks. When calls are traced, it is a loop
like others, and the kernels' tasks are shared among the threads. So does a chain, whose tasks are
bands; when calls are traced, its kernels run one after the other."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from stepwell.passes.llvm._host_program import (
    Branch,
    Chain,
    Copy,
    HostProgram,
    KernelCall,
    Load,
    Loop,
    Parts,
    Place,
    Statement,
    places,
)

ENTRY = "stepwell_main"
TASK_SUFFIX = "_task"

_BASES = ("inputs", "outputs", "weights", "arena")
"""What the places of buffers begin with, in the order in which parts get them."""


def entry_text(program: HostProgram) -> str:
    """`stepwell_main` in the LLVM dialect's text, and the functions of the parts of its loops."""
    width = max(map(_pointers, program.statements()), default=1)
    chains = list(dict.fromkeys(s for s in program.statements() if isinstance(s, Chain)))
    lines = [
        f"llvm.func @{ENTRY}(%context: !llvm.ptr, %inputs: !llvm.ptr, %outputs: !llvm.ptr, "
        "%weights: !llvm.ptr, %arena: !llvm.ptr) {",
        "  %one = llvm.mlir.constant(1 : i64) : i64",
        "  %zero = llvm.mlir.constant(0 : i64) : i64",
        "  %none = llvm.mlir.zero : !llvm.ptr",
        f"  %list = llvm.alloca %one x !llvm.array<{max(width, len(_BASES))} x ptr> : "
        "(i64) -> !llvm.ptr",
        "  %parallel_for = llvm.load %context : !llvm.ptr -> !llvm.ptr",
        "  %trace_place = llvm.getelementptr %context[8] : (!llvm.ptr) -> !llvm.ptr, i8",
        "  %trace = llvm.load %trace_place : !llvm.ptr -> !llvm.ptr",
        '  %traced = llvm.icmp "ne" %trace, %none : !llvm.ptr',
    ]
    names = _names(program.statements())
    for place, name in names.items():
        lines += _pointer_text(place, name)
    body = _EntryText(names, chains)
    lines += body.statements(program.body)
    lines += [*_trace_text(body.calls, -1), "  llvm.return", "}"]
    loops = [s for s in program.statements() if isinstance(s, Parts)]
    lines += [_part_text(number, loop, width, chains) for number, loop in enumerate(loops)]
    return "\n".join([*lines, *(_chain_text(number, chain) for number, chain in enumerate(chains))])


def _pointers(statement: Statement) -> int:
    """How many pointers a call or a chain takes."""
    if isinstance(statement, Chain):
        return sum(map(_pointers, statement.calls))
    return len(statement.operands) if isinstance(statement, KernelCall) else 0


def _names(statements: Iterable[Statement]) -> dict[Place, str]:
    found = dict.fromkeys(place for statement in statements for place in places(statement))
    return {place: f"%p{number}" for number, place in enumerate(found)}


class _EntryText:
    """Writes statements in order; counts calls, loops in parts, and labels of blocks; `chains` are
    numbered already. With `alone`, a thread runs all tasks of each kernel. `turn` is 1, or -1 for
    tasks from the last to the first, in the iteration at hand of a loop that turns."""

    def __init__(
        self, names: dict[Place, str], chains: list[Chain], *, alone: bool = False
    ) -> None:
        self.names = names
        self.chains = chains
        self.alone = alone
        self.calls = 0
        self.parts = 0
        self.turn = ""
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
        if isinstance(statement, Parts):
            return self._in_parts(statement, label)
        if isinstance(statement, Chain):
            return self._chain(statement, label)
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
        return self._loop(statement, label)

    def _loop(self, loop: Loop, label: int) -> list[str]:
        turn, around = f"%turn{label}" if loop.turns and not self.alone else "", self.turn
        self.turn = turn
        lines = [
            f"  llvm.br ^before{label}(%one : i64)" if turn else f"  llvm.br ^before{label}",
            f"^before{label}({turn}: i64):" if turn else f"^before{label}:",
            *self.statements(loop.before),
            f"  llvm.cond_br %c{loop.condition}, ^body{label}, ^end{label}",
            f"^body{label}:",
            *self.statements(loop.body),
            *([f"  {turn}_next = llvm.sub %zero, {turn} : i64"] if turn else []),
            f"  llvm.br ^before{label}({turn}_next : i64)" if turn else f"  llvm.br ^before{label}",
            f"^end{label}:",
        ]
        self.turn = around
        return lines

    def _in_parts(self, statement: Parts, label: int) -> list[str]:
        number = self.parts
        self.parts += 1
        lines = [
            f"  llvm.cond_br %traced, ^turns{label}, ^parts{label}",
            f"^turns{label}:",
            *self.statements((statement.loop,)),
            f"  llvm.br ^joined{label}",
            f"^parts{label}:",
        ]
        for slot, base in enumerate(_BASES):
            lines += [
                _slot_text(f"%j{label}_{slot}", "list", slot),
                f"  llvm.store %{base}, %j{label}_{slot} : !llvm.ptr, !llvm.ptr",
            ]
        return [
            *lines,
            f"  %t_{label} = llvm.mlir.addressof @{ENTRY}_part_{number} : !llvm.ptr",
            f"  %n_{label} = llvm.mlir.constant({statement.count} : i64) : i64",
            f"  llvm.call %parallel_for(%context, %t_{label}, %list, %n_{label}) : "
            "!llvm.ptr, (!llvm.ptr, !llvm.ptr, !llvm.ptr, i64) -> ()",
            f"  llvm.br ^joined{label}",
            f"^joined{label}:",
        ]

    def _chain(self, chain: Chain, label: int) -> list[str]:
        """Its kernels' first parts, which what threads do in any order may need, then its bands."""
        lines = []
        if not self.alone:
            lines += [
                f"  llvm.cond_br %traced, ^turns{label}, ^chain{label}",
                f"^turns{label}:",
                *self.statements(chain.calls),
                f"  llvm.br ^joined{label}",
                f"^chain{label}:",
            ]
        places = [place for call in chain.calls for place in call.operands]
        lines += self._operands(places, f"%l{label}")
        task = f"@{_chain_name(self.chains.index(chain))}"
        lines.append(f"  %n_{label} = llvm.mlir.constant({len(chain.bands)} : i64) : i64")
        if self.alone:
            return [
                *lines,
                f"  llvm.call {task}(%list, %zero, %n_{label}) : (!llvm.ptr, i64, i64) -> ()",
            ]
        first = 0
        for number, call in enumerate(chain.calls):
            lines += [
                _slot_text(f"%f{label}_{number}", "list", first),
                f"  llvm.call @{call.kernel}{TASK_SUFFIX}(%f{label}_{number}, %zero, %zero) : "
                "(!llvm.ptr, i64, i64) -> ()",
            ]
            first += len(call.operands)
        return [
            *lines,
            f"  %t_{label} = llvm.mlir.addressof {task} : !llvm.ptr",
            f"  llvm.call %parallel_for(%context, %t_{label}, %list, %n_{label}) : "
            "!llvm.ptr, (!llvm.ptr, !llvm.ptr, !llvm.ptr, i64) -> ()",
            f"  llvm.br ^joined{label}",
            f"^joined{label}:",
        ]

    def _operands(self, operands: Sequence[Place], name: str) -> list[str]:
        """Put these into the list; `name` begins the names of its places."""
        lines = []
        for slot, place in enumerate(operands):
            target = f"{name}_{slot}"
            lines += [
                _slot_text(target, "list", slot),
                f"  llvm.store {self.names[place]}, {target} : !llvm.ptr, !llvm.ptr",
            ]
        return lines

    def _call(self, call: KernelCall) -> list[str]:
        number = self.calls
        self.calls += 1
        lines = [] if self.alone else _trace_text(number, number)
        lines += self._operands(call.operands, f"%s{number}")
        task = f"@{call.kernel}{TASK_SUFFIX}"
        if self.alone or call.tasks == 1:
            lines += [
                f"  %n{number} = llvm.mlir.constant({call.tasks} : i64) : i64",
                f"  llvm.call {task}(%list, %zero, %n{number}) : (!llvm.ptr, i64, i64) -> ()",
            ]
        else:
            lines += [
                f"  %t{number} = llvm.mlir.addressof {task} : !llvm.ptr",
                *self._count_text(f"%n{number}", call.tasks),
                f"  llvm.call %parallel_for(%context, %t{number}, %list, %n{number}) : "
                "!llvm.ptr, (!llvm.ptr, !llvm.ptr, !llvm.ptr, i64) -> ()",
            ]
        return lines

    def _count_text(self, name: str, tasks: int) -> list[str]:
        if not self.turn:
            return [f"  {name} = llvm.mlir.constant({tasks} : i64) : i64"]
        return [
            f"  {name}_tasks = llvm.mlir.constant({tasks} : i64) : i64",
            f"  {name} = llvm.mul {name}_tasks, {self.turn} : i64",
        ]


def _chain_name(number: int) -> str:
    return f"{ENTRY}_chain_{number}"


def _chain_text(number: int, chain: Chain) -> str:
    """The task function of a chain, and a table of what each band needs of each run of a kernel.
    Behind the first of its bands, it goes on where the one in front has ended."""
    name, width = _chain_name(number), 2 * sum(chain.runs)
    table = [task for band in chain.bands for need in band for task in need]
    lines = [
        f"llvm.mlir.global internal constant @{name}_needs(dense<{table}> : "
        f"tensor<{len(table)}xi64>) : !llvm.array<{len(table)} x i64>",
        f"llvm.func internal @{name}(%list: !llvm.ptr, %begin: i64, %end: i64) {{",
        "  %zero = llvm.mlir.constant(0 : i64) : i64",
        "  %one = llvm.mlir.constant(1 : i64) : i64",
        f"  %width = llvm.mlir.constant({width} : i64) : i64",
        f"  %in_front = llvm.mlir.constant({1 - width} : i64) : i64",
        f"  %needs = llvm.mlir.addressof @{name}_needs : !llvm.ptr",
        "  llvm.br ^band(%begin : i64)",
        "^band(%band: i64):",
        '  %is_band = llvm.icmp "slt" %band, %end : i64',
        "  llvm.cond_br %is_band, ^run, ^done",
        "^run:",
        '  %is_first = llvm.icmp "eq" %band, %begin : i64',
        "  %row = llvm.mul %band, %width : i64",
        "  %back = llvm.select %is_first, %zero, %in_front : i1, i64",
        "  %start_row = llvm.add %row, %back : i64",
        "  %starts = llvm.getelementptr %needs[%start_row] : (!llvm.ptr, i64) -> !llvm.ptr, i64",
        "  %ends = llvm.getelementptr %needs[%row] : (!llvm.ptr, i64) -> !llvm.ptr, i64",
    ]
    first = run = 0
    for number, call in enumerate(chain.calls):
        lines.append(_slot_text(f"%list{number}", "list", first))
        first += len(call.operands)
        for _ in range(chain.runs[number]):
            for side, column in (("start", 2 * run), ("end", 2 * run + 1)):
                lines += [
                    f"  %{side}{run}_at = llvm.getelementptr %{side}s[{column}] : "
                    "(!llvm.ptr) -> !llvm.ptr, i64",
                    f"  %{side}{run} = llvm.load %{side}{run}_at : !llvm.ptr -> i64",
                ]
            lines.append(
                f"  llvm.call @{call.kernel}{TASK_SUFFIX}(%list{number}, %start{run}, %end{run}) : "
                "(!llvm.ptr, i64, i64) -> ()"
            )
            run += 1
    lines += [
        "  %next = llvm.add %band, %one : i64",
        "  llvm.br ^band(%next : i64)",
        "^done:",
        "  llvm.return",
        "}",
    ]
    return "\n".join(lines)


def _part_text(number: int, parts: Parts, width: int, chains: list[Chain]) -> str:
    """The task function of a loop in parts."""
    program = HostProgram([parts.loop])
    names = _names(program.statements())
    lines = [
        f"llvm.func internal @{ENTRY}_part_{number}(%bases: !llvm.ptr, %begin: i64, %end: i64) {{",
        "  %one = llvm.mlir.constant(1 : i64) : i64",
        "  %zero = llvm.mlir.constant(0 : i64) : i64",
        f"  %size = llvm.mlir.constant({parts.size} : i64) : i64",
        f"  %iterations = llvm.mlir.constant({parts.iterations} : i64) : i64",
        f"  %step = llvm.mlir.constant({parts.step} : i64) : i64",
        f"  %list = llvm.alloca %one x !llvm.array<{width} x ptr> : (i64) -> !llvm.ptr",
    ]
    for slot, base in enumerate(_BASES):
        lines += [
            _slot_text(f"%{base}_at", "bases", slot),
            f"  %{base} = llvm.load %{base}_at : !llvm.ptr -> !llvm.ptr",
        ]
    lines += [
        "  llvm.br ^part(%begin : i64)",
        "^part(%part: i64):",
        '  %is_part = llvm.icmp "slt" %part, %end : i64',
        "  llvm.cond_br %is_part, ^run, ^done",
        "^run:",
        "  %moved = llvm.mul %part, %size : i64",
        "  %private = llvm.getelementptr %arena[%moved] : (!llvm.ptr, i64) -> !llvm.ptr, i8",
        "  %first = llvm.mul %part, %iterations : i64",
        "  %following = llvm.add %part, %one : i64",
        "  %last = llvm.mul %following, %iterations : i64",
    ]
    for place, name in names.items():
        arena = "private" if parts.has_for_itself(place) else "arena"
        lines += _pointer_text(place, name, arena)
    return "\n".join(
        [
            *lines,
            "  llvm.br ^iteration(%first : i64)",
            "^iteration(%i: i64):",
            '  %is_iteration = llvm.icmp "slt" %i, %last : i64',
            "  llvm.cond_br %is_iteration, ^body, ^part(%following : i64)",
            "^body:",
            "  %at = llvm.mul %i, %step : i64",
            "  %count = llvm.trunc %at : i64 to i32",
            f"  llvm.store %count, {names[parts.counter]} : i32, !llvm.ptr",
            *_EntryText(names, chains, alone=True).statements(parts.loop.body),
            "  %next = llvm.add %i, %one : i64",
            "  llvm.br ^iteration(%next : i64)",
            "^done:",
            "  llvm.return",
            "}",
        ]
    )


def _trace_text(label: int, kernel: int) -> list[str]:
    return [
        f"  llvm.cond_br %traced, ^trace{label}, ^run{label}",
        f"^trace{label}:",
        f"  %k{label} = llvm.mlir.constant({kernel} : i64) : i64",
        f"  llvm.call %trace(%context, %k{label}) : !llvm.ptr, (!llvm.ptr, i64) -> ()",
        f"  llvm.br ^run{label}",
        f"^run{label}:",
    ]


def _slot_text(name: str, array: str, slot: int) -> str:
    """`name` is where an array of pointers has number `slot`."""
    return f"  {name} = llvm.getelementptr %{array}[{slot}] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr"


def _pointer_text(place: Place, name: str, arena: str = "arena") -> list[str]:
    if place.base in ("weights", "arena"):
        base = arena if place.base == "arena" else place.base
        return _offset_text(name, f"%{base}", place.offset)
    start = f"{name}_at"
    lines = [_slot_text(start, f"{place.base}s", place.number)]
    loaded = name if not place.offset else f"{name}_base"
    lines.append(f"  {loaded} = llvm.load {start} : !llvm.ptr -> !llvm.ptr")
    return [*lines, *_offset_text(name, loaded, place.offset)] if place.offset else lines


def _offset_text(name: str, base: str, offset: int) -> list[str]:
    """`name` is so many bytes behind `base`; a number in the operation's text has 32 bits."""
    return [
        f"  {name}_offset = llvm.mlir.constant({offset} : i64) : i64",
        f"  {name} = llvm.getelementptr {base}[{name}_offset] : (!llvm.ptr, i64) -> !llvm.ptr, i8",
    ]


def task_text(kernel: str, arguments: int) -> str:
    """The task function of `kernel`: unpack the argument pointers and call it on a range."""
    lines = [
        f"llvm.func @{kernel}{TASK_SUFFIX}(%list: !llvm.ptr, %begin: i64, %end: i64) {{",
    ]
    for slot in range(arguments):
        lines += [
            _slot_text(f"%a{slot}", "list", slot),
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
