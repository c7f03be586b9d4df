"""From an ONNX graph to a StableHLO module: the walk over the nodes.

Values known at compile time (initializers, shapes, and what is computed from them) are carried as
numpy arrays and enter the IR only where a run-time operator uses them. All unsupported nodes are
collected and reported at once, and so are all values that a specialization has to make known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnx

from stepwell import dtypes
from stepwell.artifact import Cut, Layout
from stepwell.errors import Error, ModelError, OpenModelError, Unsupported, UnsupportedError
from stepwell.frontends import Imported, Shapes, TensorSpec
from stepwell.frontends.onnx import dependencies, folding, reader, registry, signature
from stepwell.frontends.onnx.checking import check_model, mixed_types
from stepwell.frontends.onnx.functions import (
    ONNX_DOMAINS,
    has_function,
    inlined,
    schema_function,
)
from stepwell.frontends.onnx.gradient import expand_gradients, has_gradient
from stepwell.frontends.onnx.node import (
    Absent,
    Built,
    HostLoopError,
    NeededError,
    Node,
    NotSupportedError,
    PendingError,
    Scope,
    StuckError,
    Tensor,
    TensorSequence,
    Value,
    node_name,
)
from stepwell.frontends.onnx.sorting import with_sorted_nodes
from stepwell.kernels.structured import location_names
from stepwell.mlir import dialect, ir, new_context
from stepwell.runtime.inputs import numpy_dtype
from stepwell.specialization import OpenSpec, Specialization, Structure
from stepwell.weights import WeightTable

_LISTED_REASONS = 3

Environment: TypeAlias = "dict[str, Value | None]"
"""Values by name; None stands for the output of a node that could not be imported."""


def import_model(
    model: onnx.ModelProto,
    folder: Path,
    source: str,
    shapes: Shapes,
    specialization: Specialization | None = None,
) -> Imported:
    """Import `model`, whose external data lies in `folder`, with inputs of `shapes`.

    Raises ModelError for a model that makes no sense, UnsupportedError listing unsupported nodes,
    OpenModelError for what has to be known and is not in `shapes` and `specialization`.
    """
    special = specialization or Specialization()
    model = with_sorted_nodes(inlined(model))
    check_model(model)
    if has_gradient(model.graph):
        model = expand_gradients(model)
    context = new_context()
    weights = WeightTable()
    with context, ir.Location.unknown():
        declared, outputs = signature.open_signature(model.graph)
        defaults = signature.default_inputs(model.graph)
        _check_names(shapes, [spec.name for spec in declared])
        try:
            parts = {s.name: signature.input_tensors(s, shapes, special) for s in declared}
        except OpenModelError as error:
            check_operators(model)
            raise OpenModelError(str(error), declared, outputs, defaults=defaults) from None
        inputs = [spec for tensors in parts.values() for spec in tensors]
        inputs += [
            TensorSpec(name, numpy_dtype(dtype), shape)
            for name, (dtype, shape) in special.given.items()
        ]
        module = ir.Module.create()
        func = dialect("func")
        types = [dtypes.tensor_type(spec.shape, spec.dtype) for spec in inputs]
        with ir.InsertionPoint(module.body):
            main = func.FuncOp("main", (types, []))
        block = main.add_entry_block([ir.Location.name(spec.name) for spec in inputs])
        scope = Scope(weights, block, folder, offered=special.offered)
        for spec, argument in zip(inputs, block.arguments, strict=True):
            scope.named[spec.name] = scope.tensor(argument, spec.name)
        differs = bool(special) or any(spec.is_open for spec in declared)
        walk = _Walk(model, scope, special, differs=differs)
        values: Environment = {
            name: walk.structured(name, special.structures.get(name, "tensor")) for name in parts
        }
        with ir.InsertionPoint(block):
            results = walk.results(model.graph, values, (declared, outputs, defaults))
            func.ReturnOp([result.value for result in results.tensors])
        result_types = [result.value.type for result in results.tensors]
        main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, result_types))
        _verify(module)
    specs = tuple(
        TensorSpec(name, result.dtype, result.shape)
        for name, result in zip(results.names, results.tensors, strict=True)
    )
    return Imported(
        context,
        module,
        weights,
        tuple(inputs),
        specs,
        source,
        results.layouts,
        results.cuts,
        _specs_of(defaults),
    )


def _verify(module: ir.Module) -> None:
    """Raise ModelError with the name of the first node whose operations make no sense."""
    try:
        module.operation.verify()
    except ir.MLIRError as error:
        first = error.error_diagnostics[0]
        name = next(iter(location_names(first.location)), "the model")
        raise ModelError(f"{name}: error: {first.message}") from None


def _specs_of(declared: Sequence[OpenSpec]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(spec.name, numpy_dtype(spec.dtype), tuple(int(n) for n in spec.shape or ()))
        for spec in declared
    )


def _check_names(shapes: Shapes, inputs: list[str]) -> None:
    known = {name.partition("[")[0] if name not in inputs else name for name in shapes}
    unknown = sorted(known - set(inputs))
    if unknown:
        raise ModelError(
            f'shapes= names "{unknown[0]}", which is no input of the model '
            f"(inputs: {', '.join(inputs)})"
        )


def check_operators(model: onnx.ModelProto) -> None:
    """Raise UnsupportedError for operators that are not supported whatever the shapes are."""
    opsets = opset_versions(model)
    findings = [
        Unsupported(node_name(proto), proto.op_type, _refusal(proto, version_of(proto, opsets)))
        for proto in model.graph.node
        if not is_known(proto, version_of(proto, opsets))
    ]
    if findings:
        raise UnsupportedError(findings)


def opset_versions(model: onnx.ModelProto) -> dict[str, int]:
    """Versions by domain; that of the standard's own is under its empty name."""
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    return opsets | {"": next((opsets[d] for d in ONNX_DOMAINS if d in opsets), 1)}


