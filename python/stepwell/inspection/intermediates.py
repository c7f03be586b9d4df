"""Models with their intermediate values as outputs, whichever frontend reads them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stepwell.errors import ModelError
from stepwell.frontends import Imported, Shapes, export, load
from stepwell.kernels.structured import source_name
from stepwell.mlir import ir
from stepwell.pipeline import main_function

if TYPE_CHECKING:
    import onnx

_SILENT = (
    "stablehlo.constant",
    "stablehlo.iota",
    "stablehlo.broadcast_in_dim",
    "stablehlo.reshape",
)
"""Operations that compute nothing."""


@dataclass(frozen=True)
class Layer:
    """A value that a model computes: output `value` of source node `node`, from other values."""

    node: str
    operator: str
    value: str
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class Instrumented:
    """A model, an onnx.ModelProto or bytes of StableHLO, whose outputs are the named `values`, and
    the layers that they are of in the order of the program."""

    model: onnx.ModelProto | bytes
    values: tuple[str, ...]
    layers: tuple[Layer, ...]

    def by_value(self, results: Sequence[object]) -> dict[str, object]:
        """What a call gave, by the names of values."""
        return dict(zip(self.values, results, strict=True))


def instrumented(model: object, shapes: Shapes) -> Instrumented:
    """`model`, as `stepwell.compile` takes it, with the values in its graph as further outputs:
    those of an ONNX graph's nodes, of other models those of StableHLO's operations, for inputs of
    `shapes`. What is in loops, branches and functions stays there.

    Raises ModelError for a program with checks, and what importing the model raises.
    """
    from stepwell.frontends.onnx import reader

    proto = reader.find_model(model)
    if proto is None:
        return _of_stablehlo(load(model, shapes=shapes))
    if isinstance(model, (str, os.PathLike)):
        reader.load_weights(proto, Path(os.fspath(model)).parent)
    return _of_onnx(proto)


def _of_onnx(proto: onnx.ModelProto) -> Instrumented:
    import onnx

    from stepwell.frontends.onnx.node import node_name

    whole = onnx.ModelProto()
    whole.CopyFrom(proto)
    layers = tuple(
        Layer(node_name(node), node.op_type, value, tuple(node.input))
        for node in whole.graph.node
        if node.op_type != "Constant"
        for value in node.output
        if value
    )
    known = {info.name for info in whole.graph.output}
    added = (layer.value for layer in layers if layer.value not in known)
    whole.graph.output.extend(onnx.ValueInfoProto(name=value) for value in added)
    return Instrumented(whole, tuple(info.name for info in whole.graph.output), layers)


def _of_stablehlo(imported: Imported) -> Instrumented:
    if imported.checks:
        raise ModelError(f"{imported.source} has checks in it, which are made after each call")
    with imported.context, ir.Location.unknown():
        main = main_function(imported.module)
        block = main.regions[0].blocks[0]
        *operations, end = (child.operation for child in block.operations)
        names: dict[ir.Value, str] = {value: f"arg{n}" for n, value in enumerate(block.arguments)}
        layers: list[Layer] = []
        added: list[ir.Value] = []
        seen: Counter[str] = Counter()
        for op in operations:
            if op.name in _SILENT:  # named after the values that they show in another form
                shown = next((names[value] for value in op.operands), source_name(op))
                names |= dict.fromkeys(op.results, shown)
                continue
            node = _numbered(source_name(op), seen)
            for number, value in enumerate(op.results):
                names[value] = f"{node}:{number}" if len(op.results) > 1 else node
            inputs = tuple(names[value] for value in op.operands)
            operator = op.name.partition(".")[2]
            arrays = [value for value in op.results if isinstance(value.type, ir.RankedTensorType)]
            layers += [Layer(node, operator, names[value], inputs) for value in arrays]
            added += arrays
        own = [f"output {number}" for number in range(len(end.operands))]
        set_results(main, [*end.operands, *added])
        data = export.to_bytes(imported, "bytecode")
    return Instrumented(data, (*own, *(names[value] for value in added)), tuple(layers))


def _numbered(name: str, seen: Counter[str]) -> str:
    """`name`, from the second time on with its number."""
    seen[name] += 1
    return name if seen[name] == 1 else f"{name} #{seen[name]}"


def set_results(main: ir.Operation, values: Sequence[ir.Value]) -> None:
    """Let the function `main` return `values`; its type is made again, of its arguments too."""
    *_, end = (child.operation for child in main.regions[0].blocks[0].operations)
    with ir.InsertionPoint(end):
        ir.Operation.create("func.return", operands=list(values))
    end.erase()
    inputs = [argument.type for argument in main.regions[0].blocks[0].arguments]
    kind = ir.FunctionType.get(inputs, [value.type for value in values])
    main.attributes["function_type"] = ir.TypeAttr.get(kind)
    if "res_attrs" in main.attributes:
        del main.attributes["res_attrs"]
