"""The dialect of StableHLO's reference interpreter: probes, which a compiled program passes by.

    %1 = interpreter.probe %0, probe_id = "sum" : tensor<3xf32>
    check.expect_serialized_eq %2, probe_id = "sum" : tensor<3xf32>

becomes `%0`, and `check.expect_eq` of `%2` and `%0`: nothing is written to files. Neither dialect
is in the wheel; their operations are read in MLIR's generic form.

Semantics: https://github.com/openxla/stablehlo (stablehlo/reference/InterpreterOps.td).
"""

from __future__ import annotations

import re

from stepwell.errors import ModelError
from stepwell.kernels.structured import source_name
from stepwell.mlir import ir, nested_operations

_DIALECT = b"interpreter."
_COMPARISON = "check.expect_serialized_eq"

_PASSING = re.compile(
    r"(?<![\"\w.])interpreter\.(probe|print)\s*(%[\w#$.-]+)\s*(?:,\s*probe_id\s*=\s*(\"[^\"]*\"))?"
    r"\s*:\s*(tensor<[^\n]*>)"
)
_COMPARING = re.compile(
    r"(?<![\"\w.])check\.expect_serialized_eq\s*(%[\w#$.-]+)\s*,\s*probe_id\s*=\s*(\"[^\"]*\")"
    r"(?:\s*,\s*iter\s*=\s*\d+)?\s*:\s*(tensor<[^\n]*>)"
)


def has_probes(data: bytes) -> bool:
    """Whether text or bytecode may have operations of the interpreter."""
    return _DIALECT in data


def without_probe_syntax(text: str) -> str:
    """`text` with its probes, and comparisons with them, in MLIR's generic form."""

    def passing(match: re.Match[str]) -> str:
        name, operand, identity, kind = match.groups()
        attributes = f" {{probe_id = {identity}}}" if identity else ""
        return f'"interpreter.{name}"({operand}){attributes} : ({kind}) -> {kind}'

    def comparing(match: re.Match[str]) -> str:
        operand, identity, kind = match.groups()
        return f'"{_COMPARISON}"({operand}) {{probe_id = {identity}}} : ({kind}) -> ()'

    return _COMPARING.sub(comparing, _PASSING.sub(passing, text))


def pass_by(module: ir.Module) -> None:
    """Give the users of probes what is probed, and compare with that where values are compared with
    what a probe has written.

    Raises ModelError where that is a probe in a loop or another function, and for programs that
    the interpreter runs on several devices.
    """
    probes = [op for op in nested_operations(module.operation) if op.name.startswith("interpreter")]
    for op in nested_operations(module.operation):
        if op.name == _COMPARISON:
            _compare(op, probes)
    for op in probes:
        if op.name == "interpreter.run_parallel":
            raise ModelError(
                f"{source_name(op)}: {op.name} runs programs on several devices; a model runs on "
                "one"
            )
        op.results[0].replace_all_uses_with(op.operands[0])
        op.erase()


def _compare(op: ir.Operation, probes: list[ir.Operation]) -> None:
    identity = ir.StringAttr(op.attributes["probe_id"]).value
    found = [
        probe
        for probe in probes
        if "probe_id" in probe.attributes
        and ir.StringAttr(probe.attributes["probe_id"]).value == identity
        and probe.parent == op.parent
    ]
    if not found or op.parent.name != "func.func":
        raise ModelError(
            f"{source_name(op)}: {op.name} compares with a probe {identity} that is not beside it; "
            "what is probed in a loop, a branch or another function is not kept"
        )
    with op.location, ir.InsertionPoint(op):
        ir.Operation.create("check.expect_eq", [], [op.operands[0], found[0].operands[0]])
    op.erase()
