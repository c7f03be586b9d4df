"""`look-up-codes`: numbers of 4 bits become floats by a permutation of a table of sixteen.

    %a = arith.andi %word, %fifteen : vector<16xi32>
    %b = arith.sitofp %a : vector<16xi32> to vector<16xf32>
    %c = arith.subf %b, %eight : vector<16xf32>
      ->
    %c = llvm.call_intrinsic "llvm.x86.avx512.permvar.sf.512"(%table, %word)

where the table is 0, 1, .., 15, less what is subtracted if that is a constant. The instruction
(vpermps) looks at the lowest 4 bits of each lane alone; it stands for three that a kernel of narrow
weights has for every vector of them. Nothing where the target has no AVX-512.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stepwell.mlir import dialect, ir, nested_operations
from stepwell.passes.base import Pass, State

arith = dialect("arith")

_LANES = 16
_MASK = 15


@dataclass(frozen=True)
class LookUpCodes(Pass):
    """Run on a module's kernels."""

    name: ClassVar[str] = "look-up-codes"

    def run(self, op: ir.Operation, state: State) -> None:
        if "avx512f" not in state.target.features:
            return
        for inner in nested_operations(op):
            if inner.name == "arith.sitofp" and _is_vector(inner.results[0], "f32"):
                word = _masked(inner.operands[0])
                if word is not None:
                    _look_up(inner, word)


def _is_vector(value: ir.Value, element: str) -> bool:
    return str(value.type) == f"vector<{_LANES}x{element}>"


def _masked(value: ir.Value) -> ir.Value | None:
    """The vector of which `value` has the lowest 4 bits."""
    op = _producer(value)
    if op is None or op.name != "arith.andi" or not _is_vector(value, "i32"):
        return None
    word, mask = op.operands
    return word if _splat(mask) == _MASK else None


def _look_up(convert: ir.Operation, word: ir.Value) -> None:
    result, table = convert.results[0], np.arange(_LANES, dtype=np.float32)
    uses = [use.owner.operation for use in result.uses]
    if len(uses) == 1 and uses[0].name == "arith.subf" and uses[0].operands[0] == result:
        offset = _splat(uses[0].operands[1])
        if offset is not None:
            table, result = table - np.float32(offset), uses[0].results[0]
    with ir.InsertionPoint(convert), convert.location:
        entries = arith.ConstantOp(result.type, ir.DenseElementsAttr.get(table, type=result.type))
        found = ir.Operation.create(
            "llvm.call_intrinsic",
            results=[result.type],
            operands=[entries.result, word],
            attributes={
                "intrin": ir.StringAttr.get("llvm.x86.avx512.permvar.sf.512"),
                "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([2, 0]),
            },
        ).results[0]
    result.replace_all_uses_with(found)


def _splat(value: ir.Value) -> float | int | None:
    """The number that fills a constant vector, or a scalar that is broadcast."""
    op = _producer(value)
    if op is not None and op.name == "vector.broadcast":
        op = _producer(op.operands[0])
    if op is None or op.name != "arith.constant":
        return None
    attribute = op.attributes["value"]
    if isinstance(attribute, ir.DenseElementsAttr):
        if not attribute.is_splat:
            return None
        attribute = attribute.get_splat_value()
    return attribute.value if isinstance(attribute, ir.FloatAttr | ir.IntegerAttr) else None


def _producer(value: ir.Value) -> ir.Operation | None:
    return None if isinstance(value.owner, ir.Block) else value.owner.operation
