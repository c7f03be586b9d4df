"""Scripts of the transform dialect, applied from Python to operations that Python has chosen.

Passes choose operations by walking, mark them, and hand the rewriting to upstream's interpreter. In
a script `%chosen` is the handle of the marked operations, `%root` that of the function, and `!op`
the type of a handle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from stepwell.errors import LoweringError
from stepwell.kernels.structured import source_name
from stepwell.mlir import dialect, ir, nested_operations

_MARK = "stepwell.chosen"
_SEQUENCE = """
module attributes {{transform.with_named_sequence}} {{
  transform.named_sequence @__transform_main(%root: !op) {{
    %chosen = transform.structured.match attributes {{{mark}}} in %root : (!op) -> !op
    {body}
    transform.yield
  }}
}}
"""


def linalg_operations(
    function: ir.Operation, accept: Callable[[ir.Operation], bool] = lambda op: True
) -> list[ir.Operation]:
    """The linalg operations on tensors inside `function` that `accept` takes, in program order."""
    found: list[ir.Operation] = []
    for op in nested_operations(function):
        tensors = len(op.results) == 1 and isinstance(op.results[0].type, ir.RankedTensorType)
        if op.name.startswith("linalg.") and tensors and accept(op):
            found.append(op)
    return found


def loop_count(op: ir.Operation) -> int:
    """How many loops a linalg operation has."""
    maps = dialect("linalg").get_indexing_maps(op)
    return maps[0].value.n_dims if maps else ir.RankedTensorType(op.results[0].type).rank


def innermost_loop(op: ir.Operation) -> int:
    """The loop that is the innermost dimension of most operands; the inner one of equals."""
    counts = [0] * loop_count(op)
    for attribute in op.attributes["indexing_maps"]:
        results = list(attribute.value.results)
        if results and isinstance(results[-1], ir.AffineDimExpr):
            counts[results[-1].position] += 1
    return max(range(len(counts)), key=lambda loop: (counts[loop], loop))


def sizes_text(sizes: Sequence[int]) -> str:
    """Tile sizes or a permutation as a script writes them."""
    return f"[{', '.join(map(str, sizes))}]"


def handles(count: int) -> str:
    """The types of `count` handles."""
    return ", ".join(["!op"] * count)


def apply_script(function: ir.Operation, chosen: Iterable[ir.Operation], body: str) -> None:
    """Run `body` inside `function` with `%chosen` bound to the operations `chosen`.

    Raises LoweringError with upstream's reason when a step of the script does not apply.
    """
    interpreter = dialect("transform.interpreter")
    operations = list(chosen)
    if not operations:
        return
    name = source_name(operations[0])
    for op in operations:
        op.attributes[_MARK] = ir.UnitAttr.get()
    text = _SEQUENCE.format(mark=_MARK, body=body).replace("!op", "!transform.any_op")
    script = ir.Module.parse(text)
    try:
        interpreter.apply_named_sequence(function, script.body.operations[0], script)
    except ir.MLIRError as error:
        raise LoweringError(f"{name}: {_reason(error)}") from None
    finally:
        _unmark(function)


def _reason(error: ir.MLIRError) -> str:
    notes = [note.message for d in error.error_diagnostics for note in d.notes]
    messages = [d.message for d in error.error_diagnostics]
    return "; ".join(dict.fromkeys([*messages, *notes])) or str(error)


def _unmark(function: ir.Operation) -> None:
    for op in nested_operations(function):
        if _MARK in op.attributes:
            del op.attributes[_MARK]
