"""`stepwell.explain`: what the compiler decided about a model, kernel by kernel; nothing runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from stepwell import assembly, pipeline, targets
from stepwell.errors import ModelError, OpenModelError
from stepwell.frontends import Shapes, load
from stepwell.inspection.kernel_report import Anchor, Choices, KernelReport, ReportReader
from stepwell.kernels.library_call import ATTRIBUTE as LIBRARY_FUNCTION
from stepwell.kernels.structured import location_names
from stepwell.mlir import ir, nested_operations
from stepwell.options import CompileOptions, make_options
from stepwell.passes.llvm._host_program import (
    Branch,
    Chain,
    Copy,
    HostProgram,
    Loop,
    Parts,
    read_host,
)
from stepwell.runtime.threads import default_threads

if TYPE_CHECKING:
    import onnx

_SILENT = ("stablehlo.constant", "stablehlo.return")
"""Operations that compute nothing."""


@dataclass(frozen=True)
class Explanation:
    """The kernels of a model in the order of the program, and what became of its operations.

    `operators` says what each source node is, `without_kernel` which nodes are in no kernel: they
    were folded into constants, or their data are read or written in place. `on_host` is what the
    host does between kernels, `problem` why a part was not compiled here. A model of which nodes
    run on the host has `parts` instead.
    """

    name: str
    target: str
    threads: int
    kernels: tuple[KernelReport, ...] = ()
    operators: Mapping[str, str] = field(default_factory=dict)
    without_kernel: tuple[str, ...] = ()
    on_host: tuple[str, ...] = ()
    arena_bytes: int = 0
    weights_bytes: int = 0
    problem: str = ""
    parts: tuple[Explanation, ...] = ()

    def of_node(self, name: str) -> list[KernelReport]:
        """The kernels, in all parts, that compute source node `name`."""
        own = [kernel for kernel in self.kernels if name in kernel.sources]
        return [*own, *(kernel for part in self.parts for kernel in part.of_node(name))]

    def nodes(self) -> list[str]:
        """The names of all source nodes."""
        return [*self.operators, *(name for part in self.parts for name in part.nodes())]

    def to_dict(self) -> dict[str, object]:
        """As `--json` prints it."""
        return asdict(self)


def explain(
    model: object,
    target: str = "cpu",
    threads: int | None = None,
    shapes: Shapes | None = None,
    options: CompileOptions | Mapping[str, object] | None = None,
) -> Explanation:
    """What compiling `model` decides, kernel by kernel. Arguments are those of `stepwell.compile`;
    shapes may not be open.

    Works in this process, as `stepwell.lower` does. Raises ModelError, UnsupportedError,
    LoweringError, UsageError.
    """
    try:
        return _explained("the model", model, target, threads, shapes, options)
    except OpenModelError:
        raise
    except ModelError:
        parts = _parts(model, target, threads, shapes or {}, options)
        if not parts:
            raise
        return Explanation("the model", targets.get(target).name, parts[0].threads, parts=parts)


def _parts(
    model: object,
    target: str,
    threads: int | None,
    shapes: Shapes,
    options: CompileOptions | Mapping[str, object] | None,
) -> tuple[Explanation, ...]:
    """Of an ONNX model with nodes for the host: those, and what is compiled between them."""
    from stepwell.partitioned import split

    machine = targets.get(target)
    found = []
    _, parts = split(model, shapes) or (None, [])
    for number, part in enumerate(parts):
        name = f"part {number}"
        names = [info.name for info in part.model.graph.input]
        here = {key: shape for key, shape in shapes.items() if key in names}
        nodes = _onnx_operators(part.model)
        if part.on_host:
            problem = "runs on the host, in onnx's reference evaluator"
            found.append(Explanation(name, "host", 1, operators=nodes, problem=problem))
            continue
        try:
            found.append(_explained(name, part.model, target, threads, here, options))
        except OpenModelError as error:
            problem = f"is compiled when it is called: {str(error).splitlines()[0]}"
            found.append(Explanation(name, machine.name, 1, operators=nodes, problem=problem))
    return tuple(found)


def _explained(
    name: str,
    model: object,
    target: str,
    threads: int | None,
    shapes: Shapes | None,
    options: CompileOptions | Mapping[str, object] | None,
) -> Explanation:
    made = make_options(options)
    imported = load(model, shapes=shapes)
    walk = pipeline.start(imported, targets.get(target), threads or default_threads(), made)
    with imported.context:
        operators = _operators(walk.module, model)
    choices = Choices()
    walk.state.on_choice = choices.keep
    pipeline.lower_to(walk, "linalg", opt_level=made.opt_level)
    with imported.context:
        anchors = {name: Anchor.of(kernel) for name, kernel in _kernels(walk.module).items()}
    pipeline.lower_to(walk, "affine", opt_level=made.opt_level)
    with imported.context, ir.Location.unknown():
        units = assembly.kernel_units(walk, made)
        tasks = {unit.name: unit.tasks for unit in units.values()}
        program = read_host(pipeline.main_function(walk.module), tasks, walk.state)
        reader = ReportReader(walk, program, _kernels(walk.module), units, anchors, choices)
        kernels = tuple(reader.report(n, call) for n, call in enumerate(program.calls))
    computed = {source for kernel in kernels for source in kernel.sources}
    return Explanation(
        name,
        walk.state.target.name,
        walk.state.threads,
        kernels,
        operators,
        tuple(node for node in operators if node not in computed),
        tuple(_host_work(program)),
        program.arena_bytes,
        program.weights_bytes,
    )


def _kernels(module: ir.Module) -> dict[str, ir.Operation]:
    """The functions of kernels, and those that the host of a GPU calls, by name."""
    functions = [child.operation for child in module.body.operations]
    return {
        ir.StringAttr(f.attributes["sym_name"]).value: f
        for f in functions
        if "kernel.kind" in f.attributes or LIBRARY_FUNCTION in f.attributes
    }


def _operators(module: ir.Module, model: object) -> dict[str, str]:
    """What each source node is: of ONNX its operator, of other models the StableHLO operations with
    its name, constants left out."""
    from stepwell.frontends.onnx.reader import find_model

    proto = find_model(model)
    known = _onnx_operators(proto) if proto is not None else {}
    found: dict[str, dict[str, None]] = {}
    for op in nested_operations(pipeline.main_function(module)):
        if op.name.startswith(("stablehlo.", "chlo.")) and op.name not in _SILENT:
            for name in location_names(op.location):
                found.setdefault(name, {})[op.name.partition(".")[2]] = None
    return known | {name: ", ".join(ops) for name, ops in found.items() if name not in known}


def _onnx_operators(proto: onnx.ModelProto) -> dict[str, str]:
    from stepwell.frontends.onnx.node import node_name

    nodes = proto.graph.node
    return {node_name(node): node.op_type for node in nodes if node.op_type != "Constant"}


def _host_work(program: HostProgram) -> Iterator[str]:
    statements = list(program.statements())
    copies = [s for s in statements if isinstance(s, Copy)]
    loops = [s for s in statements if isinstance(s, Loop)]
    parts = [s for s in statements if isinstance(s, Parts)]
    if copies:
        yield f"{len(copies)} copies, {sum(copy.bytes for copy in copies)} bytes"
    if chains := [s for s in statements if isinstance(s, Chain)]:
        count = sum(len(chain.calls) for chain in chains)
        yield f"{len(chains)} chains, in which {count} kernels take turns band by band"
    if loops:
        shared = f", {len(parts)} of them in parts that threads run at the same time"
        yield f"{len(loops)} loops around kernels{shared if parts else ''}"
    if branches := sum(isinstance(s, Branch) for s in statements):
        yield f"{branches} branches around kernels"
    if program.functions:
        yield f"calls of {', '.join(program.functions)}"
