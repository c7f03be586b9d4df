"""`lower-groups-to-affine`: replace each outlined group by a kernel of affine loops on memrefs.

The emitter is chosen by the group's kind (contraction, outer reduction, rows, elementwise,
concatenation) and the target: on a GPU, the parallel loop has blocks and threads. Calls in the host
pass buffers: inputs through `bufferization.to_buffer`, results as destinations that the kernel
fills.

    func.func private @kernel_0(%x: tensor<..>, %w: tensor<..>, %out: tensor<..>) -> tensor<..>
      ->  func.func private @kernel_0(%x: memref<..>, %w: memref<..>, %out: memref<..>) {
            affine.parallel (%task) = (0) to (48) { ... vector.fma ... } }
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import ClassVar

from stepwell import host_calls
from stepwell.attributes import i64
from stepwell.errors import LoweringError
from stepwell.kernels.builder import NestBuilder
from stepwell.kernels.cpu import (
    attention,
    attention_strategy,
    concatenate,
    contraction,
    contraction_strategy,
    dot_products,
    elementwise,
    library_call,
    outer_reduction,
    row,
    scan,
    selection,
    sparse_product,
    strassen,
    strassen_strategy,
    suppression,
    transpose,
    update,
    winograd,
    winograd_strategy,
)
from stepwell.kernels.evaluate import storage_type
from stepwell.kernels.gpu import scatter, triangular
from stepwell.kernels.gpu.approximate_math import FAST_MATH
from stepwell.kernels.gpu.emit import emit_on_grid
from stepwell.kernels.gpu.grid import CLUSTER, DYNAMIC_SHARED, RESIDENT, TENSOR_MAPS, GridBuilder
from stepwell.kernels.group import CONSTANTS, KernelGroup
from stepwell.kernels.library_call import KIND as LIBRARY_CALL
from stepwell.kernels.rows import check as check_rows
from stepwell.kernels.scatter import KIND as SCATTER
from stepwell.kernels.selection import KIND as SELECTION
from stepwell.kernels.sparse_product import SparseProduct
from stepwell.kernels.structured import (
    Structured,
    contraction_operands,
    element_type,
    is_multiply_add,
)
from stepwell.kernels.suppression import KIND as SUPPRESSION
from stepwell.kernels.triangular import KIND as TRIANGULAR
from stepwell.kernels.used_elements import KERNEL_EXTENTS, KERNEL_SIZES
from stepwell.kernels.workspace import Workspace
from stepwell.mlir import dialect, ir, nested_operations
from stepwell.passes.affine._host_buffers import give_host_buffers, memref_type
from stepwell.passes.affine._moved_bytes import MOVED_BYTES, declared_bytes, moved_bytes
from stepwell.passes.affine._scalar_fallback import emit_scalar
from stepwell.passes.affine._small_kernels import is_small
from stepwell.passes.affine._thread_fallback import share_among_threads
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg._fusion_graph import MAX_DEPTH
from stepwell.passes.linalg.hoist_constants import weight_arguments
from stepwell.passes.linalg.mark_open_extents import UNFILLED_EXTENTS
from stepwell.targets.nvidia import NvidiaTarget

func = dialect("func")


@dataclass(frozen=True)
class LowerGroupsToAffine(Pass):
    """Emit every kernel of the module; a group that no emitter takes becomes scalar loops, with a
    remark."""

    name: ClassVar[str] = "lower-groups-to-affine"

    def run(self, op: ir.Operation, state: State) -> None:
        sys.setrecursionlimit(max(sys.getrecursionlimit(), _CALLS))
        body = op.regions[0].blocks[0]
        functions = [c.operation for c in body.operations if c.operation.name == "func.func"]
        kernels = {
            f.attributes["sym_name"].value: f for f in functions if "kernel.kind" in f.attributes
        }
        hosts = [f for f in functions if f not in kernels.values() and len(f.regions[0].blocks)]
        if isinstance(state.target, NvidiaTarget):
            _mark_constants(hosts, kernels)
        scratch = {name: _lower(kernel, body, state) for name, kernel in kernels.items()}
        for host in hosts:
            give_host_buffers(host, scratch)
        for kernel in kernels.values():
            kernel.erase()
        for function in [c.operation for c in body.operations]:
            name = function.attributes["sym_name"].value
            if name.endswith(_NEW):
                function.attributes["sym_name"] = ir.StringAttr.get(name.removesuffix(_NEW))


def _mark_constants(hosts: list[ir.Operation], kernels: dict[str, ir.Operation]) -> None:
    """Let kernels know which of their inputs are weights of the artifact wherever they are
    called."""
    found: dict[str, set[int]] = {}
    for host in hosts:
        entry = host.regions[0].blocks[0]
        weights = {entry.arguments[number] for number in weight_arguments(host)}
        for call in nested_operations(host):
            if call.name == "func.call":
                name = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
                given = {n for n, value in enumerate(call.operands) if value in weights}
                found[name] = found.get(name, given) & given
    for name, numbers in found.items():
        if name in kernels and numbers:
            kernels[name].attributes[CONSTANTS] = ir.DenseI64ArrayAttr.get(sorted(numbers))


_NEW = ".affine"

_CALLS = 1000 + 4 * MAX_DEPTH
"""Calls within calls that Python has to allow: emitters take three for each operation in a row."""

EXACT_READS = "kernel.exact_reads"
"""Of a kernel: the numbers of the inputs of which it reads what is in use alone."""


def _lower(kernel: ir.Operation, body: ir.Block, state: State) -> list[Workspace]:
    """Emit `kernel` beside the tensor function; returns the scratch buffers that it takes after its
    results."""
    name = kernel.attributes["sym_name"].value
    kind = ir.StringAttr(kernel.attributes["kernel.kind"]).value
    if kind == LIBRARY_CALL:
        if not isinstance(state.target, NvidiaTarget):
            return list(map(Workspace, library_call.emit(kernel, body, name + _NEW)))
        called = host_calls.declare(kernel, body, name + _NEW)
        state.remarks.append(f"{name}: {called.call.function} is called on the host")
        return []
    if kind == SCATTER:
        assert isinstance(state.target, NvidiaTarget)
        scatter.emit(kernel, body, name + _NEW, state.target)
        return []
    if kind in (SELECTION, SUPPRESSION):
        bytes = declared_bytes(kernel)
        place = body, name + _NEW, state.target
        if kind == SELECTION:
            emitted = selection.emit(kernel, *place, alone=is_small(kind, (), bytes))
        else:
            emitted = suppression.emit(kernel, *place)
        emitted.attributes[MOVED_BYTES] = i64(bytes)
        if state.on_kernel is not None:
            state.on_kernel(emitted)
        return []
    if kind == TRIANGULAR:
        triangular.emit(kernel, body, name + _NEW)
        return []
    try:
        function, workspaces = _emit(kernel, body, state)
        if state.on_kernel is not None:
            state.on_kernel(function)
        return workspaces
    except LoweringError as error:
        if ir.StringAttr(kernel.attributes["kernel.kind"]).value == "update":
            raise
        for child in list(body.operations):
            if child.operation.attributes["sym_name"].value == name + _NEW:
                child.operation.erase()
        on_gpu = isinstance(state.target, NvidiaTarget)
        try:
            scratch = emit_scalar(kernel, body, name + _NEW, parallel=on_gpu)
            if on_gpu:
                share_among_threads(list(body.operations)[-1].operation)
        except LoweringError as second:
            raise LoweringError(f"{error}; as scalar loops: {second}") from None
        loops = "the threads of one block" if on_gpu else "scalar loops"
        state.remarks.append(f"{name}: {loops}, since {error}")
        return list(map(Workspace, scratch))


def _emit(
    kernel: ir.Operation, body: ir.Block, state: State
) -> tuple[ir.Operation, list[Workspace]]:
    """The emitted function, and the workspaces that it takes."""
    block = kernel.regions[0].blocks[0]
    types = [memref_type(argument.type) for argument in block.arguments]
    with ir.InsertionPoint(body):
        function = func.FuncOp(
            kernel.attributes["sym_name"].value + _NEW,
            ir.FunctionType.get(types, []),
            visibility="private",
            loc=kernel.location,
        )
    for name in ("kernel.kind", KERNEL_EXTENTS, UNFILLED_EXTENTS, KERNEL_SIZES):
        if name in kernel.attributes:
            function.attributes[name] = kernel.attributes[name]
    results = len(ir.FunctionType(ir.TypeAttr(kernel.attributes["function_type"]).value).results)
    function.attributes["kernel.results"] = i64(results)
    entry = function.add_entry_block()
    on_gpu = isinstance(state.target, NvidiaTarget)
    nest = GridBuilder(exact=state.precision == "strict") if on_gpu else NestBuilder()
    with ir.InsertionPoint(entry):
        buffers = [_as_bytes(argument) for argument in entry.arguments]
        nest.start(entry)
        group = KernelGroup(kernel, buffers, nest)
        kind = ir.StringAttr(kernel.attributes["kernel.kind"]).value
        if not on_gpu and KERNEL_EXTENTS not in kernel.attributes:
            nest.alone = is_small(kind, group.operations, moved_bytes(kernel))
        emit_group(group, kernel, state)
        func.ReturnOp([])
    if "kernel.strategy" in kernel.attributes:
        function.attributes["kernel.strategy"] = kernel.attributes["kernel.strategy"]
    if group.exact_reads:
        function.attributes[EXACT_READS] = ir.DenseI64ArrayAttr.get(group.exact_reads)
    if isinstance(nest, GridBuilder):
        _state_launch(function.operation, nest)
        if state.precision == "fast":
            function.attributes[FAST_MATH] = ir.UnitAttr.get()
    function.attributes["kernel.flops"] = i64(flops(group.operations))
    function.attributes[MOVED_BYTES] = i64(moved_bytes(kernel))
    return function.operation, nest.workspaces if isinstance(nest, GridBuilder) else []


def _state_launch(function: ir.Operation, nest: GridBuilder) -> None:
    """What a launch gives the kernel beside its buffers."""
    if nest.launch_shared_bytes:
        function.attributes[DYNAMIC_SHARED] = i64(nest.launch_shared_bytes)
    if nest.resident_blocks:
        function.attributes[RESIDENT] = i64(nest.resident_blocks)
    if nest.cluster > 1:
        function.attributes[CLUSTER] = i64(nest.cluster)
    if nest.tensor_maps:
        function.attributes[TENSOR_MAPS] = ir.ArrayAttr.get(nest.tensor_maps)
    if nest.workspaces:
        types = [argument.type for argument in nest.entry.arguments]
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))


_CONVERSIONS = ("arith.extf", "arith.truncf")


def flops(operations: list[ir.Operation]) -> int:
    """Arithmetic operations that a group asks for: loop iterations times the body's operations on
    floats, and multiply-adds of integers (each counts as two)."""
    total = 0
    for op in operations:
        structured = Structured.of(op)
        sparse = None if structured is None else SparseProduct.of(structured)
        if sparse is not None:
            total += 2 * sparse.products
        elif structured is not None:
            names = [child.operation.name for child in structured.body.operations]
            of_floats = sum(
                (name.endswith("f") and name not in _CONVERSIONS) or name.startswith("math.")
                for name in names
            )
            work = 2 if is_multiply_add(structured, widening=True) else of_floats
            total += math.prod(structured.loop_sizes()) * work
    return total


def emit_group(group: KernelGroup, kernel: ir.Operation, state: State) -> None:
    """Call the emitter for the kind of `kernel`; results without elements need none."""
    if all(0 in output.buffer.type.shape for output in group.outputs):
        return
    kind = ir.StringAttr(kernel.attributes["kernel.kind"]).value
    target = state.target
    if isinstance(group.nest, GridBuilder) and isinstance(target, NvidiaTarget):
        operands = contraction_operands(group.anchor()) if kind == "contraction" else None
        emit_on_grid(
            group,
            group.nest,
            kind,
            operands,
            target,
            f32=state.f32_products,
            whole_sums=state.precision == "strict",
        )
        return
    lanes = target.vector_lanes
    if kind == "contraction":
        anchor = group.anchor()
        target = target.for_elements(element_type(anchor.op.results[0]).width)
        lanes = target.vector_lanes
        if winograd_strategy.ATTRIBUTE in anchor.op.attributes:
            chosen = kernel.attributes["kernel.strategy"]
            winograd.emit(group, winograd_strategy.WinogradStrategy.from_attribute(chosen), lanes)
            return
        operands = contraction_operands(anchor)
        assert operands is not None
        if strassen_strategy.ATTRIBUTE in anchor.op.attributes:
            chosen = kernel.attributes["kernel.strategy"]
            halves = strassen_strategy.StrassenStrategy.from_attribute(chosen)
            strassen.emit(group, halves, operands, lanes)
            return
        terms = dot_products.terms_of(anchor, operands, target, packed=False)
        shape = contraction_strategy.ContractionShape.of(anchor, operands, terms)
        strategy = (
            contraction_strategy.ContractionStrategy.from_attribute(
                kernel.attributes["kernel.strategy"]
            )
            if "kernel.strategy" in kernel.attributes
            else contraction_strategy.choose(anchor, shape, target, packed=False)
        )
        contraction.emit(group, strategy, operands, lanes)
    elif kind == attention.KIND:
        target = target.for_elements(attention_strategy.bits_of_scores(group.operations))
        chosen = (
            attention_strategy.AttentionStrategy.from_attribute(
                kernel.attributes["kernel.strategy"]
            )
            if "kernel.strategy" in kernel.attributes
            else attention_strategy.choose(group.operations, target)
        )
        attention.emit(group, chosen, target.vector_lanes)
    elif kind == "outer-reduction":
        outer_reduction.emit(group, target)
    elif kind == sparse_product.KIND:
        sparse_product.emit(group, target)
    elif kind == "scan":
        scan.emit(group, target, state.threads)
    elif kind == "concatenate":
        concatenate.emit(group, lanes)
    elif kind == "transpose":
        transpose.emit(group, lanes)
    elif kind == "update":
        update.emit(group, lanes)
    elif kind in ("elementwise", "pad"):
        if group.reductions():
            check_rows(group)
            row.emit(group, lanes)
        else:
            elementwise.emit(group, lanes)
    else:
        raise LoweringError(f"no emitter for a group of kind {kind}")


def _as_bytes(buffer: ir.Value) -> ir.Value:
    """Booleans are bytes in memory; a vector of i1 would be read as packed bits."""
    kind = buffer.type
    if not isinstance(kind, ir.MemRefType) or str(kind.element_type) != "i1":
        return buffer
    stored = ir.MemRefType.get(list(kind.shape), storage_type(kind.element_type))
    return ir.Operation.create(
        "builtin.unrealized_conversion_cast", results=[stored], operands=[buffer]
    ).results[0]
