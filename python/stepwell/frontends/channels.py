"""Operations that exchange data with the host or other devices while a program runs: refused."""

from __future__ import annotations

from stepwell.errors import Unsupported, UnsupportedError
from stepwell.kernels.structured import source_name
from stepwell.mlir import ir, nested_operations

_REMEDIES = {
    "stablehlo.infeed": "make what it reads an input",
    "stablehlo.outfeed": "make what it writes a result",
    "stablehlo.recv": "make what it receives an input",
    "stablehlo.send": "make what it sends a result",
}


def refuse_channels(main: ir.Operation) -> None:
    """Raise UnsupportedError, which names every operation of `main` that takes data from elsewhere
    or hands it on while the program runs."""
    findings = [
        Unsupported(
            _place(op),
            op.name,
            "a compiled program exchanges data with nobody while it runs; " + _REMEDIES[op.name],
        )
        for op in nested_operations(main)
        if op.name in _REMEDIES
    ]
    if findings:
        raise UnsupportedError(findings)


def _place(op: ir.Operation) -> str:
    """The name in the location of `op`, or where it stands in a text."""
    typed = ir.Location.from_attr(op.location.attr, op.context)
    if isinstance(typed, ir.FileLineColLoc):
        return f"{typed.filename}:{typed.start_line}:{typed.start_col}"
    return source_name(op)
