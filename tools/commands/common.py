"""What several commands share: models, shapes, outputs, options."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stepwell import artifact
from stepwell.artifact import TensorSpec
from stepwell.compiler import Compiled, compile
from stepwell.errors import ArtifactError, UsageError
from stepwell.open_shapes import UNNAMED
from stepwell.options import PRECISIONS, CompileOptions
from stepwell.runtime.load import load
from stepwell.runtime.open_model import OpenSizeModel
from stepwell.runtime.stepped_executable import SteppedExecutable
from stepwell.specialization import TENSOR, OpenSpec, check_shape

if TYPE_CHECKING:
    from rich.console import Console

InputShapes = dict[str, tuple[int, ...]]
"""Shapes by the names of inputs."""

_FILE_COLUMNS = 140

target_option = click.option(
    "--target", default="cpu", show_default=True, help="The machine, as `stepwell targets` lists."
)
threads_option = click.option(
    "--threads", type=click.IntRange(min=1), help="Threads of a run.  [default: physical cores]"
)
shape_option = click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME=1x3x224x224",
    help="Shape of an open input.",
)
named_shape_option = click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME=1x3x224x224",
    help="Size of a dynamic input; NAME=1,n has names for open sizes (also 32*n, n+m), with --max.",
)
max_option = click.option(
    "--max",
    "max_sizes",
    multiple=True,
    metavar="NAME=512",
    help="Largest size of a dimension's name, in --shape or in the model: "
    "one artifact for any size up to it.",
)
level_option = click.option(
    "-O", "opt_level", type=click.IntRange(0, 3), default=3, help="Optimisation level 0 to 3."
)
precision_option = click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    default="default",
    show_default=True,
    help="How exact products have to be (CompileOptions).",
)
tuning_option = click.option(
    "--tuning", metavar="FILE", help="A tuning record, whose choices replace the cost models'."
)
cache_option = click.option("--no-cache", is_flag=True, help="Compile even what is in the cache.")


def read_model(text: str) -> object:
    """A MODEL argument: a path, or bytes from stdin for `-`. Raises UsageError for an artifact."""
    if text == "-":
        return sys.stdin.buffer.read()
    if artifact.is_artifact(text):
        raise UsageError(f"{text} is an artifact, which is compiled already; give the model itself")
    return Path(text)


def parse_shapes(items: Sequence[str]) -> InputShapes | None:
    """Shapes by name from `name=1x3x224x224`; raises UsageError."""
    shapes: InputShapes = {}
    for item in items:
        name, equals, sizes = item.rpartition("=")
        try:
            shapes[name] = tuple(int(size) for size in sizes.split("x") if size)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise UsageError(f"--shape {item} is not of the form NAME=1x3x224x224")
    return shapes or None


def parse_named_shapes(items: Sequence[str]) -> dict[str, tuple[int | str, ...]] | None:
    """Shapes as `parse_shapes` takes them, or `name=1,n` with names; raises UsageError."""
    shapes: dict[str, tuple[int | str, ...]] = {}
    for item in items:
        name, _, text = item.rpartition("=")
        has_names = "," in text or text.isidentifier()
        sizes = [size for size in text.split("," if has_names else "x") if size]
        right = all(size.isdigit() or (has_names and _is_open_size(size)) for size in sizes)
        if not name or not right or (text and not sizes):
            raise UsageError(f"--shape {item} is not of the form NAME=1x3x224x224 or NAME=1,n")
        shapes[name] = tuple(int(size) if size.isdigit() else size for size in sizes)
    return shapes or None


def _is_open_size(text: str) -> bool:
    """Whether `text` is a name, or a sum of names, multiples of names (`32*h`), and numbers."""
    return all(
        part.isdigit() or re.fullmatch(r"(?:\d+\*)?[^\W\d]\w*", part) for part in text.split("+")
    )


def parse_max_sizes(items: Sequence[str]) -> dict[str, int]:
    """Largest sizes by name from `n=512`; raises UsageError."""
    sizes: dict[str, int] = {}
    for item in items:
        name, _, size = item.rpartition("=")
        if not name or not size.isdigit():
            raise UsageError(f"--max {item} is not of the form NAME=512")
        sizes[name] = int(size)
    return sizes


def load_or_compile(
    model: str | bytes,
    target: str,
    threads: int | None,
    shapes: InputShapes | None,
    options: CompileOptions,
) -> Compiled | SteppedExecutable:
    """An executable of an artifact's path, or of a model (its path, or what it is). `shapes` are
    those that a model is compiled for, or those of inputs that an artifact with open sizes will be
    given.

    Raises UsageError for shapes that the artifact does not take, and what loading and compiling do.
    """
    if isinstance(model, bytes):
        return compile(model, target, threads, shapes, options)
    if model == "-" or not artifact.is_artifact(model):
        return compile(read_model(model), target, threads, shapes, options)
    loaded = load(model, threads)
    if shapes and not isinstance(loaded, (OpenSizeModel, SteppedExecutable)):
        raise UsageError("--shape has no effect on an artifact of fixed shapes")
    declared = {spec.name: spec.shape for spec in loaded.inputs}
    for name, shape in (shapes or {}).items():
        if name not in declared:
            names = ", ".join(declared)
            raise UsageError(f"--shape {name}: the model has no such input; its inputs are {names}")
        wanted = declared[name]
        if wanted is not None:
            check_shape(name, shape, wanted)
    return loaded


def complete_shapes(specs: Sequence[TensorSpec | OpenSpec], known: InputShapes) -> InputShapes:
    """`known` shapes of inputs by name and those that follow: of tensors without open dimensions,
    and of others whose open dimensions have a name that stands for a size in a known shape."""
    sizes: dict[int | str, int] = {}
    for spec in specs:
        shape = known.get(spec.name)
        if shape is not None and spec.shape is not None and len(shape) == len(spec.shape):
            named = zip(spec.shape, shape, strict=True)
            sizes |= {name: n for name, n in named if isinstance(name, str) and name != UNNAMED}
    found = dict(known)
    for spec in specs:
        is_tensor = not isinstance(spec, OpenSpec) or spec.kind == TENSOR
        if spec.name not in found and spec.shape is not None and is_tensor:
            shape = [sizes.get(size, size) for size in spec.shape]
            if all(isinstance(size, int) for size in shape):
                found[spec.name] = tuple(map(int, shape))
    return found


def check_output(path: str) -> None:
    """Raise ArtifactError now when `path` cannot be written later, after a long compilation."""
    folder = Path(path).parent
    if path != "-" and not os.access(folder, os.W_OK):
        reason = "the folder is not writable" if folder.exists() else "no such file or directory"
        raise ArtifactError(f"{path} cannot be written: {reason}")


def write_output(path: str, data: str | bytes | memoryview) -> None:
    """Write to a file, whole or not at all, or to stdout for `-`."""
    raw = data.encode() if isinstance(data, str) else data
    if path == "-":
        sys.stdout.buffer.write(raw)
        sys.stdout.buffer.flush()
        return
    with artifact.replaced_file(path) as file:
        file.write(raw)


def note(text: str) -> None:
    """A remark for people: on stderr, and only on a terminal."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


def console() -> Console:
    """Where tables go: stdout, as wide as the terminal, or wide enough in a file or pipe. Brackets,
    which shapes and the names of nodes have, mark nothing up."""
    from rich.console import Console

    return Console(
        highlight=False, markup=False, width=None if sys.stdout.isatty() else _FILE_COLUMNS
    )
