"""Scalar loops for groups that no emitter takes: upstream bufferization and loops, nothing fused.

Memory that the loops need becomes further arguments of the kernel, which the host's arena holds.
"""

from __future__ import annotations

from stepwell.attributes import i64
from stepwell.errors import LoweringError
from stepwell.kernels.scan import go_forward, is_scan
from stepwell.kernels.structured import defining_op, source_name
from stepwell.mlir import dialect, ir, nested_operations, run_upstream
from stepwell.passes.affine._loop_buffers import give_loops_buffers
from stepwell.passes.linalg._transform import (
    apply_script,
    innermost_loop,
    linalg_operations,
    loop_count,
    sizes_text,
)

_BUFFERIZE = (
    "func.func(empty-tensor-to-alloc-tensor),"
    "one-shot-bufferize{bufferize-function-boundaries=true allow-return-allocs-from-loops=true "
    "function-boundary-type-conversion=identity-layout-map},"
    "canonicalize,cse,canonicalize,"
    "buffer-results-to-out-params{modify-public-functions=true}"
)
_TO_LOOPS = "func.func(convert-linalg-to-{kind}loops),expand-strided-metadata,canonicalize,cse"
_LOOPS = ("scf.for", "scf.while", "scf.forall", "scf.parallel")

bufferization = dialect("bufferization")
linalg = dialect("linalg")
memref = dialect("memref")


def emit_scalar(
    kernel: ir.Operation, body: ir.Block, symbol: str, *, parallel: bool = False
) -> list[ir.MemRefType]:
    """Add `symbol` to `body`: the scalar form of `kernel`, with one task. Buffers it would allocate
    become further arguments; returns their types. With `parallel`, loops whose iterations are
    independent are `scf.parallel`. Raises LoweringError when upstream cannot."""
    results = len(ir.FunctionType(ir.TypeAttr(kernel.attributes["function_type"]).value).results)
    module = ir.Module.create()
    with ir.InsertionPoint(module.body):
        clone = kernel.clone()
    clone.attributes["sym_name"] = ir.StringAttr.get(symbol)
    clone.attributes["sym_visibility"] = ir.StringAttr.get("public")
    block = clone.regions[0].blocks[0]
    first = len(block.arguments) - results
    if any(_is_updated(argument) for argument in list(block.arguments)[first:]):
        _write_to_destinations(clone, first)
    else:
        _drop_destinations(clone, first)
    for op in nested_operations(clone):
        if is_scan(op):
            go_forward(op)
    _protect_inputs(clone)
    _fill_constants(clone)
    give_loops_buffers(clone)
    _order_loops(clone)
    try:
        run_upstream(module.operation, _BUFFERIZE)
        _compute_in_place(_function(module, symbol))
        _expand_copies(module.operation)
        run_upstream(module.operation, _TO_LOOPS.format(kind="parallel-" if parallel else ""))
    except ir.MLIRError as error:
        raise LoweringError(f"{_names(kernel)}: cannot be lowered ({error})") from None
    function = _function(module, symbol)
    scratch = _hoist_allocations(function)
    function.attributes["sym_visibility"] = ir.StringAttr.get("private")
    function.attributes["kernel.kind"] = ir.StringAttr.get("scalar")
    function.attributes["kernel.results"] = i64(results)
    ir.InsertionPoint(body).insert(function.clone())
    return scratch


def _drop_destinations(function: ir.Operation, count: int) -> None:
    """Results are returned, not written to destinations: put fresh tensors in their place."""
    block = function.regions[0].blocks[0]
    for argument in list(block.arguments)[count:]:
        kind = ir.RankedTensorType(argument.type)
        with ir.InsertionPoint.at_block_begin(block):
            fresh = ir.Operation.create("tensor.empty", results=[kind]).results[0]
        argument.replace_all_uses_with(fresh)
    while len(block.arguments) > count:
        block.erase_argument(len(block.arguments) - 1)
    kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    function.attributes["function_type"] = ir.TypeAttr.get(
        ir.FunctionType.get(kind.inputs[:count], kind.results)
    )


def _is_updated(destination: ir.Value) -> bool:
    """Whether a destination keeps what it holds beside the slice that is put into it."""
    names = {use.owner.operation.name for use in destination.uses}
    return not names.isdisjoint(("tensor.insert_slice", "tensor.extract_slice"))


def _write_to_destinations(function: ir.Operation, count: int) -> None:
    """Return nothing: destinations are buffers, and results are written there."""
    block = function.regions[0].blocks[0]
    terminator = list(block.operations)[-1].operation
    for argument, value in zip(list(block.arguments)[count:], terminator.operands, strict=True):
        kind = ir.RankedTensorType(argument.type)
        argument.set_type(ir.MemRefType.get(list(kind.shape), kind.element_type))
        with ir.InsertionPoint.at_block_begin(block):
            old = bufferization.ToTensorOp(kind, argument, restrict=True, writable=True).result
        argument.replace_all_uses_except(old, defining_op(old))
        with ir.InsertionPoint(terminator):
            bufferization.MaterializeInDestinationOp(None, value, argument, writable=True)
    with ir.InsertionPoint(terminator):
        ir.Operation.create("func.return", operands=[])
    terminator.erase()
    inputs = [argument.type for argument in block.arguments]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, []))


def _protect_inputs(function: ir.Operation) -> None:
    """Inputs belong to others: bufferization may not write into them."""
    readonly = ir.DictAttr.get({"bufferization.writable": ir.BoolAttr.get(False)})
    count = len(function.regions[0].blocks[0].arguments)
    function.attributes["arg_attrs"] = ir.ArrayAttr.get([readonly] * count)


