"""Inputs of a model on the command line: files, values in JSON, random numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import click
import numpy as np

from stepwell.artifact import TensorSpec
from stepwell.errors import InputError, UsageError
from stepwell.inspection.random_inputs import random_array
from stepwell.specialization import TENSOR, OpenSpec
from stepwell.tools.commands import common

Arrays = dict[str, np.ndarray]
Specs = Sequence[TensorSpec | OpenSpec]

input_option = click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=@FILE.npy",
    help="An input: a .npy file, a value in JSON (NAME=[1, 2]), or all of them: @FILE.npz.",
)
random_option = click.option(
    "--random-inputs",
    "seed",
    type=int,
    metavar="SEED",
    help="Inputs not given: standard normal floats, integers 0 and 1.",
)
always_random_option = click.option(
    "--random-inputs",
    "seed",
    type=int,
    default=0,
    show_default=True,
    metavar="SEED",
    help="Seed of the inputs not given: standard normal floats, integers 0 and 1.",
)


def random_inputs(specs: Specs, seed: int, shapes: common.InputShapes) -> Arrays:
    """Standard normal floats, and zeros and ones, which are valid as flags, masks and indices.

    Raises UsageError for an input of which `shapes` has none."""
    generator = np.random.default_rng(seed)
    arrays: Arrays = {}
    for spec in specs:
        if spec.dtype == "string":
            raise UsageError(f"{spec} has no random values; give --input {spec.name}=...")
        if isinstance(spec, OpenSpec) and spec.kind != TENSOR:
            raise UsageError(f"{spec} has no random values: it is no tensor")
        shape = shapes.get(spec.name)
        if shape is None:
            raise UsageError(f"the shape of {spec} is open; give --shape {spec.name}=... for it")
        arrays[spec.name] = random_array(generator, spec.dtype, shape)
    return arrays


def read_inputs(items: Sequence[str], specs: Specs) -> dict[str, object]:
    """Inputs by name from `NAME=@FILE`, `NAME=VALUE` or `@FILE`; raises UsageError, InputError."""
    feed: dict[str, object] = {}
    names = [spec.name for spec in specs]
    for item in items:
        name, value = split(item)
        if value.startswith("@"):
            feed.update(named(item, names))
            continue
        try:
            feed[name] = json.loads(value)
        except json.JSONDecodeError:
            raise UsageError(f"--input {item}: the value is neither @FILE nor JSON") from None
    return feed


def completed(
    feed: Mapping[str, object], specs: Specs, seed: int, shapes: common.InputShapes | None
) -> dict[str, object]:
    """`feed` and random inputs for the others, whose open sizes follow from those of `shapes` and
    of what is given, where they can. Raises UsageError where they do not."""
    missing = [spec for spec in specs if spec.name not in feed]
    known = common.complete_shapes(specs, {**(shapes or {}), **given_shapes(feed)})
    return {**random_inputs(missing, seed, known), **feed}


def given_shapes(feed: Mapping[str, object]) -> common.InputShapes:
    """The shapes of arrays and of JSON, but not of lists of different lengths."""
    return {name: shape for name, value in feed.items() if (shape := _shape(value)) is not None}


def split(item: str) -> tuple[str, str]:
    """(name, file or value) of `NAME=@FILE`, `NAME=VALUE` or `@FILE`; the name may be empty."""
    if item.startswith("@"):
        return "", item
    name, equals, value = item.partition("=")
    if not equals:
        raise UsageError(f"{item} is not of the form NAME=@FILE or @FILE")
    return name, value


def named(item: str, names: Sequence[str]) -> Arrays:
    """Arrays by name of one `[NAME=]@FILE`; a lone array without a name is that of `names[0]`."""
    name, value = split(item)
    if not value.startswith("@"):
        raise UsageError(f"{item} names no file; write {name}=@FILE")
    content = _read_file(value[1:])
    if isinstance(content, dict):
        return content if not name else {name: content[name]}
    if not name and len(names) != 1:
        raise UsageError(f"{item} needs a name, one of: {', '.join(names)}")
    return {name or names[0]: content}


def _read_file(path: str) -> np.ndarray | Arrays:
    try:
        loaded = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        reason = getattr(error, "strerror", None) or "it is not a .npy or .npz file"
        raise InputError(f"{path} cannot be read: {reason.lower()}") from error
    return loaded if isinstance(loaded, np.ndarray) else dict(loaded)


def _shape(value: object) -> tuple[int, ...] | None:
    try:
        return np.asarray(value).shape
    except ValueError:
        return None
