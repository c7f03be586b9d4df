"""Models for commands that measure: compiled whole and ahead, with inputs for them."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from stepwell.errors import UsageError
from stepwell.options import CompileOptions
from stepwell.partitioned import PartitionedExecutable
from stepwell.runtime.inputs import input_array, named_inputs
from stepwell.runtime.load_artifact import Loaded
from stepwell.runtime.steps import SteppedModel
from stepwell.specializing import SpecializingExecutable
from stepwell.tools.commands import common, feeds


def load_with_inputs(
    model: str | bytes,
    target: str,
    threads: int | None,
    shapes: common.InputShapes | None,
    options: CompileOptions,
    inputs: Sequence[str] = (),
    seed: int = 0,
) -> tuple[Loaded | SteppedModel, list[np.ndarray]]:
    """The executable of an artifact's path or of a model (its path, or what it is), and the arrays
    to call it with: those of `inputs`, as `--input` has them, and random ones.

    A model whose shapes depend on data is compiled when it is called. Raises UsageError for shapes
    that stay open, and for a model of which the host runs a part.
    """
    source = sys.stdin.buffer.read() if model == "-" else model  # perhaps compiled twice
    exe = common.load_or_compile(source, target, threads, shapes, options)
    given = feeds.read_inputs(inputs, exe.inputs)
    sizes = common.complete_shapes(exe.inputs, {**(shapes or {}), **feeds.given_shapes(given)})
    if isinstance(exe, SpecializingExecutable):
        open_inputs = ", ".join(str(spec) for spec in exe.inputs if spec.name not in sizes)
        if open_inputs:
            raise UsageError(f"what is timed needs known shapes; give --shape for {open_inputs}")
        exe = common.load_or_compile(source, target, threads, sizes, options)
    if isinstance(exe, PartitionedExecutable):
        raise _not_whole(exe)
    feed = feeds.completed(given, exe.inputs, seed, sizes)
    values = named_inputs(exe.inputs, feed)
    return exe, [
        input_array(spec.name, value, spec.dtype)
        for spec, value in zip(exe.inputs, values, strict=True)
    ]


def whole(exe: Loaded | SteppedModel) -> Loaded:
    """`exe`, all of which is compiled. Raises UsageError for a model that runs in parts."""
    if isinstance(exe, SteppedModel):
        raise _not_whole(exe)
    return exe


def _not_whole(exe: SteppedModel | PartitionedExecutable) -> UsageError:
    return UsageError(
        f"what is measured here is compiled whole and ahead, and this model is not: {exe}"
    )