def version_of(proto: onnx.NodeProto, opsets: dict[str, int]) -> int:
    return opsets[""] if proto.domain in ONNX_DOMAINS else opsets.get(proto.domain, 1)


def is_known(proto: onnx.NodeProto, opset: int) -> bool:
    known = registry.find(proto.op_type, opset, proto.domain) is not None
    return known or (proto.domain in ONNX_DOMAINS and has_function(proto))


def _refusal(proto: onnx.NodeProto, opset: int) -> str:
    place = "" if proto.domain in ONNX_DOMAINS else f" of domain {proto.domain}"
    return f"the operator{place} is not supported (opset {opset})"


class _Results:
    """What the function returns, and how the results of a call are made of it."""

    def __init__(self, named: Sequence[tuple[str, Value]]) -> None:
        self.names: list[str] = []
        self.tensors: list[Tensor] = []
        layouts = {name: self._layout(name, value) for name, value in named}
        cuts = [
            (output, dimension, size)
            for output, tensor in enumerate(self.tensors)
            for dimension, size in tensor.sizes.items()
        ]
        self.cuts = tuple(
            Cut(output, dimension, len(self.tensors) + i)
            for i, (output, dimension, _) in enumerate(cuts)
        )
        for output, dimension, size in cuts:
            scope = self.tensors[output].scope
            self.names.append(f"{self.names[output]}.size{dimension}")
            self.tensors.append(scope.tensor(size, self.names[-1]))
        plain = all(isinstance(value, Tensor) for _, value in named)
        self.layouts: dict[str, Layout] = {} if plain else layouts

    def _layout(self, name: str, value: Value) -> Layout:
        if isinstance(value, Tensor):
            self.names.append(name)
            self.tensors.append(value)
            return len(self.tensors) - 1
        if isinstance(value, Absent):
            return None
        parts = enumerate(value.elements)
        return tuple(self._layout(f"{name}[{i}]", element) for i, element in parts)


