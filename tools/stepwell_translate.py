"""`stepwell-translate`: one format into another, without optimising on the way."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from stepwell.tools.commands import common
from stepwell.tools.stepwell import run_command


def _to_stablehlo(data: object) -> str:
    """Any model to StableHLO text, weights written out."""
    from stepwell import frontends
    from stepwell.frontends.export import with_inline_constants

    return str(with_inline_constants(frontends.load(data)))


def _to_portable_artifact(data: object) -> bytes:
    """Any model to a StableHLO portable artifact."""
    from stepwell import frontends
    from stepwell.frontends.export import to_portable_artifact

    return to_portable_artifact(frontends.load(data))


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


_TRANSLATIONS: dict[str, Callable[[object], str | bytes]] = {
    "import": _to_stablehlo,
    "serialize-stablehlo": _to_portable_artifact,
    "mlir-to-llvmir": _to_llvm_ir,
}


@click.command("stepwell-translate")
@click.argument("file", default="-")
@click.option("--import", "translation", flag_value="import", help="Any model to StableHLO.")
@click.option(
    "--serialize-stablehlo",
    "translation",
    flag_value="serialize-stablehlo",
    help="Any model to a StableHLO portable artifact.",
)
@click.option(
    "--mlir-to-llvmir",
    "translation",
    flag_value="mlir-to-llvmir",
    help="The LLVM dialect to LLVM IR.",
)
@click.option("-o", "output", default="-", help="Output file; - is stdout.")
def translate(file: str, translation: str | None, output: str) -> None:
    """Translate FILE (- is stdin) from one format into another."""
    if translation is None:
        raise click.UsageError(f"give one of: --{', --'.join(_TRANSLATIONS)}")
    common.write_output(output, _TRANSLATIONS[translation](common.read_model(file)))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool; returns the exit code."""
    return run_command(translate, argv)


if __name__ == "__main__":
    sys.exit(main())
