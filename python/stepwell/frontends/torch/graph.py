"""Graphs of PyTorch, of ATen operators and static shapes, into program files."""

# pyright: reportMissingImports=false
from __future__ import annotations

import contextlib
from collections.abc import Sequence

import ml_dtypes
import numpy as np
import torch
import torch.fx
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from stepwell.errors import ModelError, Unsupported, UnsupportedError
from stepwell.frontends.torch import complex_operators, nested_graphs
from stepwell.frontends.torch.program_file import Program, Value
from stepwell.mlir import import_torch_graph, rewrite_as_strided

Argument = str | torch.Tensor
"""What stands for a placeholder: an input by its name, or a tensor that becomes a weight."""

_BY_BITS = {
    torch.bfloat16: (torch.int16, ml_dtypes.bfloat16),
    torch.float8_e4m3fn: (torch.uint8, ml_dtypes.float8_e4m3fn),
    torch.float8_e5m2: (torch.uint8, ml_dtypes.float8_e5m2),
}
"""dtypes that PyTorch does not hand to numpy, with one of their width that it does."""


def to_program(
    module: torch.fx.GraphModule, arguments: Sequence[Argument], outputs: Sequence[str]
) -> Program:
    """The program of a functional graph. `arguments` stand for its placeholders in their order,
    `outputs` are names for its tensor results; other results are left out. Changes `module`.

    Raises UnsupportedError for operators that cannot be imported.
    """
    _spell_out_empty(module)
    _check_operators(module)
    nested_graphs.prepare(module)
    _drop_assertions(module.graph)
    try:
        rewrite_as_strided(module.graph)
    except ValueError as error:
        raise ModelError(f"a view by strides cannot be read: {error}") from error
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    bound = list(arguments)
    for node, argument in list(zip(placeholders, bound, strict=True)):
        if not isinstance(node.meta.get("val"), torch.Tensor):  # a number that the graph has inside
            module.graph.erase_node(node)
            placeholders.remove(node)
            bound.remove(argument)
    bound += _lift_constants(module)
    results = _keep_tensors(module)
    module.graph.lint()
    try:
        text = import_torch_graph(module, node_name)
    except (NotImplementedError, TypeError, KeyError, AssertionError, ValueError) as error:
        raise ModelError(f"the graph cannot be imported: {error}") from error
    weights, names = _named_weights([a for a in bound if isinstance(a, torch.Tensor)])
    weight_names = iter(names)
    values = iter(node for node in module.graph.nodes if node.op == "placeholder")
    signature = tuple(
        _value(argument, node.meta["val"]) if isinstance(argument, str) else next(weight_names)
        for argument, node in zip(bound, values, strict=True)
    )
    described = tuple(_value(n, r.meta["val"]) for n, r in zip(outputs, results, strict=True))
    return Program(text, signature, described, weights)


def to_array(tensor: torch.Tensor) -> np.ndarray:
    """The data of a tensor for numpy, without a copy where it is dense and on the CPU."""
    if tensor.dtype not in _BY_BITS and tensor.is_contiguous():
        with contextlib.suppress(RuntimeError, TypeError):  # gradients, conjugates, other devices
            return tensor.numpy()
    dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if dense.dtype in _BY_BITS:
        integer, dtype = _BY_BITS[dense.dtype]
        return dense.view(integer).numpy().view(dtype)
    return dense.numpy()


def dtype_name(dtype: torch.dtype) -> str:
    """numpy's name of a dtype."""
    return str(dtype).removeprefix("torch.")


def _value(name: str, tensor: torch.Tensor) -> Value:
    try:
        sizes = tuple(int(size) for size in tensor.shape)
    except GuardOnDataDependentSymNode as error:
        raise ModelError(f"sizes of {name}, {list(tensor.shape)}, depend on data") from error
    return Value(name, dtype_name(tensor.dtype), sizes)


def node_name(node: torch.fx.Node) -> str:
    """The module that a node comes from, and the node: `encoder.layers.0.linear1/addmm_1`."""
    stack = node.meta.get("nn_module_stack")
    path = str(list(stack.values())[-1][0]) if stack else ""
    return f"{path}/{node.name}" if path else node.name


def _spell_out_empty(module: torch.fx.GraphModule) -> None:
    """Put constants in the place of tensors without elements: lowerings count on some."""
    graph = module.graph
    for number, node in enumerate(list(graph.nodes)):
        value = node.meta.get("val")
        if node.op != "call_function" or not isinstance(value, torch.Tensor):
            continue
        sizes = tuple(value.shape)
        if not all(isinstance(size, int) for size in sizes) or 0 not in sizes:
            continue
        name = f"without_elements_{number}"
        module.register_buffer(name, torch.empty(sizes, dtype=value.dtype))
        with graph.inserting_before(node):
            constant = graph.get_attr(name)
        constant.meta = {"val": value}
        node.replace_all_uses_with(constant)
        graph.erase_node(node)


