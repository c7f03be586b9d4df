"""Gradient of ai.onnx.preview.training: replaced by nodes that compute it in reverse mode.

The nodes from `xs` to `y` are copied, reading the Gradient node's own inputs in the place of `xs`
and `zs`; then each gives its operands their share of the gradient of its result (A. Griewank,
A. Walther, Evaluating Derivatives, 2008, chapter 3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx
from onnx import helper

from stepwell.errors import ModelError

_DOMAIN = "ai.onnx.preview.training"


class _Tape:
    """Nodes written one after the other; `op` gives the name of a new node's result."""

    def __init__(self, prefix: str) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self._prefix = prefix

    def op(self, operator: str, *inputs: str, **attributes: object) -> str:
        result = f"{self._prefix}{len(self.nodes)}"
        node = helper.make_node(operator, inputs, [result], result, **attributes)  # pyright: ignore[reportArgumentType]
        self.nodes.append(node)
        return result

    def ratio(self, a: str, b: str) -> str:
        return self.op("Div", a, b)

    def product(self, a: str, b: str) -> str:
        return self.op("Mul", a, b)

    def transposed(self, a: str) -> str:
        return self.op("Transpose", a, perm=[1, 0])


Rule = Callable[[_Tape, Sequence[str], str, str], list[str]]
"""(tape, operands, result, gradient of the result) to the operands' gradients."""

_RULES: dict[str, Rule] = {
    "Identity": lambda t, x, y, g: [g],
    "Add": lambda t, x, y, g: [g, g],
    "Sub": lambda t, x, y, g: [g, t.op("Neg", g)],
    "Mul": lambda t, x, y, g: [t.product(g, x[1]), t.product(g, x[0])],
    "Div": lambda t, x, y, g: [
        t.ratio(g, x[1]),
        t.op("Neg", t.ratio(t.product(g, y), x[1])),
    ],
    "Neg": lambda t, x, y, g: [t.op("Neg", g)],
    "Exp": lambda t, x, y, g: [t.product(g, y)],
    "Log": lambda t, x, y, g: [t.ratio(g, x[0])],
    "Sqrt": lambda t, x, y, g: [t.ratio(g, t.op("Add", y, y))],
    "Sin": lambda t, x, y, g: [t.product(g, t.op("Cos", x[0]))],
    "Cos": lambda t, x, y, g: [t.op("Neg", t.product(g, t.op("Sin", x[0])))],
    "Tanh": lambda t, x, y, g: [t.op("Sub", g, t.product(g, t.product(y, y)))],
    "Sigmoid": lambda t, x, y, g: [t.product(g, t.op("Sub", y, t.product(y, y)))],
    "Relu": lambda t, x, y, g: [t.product(g, t.op("Sign", y))],
    "Abs": lambda t, x, y, g: [t.product(g, t.op("Sign", x[0]))],
    "MatMul": lambda t, x, y, g: [
        t.op("MatMul", g, t.transposed(x[1])),
        t.op("MatMul", t.transposed(x[0]), g),
    ],
}


def has_gradient(graph: onnx.GraphProto) -> bool:
    """Whether the graph has a Gradient node."""
    return any(is_gradient(node) for node in graph.node)


def expand_gradients(model: onnx.ModelProto) -> onnx.ModelProto:
    """Reverse-mode differentiation: nodes that compute it stand in the place of Gradient nodes.

    Raises ModelError, naming the node, for an operator without a rule, for operands that are
    broadcast, and for shapes that are not known.
    """
    inferred = onnx.shape_inference.infer_shapes(model)
    kinds = {
        info.name: info.type.tensor_type
        for infos in (inferred.graph.input, inferred.graph.value_info, inferred.graph.output)
        for info in infos
    }
    kinds |= {
        tensor.name: helper.make_tensor_type_proto(tensor.data_type, tensor.dims).tensor_type
        for tensor in model.graph.initializer
    }
    expanded = onnx.ModelProto()
    expanded.CopyFrom(model)
    del expanded.graph.node[:]
    for node in model.graph.node:
        replaced = _expanded(node, model.graph, kinds) if is_gradient(node) else [node]
        expanded.graph.node.extend(replaced)
    return expanded


def is_gradient(node: onnx.NodeProto) -> bool:
    """Whether `node` is one that `expand_gradients` replaces."""
    return node.op_type == "Gradient" and node.domain == _DOMAIN


