"""What row kernels of all machines share: where an element of a row lies, and which groups are
rows."""

from __future__ import annotations

import math

from stepwell.errors import LoweringError
from stepwell.kernels.group import KernelGroup
from stepwell.kernels.index import Index, Variable, apply_map, delinearize, linearize
from stepwell.kernels.structured import Structured, defining_op, elements, shape_of
from stepwell.mlir import ir

_COSTLY = {"math.exp", "math.log", "math.tanh", "math.erf", "math.erfc", "math.powf",
           "math.rsqrt", "math.sqrt", "math.sin", "math.cos", "math.log1p",
           "math.expm1"}  # fmt: skip


def loop_point(op: Structured, flat: Index) -> list[Index]:
    """The loop indices of `op` for the element `flat` of its main operand."""
    sizes = op.loop_sizes()
    dims = [Variable(f"d{i}", 0, max(n, 1) - 1) for i, n in enumerate(sizes)]
    main = max(range(len(op.inputs)), key=lambda i: elements(op.inputs[i]))
    point = apply_map(op.maps[main], [Index.of(d) for d in dims])
    strides = linearize(point, shape_of(op.inputs[main]))
    order = sorted(range(len(sizes)), key=lambda i: (-strides.coefficient(dims[i]), i))
    parts = delinearize(flat, [sizes[i] for i in order])
    result = [Index()] * len(sizes)
    for position, part in zip(order, parts, strict=True):
        result[position] = part
    return result


def is_costly(value: ir.Value) -> bool:
    """Whether a transcendental function is needed to compute `value`."""
    seen, waiting = {value}, [value]
    while waiting:
        op = defining_op(waiting.pop())
        structured = Structured.of(op) if op is not None else None
        if structured is None or not structured.is_elementwise:
            continue
        if any(child.operation.name in _COSTLY for child in structured.body.operations):
            return True
        waiting += [operand for operand in structured.inputs if operand not in seen]
        seen.update(structured.inputs)
    return False


def check(group: KernelGroup) -> None:
    """Raise LoweringError when the reductions of the group are not over the same rows."""
    reductions = group.reductions()
    rows = {elements(r.op.results[0]) for r in reductions}
    domains = {math.prod(r.loop_sizes()) for r in reductions}
    if len(rows) != 1 or len(domains) != 1:
        raise LoweringError(f"{group.name}: reductions over different rows in one kernel")