class _Walk:
    """Imports graphs node by node; subgraphs see the values of the graph around them.

    `needed` are named tensors that have to be known, with the reason; `stuck` are reasons why a
    region cannot be imported, since what is inside of it has no name; `loops` are left to the
    caller: by their first result, the tensors behind the names that they read. With `differs`,
    shapes are other ones in other calls.
    """

    def __init__(
        self, model: onnx.ModelProto, scope: Scope, special: Specialization, *, differs: bool
    ) -> None:
        self.scope, self.special, self.differs = scope, special, differs
        self.main = model.graph
        self.findings: list[Unsupported] = []
        self.needed: dict[tuple[str, str], str] = {}
        self.stuck: list[str] = []
        self.loops: dict[str, dict[str, str]] = {}
        self.constants = {tensor.name for tensor in self.main.initializer}
        self.constants -= {info.name for info in self.main.input}
        self.depth = 0
        self.inputs = set(scope.named)
        self.opsets = opset_versions(model)

    # --- Values ----------------------------------------------------------------------------------

    def enter(self, name: str, value: Value) -> Value:
        """`value` under its unique name, or what the specialization says is in its place."""
        if isinstance(value, TensorSequence):
            parts = enumerate(value.elements)
            return TensorSequence([self.enter(f"{name}[{i}]", e) for i, e in parts], value.dtype)
        if isinstance(value, Absent) or value.array is not None or self.depth:
            return value
        if name in self.special.values:
            return self.scope.constant(self.special.values[name], name)
        if value.name == name:
            self.scope.named.setdefault(name, value)
        return self.scope.named.get(name, value)

    def structured(self, name: str, structure: Structure) -> Value:
        """The input `name` of a known structure, its tensors being entered."""
        if structure is None:
            return Absent()
        if isinstance(structure, list):
            parts = enumerate(structure)
            return TensorSequence([self.structured(f"{name}[{i}]", part) for i, part in parts])
        return self.enter(name, self.scope.named[name])

    # --- Graphs ----------------------------------------------------------------------------------

    def results(
        self,
        graph: onnx.GraphProto,
        values: Environment,
        signatures: tuple[tuple[OpenSpec, ...], tuple[OpenSpec, ...], tuple[OpenSpec, ...]],
    ) -> _Results:
        """Import the model's graph, declared with inputs, outputs and inputs with defaults. Raises
        UnsupportedError and OpenModelError."""
        wanted, present = self.special.results, self._present()
        outputs = [info.name for info in graph.output]
        if wanted is not None:
            self.graph(dependencies.ancestors(graph, wanted, present), values, "")
            named = [(name, self.scope.named.get(name, values.get(name))) for name in wanted]
        elif present:
            self.graph(dependencies.ancestors(graph, outputs, present), values, "")
            named = [(name, values.get(name)) for name in outputs]
        else:
            named = list(zip(outputs, self.graph(graph, values, ""), strict=True))
        if self.findings:
            raise UnsupportedError(self.findings)
        complete = [(name, result) for name, result in named if result is not None]
        if len(complete) < len(named) or self.scope.taken:
            values_needed = {name for name, sort in self.needed if sort == "values"}
            sizes_needed = {name for name, sort in self.needed if sort == "sizes"}
            reasons = list(dict.fromkeys(self.needed.values()))
            found = tuple(sorted(values_needed | self.scope.taken))
            sizes = (*sorted(sizes_needed), *self._carried(graph, values))
            loops = [p for p in graph.node if not self.loops.keys().isdisjoint(p.output)]
            known = {*found, *sizes, *(name for proto in loops for name in proto.output)}
            raise OpenModelError(
                "; ".join(reasons[:_LISTED_REASONS])
                + ". stepwell.compile compiles such a model in steps when it is called; for an "
                "artifact, give inputs of calls (--example)",
                signatures[0],
                signatures[1],
                found,
                sizes,
                signatures[2],
                dropped=tuple(dependencies.unread(graph, {*present, *sizes}, known)),
                loops=self.loops,
            )
        return _Results(complete)

    def _present(self) -> set[str]:
        """The values on the way that come with a call or are known."""
        return {*self.special.values, *self.special.given}

    def _carried(self, graph: onnx.GraphProto, values: Environment) -> list[str]:
        """What is computed on the way to the needed tensors and read elsewhere, too: the code that
        computes those gives it as well, so that nothing is computed twice."""
        needed = [name for name, _ in self.needed]
        before = dependencies.ancestors(graph, needed, self._present())
        computed = {name for proto in before.node for name in proto.output if name}
        read = {info.name for info in graph.output}
        for proto in graph.node:
            if computed.isdisjoint(proto.output):
                read |= dependencies.read_names(proto)
        tensors = [t for name in sorted(computed & read) for t in _leaves(values.get(name))]
        names = dict.fromkeys(tensor.name for tensor in tensors if self._is_carried(tensor))
        return [name for name in names if name not in needed]

    def _is_carried(self, tensor: Tensor) -> bool:
        here = self.scope.named.get(tensor.name) is tensor
        return here and not tensor.sizes and tensor.name not in self.inputs

    def graph(self, graph: onnx.GraphProto, values: Environment, prefix: str) -> list[Value | None]:
        """Import `graph`; `values` holds its inputs. Returns its outputs."""
        for tensor in graph.initializer:
            signature.element_dtype(tensor.data_type, f'the initializer "{tensor.name}"')
            array = reader.tensor_array(tensor, self.scope.folder)
            self._constant(tensor.name, array, values, prefix)
        for sparse in graph.sparse_initializer:
            array = reader.dense_array(sparse, self.scope.folder)
            self._constant(sparse.values.name, array, values, prefix)
        for proto in graph.node:
            self.node(proto, values, prefix)
        return [values[info.name] for info in graph.output]

    def _constant(self, name: str, array: np.ndarray, values: Environment, prefix: str) -> None:
        """Enter an initializer, unless the specialization says another value or gives a tensor."""
        values[name] = self.scope.constant(array, name)
        if not prefix and name in self.special.values:
            values[name] = self.scope.constant(self.special.values[name], name)
        elif not prefix and name in self.special.given:
            values[name] = self.scope.named[name]

    # --- Nodes -----------------------------------------------------------------------------------

    def node(self, proto: onnx.NodeProto, values: Environment, prefix: str) -> None:
        """Import one node: enters its outputs into `values`, or a finding into `findings`."""
        first = next((output for output in proto.output if output), proto.name)
        subgraphs = _Subgraphs(self, values, f"{prefix}{first}/", inner=bool(prefix))
        node = Node(proto, version_of(proto, self.opsets), self.scope, subgraphs)
        names = [f"{prefix}{name}" if name else "" for name in proto.output]
        results = self._specialized(names)
        if results is None:
            inputs = [values[name] if name else None for name in proto.input]
            broken = any(name and values[name] is None for name in proto.input)
            results = self._results(node, inputs, names, broken)
        for name, result in zip(proto.output, results, strict=False):
            if name:
                values[name] = result
        for name in proto.output[len(results) :]:
            values[name] = None

    def _specialized(self, names: Sequence[str]) -> list[Value | None] | None:
        """The outputs of a node when the specialization has all of them."""
        if self.depth or not any(names):
            return None
        known, given = self.special.values, self.special.given
        if not all(name in known or name in given for name in names if name):
            return None
        return [
            self.scope.constant(known[name], name) if name in known else self.scope.named.get(name)
            for name in names
        ]

    def _results(
        self, node: Node, inputs: Sequence[Value | None], names: Sequence[str], broken: bool
    ) -> Sequence[Value | None]:
        """The outputs of `node`; none where they cannot be had, with the reason recorded."""
        try:
            if not broken:
                return self._import(node, inputs, names)
            if not is_known(node.proto, node.opset):
                node.unsupported(_refusal(node.proto, node.opset))
        except NeededError as error:
            self._need(node, error)
        except StuckError as error:
            self.stuck += error.reasons
            if not self.depth:
                self.find(node, error.reasons[0])
        except HostLoopError as error:
            self._leave(node, error)
        except PendingError:
            pass
        except (NotSupportedError, Error, ir.MLIRError) as error:
            self.find(node, _sentence(error))
        except OverflowError:
            self.find(node, "one of its attributes or sizes is too large a number")
        return [None] * len(names)

    def _need(self, node: Node, error: NeededError) -> None:
        name = error.tensor.name
        reason = f"{node.name}: {node.operator}: {error}"
        if self.scope.named.get(name) is error.tensor:
            self.needed[name, error.sort] = reason
        elif self.depth:
            self.stuck.append(reason)
        else:
            self.find(node, str(error))

    def _leave(self, node: Node, error: HostLoopError) -> None:
        """Leave a loop to the caller, with what it reads."""
        self.loops[next(filter(None, node.proto.output))] = error.read
        for name in error.read.values():
            self.needed[name, "sizes"] = f"{node.name}: {node.operator}: {error}"

    def _import(
        self, node: Node, inputs: Sequence[Value | None], names: Sequence[str]
    ) -> Sequence[Value | None]:
        """The outputs of `node`: by its own function, by the standard's body, or folded."""
        operator = registry.find(node.operator, node.opset, node.proto.domain)
        wrong = operator.wrong_inputs(inputs) if operator is not None else None
        if wrong is not None:
            node.unsupported(wrong)
        for value in inputs:
            if isinstance(value, Tensor) and value.sizes:
                raise NeededError(value, "sizes", f'the shape of "{value.name}" depends on data')
        if operator is not None and operator.structures:
            return self._wrap(self._build(operator, node, inputs), names)
        tensors = [value for value in inputs if value is None or isinstance(value, Tensor)]
        if len(tensors) < len(inputs):
            node.unsupported("an input is a sequence or an optional value, which it does not take")
        given = [None if tensor is None else (tensor.name, tensor.dtype) for tensor in tensors]
        mixed = mixed_types(node.proto, node.opset, given)
        if mixed is not None:
            node.unsupported(mixed)
        of_blocks = folding.is_of_blocks(node, tensors)
        folds = operator is not None and operator.folds and not of_blocks
        results: Sequence[registry.Result] | None = (
            None if folds else folding.evaluate(node, tensors)
        )
        blocks = results if of_blocks else None
        if operator is not None and (results is None or blocks is not None):
            results = self._build(operator, node, tensors)
        if results is not None:
            values = self._wrap(results, names)
            for number, value in enumerate(values):
                if isinstance(value, Tensor) and value.array is not None:
                    value.is_filled |= folding.is_filled(node, tensors)
                elif isinstance(value, Tensor) and blocks is not None:
                    value.blocks = np.asarray(blocks[number])
            return values
        body = schema_function(node.proto, node.opset, tensors)
        if body is None:
            node.unsupported(_refusal(node.proto, node.opset))
        return self._function(body, node, tensors, names)

    def _build(
        self, operator: registry.Operator, node: Node, inputs: Sequence[Value | None]
    ) -> Sequence[registry.Result]:
        with ir.Location.name(node.name):
            results = operator.build(node, *inputs)
        return results if isinstance(results, (list, tuple)) else [results]

    def _function(
        self,
        body: onnx.FunctionProto,
        node: Node,
        inputs: Sequence[Value | None],
        names: Sequence[str],
    ) -> list[Value | None]:
        """Import the body of an operator that the standard defines as a function."""
        local: Environment = dict(zip(body.input, inputs, strict=False))
        absent = {name for name in body.input if local.get(name) is None}
        first = next((name for name in names if name), node.name)
        for proto in body.node:
            renamed = onnx.NodeProto()
            renamed.CopyFrom(proto)
            renamed.name = f"{node.name}/{proto.op_type}"
            renamed.input[:] = ["" if name in absent else name for name in proto.input]
            self.node(renamed, local, f"{first}/")
        return [local.get(name) for name in body.output]

    def _wrap(self, results: Iterable[object], names: Sequence[str]) -> list[Value]:
        return [
            self.enter(name, self._value(result, name))
            for result, name in zip(results, [*names, *[""] * 8], strict=False)
        ]

    def _value(self, result: object, name: str) -> Value:
        if isinstance(result, Tensor):
            result.name = result.name or name
        elif isinstance(result, TensorSequence):
            parts = enumerate(result.elements)
            elements = [self._value(element, f"{name}[{i}]") for i, element in parts]
            return TensorSequence(elements, result.dtype)
        elif isinstance(result, (np.ndarray, np.generic)):
            return self.scope.constant(np.asarray(result), name)
        elif not isinstance(result, Absent):
            return self.scope.tensor(result, name)  # pyright: ignore[reportArgumentType]
        return result

    def find(self, node: Node, reason: str) -> None:
        """Record why `node` cannot be imported."""
        self.findings.append(Unsupported(node.name, node.operator, reason))


