"""What an operation or kernel computes, whatever its names and the program around it."""

from __future__ import annotations

import json

from stepwell import cache
from stepwell.mlir import ir

_NAMES = ("sym_name", "function_type", "linalg.memoized_indexing_maps")
"""Attributes that say nothing of what is computed, or what others say too."""

_MARKS = "stepwell."
"""Prefix of attributes for people and tools."""


def problem_digest(op: ir.Operation, *more: object) -> str:
    """A digest of `op`: its operations with their attributes, the types of their values, and which
    of these they read; and of `more`. Names and locations do not count."""
    numbers: dict[ir.Value, int] = {}
    parts: list[object] = list(map(str, more))

    def number(value: ir.Value) -> int:
        return numbers.setdefault(value, len(numbers))

    def visit(op: ir.Operation) -> None:
        attributes = [
            (name, str(op.attributes[name]))
            for name in op.attributes
            if name not in _NAMES and not name.startswith(_MARKS)
        ]
        values = [*op.operands, *op.results]
        parts.append([op.name, sorted(attributes), [(number(v), str(v.type)) for v in values]])
        for region in op.regions:
            for block in region.blocks:
                parts.append([(number(a), str(a.type)) for a in block.arguments])
                for child in block.operations:
                    visit(child.operation)

    visit(op)
    return cache.digest(json.dumps(parts))
