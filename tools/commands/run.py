"""`stepwell run`: a model on given or random inputs, its outputs shown, written or compared."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import numpy as np

from stepwell.errors import UsageError
from stepwell.options import CompileOptions
from stepwell.tools.commands import common, feeds
from stepwell.tools.commands.feeds import Arrays


@click.command("run")
@click.argument("model")
@feeds.input_option
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
@feeds.random_option
@common.target_option
@common.shape_option
@common.level_option
@common.precision_option
@common.tuning_option
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
    precision: str,
    tuning: str | None,
    threads: int | None,
    no_cache: bool,
    as_json: bool,
) -> int:
    """Run MODEL, an artifact or anything that `stepwell compile` takes."""
    options = CompileOptions(
        opt_level=opt_level, precision=precision, use_cache=not no_cache, tuning=tuning
    )
    sizes = common.parse_shapes(shapes)
    exe = common.load_or_compile(model, target, threads, sizes, options)
    feed = feeds.read_inputs(inputs, exe.inputs)
    if seed is not None:
        feed = feeds.completed(feed, exe.inputs, seed, sizes)
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
        name, value = feeds.split(item)
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
    for name, wanted in feeds.named(item, list(results)).items():
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
