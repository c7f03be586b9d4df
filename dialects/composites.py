"""Composites of StableHLO: operations with a name, and a function that says what they compute.

    %y = stablehlo.composite "stepwell.f" %x {decomposition = @stepwell.f.impl_0}
    func.func private @stepwell.f.impl_0(%x) { .. }

Who knows the name may do it otherwise; for others the function is what it means
(https://openxla.org/stablehlo/spec#composite).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stepwell.mlir import dialect, ir, nested_operations, run_upstream

func = dialect("func")


def composite(
    name: str, operands: Sequence[ir.Value], result: ir.Type, build: Callable[..., ir.Value]
) -> ir.Value:
    """The composite `name` of `operands`; `build` makes the result of a function's arguments."""
    module = _module(ir.InsertionPoint.current.block)
    count = sum(child.operation.name == "func.func" for child in module.operations)
    symbol = f"{name}.impl_{count}"
    kind = ir.FunctionType.get([operand.type for operand in operands], [result])
    with ir.InsertionPoint(module):
        function = func.FuncOp(symbol, kind, visibility="private")
    with ir.InsertionPoint(function.add_entry_block()):
        func.ReturnOp([build(*function.arguments)])
    made = ir.Operation.create(
        "stablehlo.composite",
        [result],
        list(operands),
        {
            "name": ir.StringAttr.get(name),
            "decomposition": ir.FlatSymbolRefAttr.get(symbol),
        },
    )
    return made.results[0]


def composites(root: ir.Operation, name: str) -> list[ir.Operation]:
    """The composites called `name` inside `root`."""
    found = [op for op in nested_operations(root) if op.name == "stablehlo.composite"]
    return [op for op in found if ir.StringAttr(op.attributes["name"]).value == name]


def decompose(module: ir.Operation) -> None:
    """Put what each composite means in its place, and drop functions that nobody calls."""
    run_upstream(module, "func.func(stablehlo-legalize-composite-to-call)")
    run_upstream(module, "inline{default-pipeline=},symbol-dce")


def _module(block: ir.Block) -> ir.Block:
    op = block.owner.operation
    while op.name != "builtin.module":
        op = op.parent.operation
    return op.regions[0].blocks[0]