def _check_operators(module: torch.fx.GraphModule) -> None:
    """Raises UnsupportedError for what the importer has no right form for, or would not name."""
    reasons = [
        (node, reason)
        for node in module.graph.nodes
        if node.op == "call_function" and (reason := why_unsupported(node))
    ]
    if reasons:
        raise UnsupportedError(
            [Unsupported(node_name(node), str(node.target), why) for node, why in reasons]
        )


def why_unsupported(node: torch.fx.Node) -> str:
    """Why this node cannot be compiled, whatever others of its operator are; "" where it may be."""
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        return nested_graphs.why_unsupported(node, why_unsupported)
    if not isinstance(node.target, torch._ops.OpOverload):
        return ""
    if torch.Tag.nondeterministic_seeded in node.target.tags:
        return "random numbers are not supported"
    is_complex = any(_is_complex(value) for value in (node, *node.all_input_nodes))
    if is_complex and not complex_operators.is_supported(str(node.target)):
        return "it is not supported for complex numbers"
    if any(isinstance(argument, complex) for argument in node.args):
        return "numbers that are complex are not supported; make tensors of them"
    if _depends_on_data(node):
        return "the shape of its result depends on data"
    return ""


def _depends_on_data(node: torch.fx.Node) -> bool:
    """Whether a size of the result is a symbol; those of inputs are known here."""
    found = node.meta.get("val")
    values = found if isinstance(found, (tuple, list)) else [found]
    sizes = [n for value in values if isinstance(value, torch.Tensor) for n in value.shape]
    return any(isinstance(n, torch.SymInt) and n.node.expr.free_symbols for n in sizes)


def _is_complex(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype.is_complex


def _drop_assertions(graph: torch.fx.Graph) -> None:
    """Remove checks of shapes and metadata, which hold in a graph of static shapes."""
    for node in reversed(list(graph.nodes)):
        if node.op == "call_function" and "assert" in str(node.target) and not node.users:
            graph.erase_node(node)
    graph.eliminate_dead_code()


def _lift_constants(module: torch.fx.GraphModule) -> list[torch.Tensor]:
    """Make placeholders of the tensors that the graph has as attributes; returns these tensors.

    The importer would write their data into the text, element by element."""
    graph = module.graph
    last = [node for node in graph.nodes if node.op == "placeholder"][-1:]
    tensors: list[torch.Tensor] = []
    for node in list(graph.nodes):
        if node.op != "get_attr":
            continue
        value = module
        for part in node.target.split("."):
            value = getattr(value, part)
        if not isinstance(value, torch.Tensor) or value.numel() == 1:
            continue
        with graph.inserting_after(last[0]) if last else graph.inserting_before():
            placeholder = graph.placeholder(f"constant_{len(tensors)}")
        placeholder.meta = {"val": node.meta.get("val", value)}
        if not isinstance(placeholder.meta["val"], torch._subclasses.FakeTensor):
            mode = torch._subclasses.FakeTensorMode()
            placeholder.meta["val"] = mode.from_tensor(value)
        node.replace_all_uses_with(placeholder)
        graph.erase_node(node)
        last = [placeholder]
        tensors.append(value)
    return tensors


def _keep_tensors(module: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """Return tensors alone from the graph; returns their nodes."""
    (output,) = (node for node in module.graph.nodes if node.op == "output")
    results = output.args[0] if isinstance(output.args[0], (list, tuple)) else [output.args[0]]
    kept = [
        node
        for node in results
        if isinstance(node, torch.fx.Node) and isinstance(node.meta.get("val"), torch.Tensor)
    ]
    output.args = (tuple(kept),)
    return kept


def _named_weights(tensors: Sequence[torch.Tensor]) -> tuple[dict[str, np.ndarray], list[str]]:
    """Arrays by name, and the name for each tensor: tensors of the same memory have one array."""
    arrays: dict[str, np.ndarray] = {}
    names: list[str] = []
    known: dict[tuple[object, ...], str] = {}
    for tensor in tensors:
        key = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
        if not tensor.numel() or key not in known:
            known[key] = f"weight{len(arrays)}"
            arrays[known[key]] = to_array(tensor)
        names.append(known[key])
    return arrays, names
