"""Calls of kernels that are described by an attribute alone, and change their last arguments."""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.mlir import dialect, ir

func = dialect("func")


def module_of(op: ir.Operation) -> ir.Block:
    """The body of the module that `op` is in."""
    function = op
    while function.name != "func.func":
        function = function.parent.operation
    return function.parent.operation.regions[0].blocks[0]


def call_kernel(
    kind: str,
    attribute: str,
    description: ir.Attribute,
    inputs: Sequence[ir.Value],
    destinations: Sequence[ir.Value],
) -> list[ir.Value]:
    """What a call of the kernel of `kind` that has `description` as its `attribute` makes of the
    `destinations`. Equal ones share a kernel."""
    module = module_of(ir.InsertionPoint.current.block.owner.operation)
    arguments = [*inputs, *destinations]
    results = [value.type for value in destinations]
    signature = ir.FunctionType.get([value.type for value in arguments], results)
    symbol, count = None, 0
    for child in module.operations:
        known = child.operation
        if attribute in known.attributes:
            count += 1
            same = ir.TypeAttr(known.attributes["function_type"]).value == signature
            if same and known.attributes[attribute] == description:
                symbol = ir.StringAttr(known.attributes["sym_name"]).value
    if symbol is None:
        symbol = f"kernel_{kind}_{count}"
        with ir.InsertionPoint(module), ir.Location.unknown():
            kernel = func.FuncOp(symbol, signature, visibility="private").operation
        kernel.attributes["kernel.kind"] = ir.StringAttr.get(kind)
        kernel.attributes[attribute] = description
    return list(func.CallOp(results, ir.FlatSymbolRefAttr.get(symbol), arguments).results)
