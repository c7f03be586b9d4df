"""`python -m benchmarks.layers`: every convolution shape of whole networks against the core's peak.

Each network runs on one thread, pinned; a layer's time is the median of its kernel's traced time,
in place between its neighbours, with what is fused into it. Layers of one shape count together.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import shlex
import statistics
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

import stepwell
from benchmarks import machine
from benchmarks.folders import RESULTS
from benchmarks.layers_table import layers_table
from benchmarks.models import catalog
from benchmarks.peers.registry import PEERS
from benchmarks.run import cpus_for
from stepwell.inspection.kernel_times import kernel_times

NETWORKS = ("resnet50_b1", "mobilenetv2_b1", "unet_256_b1")


@click.command()
@click.option("--models", default=",".join(NETWORKS), show_default=True, help="Comma separated.")
@click.option("--out", type=click.Path(path_type=Path), help="JSON file.  [default: results/]")
def main(models: str, out: Path | None) -> None:
    """Time the convolutions of networks; write JSON and print a table."""
    names = models.split(",")
    catalog.ensure_made(names)
    cpu = cpus_for(1)[0]
    facts = machine.describe(cpu)
    data = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": shlex.join(["python", "-m", "benchmarks.layers", *sys.argv[1:]]),
        "machine": facts,
        "versions": machine.versions(PEERS["stepwell"].packages),
        "layers": [row for name in names for row in measure(name, cpu)],
    }
    out = out or RESULTS / f"{datetime.date.today()}-{machine.slug()}-layers.json"
    out.write_text(json.dumps(data, indent=1) + "\n")
    layers_table(data).print()
    click.echo(f"wrote {out}", err=True)


def measure(name: str, cpu: int) -> list[dict[str, object]]:
    """The convolution shapes of one network: how many layers, their median seconds, their FLOP."""
    files = catalog.files(name)
    shapes = convolution_shapes(files.path)
    executable = stepwell.compile(files.path, threads=1, options={"progress": False})
    assert isinstance(executable, stepwell.Executable)
    data = np.load(files.data)
    arrays = [data[f"in:{spec.name}"] for spec in executable.inputs]
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        timed = kernel_times(executable, arrays)
    finally:
        os.sched_setaffinity(0, everywhere)
    found: dict[Shape, list[float]] = defaultdict(list)
    for time in timed:
        layer = next((source for source in time.kernel.sources if source in shapes), None)
        if layer is not None and time.kernel.flops >= shapes[layer].flops:  # else its padding
            found[shapes[layer]].append(time.seconds)
    return [
        {
            "model": name,
            "shape": shape.text,
            "layers": len(found[shape]),
            "seconds": statistics.median(found[shape]),
            "flops": shape.flops,
        }
        for shape in dict.fromkeys(shapes.values())
        if shape in found
    ]


@dataclass(frozen=True)
class Shape:
    """Window, stride, channels and the size of the result, in words; and the FLOP of it."""

    text: str
    flops: int


def convolution_shapes(path: Path) -> dict[str, Shape]:
    """The shape of each convolution of an ONNX model, by node name."""
    import onnx

    graph = onnx.shape_inference.infer_shapes(onnx.load(path)).graph
    sizes = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    for info in (*graph.value_info, *graph.output):
        sizes[info.name] = [d.dim_value for d in info.type.tensor_type.shape.dim]
    shapes = {}
    for node in graph.node:
        if node.op_type not in ("Conv", "ConvTranspose"):
            continue
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        weight, result = sizes[node.input[1]], sizes[node.output[0]]
        window = "x".join(map(str, weight[2:]))
        stride = attributes.get("strides", [1])[0]
        group = attributes.get("group", 1)
        transposed = node.op_type == "ConvTranspose"
        inputs, outputs = weight[:2] if transposed else (weight[1] * group, weight[0])
        kind = "transposed " if transposed else "depthwise " if 1 < group == inputs else ""
        place = "x".join(map(str, result[2:]))
        flops = 2 * math.prod(weight) * math.prod(result[2:]) * result[0]
        if transposed:
            flops //= math.prod(attributes.get("strides", [1]))
        text = f"{kind}{window}/{stride} {inputs} to {outputs} at {place}"
        shapes[node.name] = Shape(text, flops)
    return shapes


if __name__ == "__main__":
    main()
