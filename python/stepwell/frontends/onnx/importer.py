"""From an ONNX graph to a StableHLO module: the walk over the nodes.

Values known at compile time (initializers, shapes, and what is computed from them) are carried as
numpy arrays and enter the IR only where a run-time operator uses them. All unsupported nodes are
collected and reported at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np
import onnx
import onnx.inliner

from stepwell import dtypes
from stepwell.errors import Error, LoweringError, ModelError, Unsupported, UnsupportedError
from stepwell.frontends import Imported, Shapes, TensorSpec
from stepwell.frontends.onnx import folding, reader, registry
from stepwell.frontends.onnx.functions import ONNX_DOMAINS, has_function, schema_function
from stepwell.frontends.onnx.node import Node, NotSupportedError, Scope, Tensor
from stepwell.mlir import dialect, ir, new_context
from stepwell.weights import WeightTable

Environment = dict[str, Tensor | None]
"""Tensors by name; None stands for the output of a node that could not be imported."""


def import_model(model: onnx.ModelProto, folder: Path, source: str, shapes: Shapes) -> Imported:
    """Import `model`, whose external data lies in `folder`, with inputs of `shapes`.

    Raises ModelError for a model that makes no sense, UnsupportedError listing unsupported nodes.
    """
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    context = new_context()
    weights = WeightTable()
    with context, ir.Location.unknown():
        inputs = _input_specs(model.graph, shapes)
        module = ir.Module.create()
        func = dialect("func")
        types = [dtypes.tensor_type(spec.shape, spec.dtype) for spec in inputs]
        with ir.InsertionPoint(module.body):
            main = func.FuncOp("main", (types, []))
        locations = [ir.Location.name(spec.name) for spec in inputs]
        block = main.add_entry_block(locations)
        scope = Scope(weights, block, folder)
        walk = _Walk(model, scope)
        values: Environment = {
            spec.name: scope.tensor(argument, spec.name)
            for spec, argument in zip(inputs, block.arguments, strict=True)
        }
        with ir.InsertionPoint(block):
            results = walk.graph(model.graph, values)
            walk.raise_findings()
            func.ReturnOp([result.value for result in results])
        result_types = [result.value.type for result in results]
        main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, result_types))
        module.operation.verify()
    outputs = tuple(
        TensorSpec(info.name, result.dtype, result.shape)
        for info, result in zip(model.graph.output, results, strict=True)
    )
    return Imported(context, module, weights, inputs, outputs, source)


def _input_specs(graph: onnx.GraphProto, shapes: Shapes) -> tuple[TensorSpec, ...]:
    initialized = {tensor.name for tensor in graph.initializer}
    inputs = [info for info in graph.input if info.name not in initialized]
    unknown = sorted(set(shapes) - {info.name for info in inputs})
    if unknown:
        known = ", ".join(info.name for info in inputs)
        raise ModelError(
            f'shapes= names "{unknown[0]}", which is no input of the model (inputs: {known})'
        )
    return tuple(_input_spec(info, shapes.get(info.name)) for info in inputs)


def _input_spec(info: onnx.ValueInfoProto, given: tuple[int, ...] | None) -> TensorSpec:
    tensor = info.type.tensor_type
    if not info.type.HasField("tensor_type"):
        raise ModelError(f'input "{info.name}" is not a tensor; only tensors are supported')
    dtype = _element_dtype(tensor.elem_type, f'input "{info.name}"')
    declared = [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim]
    names = [d.dim_param or "?" for d in tensor.shape.dim]
    if given is None:
        if tensor.HasField("shape") and None not in declared:
            return TensorSpec(info.name, dtype, tuple(d for d in declared if d is not None))
        text = ", ".join(n if d is None else str(d) for d, n in zip(declared, names, strict=True))
        example = tuple(1 if d is None else d for d in declared)
        raise ModelError(
            f'input "{info.name}" has open dimensions [{text}]; '
            f'give its shape, for instance shapes={{"{info.name}": {example}}}'
        )
    given = tuple(int(n) for n in given)
    matches = len(given) == len(declared) and all(
        d is None or d == n for d, n in zip(declared, given, strict=True)
    )
    if tensor.HasField("shape") and not matches:
        text = ", ".join(n if d is None else str(d) for d, n in zip(declared, names, strict=True))
        raise ModelError(
            f'input "{info.name}" is declared [{text}] in the model, but shapes= gives {given}'
        )
    return TensorSpec(info.name, dtype, given)


def _element_dtype(kind: int, place: str) -> np.dtype:
    if kind in onnx.TensorProto.DataType.values() and kind not in (
        onnx.TensorProto.UNDEFINED,
        onnx.TensorProto.STRING,
    ):
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind))
        with contextlib.suppress(LoweringError):
            dtypes.to_mlir(dtype)
            return dtype
    name = onnx.TensorProto.DataType.Name(kind) if kind else "undefined"
    raise ModelError(f"{place} has element type {name}, which is not supported")


class _Walk:
    """Imports graphs node by node; subgraphs see the values of the graph around them."""

    def __init__(self, model: onnx.ModelProto, scope: Scope) -> None:
        self.scope = scope
        self.findings: list[Unsupported] = []
        self.opsets = {entry.domain: entry.version for entry in model.opset_import}
        self.opset = next((self.opsets[d] for d in ONNX_DOMAINS if d in self.opsets), 1)

    def raise_findings(self) -> None:
        """Raise UnsupportedError when any node could not be imported."""
        if self.findings:
            raise UnsupportedError(self.findings)

    def graph(self, graph: onnx.GraphProto, values: Environment) -> list[Tensor]:
        """Import `graph`; `values` holds its inputs. Returns its outputs."""
        for tensor in graph.initializer:
            self._initializer(tensor, values)
        if graph.sparse_initializer:
            name = graph.sparse_initializer[0].values.name
            raise ModelError(f'the initializer "{name}" is sparse, which is not supported')
        for proto in graph.node:
            self.node(proto, values)
        results: list[Tensor] = []
        for info in graph.output:
            if info.name not in values:
                raise ModelError(f'the output "{info.name}" is computed by no node')
            result = values[info.name]
            if result is not None:
                results.append(result)
        return results

    def _initializer(self, tensor: onnx.TensorProto, values: Environment) -> None:
        _element_dtype(tensor.data_type, f'the initializer "{tensor.name}"')
        array = reader.tensor_array(tensor, self.scope.folder)
        values[tensor.name] = self.scope.constant(array, tensor.name)

    def node(self, proto: onnx.NodeProto, values: Environment) -> None:
        """Import one node: enters its outputs into `values`, or a finding into `findings`."""

        def inline(graph: onnx.GraphProto) -> list[Tensor]:
            return self.graph(graph, dict(values))

        node = Node(proto, self.opset, self.scope, inline)
        for name in proto.input:
            if name and name not in values:
                raise ModelError(
                    f'node "{node.name}" ({proto.op_type}) reads "{name}" before any node '
                    "computes it: the graph has a cycle or is not sorted"
                )
        inputs = [values[name] if name else None for name in proto.input]
        broken = any(name and values[name] is None for name in proto.input)
        results: Sequence[Tensor | None] = [None] * len(proto.output)
        try:
            if not broken:
                results = self._import(node, inputs)
            elif not self._is_known(proto):
                self._refuse(node)
        except (NotSupportedError, Error, ir.MLIRError) as error:
            self._find(node, _sentence(error))
        for name, result in zip(proto.output, results, strict=False):
            if name:
                values[name] = result
        for name in proto.output[len(results) :]:
            values[name] = None

    def _is_known(self, proto: onnx.NodeProto) -> bool:
        if proto.domain not in ONNX_DOMAINS:
            return False
        return registry.find(proto.op_type, self.opset) is not None or has_function(proto)

    def _refuse(self, node: Node) -> NoReturn:
        domain = node.proto.domain
        place = "" if domain in ONNX_DOMAINS else f" of domain {domain}"
        node.unsupported(f"the operator{place} is not supported (opset {self.opset})")

    def _import(self, node: Node, inputs: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        """The outputs of `node`: by its own function, by the standard's body, or folded."""
        if node.proto.domain not in ONNX_DOMAINS:
            self._refuse(node)
        operator = registry.find(node.operator, self.opset)
        arrays = None if operator and operator.folds else folding.evaluate(node, inputs)
        if arrays is not None:
            return self._wrap(arrays, node)
        if operator is not None:
            with ir.Location.name(node.name):
                results = operator.build(node, *inputs)
            return self._wrap(results if isinstance(results, (list, tuple)) else [results], node)
        body = schema_function(node.proto, self.opset, inputs)
        if body is None:
            self._refuse(node)
        return self._function(body, node, inputs)

    def _function(
        self, body: onnx.FunctionProto, node: Node, inputs: Sequence[Tensor | None]
    ) -> list[Tensor | None]:
        """Import the body of an operator that the standard defines as a function."""
        local: Environment = dict(zip(body.input, inputs, strict=False))
        absent = {name for name in body.input if local.get(name) is None}
        before = len(self.findings)
        for proto in body.node:
            renamed = onnx.NodeProto()
            renamed.CopyFrom(proto)
            renamed.name = f"{node.name}/{proto.op_type}"
            renamed.input[:] = ["" if name in absent else name for name in proto.input]
            self.node(renamed, local)
        if len(self.findings) > before:
            return [None] * len(node.proto.output)
        return [local.get(name) for name in body.output]

    def _wrap(self, results: Iterable[object], node: Node) -> list[Tensor]:
        tensors: list[Tensor] = []
        names = [*node.proto.output, *[""] * 8]
        for result, name in zip(results, names, strict=False):
            if isinstance(result, Tensor):
                tensors.append(result)
            elif isinstance(result, (np.ndarray, np.generic)):
                tensors.append(self.scope.constant(np.asarray(result), name or node.name))
            else:
                tensors.append(self.scope.tensor(result, name))  # pyright: ignore[reportArgumentType]
        return tensors

    def _find(self, node: Node, reason: str) -> None:
        self.findings.append(Unsupported(node.name, node.operator, reason))


def _sentence(error: Exception) -> str:
    """One line of what an error says; MLIR's prefixes dropped."""
    text = str(error).replace("Operation creation failed:\n", "").strip().splitlines()[0]
    return text.removeprefix("error: ").split(": ", 1)[-1] if "error: " in text else text
