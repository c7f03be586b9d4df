"""Kernels that do so little that one thread is done with all tasks before others have begun."""

from __future__ import annotations

import math
from collections.abc import Collection

from stepwell.kernels.structured import Structured
from stepwell.mlir import ir

_LIMIT = 500.0
"""Nanoseconds: what it costs to hand tasks to another thread, to wait for it, and to fetch what it
wrote."""

_PRODUCTS, _OPERATIONS, _BYTES = 200.0, 40.0, 80.0
"""In a nanosecond: operations of products, whose operands stay in registers, other operations, and
bytes that are read and written."""

_COSTS = {"arith.divf": 4, "math.sqrt": 4, "math.rsqrt": 4, "tensor.extract": 4}
"""Operations beside which most others are one; functions of `math` are about 15."""


def is_small(kind: str, operations: Collection[ir.Operation], bytes: int) -> bool:
    """Whether a kernel of this kind and these operations, which reads and writes so many bytes, is
    one task. The rates are of one core of Zen 5, where this was measured with two threads."""
    rate = _PRODUCTS if kind == "contraction" else _OPERATIONS
    return max(sum(map(_work, operations)) / rate, bytes / _BYTES) < _LIMIT


def _work(op: ir.Operation) -> int:
    """Scalar operations that `op` asks for: loop iterations times those of its body."""
    structured = Structured.of(op)
    if structured is None:
        return 0
    names = [child.operation.name for child in structured.body.operations]
    body = sum(_COSTS.get(name, 15 if name.startswith("math.") else 1) for name in names[:-1])
    return math.prod(structured.loop_sizes()) * body
