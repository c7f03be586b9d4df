"""Scalar loops for groups that no emitter takes: upstream bufferization and loops, nothing fused."""

from __future__ import annotations

from stepwell.errors import LoweringError
from stepwell.kernels.structured import source_name
from stepwell.mlir import ir, run_upstream

_PIPELINE = (
    "func.func(empty-tensor-to-alloc-tensor),"
    "one-shot-bufferize{bufferize-function-boundaries=true "
    "function-boundary-type-conversion=identity-layout-map},"
    "canonicalize,"
    "buffer-results-to-out-params{modify-public-functions=true},"
    "func.func(convert-linalg-to-loops),expand-strided-metadata,canonicalize"
)


def emit_scalar(kernel: ir.Operation, body: ir.Block, symbol: str) -> list[ir.MemRefType]:
    """Add `symbol` to `body`: the scalar form of `kernel`, with one task. Buffers it would allocate
    become further arguments; returns their types. Raises LoweringError when upstream cannot."""
    results = len(ir.FunctionType(ir.TypeAttr(kernel.attributes["function_type"]).value).results)
    module = ir.Module.create()
    with ir.InsertionPoint(module.body):
        clone = kernel.clone()
    clone.attributes["sym_name"] = ir.StringAttr.get(symbol)
    clone.attributes["sym_visibility"] = ir.StringAttr.get("public")
    block = clone.regions[0].blocks[0]
    count = len(block.arguments) - results
    _drop_destinations(clone, count)
    try:
        run_upstream(module.operation, _PIPELINE)
    except ir.MLIRError as error:
        raise LoweringError(f"{_names(kernel)}: cannot be lowered ({error.message})") from None
    function = next(c.operation for c in module.body.operations if _symbol(c) == symbol)
    scratch = _hoist_allocations(function)
    function.attributes["sym_visibility"] = ir.StringAttr.get("private")
    function.attributes["kernel.kind"] = ir.StringAttr.get("scalar")
    function.attributes["kernel.results"] = ir.IntegerAttr.get(
        ir.IntegerType.get_signless(64), results
    )
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


def _hoist_allocations(function: ir.Operation) -> list[ir.MemRefType]:
    entry = function.regions[0].blocks[0]
    found: list[ir.Operation] = []
    dead: list[ir.Operation] = []

    def look(op: ir.Operation) -> ir.WalkResult:
        if op.name == "memref.alloc":
            found.append(op)
        elif op.name == "memref.dealloc":
            dead.append(op)
        return ir.WalkResult.ADVANCE

    function.walk(look)
    for op in dead:
        op.operation.erase()
    types = []
    for op in found:
        kind = ir.MemRefType(op.results[0].type)
        if not kind.has_static_shape:
            raise LoweringError(f"{source_name(op)}: needs a buffer of unknown size")
        argument = entry.add_argument(kind, op.location)
        op.results[0].replace_all_uses_with(argument)
        op.operation.erase()
        types.append(kind)
    inputs = [argument.type for argument in entry.arguments]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, []))
    return types


def _names(kernel: ir.Operation) -> str:
    return kernel.attributes["sym_name"].value


def _symbol(op: ir.OpView) -> str:
    return op.operation.attributes["sym_name"].value
