"""Ways to make a StableHLO program smaller, for `stepwell-reduce`.

Each finds its targets in the order of the program and asks of each whether to `take` it, so that
one function serves to count them and to try any part of them (as passes of llvm-reduce do). None
has to give a valid program, nor one that fails: who calls it verifies and tests what comes out.
"""

from __future__ import annotations

from collections.abc import Callable

from stepwell.dialects import stablehlo as hlo
from stepwell.errors import LoweringError
from stepwell.inspection import smaller_sizes
from stepwell.inspection.intermediates import set_results
from stepwell.inspection.program import CONSTANT, Program, element, has_uses, is_splat, some_element
from stepwell.mlir import ir

Take = Callable[[], bool]
Strategy = Callable[[Program, Take], None]

_BRANCHING = ("stablehlo.if", "stablehlo.case")
_WHILE = "stablehlo.while"


def splat_constants(program: Program, take: Take) -> None:
    """Constants have one of their elements everywhere."""
    for op in program.operations():
        if op.name != CONSTANT or is_splat(op):
            continue
        dtype = element(op.results[0].type)
        if dtype is None or not take():
            continue
        try:
            value = some_element(program.weights.array(op.attributes["value"])).item()
        except LoweringError:  # a resource of bytecode, which the bindings do not give back
            value = 1
        with ir.InsertionPoint(op):
            splat = hlo.full(value, hlo.shape(op.results[0]), dtype)
        op.results[0].replace_all_uses_with(splat)


def cut(program: Program, take: Take) -> None:
    """Operations are taken out of `main`: what they gave to others becomes arguments, and what
    nobody else had of them becomes results. A range to the program's end is cut off behind, one
    from its beginning before."""
    chosen = [op for op in program.body() if op.name != CONSTANT and take()]
    own = set(program.block.arguments)
    for op in reversed(chosen):
        _make_arguments(program, op)
        op.erase()
    results = [value for value in program.results() if value in own or not _is_argument(value)]
    set_results(program.main, [*results, *_unused(program)])


def drop_results(program: Program, take: Take) -> None:
    """Results of `main` are left out, with all that they alone need."""
    set_results(program.main, [value for value in program.results() if not take()])


def drop_arguments(program: Program, take: Take) -> None:
    """So are arguments that nothing uses."""
    for number, argument in reversed(list(enumerate(program.block.arguments))):
        if not has_uses(argument) and take():
            program.block.erase_argument(number)
    set_results(program.main, program.results())


def run_regions_once(program: Program, take: Take) -> None:
    """Loops and branches are replaced by what one of their regions does."""
    found = [
        (op, region)
        for op in program.operations()
        if op.name in (*_BRANCHING, _WHILE)
        for region in (op.regions if op.name in _BRANCHING else list(op.regions)[1:])
    ]
    taken: list[ir.Operation] = []
    for op, region in found:
        if take() and not any(op == other for other in taken):
            taken.append(op)
            _move_out(op, region.blocks[0])
    for op in taken:
        op.erase()
    set_results(program.main, [*program.results(), *_unused(program)])


def replace_by_operands(program: Program, take: Take) -> None:
    """Operations are replaced by operands of theirs that have the same types."""
    for op in program.operations():
        found = [_operand_like(op, number) for number in range(len(op.results))]
        operands = [value for value in found if value is not None]
        if operands and len(operands) == len(found) and take():
            for result, operand in zip(op.results, operands, strict=True):
                result.replace_all_uses_with(operand)


def replace_by_constants(program: Program, take: Take) -> None:
    """Operations are replaced by zeros, numbers with a fraction by halves: a product stays one."""
    for op in program.operations():
        kinds = [element(result.type) for result in op.results]
        if op.name == CONSTANT or not kinds or None in kinds or not take():
            continue
        for result, dtype in zip(op.results, kinds, strict=True):
            if dtype is not None:
                with ir.InsertionPoint(op):
                    value = hlo.full(0.5 if dtype.kind in "fV" else 0, hlo.shape(result), dtype)
                result.replace_all_uses_with(value)


def make_constants_arguments(program: Program, take: Take) -> None:
    """Constants of many numbers become arguments."""
    for op in program.body():
        if op.name == CONSTANT and not is_splat(op) and take():
            _make_arguments(program, op)
    set_results(program.main, program.results())


STRATEGIES: dict[str, Strategy] = {
    "operations are cut out": cut,
    "loops and branches run once": run_regions_once,
    "results are dropped": drop_results,
    "constants have one value": splat_constants,
    "operations give an operand": replace_by_operands,
    "operations give constants": replace_by_constants,
    "arguments are dropped": drop_arguments,
    "constants are arguments": make_constants_arguments,
    "sizes are 16 at most": smaller_sizes.to_16,
    "sizes are 2 at most": smaller_sizes.to_2,
}
"""All of them by what users are told, in the order in which they pay."""


def _make_arguments(program: Program, op: ir.Operation) -> None:
    """Let arguments take the place of what `op` gives, where that is used."""
    for result in op.results:
        if has_uses(result):
            argument = program.block.add_argument(result.type, ir.Location.unknown())
            result.replace_all_uses_with(argument)


def _unused(program: Program) -> list[ir.Value]:
    """What `main` computes for nobody any more; before a change there was nothing of that."""
    return [
        value
        for op in program.body()
        if op.name != CONSTANT and not any(map(has_uses, op.results))
        for value in op.results
    ]


def _is_argument(value: ir.Value) -> bool:
    return isinstance(value.owner, ir.Block)


def _operand_like(op: ir.Operation, number: int) -> ir.Value | None:
    """The operand of the type of a result: the one at its place, else the first."""
    operands = list(op.operands)
    kind = op.results[number].type
    return next((v for v in (*operands[number : number + 1], *operands) if v.type == kind), None)


def _move_out(op: ir.Operation, block: ir.Block) -> None:
    """Put what is in a region of `op` before it, and in its place."""
    for argument, operand in zip(block.arguments, op.operands, strict=False):
        argument.replace_all_uses_with(operand)
    *inner, end = (child.operation for child in block.operations)
    for child in inner:
        child.move_before(op)
    for result, value in zip(op.results, list(end.operands), strict=True):
        result.replace_all_uses_with(value)


def count(program: Program, strategy: Strategy) -> int:
    """How many targets `strategy` has in a program, which stays as it is."""
    asked = 0

    def refuse() -> bool:
        nonlocal asked
        asked += 1
        return False

    with program.context, ir.Location.unknown():
        strategy(program.copy(), refuse)
    return asked


def applied(program: Program, strategy: Strategy, chunk: range) -> Program | None:
    """A copy in which `strategy` has taken the targets numbered by `chunk`; None where that does
    not verify or is not smaller."""
    smaller = program.copy()
    asked = iter(range(1 << 62))
    with program.context, ir.Location.unknown():
        try:
            strategy(smaller, lambda: next(asked) in chunk)
        except (ir.MLIRError, LoweringError):
            return None
        if not smaller.tidy() or smaller.size >= program.size:
            return None
    return smaller
