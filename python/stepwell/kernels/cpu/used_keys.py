"""How many keys of an attention are in use, in a program with open sizes."""

from __future__ import annotations

from dataclasses import dataclass

from stepwell.kernels.group import KernelGroup, accesses
from stepwell.kernels.index import Index, Variable, apply_map
from stepwell.kernels.structured import RESHAPES, Structured, defining_op, shape_of
from stepwell.mlir import dialect, ir
from stepwell.open_dimensions import Factor, as_prefix, parse_layout
from stepwell.sizes import Extent

arith = dialect("arith")

PREFIXES = "kernel.prefixes"
"""Of a kernel: pairs of the number of an argument, a vector of booleans of which the first are
true, and how many of them: `[[3, "s0"]]`."""

OPEN = "kernel.open"
"""Of a contraction in a kernel: the extents of its result's dimensions, as `kernel.extents`."""


@dataclass(frozen=True)
class UsedKeys:
    """How many keys are in use, at run time, and as an extent."""

    count: Index
    extent: Extent

    def are_as_many(self, contraction: ir.Operation, dimension: int, size: int) -> bool:
        """Whether `dimension` of the result of `contraction` is all `size` rows, and as many of it
        are in use."""
        if OPEN not in contraction.attributes:
            return False
        layout = parse_layout(ir.StringAttr(contraction.attributes[OPEN]).value)
        return as_prefix(layout[dimension]) == Factor(size, self.extent)


def used_keys(group: KernelGroup, score: ir.Value, keys: int) -> UsedKeys | None:
    """The number of keys in use, where `score` masks the others: a selection by a vector of
    booleans, true for the keys in use. None where it does not."""
    if PREFIXES not in group.function.attributes:
        return None
    prefixes = {
        group.inputs[ir.IntegerAttr(number).value]: Extent.parse(ir.StringAttr(extent).value)
        for number, extent in group.function.attributes[PREFIXES]
    }
    mask = _mask(score, keys, set(prefixes))
    if mask is None:
        return None
    nest = group.nest
    with nest.at_top():
        zero = arith.ConstantOp(ir.IndexType.get(), 0).result

        def count(i: Variable, carried: list[ir.Value]) -> list[ir.Value]:
            flag = nest.load_scalar(group.evaluator.buffers[mask], [Index.of(i)])
            return [arith.AddIOp(carried[0], arith.IndexCastUIOp(zero.type, flag).result).result]

        (total,) = nest.reduce_loop("i", 0, keys, 1, [zero], count)
    return UsedKeys(Index.of(Variable("used", 0, keys, total)), prefixes[mask])


def _mask(score: ir.Value, keys: int, prefixes: set[ir.Value]) -> ir.Value | None:
    """The vector among `prefixes` by whose element of the key `score` is selected."""
    op = defining_op(score)
    while op is not None and op.name in RESHAPES:
        op = defining_op(op.operands[0])
    structured = Structured.of(op) if op is not None else None
    if structured is None or shape_of(structured.op.results[0])[-1:] != (keys,):
        return None
    body = [child.operation for child in structured.body.operations]
    if [inner.name for inner in body[-2:]] != ["arith.select", "linalg.yield"]:
        return None
    condition = body[-2].operands[0]
    dims = [Variable(f"d{i}", 0, max(n, 1) - 1) for i, n in enumerate(structured.loop_sizes())]
    point = [Index.of(dim) for dim in dims]
    for argument, value, affine_map in zip(
        structured.body.arguments, structured.inputs, structured.maps, strict=False
    ):
        if argument == condition:
            for leaf, indices in accesses(value, apply_map(affine_map, point), prefixes):
                if indices == [point[-1]] and _is_lowest(body[-2].operands[2]):
                    return leaf
    return None


def _is_lowest(value: ir.Value) -> bool:
    """Whether `value` is the constant -inf."""
    op = defining_op(value)
    if op is None or op.name != "arith.constant":
        return False
    attribute = op.attributes["value"]
    return isinstance(attribute, ir.FloatAttr) and attribute.value == float("-inf")
