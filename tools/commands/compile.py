"""`stepwell compile`: a model into an artifact, or any level on the way printed."""

from __future__ import annotations

from pathlib import Path

import click

from stepwell import compiler
from stepwell.artifact import Artifact
from stepwell.errors import UsageError
from stepwell.options import CompileOptions
from stepwell.tools.commands import common

LEVELS = ("stablehlo", "linalg", "affine", "llvm", "nvvm")
FORMATS = (*LEVELS, "asm", "ptx", "obj", "so", "artifact")
_SUFFIXES = {"artifact": ".stepwell", "so": ".so", "obj": ".o"}
_LIBRARY_SUFFIXES = {".so": "so", ".o": "obj", ".s": "asm", ".ptx": "ptx"}


@click.command("compile")
@click.argument("model")
@click.option("-o", "output", help="Output file; - is stdout.  [default: the model's name]")
@common.target_option
@click.option("--emit", type=click.Choice(FORMATS), help="What to write.  [default: artifact]")
@common.shape_option
@common.level_option
@common.threads_option
@click.option("--dump-phases-to", metavar="DIR", help="Write the IR after each step there.")
@click.option("--compile-to", type=click.Choice(LEVELS), help="Stop at this level and print it.")
@click.option(
    "--compile-from", type=click.Choice(LEVELS), help="MODEL is IR of this level; go on from it."
)
@common.cache_option
def compile_command(
    model: str,
    output: str | None,
    target: str,
    emit: str | None,
    shapes: tuple[str, ...],
    opt_level: int,
    threads: int | None,
    dump_phases_to: str | None,
    compile_to: str | None,
    compile_from: str | None,
    no_cache: bool,
) -> None:
    """Compile MODEL (ONNX, StableHLO, an exported JAX function; - is stdin).

    The result is an artifact that `stepwell run` and `stepwell.load` take; --emit writes any
    level on the way instead.
    """
    if emit and compile_to:
        raise UsageError("--emit and --compile-to both say what to write; give one of them")
    kind = compile_to or emit or _LIBRARY_SUFFIXES.get(Path(output or "").suffix, "artifact")
    path = output or _default_output(model, kind)
    common.check_output(path)
    options = CompileOptions(
        opt_level=opt_level, dump_phases_to=dump_phases_to, use_cache=not no_cache
    )
    if kind in ("artifact", "so") and compile_from is None:
        built = compiler.build(
            common.read_model(model), target, threads, common.parse_shapes(shapes), options
        )
        data = _built_data(built, kind)
    else:
        data = _lowered_data(
            model, kind, compile_from, target, threads, common.parse_shapes(shapes), options
        )
    common.write_output(path, data)
    if path != "-":
        common.note(f"wrote {path}")


def _built_data(built: Artifact, kind: str) -> bytes | memoryview:
    if kind == "artifact":
        return built.file
    if built.manifest.code_format != "shared-object":
        raise UsageError("there is no linker (cc, ld or lld) here to make a shared object with")
    return built.code_parts()[0]


def _lowered_data(
    model: str,
    kind: str,
    compile_from: str | None,
    target: str,
    threads: int | None,
    shapes: dict[str, tuple[int, ...]] | None,
    options: CompileOptions,
) -> str | bytes | memoryview:
    from stepwell import lowering

    source = common.read_model(model)
    if compile_from is None:
        lowered = lowering.lower(
            source, target=target, threads=threads, shapes=shapes, options=options
        )
    else:
        text = source if isinstance(source, bytes) else Path(model).read_bytes()
        lowered = lowering.Lowered.resume(
            text.decode(), compile_from, target=target, threads=threads, options=options
        )
    if kind in LEVELS:
        lowered.step(kind)
        return str(lowered)
    if kind in ("artifact", "so"):
        return _built_data(lowered.compile().artifact, kind)
    return lowered.emit(kind)


def _default_output(model: str, kind: str) -> str:
    if kind not in _SUFFIXES:
        return "-"
    return Path("model" if model == "-" else model).stem + _SUFFIXES[kind]
