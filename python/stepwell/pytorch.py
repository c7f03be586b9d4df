"""What the rest of Stepwell asks the PyTorch frontend. PyTorch is imported for its models alone."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stepwell.errors import UsageError
from stepwell.sizes import OpenShapes

if TYPE_CHECKING:
    from stepwell.frontends import Imported

Shapes = Mapping[str, Sequence[int]]

SUFFIX = ".torch_program"
"""Of a file of `frontends.torch.program_file`."""

EXPORTED_SUFFIX = ".pt2"
"""Of a file that `torch.export.save` wrote."""


def is_model(model: object) -> bool:
    """Whether `model` is of PyTorch: an ExportedProgram or its file, an nn.Module, or a pair of a
    module and its example inputs."""
    if isinstance(model, (str, os.PathLike)):
        return os.fspath(model).endswith(EXPORTED_SUFFIX)
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    if isinstance(model, tuple) and len(model) == 2:
        return isinstance(model[0], torch.nn.Module)
    return isinstance(model, (torch.nn.Module, torch.export.ExportedProgram))


def exported(model: object, example_inputs: object = None) -> object:
    """`model` as an ExportedProgram if it is of PyTorch, else as it is.

    Raises UsageError when the example inputs of a module are missing, or given for another model,
    and ModelError when it cannot be exported.
    """
    if not is_model(model):
        if example_inputs is not None:
            function = "; stepwell.jit compiles functions of JAX" if callable(model) else ""
            raise UsageError(
                "example_inputs= is for a torch.nn.Module; this is a "
                f"{type(model).__name__}{function}"
            )
        return model
    if isinstance(model, tuple):
        model, example_inputs = model
    from stepwell.frontends.torch import exported as exports

    if isinstance(model, (str, os.PathLike)):
        return exports.load(Path(os.fspath(model)))
    if isinstance(model, exports.ExportedProgram):
        return model
    if example_inputs is None:
        raise UsageError(
            f"the module {type(model).__name__} needs example inputs: "
            "stepwell.compile(module, example_inputs=(x,))"
        )
    return exports.export(model, example_inputs)  # pyright: ignore[reportArgumentType]


def write(
    model: object, path: Path, shapes: Shapes | None = None, sizes: OpenShapes | None = None
) -> None:
    """Write the program file of `model` at `shapes`, or at samples of `sizes`. Raises what
    `exports.program_of` does."""
    from stepwell.frontends.torch import exported as exports
    from stepwell.frontends.torch import program_file

    program = exported(model)
    if sizes is None:
        programs = [exports.program_of(program, shapes)]  # pyright: ignore[reportArgumentType]
    else:
        programs = sizes.sampled(
            lambda point: exports.program_of(program, sizes.shapes_at(point))  # pyright: ignore[reportArgumentType]
        )
    program_file.write(path, *programs)


def load_saved(data: bytes, source: str, shapes: Shapes | None) -> Imported:
    """Import what is in a file of `torch.export.save`, in this process."""
    from stepwell.frontends.torch import exported as exports
    from stepwell.frontends.torch import importer

    program = exports.program_of(exports.load(io.BytesIO(data), source), shapes)
    return importer.from_program(program, source)


def load(model: object, shapes: Shapes | None) -> Imported:
    """Import a model, or a program file, in this process."""
    from stepwell.frontends.torch import importer

    if isinstance(model, Path) and model.suffix == SUFFIX:
        return importer.from_file(model, shapes)
    from stepwell.frontends.torch import exported as exports

    program = exports.program_of(exported(model), shapes)  # pyright: ignore[reportArgumentType]
    return importer.from_program(program, "the PyTorch program")