def _fill_constants(function: ir.Operation) -> None:
    """Splat constants become filled tensors, one a reader and just before it: a global has no place
    in a kernel, and a loop that starts from a constant writes into it."""
    for op in _operations(function, "arith.constant"):
        value = op.attributes["value"]
        kind = op.results[0].type
        if not isinstance(kind, ir.RankedTensorType):
            continue
        if not isinstance(value, ir.DenseElementsAttr) or not value.is_splat:
            continue
        for use in list(op.results[0].uses):
            reader = use.owner.operation
            with ir.InsertionPoint(reader), op.location:
                scalar = ir.Operation.create(
                    "arith.constant",
                    results=[kind.element_type],
                    attributes={"value": value.get_splat_value()},
                ).results[0]
                fresh = ir.Operation.create("tensor.empty", results=[kind]).results[0]
                filled = linalg.fill(scalar, outs=[fresh])
            reader.operands[use.operand_number] = filled
        op.erase()


def _order_loops(function: ir.Operation) -> None:
    """Put the loop along which most operands lie in memory innermost, where LLVM vectorises it: a
    product of a vector and a matrix then streams through the matrix's rows."""
    for op in linalg_operations(function, lambda op: op.name == "linalg.generic"):
        count = loop_count(op)
        if count < 2 or "reduction" not in str(op.attributes["iterator_types"]):
            continue
        along = innermost_loop(op)
        order = [*(loop for loop in range(count) if loop != along), along]
        if order != list(range(count)):
            apply_script(
                function,
                [op],
                "%o = transform.structured.interchange %chosen iterator_interchange = "
                f"{sizes_text(order)} : (!op) -> !op",
            )


def _compute_in_place(function: ir.Operation) -> None:
    """Let the buffers that are copied to results at the end be the results themselves."""
    block = function.regions[0].blocks[0]
    *operations, _ = (child.operation for child in block.operations)
    for copied in reversed(operations):
        if copied.name != "memref.copy":
            return
        source, result = copied.operands
        made = _allocation(source, function)
        once = len(list(result.uses)) == 1 and result in list(block.arguments)
        if made is None or not once or made.results[0].type != result.type:
            continue
        made.results[0].replace_all_uses_with(result)
        made.erase()
        copied.erase()


def _allocation(value: ir.Value, function: ir.Operation) -> ir.Operation | None:
    """The allocation of `value` at the top of `function`, or in a region that is run there once."""
    op, around = defining_op(value), function
    if op is not None and op.name == "scf.execute_region" and len(op.regions[0].blocks) == 1:
        end = list(op.regions[0].blocks[0].operations)[-1].operation
        op, around = defining_op(end.operands[list(op.results).index(value)]), op
    if op is None or op.name != "memref.alloc" or op.parent.operation != around:
        return None
    return op


def _expand_copies(module: ir.Operation) -> None:
    """Copies become loops, which LLVM turns into `memcpy` where memory is contiguous."""
    for op in _operations(module, "memref.copy"):
        with ir.InsertionPoint(op), op.location:
            linalg.copy(op.operands[0], outs=[op.operands[1]])
        op.erase()


def _operations(root: ir.Operation, name: str) -> list[ir.Operation]:
    return [op for op in nested_operations(root) if op.name == name]


def _hoist_allocations(function: ir.Operation) -> list[ir.MemRefType]:
    """Make each allocation an argument. One inside a loop serves all iterations, so it may not
    travel from one to the next."""
    entry = function.regions[0].blocks[0]
    for op in _operations(function, "memref.dealloc"):
        op.erase()
    types = []
    for op in _operations(function, "memref.alloc"):
        kind = ir.MemRefType(op.results[0].type)
        if not kind.has_static_shape:
            raise LoweringError(f"{source_name(op)}: needs a buffer of unknown size")
        _check_carried(op, function)
        argument = entry.add_argument(kind, op.location)
        op.results[0].replace_all_uses_with(argument)
        op.erase()
        types.append(kind)
    inputs = [argument.type for argument in entry.arguments]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, []))
    if "arg_attrs" in function.attributes:
        del function.attributes["arg_attrs"]
    return types


def _check_carried(allocation: ir.Operation, function: ir.Operation) -> None:
    """Raise LoweringError when a loop around `allocation` passes it on to its next iteration."""
    around = set()
    parent = allocation.parent
    while parent is not None and parent.operation != function:
        if parent.operation.name in _LOOPS:
            around.add(parent.operation)
        parent = parent.operation.parent
    if not around:
        return
    for value in _aliases(allocation.results[0]):
        for use in value.uses:
            owner = use.owner.operation
            carries = owner.name in ("scf.yield", "scf.condition")
            if carries and owner.parent.operation in around:
                raise LoweringError(
                    f"{source_name(allocation)}: a loop carries a buffer that it makes"
                )


def _aliases(value: ir.Value) -> list[ir.Value]:
    """`value`, its views, and results of branches and loops that may be it."""
    found: dict[ir.Value, None] = {}
    pending = [value]
    while pending:
        current = pending.pop()
        if current in found or not isinstance(current.type, ir.MemRefType):
            continue
        found[current] = None
        for use in current.uses:
            owner = use.owner.operation
            if owner.name in _LOOPS:
                pending += list(owner.results)
            elif owner.name == "scf.yield":
                pending += list(owner.parent.operation.results)
            elif owner.name.startswith("memref.") or owner.name == "arith.select":
                pending += list(owner.results)
    return list(found)


def _names(kernel: ir.Operation) -> str:
    return kernel.attributes["sym_name"].value


def _function(module: ir.Module, symbol: str) -> ir.Operation:
    functions = [child.operation for child in module.body.operations]
    return next(f for f in functions if f.attributes["sym_name"].value == symbol)