class _Subgraphs:
    """The graphs among the attributes of one node: see `node.Subgraphs`. That is an `inner` one
    where it is itself in such a graph."""

    def __init__(self, walk: _Walk, values: Environment, prefix: str, *, inner: bool) -> None:
        self._walk, self._values, self._prefix = walk, values, prefix
        self._inner = inner

    def inline(self, graph: onnx.GraphProto, inputs: Sequence[Value], label: str) -> list[Value]:
        names = [info.name for info in graph.input]
        values: Environment = {**self._values, **dict(zip(names, inputs, strict=False))}
        results = self._walk.graph(graph, values, f"{self._prefix}{label}/")
        complete = [result for result in results if result is not None]
        if len(complete) < len(results):
            raise PendingError
        return complete

    def region(self, graph: onnx.GraphProto, inputs: Sequence[Value], label: str) -> list[Tensor]:
        walk = self._walk
        outer, walk.stuck = walk.stuck, []
        needed, findings = dict(walk.needed), len(walk.findings)
        walk.depth += 1
        try:
            results = self.inline(graph, inputs, label)
        except PendingError:
            reasons = [*walk.stuck, *(str(finding) for finding in walk.findings[findings:])]
            if not reasons:
                raise
            walk.needed = needed
            del walk.findings[findings:]
            raise StuckError(reasons) from None
        finally:
            walk.depth -= 1
            walk.stuck = outer
        tensors = [r for r in results if isinstance(r, Tensor) and not r.sizes]
        if len(tensors) < len(results):
            raise StuckError(["it gives sequences, optional values, or shapes that depend on data"])
        return tensors

    def or_on_host(self, build: Callable[[], Built], proto: onnx.NodeProto, reason: str) -> Built:
        walk = self._walk
        if self._inner or walk.depth:
            return build()
        trips = next(iter(proto.input), "")
        if walk.differs and trips and dependencies.depends_on_inputs(walk.main, trips):
            raise HostLoopError(reason, self._read(proto))
        before, findings = dict(walk.needed), len(walk.findings)
        try:
            return build()
        except (NeededError, PendingError):
            asked = [name for name, _ in walk.needed.keys() - before.keys()]
            outside = any(not name.startswith(self._prefix) for name in asked)
            if outside or len(walk.findings) > findings:
                raise
            walk.needed = before
            raise HostLoopError(reason, self._read(proto)) from None

    def _read(self, proto: onnx.NodeProto) -> dict[str, str]:
        """The tensors behind the names that a node reads, other than the model's own."""
        read = {}
        for name in dependencies.uses(proto):
            value = self._values[name]
            if not isinstance(value, Tensor):
                raise PendingError
            if name not in self._walk.constants:
                read[name] = value.name if value.array is None else name
        return read

    def named(self, value: ir.Value, label: str) -> Tensor:
        name = f"{self._prefix}{label}"
        tensor = self._walk.enter(name, self._walk.scope.tensor(value, name))
        assert isinstance(tensor, Tensor)
        return tensor


def _leaves(value: Value | None) -> list[Tensor]:
    """The tensors that a value is made of."""
    if isinstance(value, TensorSequence):
        return [tensor for element in value.elements for tensor in _leaves(element)]
    return [value] if isinstance(value, Tensor) else []


def _sentence(error: Exception) -> str:
    """One line of what an error says; MLIR's prefixes dropped."""
    text = str(error).replace("Operation creation failed:\n", "").strip().splitlines()[0]
    return text.removeprefix("error: ").split(": ", 1)[-1] if "error: " in text else text
