"""`stepwell run`: a model on given or random inputs, its outputs shown, written or compared."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click
import numpy as np

from stepwell.artifact import TensorSpec
from stepwell.errors import InputError, UsageError
from stepwell.options import CompileOptions
from stepwell.runtime.inputs import numpy_dtype
from stepwell.specialization import TENSOR, OpenSpec
from stepwell.tools.commands import common

Arrays = dict[str, np.ndarray]


@click.command("run")
@click.argument("model")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=@FILE.npy",
    help="An input: a .npy file, a value in JSON (NAME=[1, 2]), or all of them: @FILE.npz.",
)
@click.option(
    "--output",
    "outputs",
    multiple=True,
    metavar="[NAME=]@FILE",
    help="Where outputs go: one to .npy, all to .npz.",
)
@click.option(
    "--expected",
    multiple=True,
    metavar="[NAME=]@FILE",
    help="What outputs have to be; exit code 1 when they differ.",
)
@click.option("--rtol", default=1e-3, show_default=True, help="Relative tolerance.")
@click.option("--atol", default=1e-5, show_default=True, help="Absolute tolerance.")
@click.option(
    "--random-inputs",
    "seed",
    type=int,
    metavar="SEED",
    help="Inputs not given: standard normal floats, integers 0 and 1.",
)
@common.target_option
@common.shape_option
@common.level_option
@common.threads_option
@common.cache_option
@click.option("--json", "as_json", is_flag=True, help="Print the summary of outputs as JSON.")
def run(
    model: str,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    expected: tuple[str, ...],
    rtol: float,
    atol: float,
    seed: int | None,
    target: str,
    shapes: tuple[str, ...],
    opt_level: int,
    threads: int | None,
    no_cache: bool,
    as_json: bool,
) -> int:
    """Run MODEL, an artifact or anything that `stepwell compile` takes."""
    options = CompileOptions(opt_level=opt_level, use_cache=not no_cache)
    sizes = common.parse_shapes(shapes)
    exe = common.load_or_compile(model, target, threads, sizes, options)
    feed = _read_inputs(inputs, exe.inputs)
    if seed is not None:
        missing = [spec for spec in exe.inputs if spec.name not in feed]
        given = {name: shape for name, v in feed.items() if (shape := _shape(v)) is not None}
        known = common.complete_shapes(exe.inputs, {**(sizes or {}), **given})
        feed = {**random_inputs(missing, seed, known), **feed}
    results = dict(_flat(exe.run(feed).items()))
    _write_outputs(outputs, results)
    if as_json:
        print(json.dumps([_summary(name, array) for name, array in results.items()], indent=2))
    elif not outputs and not expected:
        for name, array in results.items():
            print(_line(name, array))
    differing = [sentence for item in expected for sentence in _compare(item, results, rtol, atol)]
    for sentence in differing:
        print(f"{model}: error: {sentence}", file=sys.stderr)
    return 1 if differing else 0


def random_inputs(
    specs: Sequence[TensorSpec | OpenSpec], seed: int, shapes: common.InputShapes
) -> Arrays:
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
        dtype = numpy_dtype(spec.dtype)
        if dtype.kind in "fV":
            arrays[spec.name] = generator.standard_normal(shape, np.float32).astype(dtype)
        else:
            arrays[spec.name] = generator.integers(0, 2, shape).astype(dtype)
    return arrays


def _split(item: str) -> tuple[str, str]:
    """(name, file or value) of `NAME=@FILE`, `NAME=VALUE` or `@FILE`; the name may be empty."""
    if item.startswith("@"):
        return "", item
    name, equals, value = item.partition("=")
    if not equals:
        raise UsageError(f"{item} is not of the form NAME=@FILE or @FILE")
    return name, value


def _read_file(path: str) -> np.ndarray | Arrays:
    try:
        loaded = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        reason = getattr(error, "strerror", None) or "it is not a .npy or .npz file"
        raise InputError(f"{path} cannot be read: {reason.lower()}") from error
    return loaded if isinstance(loaded, np.ndarray) else dict(loaded)


def _named(item: str, names: list[str]) -> Arrays:
    """Arrays by name of one `[NAME=]@FILE`; a lone array without a name is that of `names[0]`."""
    name, value = _split(item)
    if not value.startswith("@"):
        raise UsageError(f"{item} names no file; write {name}=@FILE")
    content = _read_file(value[1:])
    if isinstance(content, dict):
        return content if not name else {name: content[name]}
    if not name and len(names) != 1:
        raise UsageError(f"{item} needs a name, one of: {', '.join(names)}")
    return {name or names[0]: content}


def _read_inputs(
    items: tuple[str, ...], specs: Sequence[TensorSpec | OpenSpec]
) -> dict[str, object]:
    feed: dict[str, object] = {}
    names = [spec.name for spec in specs]
    for item in items:
        name, value = _split(item)
        if value.startswith("@"):
            feed.update(_named(item, names))
            continue
        try:
            feed[name] = json.loads(value)
        except json.JSONDecodeError:
            raise UsageError(f"--input {item}: the value is neither @FILE nor JSON") from None
    return feed


def _shape(value: object) -> tuple[int, ...] | None:
    """The shape of an array or of JSON; None for lists of different lengths."""
    try:
        return np.asarray(value).shape
    except ValueError:
        return None


def _flat(results: Iterable[tuple[str, object]]) -> Iterator[tuple[str, np.ndarray]]:
    """Results as arrays: sequences as `name[0]`, `name[1]`, ..., maps as JSON."""
    for name, value in results:
        if isinstance(value, list):
            yield from _flat((f"{name}[{i}]", part) for i, part in enumerate(value))
        elif isinstance(value, dict):
            yield name, np.array(json.dumps(value))
        elif value is not None:
            array = np.asarray(value)
            yield name, array.astype(str) if array.dtype == object else array


def _write_outputs(items: tuple[str, ...], results: Arrays) -> None:
    import io

    for item in items:
        name, value = _split(item)
        path = value.removeprefix("@")
        if name and name not in results:
            raise UsageError(f"the model has no output {name}; it has: {', '.join(results)}")
        data = io.BytesIO()
        if Path(path).suffix == ".npz":
            chosen = {name: results[name]} if name else results
            np.savez(data, **chosen)  # pyright: ignore[reportArgumentType]
        elif name or len(results) == 1:
            np.save(data, results[name or next(iter(results))])
        else:
            raise UsageError(f"{item} takes one output of {len(results)}; use .npz or NAME=@FILE")
        common.write_output(path, data.getvalue())


def _compare(item: str, results: Arrays, rtol: float, atol: float) -> list[str]:
    """A sentence for each output that differs from what `item` expects."""
    sentences = []
    for name, wanted in _named(item, list(results)).items():
        if name not in results:
            raise UsageError(f"the model has no output {name}; it has: {', '.join(results)}")
        got = results[name]
        if got.shape != wanted.shape:
            sentences.append(f"output {name} has shape {got.shape}, expected {wanted.shape}")
            continue
        if got.dtype.kind == "U":
            if not np.array_equal(got, wanted):
                sentences.append(f"output {name}: the strings are not those expected")
            continue
        a, b = got.astype(np.float64), wanted.astype(np.float64)
        wrong = ~np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
        if wrong.any():
            place = tuple(map(int, np.unravel_index(np.argmax(np.abs(a - b) * wrong), a.shape)))
            sentences.append(
                f"output {name}: {int(wrong.sum())} of {wrong.size} elements differ by more than "
                f"rtol {rtol}, atol {atol}; the largest at {list(place)}: {a[place]:.9g}, expected "
                f"{b[place]:.9g}"
            )
    return sentences


def _summary(name: str, array: np.ndarray) -> dict[str, object]:
    data: dict[str, object] = {
        "name": name,
        "dtype": str(array.dtype),
        "shape": list(array.shape),
    }
    if array.size and array.dtype.kind != "U":
        values = array.astype(np.float64)
        data |= {
            "min": float(values.min()),
            "max": float(values.max()),
            "mean": float(values.mean()),
        }
    return data


def _line(name: str, array: np.ndarray) -> str:
    head = f"{name}: {array.dtype}[{', '.join(map(str, array.shape))}]"
    flat = array.reshape(-1)
    words = (
        flat[:6] if flat.dtype.kind == "U" else [f"{v:.6g}" for v in flat[:6].astype(np.float64)]
    )
    shown = " ".join(words)
    return f"{head}  {shown}{' ...' if flat.size > 6 else ''}"
