"""The one file that names the package of MLIR's Python bindings.

Everything else imports `ir`, `PassManager`, `rewrite` and the dialects from here, so that another
build of the bindings can take the place of this one. See docs/bindings.md for the traps of this
build.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from torch_mlir import ir, rewrite
from torch_mlir._mlir_libs import _stablehlo
from torch_mlir.passmanager import PassManager

if TYPE_CHECKING:
    import torch.fx

__all__ = [
    "PassManager",
    "deserialize_portable_artifact",
    "dialect",
    "import_torch_graph",
    "ir",
    "kernel_context",
    "nested_operations",
    "new_context",
    "register_torch",
    "rewrite",
    "rewrite_as_strided",
    "run_upstream",
    "serialize_portable_artifact",
    "stablehlo",
    "torch_decompositions",
    "translate_to_llvm_ir",
]

for _name in ("chlo", "stablehlo"):  # else each such op retries the import (docs/bindings.md)
    sys.modules.setdefault(f"torch_mlir.dialects.{_name}", ModuleType(_name))

stablehlo = _stablehlo
"""Bindings of StableHLO: attribute classes, portable artifacts, the reference interpreter."""

_KERNEL_DIALECTS = ("affine", "arith", "cf", "func", "llvm", "math", "memref", "scf", "vector")


@functools.cache
def _register_passes() -> None:
    _stablehlo.register_stablehlo_passes()


def dialect(name: str) -> ModuleType:
    """The Python module of an upstream dialect: `dialect("arith")`, `dialect("linalg")`."""
    return importlib.import_module(f"torch_mlir.dialects.{name}")


def new_context() -> ir.Context:
    """A context with upstream dialects, StableHLO and CHLO loaded, single-threaded.

    Multithreading stays off: Python-defined passes deadlock with it (docs/bindings.md).
    """
    _register_passes()
    context = ir.Context()
    context.enable_multithreading(False)
    _stablehlo.register_dialect(context)
    # CHLO has no registration hook in the bindings; a pass that depends on it loads it.
    with context, ir.Location.unknown():
        empty = ir.Module.create()
        PassManager.parse("builtin.module(func.func(stablehlo-complex-math-expander))").run(
            empty.operation
        )
    return context


def kernel_context() -> ir.Context:
    """A context as `new_context` makes it, for kernels of level affine and below it alone: with few
    dialects it takes a tenth of the time, as do passes that collect the patterns of all dialects.
    """
    _register_passes()
    context = ir.Context(load_on_create_dialects=_KERNEL_DIALECTS)
    context.enable_multithreading(False)
    return context


def nested_operations(operation: ir.Operation) -> list[ir.Operation]:
    """`operation` and all inside it, inner ones first; collected, so the caller may change them."""
    found: list[ir.Operation] = []

    def look(inner: ir.Operation) -> ir.WalkResult:
        found.append(inner)
        return ir.WalkResult.ADVANCE

    operation.walk(look)
    return found


def replace_operation(op: ir.Operation, name: str, attributes: dict[str, ir.Attribute]) -> None:
    """Put an operation `name` with the operands and result types of `op` in its place."""
    with ir.InsertionPoint(op), op.location:
        other = ir.Operation.create(
            name, [r.type for r in op.results], list(op.operands), attributes
        )
    for old, new in zip(op.results, other.results, strict=True):
        old.replace_all_uses_with(new)
    op.erase()


def run_upstream(operation: ir.Operation, pipeline: str) -> None:
    """Run a textual pipeline of upstream passes on `operation` (anchored at its own op name).

    `pipeline` is the inner text, `"canonicalize,cse"`; raises `ir.MLIRError` on failure. The IR is
    verified before and after, not between upstream's own passes: that took twice the time of these.
    """
    _register_passes()
    anchor = operation.name
    operation.verify()
    with operation.context:
        manager = PassManager.parse(f"{anchor}({pipeline})")
        manager.enable_verifier(False)
        manager.run(operation)
    operation.verify()


def translate_to_llvm_ir(operation: ir.Operation) -> str:
    """LLVM IR text of a module in the LLVM dialect."""
    from torch_mlir.dialects.llvm import translate_module_to_llvmir

    return translate_module_to_llvmir(operation)


def serialize_portable_artifact(module: ir.Module, version: str) -> bytes:
    """StableHLO portable artifact (VHLO bytecode) of `module` at `version`, like "1.13.0"."""
    return _stablehlo.serialize_portable_artifact(module, version)


def deserialize_portable_artifact(context: ir.Context, data: bytes) -> ir.Module:
    """Module of a StableHLO portable artifact; raises ValueError that says what is wrong with it.

    The bindings would write that to stderr.
    """
    said: list[str] = []

    def collect(diagnostic: ir.Diagnostic) -> bool:
        said.append(diagnostic.message)
        return True

    handler = context.attach_diagnostic_handler(collect)
    try:
        return _stablehlo.deserialize_portable_artifact(context, data)
    except ValueError as error:
        raise ValueError(said[0] if said else str(error)) from None
    finally:
        handler.detach()


def register_torch(context: ir.Context) -> None:
    """Load the dialect of PyTorch into `context`, and its passes into the process."""
    importlib.import_module("torch_mlir.dialects.torch").register_dialect(context)


_COMPLEX128 = 10
"""PyTorch's own number of the dtype, which the importer's table lacks."""


def import_torch_graph(
    module: torch.fx.GraphModule, name_of: Callable[[torch.fx.Node], str]
) -> str:
    """The graph of `module` as text in the dialect of PyTorch, one argument a placeholder, its
    operations named by `name_of`. Needs PyTorch."""
    torch = importlib.import_module("torch")
    fx_importer = importlib.import_module("torch_mlir.extras.fx_importer")
    fx_importer.TORCH_DTYPE_TO_INT.setdefault(torch.complex128, _COMPLEX128)

    class NamingCache(fx_importer.ContextCache):
        def get_node_location(self, node: torch.fx.Node) -> ir.Location:
            return ir.Location.name(name_of(node), context=self._c)

    class NestedGraphImporter(fx_importer.GraphNodeImporter):
        def _import_hop(self, loc: ir.Location, node: torch.fx.Node, hop: object) -> None:
            """Operators that take functions as `torch.operator` with their symbols; `counts` says
            how many operands each argument has."""
            names = self.fx_importer._graph_module_to_func_name
            owner: Any = node.graph.owning_module
            arguments: Any = node.args
            groups = [a if isinstance(a, (list, tuple)) else [a] for a in arguments]
            operands: list[list[torch.fx.Node]] = []
            graphs: list[str] = []
            for group in groups:
                nested = [n for n in group if n.op == "get_attr" and "val" not in n.meta]
                graphs += [names[id(owner.get_submodule(str(n.target)))] for n in nested]
                operands += [] if nested else [list(group)]
            attributes = {
                "name": ir.StringAttr.get(str(hop)),
                "graphs": ir.ArrayAttr.get([ir.FlatSymbolRefAttr.get(name) for name in graphs]),
                "counts": ir.DenseI64ArrayAttr.get([len(group) for group in operands]),
                "reverse": ir.BoolAttr.get(bool(node.meta.get("reverse"))),
            }
            types = [self._cc.value_info_to_type(value) for value in node.meta["val"]]
            values = [self.resolve_node_value(operand) for group in operands for operand in group]
            made = ir.Operation.create("torch.operator", types, values, attributes, loc=loc)
            self._multi_result_nodes.add(node)
            for number, result in enumerate(made.results):
                self.bind_node_value(node, result, number)

    context = ir.Context()
    context.enable_multithreading(False)
    register_torch(context)
    importer = fx_importer.FxImporter(context=context, graph_node_importer_cls=NestedGraphImporter)
    importer._cc = NamingCache(context, py_attr_tracker=importer._py_attr_tracker)
    importer._import_all_child_modules(module, "main")
    importer.import_stateless_graph(module.graph)
    return importer.module.operation.get_asm(enable_debug_info=True)


def rewrite_as_strided(graph: torch.fx.Graph) -> None:
    """Make reads by index of the `as_strided` in a graph. Needs PyTorch; raises ValueError."""
    importlib.import_module("torch_mlir.extras.fx_as_strided").rewrite_as_strided(graph)


def torch_decompositions() -> dict:
    """The decompositions of PyTorch's operators that the importer counts on."""
    module = importlib.import_module("torch_mlir.extras.fx_decomp_util")
    return dict(module.get_decomposition_table())
