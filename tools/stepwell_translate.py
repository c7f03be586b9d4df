"""`stepwell-translate`: one format into another, without optimising on the way."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stepwell.tools.commands import common
from stepwell.tools.stepwell import run_command

if TYPE_CHECKING:
    from stepwell.frontends.export import Format


def _to_stablehlo(data: object, format: Format, version: str | None) -> bytes:
    """Any model to StableHLO, weights written out."""
    from stepwell import frontends
    from stepwell.frontends.export import to_bytes

    return to_bytes(frontends.load(data), format, version)


def _to_llvm_ir(data: object) -> str:
    """A module in the LLVM dialect to LLVM IR text."""
    from stepwell.errors import ModelError
    from stepwell.mlir import ir, new_context, translate_to_llvm_ir

    source = data if isinstance(data, bytes) else Path(str(data)).read_bytes()
    with new_context(), ir.Location.unknown():
        try:
            return translate_to_llvm_ir(ir.Module.parse(source).operation)
        except ir.MLIRError as error:
            raise ModelError(f"{data}: error: {error}") from error


_LLVM_IR = "mlir-to-llvmir"
_STABLEHLO: dict[str, Format] = {
    "import": "text",
    "to-bytecode": "bytecode",
    "serialize-stablehlo": "portable",
}


@click.command("stepwell-translate")
@click.argument("file", default="-")
@click.option("--import", "translation", flag_value="import", help="Any model to StableHLO.")
@click.option(
    "--to-bytecode",
    "translation",
    flag_value="to-bytecode",
    help="Any model to StableHLO in MLIR's bytecode.",
)
@click.option(
    "--serialize-stablehlo",
    "translation",
    flag_value="serialize-stablehlo",
    help="Any model to a StableHLO portable artifact.",
)
@click.option(
    "--mlir-to-llvmir",
    "translation",
    flag_value=_LLVM_IR,
    help="The LLVM dialect to LLVM IR.",
)
@click.option("--version", help="StableHLO version of a portable artifact, 1.13.0 for instance.")
@click.option("-o", "output", default="-", help="Output file; - is stdout.")
def translate(file: str, translation: str | None, version: str | None, output: str) -> None:
    """Translate FILE (- is stdin) from one format into another."""
    if translation is None:
        raise click.UsageError(f"give one of: --{', --'.join([*_STABLEHLO, _LLVM_IR])}")
    model = common.read_model(file)
    if translation in _STABLEHLO:
        written = _to_stablehlo(model, _STABLEHLO[translation], version)
    elif version is not None:
        raise click.UsageError("--version is for StableHLO")
    else:
        written = _to_llvm_ir(model)
    common.write_output(output, written)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool; returns the exit code."""
    return run_command(translate, argv)


if __name__ == "__main__":
    sys.exit(main())
