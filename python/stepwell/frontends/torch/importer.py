"""Program files of PyTorch into StableHLO, by the passes of torch-mlir. PyTorch is not imported."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from stepwell.dialects import chlo
from stepwell.dialects import stablehlo as hlo
from stepwell.errors import ModelError, Unsupported, UnsupportedError
from stepwell.frontends import Imported, TensorSpec, stablehlo
from stepwell.frontends.torch import control_flow, hidden_calls, operators, program_file
from stepwell.frontends.torch.program_file import Program, Value
from stepwell.mlir import (
    ir,
    nested_operations,
    new_context,
    register_torch,
    replace_operation,
    run_upstream,
)
from stepwell.runtime.inputs import numpy_dtype

_TO_BACKEND = "torchdynamo-export-to-torch-backend-pipeline{extra-library=}"
_TO_STABLEHLO = "func.func(convert-torch-to-stablehlo{allow-non-finites=true})"
_FROM_TORCH_TYPES = (
    "func.func(convert-torch-to-arith,canonicalize,cse)",
    "torch-func-backend-type-conversion-for-stablehlo",
    "func.func(canonicalize,torch-finalizing-backend-type-conversion-for-stablehlo)",
    "torch-verify-stablehlo-backend-contract",
    "func.func(stablehlo-canonicalize-dynamism,canonicalize)",
    "stablehlo-refine-shapes",
    "func.func(canonicalize,stablehlo-canonicalize-dynamism,canonicalize)",
    "func.func(stablehlo-legalize-deprecated-ops{fail-on-unused=false})",
    "canonicalize",
)
"""What upstream's pipeline does behind the conversion and `chlo-legalize-to-stablehlo`, in whose
place is `chlo.legalize`: functions that kernels compute stay."""


def from_file(path: Path, shapes: Mapping[str, Sequence[int]] | None = None) -> Imported:
    """Import the program in a file of `program_file`, the one for `shapes` where it has several.

    Raises UnsupportedError with all operators that have no lowering, and ModelError.
    """
    return from_program(program_file.read(path, shapes), str(path))


def from_program(program: Program, source: str) -> Imported:
    """Import a program; `source` is what errors call it."""
    context = new_context()
    register_torch(context)
    with context, ir.Location.unknown():
        module = ir.Module.parse(program.module)
        control_flow.hide(module)
        operators.hide(module)
        _run(module, _TO_BACKEND, source)
        _run(module, _TO_STABLEHLO, source)
        chlo.legalize(module.operation)
        _run(module, ",".join(_FROM_TORCH_TYPES), source)
        _spell_constants(module)
        _order_nans(module)
        _let_nans_win(module)
        operators.restore(module)
        control_flow.restore(module)
        imported = stablehlo.from_parsed(module, source)
        _bind_weights(imported, program)
        module.operation.verify()
    inputs = [value for value in program.arguments if isinstance(value, Value)]
    imported.inputs = tuple(map(_spec, inputs))
    imported.outputs = tuple(map(_spec, program.outputs))
    return imported


def _spec(value: Value) -> TensorSpec:
    return TensorSpec(value.name, numpy_dtype(value.dtype), value.shape)


def _run(module: ir.Module, pipeline: str, source: str) -> None:
    try:
        run_upstream(module.operation, pipeline)
    except ir.MLIRError as error:
        findings = _leftovers(module, str(error))
        if findings:
            raise UnsupportedError(findings) from None
        raise ModelError(f"{source} has no form in StableHLO: {error}") from None


def _leftovers(module: ir.Module, message: str) -> list[Unsupported]:
    """The operators of PyTorch that stand in a module which a pass gave up, and that are no part of
    what is left around them (constants and lists of arguments)."""
    named = set(re.findall(r"'(torch\.[\w.]+)'", message)) | set(
        re.findall(r"op:? \"?(torch\.aten[\w.]+)", message)
    )
    named = {name for name in named if not name.startswith(("torch.constant.", "torch.vtensor."))}
    found: list[Unsupported] = []
    seen: Counter[str] = Counter()
    for op in nested_operations(module.operation):
        name = op.name
        if name == "torch.operator":
            name = ir.StringAttr(op.attributes["name"]).value
        elif not name.startswith(("torch.aten.", "torch.prims.", "torch.torchvision.")) or (
            named and name not in named
        ):
            continue
        operator = name.removeprefix("torch.")
        seen[operator] += 1
        if seen[operator] == 1:
            kinds = tuple(str(operand.type) for operand in op.operands)
            reason = "it has no lowering to StableHLO for these inputs"
            node = _name(op)
            found.append(Unsupported(node, operator, reason, inputs=kinds))
    return found


def _name(op: ir.Operation) -> str:
    match = re.match(r'loc\("([^"]+)"', str(op.location)[:400])
    return match.group(1) if match else op.name


def _spell_constants(module: ir.Module) -> None:
    """`arith.constant` of a tensor is `stablehlo.constant` from here on."""
    for op in nested_operations(module.operation):
        if op.name == "arith.constant" and isinstance(op.results[0].type, ir.RankedTensorType):
            replace_operation(op, "stablehlo.constant", {"value": op.attributes["value"]})


def _order_nans(module: ir.Module) -> None:
    """Sorts of floats count NaN as the largest and both zeros as equal; the importer's comparators
    give no order at all where there is a NaN."""
    sorts = [op for op in nested_operations(module.operation) if op.name == "stablehlo.sort"]
    compares = [child.operation for op in sorts for child in op.regions[0].blocks[0].operations]
    for op in compares:
        if op.name != "stablehlo.compare" or "FLOAT" not in str(op.attributes["compare_type"]):
            continue
        words = str(op.attributes["comparison_direction"])
        direction = next(word for word in ("LT", "GT", "LE", "GE") if word in words)
        with ir.InsertionPoint(op), op.location:
            found = hlo.compare_in_order(op.operands[0], op.operands[1], direction)
        hidden_calls.replace(op, [found])


def _let_nans_win(module: ir.Module) -> None:
    """The largest (or smallest) element and its place: the importer's reductions leave NaN out,
    which wins over all in PyTorch, the first of several."""
    for op in nested_operations(module.operation):
        if op.name not in ("stablehlo.reduce", "stablehlo.reduce_window") or len(op.results) != 2:
            continue
        for child in [child.operation for child in op.regions[0].blocks[0].operations]:
            if child.name != "stablehlo.compare" or "FLOAT" not in str(
                child.attributes["compare_type"]
            ):
                continue
            x, y = child.operands
            with ir.InsertionPoint.at_block_begin(op.regions[0].blocks[0]), child.location:
                direction = str(child.attributes["comparison_direction"]).split()[-1].strip(">")
                found, lost = hlo.compare(x, y, direction), hlo.compare(x, x, "NE")
                if direction == "EQ":
                    lost = hlo.binary("and", lost, hlo.compare(y, y, "NE"))
                hidden_calls.replace(child, [hlo.binary("or", found, lost)])


def _bind_weights(imported: Imported, program: Program) -> None:
    """Put constants in the place of the arguments of `@main` that are weights."""
    main = imported.module.body.operations[0].operation
    entry = main.regions[0].blocks[0]
    kind = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
    kept = [i for i, value in enumerate(program.arguments) if isinstance(value, Value)]
    constants: dict[str, ir.Value] = {}
    for argument, name in zip(list(entry.arguments), program.arguments, strict=True):
        if isinstance(name, Value) or not list(argument.uses):
            continue
        if name not in constants:
            with ir.InsertionPoint.at_block_begin(entry), ir.Location.name(name):
                constants[name] = _constant(imported, program.weights[name], name)
        argument.replace_all_uses_with(constants[name])
    for number in reversed(range(len(program.arguments))):
        if number not in kept:
            entry.erase_argument(number)
    inputs = [kind.inputs[number] for number in kept]
    main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, kind.results))


def _constant(imported: Imported, array: np.ndarray, name: str) -> ir.Value:
    """Complex numbers are made of their parts: the bindings cannot read constants of them."""
    if array.dtype.kind == "c":
        parts = (np.real(array).copy(), np.imag(array).copy())
        names = (f"{name}_real", f"{name}_imag")
        real, imaginary = (_constant(imported, *part) for part in zip(parts, names, strict=True))
        return hlo.binary("complex", real, imaginary)
    return hlo.constant(array, imported.weights, name)


__all__ = ["from_file", "from_program"]
