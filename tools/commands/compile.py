"""`stepwell compile`: a model into an artifact, or any level on the way printed."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stepwell import compiler
from stepwell.artifact import Artifact
from stepwell.compiler import Compiled
from stepwell.errors import ArtifactError, ModelError, UsageError
from stepwell.options import CompileOptions
from stepwell.tools.commands import common, feeds

if TYPE_CHECKING:
    from stepwell.lowering import Lowered

LEVELS = ("stablehlo", "linalg", "affine", "llvm", "nvvm")
FORMATS = (*LEVELS, "asm", "obj", "so", "ptx", "sass", "artifact")
_SUFFIXES = {"artifact": ".stepwell", "so": ".so", "obj": ".o"}
_LIBRARY_SUFFIXES = {".so": "so", ".o": "obj", ".s": "asm", ".ptx": "ptx"}
WEIGHTS_SUFFIX = ".safetensors"
"""Beside the text of a level that `--compile-to` writes: the weights that it names."""

_NAMES_WEIGHTS = re.compile(
    r'stepwell\.weight = "|dense_resource<|stepwell\.(weights|sources) = \{\w'
)


@click.command("compile")
@click.argument("model")
@click.option("-o", "output", help="Output file; - is stdout.  [default: the model's name]")
@common.target_option
@click.option("--emit", type=click.Choice(FORMATS), help="What to write.  [default: artifact]")
@common.named_shape_option
@common.max_option
@click.option(
    "--example",
    "examples",
    multiple=True,
    metavar="@FILE.npz",
    help="Inputs of one call. Of a model whose shapes depend on data, the artifact has the code "
    "that these calls need, from the second one on for any size.",
)
@click.option(
    "--random-example",
    "seeds",
    type=int,
    multiple=True,
    metavar="SEED",
    help="The same, with inputs as `run --random-inputs` makes them.",
)
@common.level_option
@common.precision_option
@click.option(
    "--flush-subnormals", is_flag=True, help="Let CPUs take the least of numbers for zeros."
)
@common.tuning_option
@common.threads_option
@click.option("--dump-phases-to", metavar="DIR", help="Write the IR after each step there.")
@click.option(
    "--compile-to",
    type=click.Choice(LEVELS),
    help="Stop at this level: its text, and the weights beside it, to go on from later.",
)
@click.option(
    "--compile-from",
    type=click.Choice(LEVELS),
    help="MODEL is what --compile-to wrote at this level; go on from it.",
)
@common.cache_option
def compile_command(
    model: str,
    output: str | None,
    target: str,
    emit: str | None,
    shapes: tuple[str, ...],
    max_sizes: tuple[str, ...],
    examples: tuple[str, ...],
    seeds: tuple[int, ...],
    opt_level: int,
    precision: str,
    flush_subnormals: bool,
    tuning: str | None,
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
        opt_level=opt_level,
        precision=precision,
        flush_subnormals=flush_subnormals,
        dump_phases_to=dump_phases_to,
        use_cache=not no_cache,
        tuning=tuning,
    )
    most = common.parse_max_sizes(max_sizes)
    if examples or seeds:
        if kind != "artifact" or compile_from or most:
            raise UsageError("examples are for artifacts of whole models, without --max")
        sizes = common.parse_shapes(shapes)
        source = common.read_model(model)
        exe = compiler.compile(source, target, threads, sizes, options)
        _call(exe, examples, seeds, sizes)
        _save_executable(exe, path)
    elif kind in ("artifact", "so") and compile_from is None:
        named = common.parse_named_shapes(shapes)
        source = common.read_model(model)
        built = compiler.build(source, target, threads, named, options, max_sizes=most)
        for finding in built.manifest.cuda.findings if built.manifest.cuda else ():
            print(f"stepwell: warning: {finding}", file=sys.stderr)
        common.write_output(path, _built_data(built, kind))
    else:
        if most:
            raise UsageError("--max is for artifacts; a level is printed for known sizes")
        sizes = common.parse_shapes(shapes)
        if compile_from is None:
            lowered = _lower(model, target, threads, sizes, options)
        else:
            lowered = _resume(model, compile_from, target, threads, options)
        if compile_to and path != "-":
            _save(lowered.step(compile_to), Path(path))
        else:
            common.write_output(path, _lowered_data(lowered, kind))
    if path != "-":
        common.note(f"wrote {path}")


def _call(
    exe: Compiled,
    examples: Sequence[str],
    seeds: Sequence[int],
    sizes: common.InputShapes | None,
) -> None:
    """Run `exe` on files and random inputs."""
    given = [feeds.read_inputs([example], exe.inputs) for example in examples]
    for feed in (*given, *(feeds.completed({}, exe.inputs, seed, sizes) for seed in seeds)):
        exe.run(feed)


def _save_executable(exe: Compiled, path: str) -> None:
    if path != "-":
        exe.save(path)
        return
    with tempfile.TemporaryDirectory(prefix="stepwell-") as folder:
        file = Path(folder) / "artifact.stepwell"
        exe.save(file)
        common.write_output(path, file.read_bytes())


def _built_data(built: Artifact, kind: str) -> bytes | memoryview:
    if kind == "artifact":
        return built.file
    if built.manifest.cuda is not None:
        raise UsageError(f"there is no shared object for {built.manifest.target}; emit ptx or sass")
    if built.manifest.code_format != "shared-object":
        raise UsageError("there is no linker (cc, ld or lld) here to make a shared object with")
    return built.code_parts()[0]


def _lower(
    model: str,
    target: str,
    threads: int | None,
    shapes: dict[str, tuple[int, ...]] | None,
    options: CompileOptions,
) -> Lowered:
    from stepwell import lowering

    source = common.read_model(model)
    return lowering.lower(source, target=target, threads=threads, shapes=shapes, options=options)


def _resume(
    model: str, level: str, target: str, threads: int | None, options: CompileOptions
) -> Lowered:
    from stepwell import lowering

    source = common.read_model(model)
    try:
        text = (source if isinstance(source, bytes) else Path(model).read_bytes()).decode()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ModelError(f"{model}: error: the module cannot be read: {reason}") from None
    except UnicodeDecodeError:
        raise ModelError(f"{model}: error: the module is no text") from None
    weights = Path(model + WEIGHTS_SUFFIX)
    if not weights.exists() and _NAMES_WEIGHTS.search(text):
        raise ModelError(
            f"{model}: error: the module names weights, but {weights} is missing; "
            "--compile-to writes it beside the module"
        )
    try:
        return lowering.Lowered.resume(
            text,
            level,
            weights=weights if weights.exists() else None,
            target=target,
            threads=threads,
            options=options,
        )
    except ModelError as error:
        raise ModelError(f"{model}: error: {error}") from None


def _save(lowered: Lowered, path: Path) -> None:
    """Write the module's text and its weights, both whole or none."""
    try:
        with tempfile.TemporaryDirectory(prefix=".stepwell-", dir=path.parent) as folder:
            lowered.save(Path(folder) / path.name)
            for part in sorted(Path(folder).iterdir(), reverse=True):
                os.replace(part, path.parent / part.name)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ArtifactError(f"{path} cannot be written: {reason}") from error


def _lowered_data(lowered: Lowered, kind: str) -> str | bytes | memoryview:
    if kind in LEVELS:
        return str(lowered.step(kind)) + "\n"
    if kind in ("artifact", "so"):
        return _built_data(lowered.build(), kind)
    return lowered.emit(kind)


def _default_output(model: str, kind: str) -> str:
    if kind not in _SUFFIXES:
        return "-"
    return Path("model" if model == "-" else model).stem + _SUFFIXES[kind]