def _expanded(
    node: onnx.NodeProto, graph: onnx.GraphProto, kinds: dict[str, onnx.TypeProto.Tensor]
) -> list[onnx.NodeProto]:
    place = f'node "{node.name or node.output[0]}" (Gradient)'
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    xs = [name.decode() for name in attributes["xs"]]
    zs = [name.decode() for name in attributes.get("zs", [])]
    target = attributes["y"].decode()
    if len(node.input) != len(xs) + len(zs) or len(node.output) != len(xs):
        raise ModelError(
            f"{place}: xs and zs name {len(xs)} and {len(zs)} tensors, but it has "
            f"{len(node.input)} inputs and {len(node.output)} outputs"
        )
    tape = _Tape(f"{node.name or node.output[0]}.")
    names = dict(zip([*xs, *zs], node.input, strict=True))
    path = _path(graph, set(names), target)
    for forward in path:
        copy = onnx.NodeProto()
        copy.CopyFrom(forward)
        copy.input[:] = [names.get(name, name) for name in forward.input]
        for number, output in enumerate(forward.output):
            names[output] = copy.output[number] = f"{node.name or node.output[0]}.{output}"
        tape.nodes.append(copy)
    if target not in names:
        raise ModelError(f'{place}: y, "{target}", is not computed from its inputs')
    gradients = {target: _full(tape, names[target], kinds.get(target), 1)}
    for forward in reversed(path):
        result = forward.output[0]
        if result not in gradients:
            continue
        _check(place, forward, kinds)
        operands = [names.get(name, name) for name in forward.input]
        parts = _RULES[forward.op_type](tape, operands, names[result], gradients[result])
        for name, part in zip(forward.input, parts, strict=True):
            known = gradients.get(name)
            gradients[name] = part if known is None else tape.op("Add", known, part)
    for name, output in zip(xs, node.output, strict=True):
        gradient = gradients.get(name) or _full(tape, names[name], kinds.get(name), 0)
        tape.nodes.append(helper.make_node("Identity", [gradient], [output]))
    return tape.nodes


def _path(graph: onnx.GraphProto, sources: set[str], target: str) -> list[onnx.NodeProto]:
    """The nodes between the sources and `target`, in order."""
    reached = set(sources)
    after = []
    for node in graph.node:
        if not reached.isdisjoint(node.input) and not is_gradient(node):
            reached.update(node.output)
            after.append(node)
    wanted, path = {target}, []
    for node in reversed(after):
        if not wanted.isdisjoint(node.output):
            wanted.update(node.input)
            path.append(node)
    return path[::-1]


def _check(place: str, forward: onnx.NodeProto, kinds: dict[str, onnx.TypeProto.Tensor]) -> None:
    if forward.op_type not in _RULES or forward.domain not in ("", "ai.onnx"):
        known = ", ".join(sorted(_RULES))
        raise ModelError(
            f'{place}: the gradient of {forward.op_type} ("{forward.output[0]}") is not known; '
            f"there are: {known}"
        )
    shapes = [_shape(kinds.get(name)) for name in (*forward.input, forward.output[0])]
    if None in shapes:
        raise ModelError(f'{place}: the shapes around "{forward.output[0]}" are not known')
    if forward.op_type == "MatMul":
        if any(len(shape or ()) != 2 for shape in shapes):
            raise ModelError(f'{place}: "{forward.output[0]}" is no product of two matrices')
    elif len(set(shapes)) > 1:
        raise ModelError(f'{place}: operands of "{forward.output[0]}" are broadcast')


def _shape(kind: onnx.TypeProto.Tensor | None) -> tuple[int | str, ...] | None:
    if kind is None or not kind.HasField("shape"):
        return None
    return tuple(d.dim_value if d.HasField("dim_value") else d.dim_param for d in kind.shape.dim)


def _full(tape: _Tape, like: str, kind: onnx.TypeProto.Tensor | None, value: int) -> str:
    """A tensor of the shape of `like`, filled."""
    element = kind.elem_type if kind is not None else onnx.TensorProto.FLOAT
    filling = helper.make_tensor("value", element, [1], [value])
    return tape.op("ConstantOfShape", tape.op("Shape", like), value=filling)
