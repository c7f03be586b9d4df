"""Operators of PyTorch as calls that the passes of torch-mlir leave alone.

    %0 = torch.aten.erfinv %x : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
      ->  %1 = torch_c.to_builtin_tensor %x
          %2 = stablehlo.custom_call @stepwell.torch.aten.erfinv(%1) : (tensor<4xf32>) -> ..
          %0 = torch_c.from_builtin_tensor %2

These passes know no operator but their own. Once they have brought the rest to StableHLO, whoever
hid a call puts in its place what it stands for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from stepwell.mlir import ir, nested_operations, run_upstream

_CALL = "stepwell.torch."
_LOADS_CASTS = "torch-func-backend-type-conversion-for-stablehlo"
"""A pass whose dialects include that of casts between tensors of PyTorch and others."""


def load_casts() -> None:
    """Make it possible to hide calls in the current context."""
    run_upstream(ir.Module.create().operation, _LOADS_CASTS)


def hide(
    op: ir.Operation, name: str, tensors: Sequence[ir.Value], attributes: Mapping[str, ir.Attribute]
) -> None:
    """Replace `op` by a call of `name` with `tensors`, the others of its operands being in
    `attributes`."""
    target = {"call_target_name": ir.StringAttr.get(_CALL + name)}
    with ir.InsertionPoint(op), op.location:
        operands = [
            created("torch_c.to_builtin_tensor", [_builtin(value.type)], [value])[0]
            for value in tensors
        ]
        types = [_builtin(result.type) for result in op.results]
        called = created("stablehlo.custom_call", types, operands, {**target, **attributes})
        for result, value in zip(op.results, called, strict=True):
            cast = created("torch_c.from_builtin_tensor", [result.type], [value])[0]
            result.replace_all_uses_with(cast)
    op.erase()


def hidden(module: ir.Module) -> Iterator[tuple[str, ir.Operation]]:
    """The calls in `module`, with their names."""
    for op in nested_operations(module.operation):
        if op.name == "stablehlo.custom_call":
            target = ir.StringAttr(op.attributes["call_target_name"]).value
            if target.startswith(_CALL):
                yield target.removeprefix(_CALL), op


def replace(op: ir.Operation, results: Sequence[ir.Value]) -> None:
    """Put `results` in the place of a call."""
    for result, value in zip(op.results, results, strict=True):
        result.replace_all_uses_with(value)
    op.erase()


def created(
    name: str,
    types: Sequence[ir.Type],
    operands: Sequence[ir.Value],
    attributes: Mapping[str, ir.Attribute] | None = None,
) -> list[ir.Value]:
    """The results of a new operation."""
    made = ir.Operation.create(name, list(types), list(operands), dict(attributes or {}))
    return list(made.results)


def _builtin(kind: ir.Type) -> ir.Type:
    """The type that torch-mlir gives tensors of a type like `!torch.vtensor<[2,3],si64>`."""
    match = re.fullmatch(r"!torch\.vtensor<\[([\d,]*)\],(.+)>", str(kind))
    assert match is not None, kind
    sizes = [f"{size}x" for size in match.group(1).split(",") if size]
    element = re.sub(r"^si(\d+)$", r"i\1", match.group(2))
    return ir.Type.parse(f"tensor<{''.join(sizes)}{element}>")
