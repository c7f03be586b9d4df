"""Reading structured operations: what a `linalg.generic` computes, over which loops, from what.

Emitters, fusion and strategies look at operations through `Structured` alone; named linalg ops are
generalised before (`linalg-generalize-named-ops`).
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Container
from dataclasses import dataclass

from stepwell.mlir import ir

RESHAPES = ("tensor.collapse_shape", "tensor.expand_shape")


def shape_of(value: ir.Value) -> tuple[int, ...]:
    """Static shape of a tensor or memref value; () for scalars."""
    kind = value.type
    return tuple(kind.shape) if isinstance(kind, ir.ShapedType) else ()


def element_type(value: ir.Value) -> ir.Type:
    """Element type of a shaped value, the type itself for scalars."""
    kind = value.type
    return kind.element_type if isinstance(kind, ir.ShapedType) else kind


def defining_op(value: ir.Value) -> ir.Operation | None:
    """The operation that makes `value`; None for block arguments."""
    owner = value.owner
    return None if isinstance(owner, ir.Block) else owner.operation


def reshape_source(op: ir.Operation, known: Container[ir.Value]) -> ir.Value:
    """What the reshape `op` is made of, through reshapes before it whose results are not `known`.
    One step keeps dimensions apart that two of them, by way of a vector, would mix."""
    source = op.operands[0]
    while source not in known and (before := defining_op(source)) is not None:
        if before.name not in RESHAPES:
            break
        source = before.operands[0]
    return source


def source_name(op: ir.Operation) -> str:
    """What users call this operation: the name in its location."""
    return location_names(op.location)[0] if location_names(op.location) else op.name


def location_names(location: ir.Location) -> list[str]:
    """All names in a location, fused ones flattened, each once. What was inlined is named after the
    call and itself: `jit(f)/while/body/dot_general`."""
    # A location of an operation comes as the base class; by way of its attribute it gets its own.
    typed = ir.Location.from_attr(location.attr, location.context)
    if isinstance(typed, ir.NameLoc):
        return [typed.name_str]
    if isinstance(typed, ir.FusedLoc):
        return list(dict.fromkeys(n for part in typed.locations for n in location_names(part)))
    if isinstance(typed, ir.CallSiteLoc):
        ends = location_names(typed.caller)[:1], location_names(typed.callee)[:1]
        return ["/".join(name for end in ends for name in end)] if any(ends) else []
    return [typed.filename] if isinstance(typed, ir.FileLineColLoc) else []


@functools.cache
def _iterators(text: str) -> tuple[str, ...]:
    """Of `[#linalg.iterator_type<parallel>, ..]`."""
    return tuple(re.findall(r"<(\w+)>", text))


@dataclass(frozen=True, eq=False)
class Structured:
    """A `linalg.generic`: operation, iterators, and indexing maps, inputs before outputs."""

    op: ir.Operation
    iterators: tuple[str, ...]
    maps: tuple[ir.AffineMap, ...]
    inputs: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]

    @staticmethod
    def of(op: ir.Operation) -> Structured | None:
        """The structured view of `op`; None when it is no `linalg.generic`."""
        if op.name != "linalg.generic":
            return None
        attributes = op.attributes
        count = attributes["operandSegmentSizes"][0]
        operands = list(op.operands)
        iterators = _iterators(str(attributes["iterator_types"]))
        maps = tuple(m.value for m in attributes["indexing_maps"])
        return Structured(op, iterators, maps, tuple(operands[:count]), tuple(operands[count:]))

    @property
    def body(self) -> ir.Block:
        return self.op.regions[0].blocks[0]

    @property
    def output_map(self) -> ir.AffineMap:
        return self.maps[len(self.inputs)]

    @property
    def is_elementwise(self) -> bool:
        """All loops parallel, one output, written at the loops' own indices."""
        return (
            all(i == "parallel" for i in self.iterators)
            and len(self.outputs) == 1
            and is_identity(self.output_map)
        )

    @property
    def reads_output(self) -> bool:
        """Whether the body uses the old value of the output."""
        return any(True for _ in self.body.arguments[len(self.inputs)].uses)

    def loop_sizes(self) -> list[int]:
        """Extent of each loop, from the operands' static shapes."""
        sizes = [0] * len(self.iterators)
        for affine_map, value in zip(self.maps, (*self.inputs, *self.outputs), strict=True):
            for expression, size in zip(affine_map.results, shape_of(value), strict=True):
                if isinstance(expression, ir.AffineDimExpr):
                    sizes[expression.position] = size
        return sizes

    def copied_input(self) -> int | None:
        """The input that the body merely copies to the output, if that is all it does; as it is,
        or a byte as the float of 8 bits whose code it is."""
        operations = [child.operation for child in self.body.operations]
        value = operations[-1].operands[0]
        if len(operations) == 2 and _names_code(operations[0]):
            value = operations[0].operands[0]
        elif len(operations) != 1:
            return None
        if not isinstance(value.owner, ir.Block) or value.owner != self.body:
            return None
        number = ir.BlockArgument(value).arg_number
        return number if number < len(self.inputs) else None


def _names_code(op: ir.Operation) -> bool:
    """Whether `op` takes a byte for the code of a float."""
    if op.name != "arith.bitcast":
        return False
    source, result = op.operands[0].type, op.results[0].type
    return str(source) == "i8" and isinstance(result, ir.FloatType) and result.width == 8


def is_identity(affine_map: ir.AffineMap) -> bool:
    """Whether the map is (d0, d1, ...) -> (d0, d1, ...)."""
    return affine_map.n_dims == len(affine_map.results) and all(
        isinstance(e, ir.AffineDimExpr) and e.position == i
        for i, e in enumerate(affine_map.results)
    )


def dims_in(expression: ir.AffineExpr) -> set[int]:
    """Positions of the dimensions that occur in `expression`."""
    if isinstance(expression, ir.AffineDimExpr):
        return {expression.position}
    if isinstance(expression, ir.AffineBinaryExpr):
        return dims_in(expression.lhs) | dims_in(expression.rhs)
    return set()


def map_dims(affine_map: ir.AffineMap) -> set[int]:
    """Positions of the dimensions that occur in a map."""
    return set().union(*(dims_in(e) for e in affine_map.results)) if affine_map.results else set()


def elements(value: ir.Value) -> int:
    """Number of elements of a shaped value."""
    return math.prod(shape_of(value))


MOST_ALTERNATING = 4
"""Parts whose elements are put beside each other in registers."""


def alternates(concat: ir.Operation) -> bool:
    """Whether the elements of a few parts alternate in a `tensor.concat`."""
    axis = ir.IntegerAttr(concat.attributes["dim"]).value
    parts = [shape_of(part) for part in concat.operands]
    single = all(math.prod(part[axis:]) == 1 for part in parts)
    return single and 1 < len(parts) <= MOST_ALTERNATING


def is_multiply_add(op: Structured, *, widening: bool = False) -> bool:
    """Whether the body is `out + a * b` of two float or integer inputs; with `widening`, either of
    them may be extended to the accumulator's type first."""
    operations = [o.operation for o in op.body.operations]
    casts = {o.results[0]: o.operands[0] for o in operations if o.name in _EXTENSIONS}
    names = [o.name for o in operations if not (widening and o.name in _EXTENSIONS)]
    if names not in (
        ["arith.mulf", "arith.addf", "linalg.yield"],
        ["arith.muli", "arith.addi", "linalg.yield"],
    ):
        return False
    product, total = operations[-3], operations[-2]
    accumulator = op.body.arguments[len(op.inputs)]
    factors = [casts.get(value, value) for value in product.operands]
    return (
        len(op.inputs) == 2
        and set(map(_argument_number, factors)) == {0, 1}
        and accumulator in list(total.operands)
        and product.results[0] in list(total.operands)
    )


_EXTENSIONS = frozenset(["arith.extf", "arith.extsi", "arith.extui"])


def extension(op: Structured, number: int) -> ir.Operation | None:
    """What extends an input of a multiply-add to the type of its sums, if anything does."""
    for child in op.body.operations:
        found = child.operation
        if found.name in _EXTENSIONS and found.operands[0] == op.body.arguments[number]:
            return found
    return None


def contraction_operands(structured: Structured) -> tuple[int, int] | None:
    """(lhs, rhs) input numbers when the op contracts two operands and its innermost output
    dimension is one that only the rhs has; None otherwise."""
    output_dims = [e.position for e in structured.output_map.results if hasattr(e, "position")]
    if len(output_dims) != len(structured.output_map.results) or not output_dims:
        return None
    sizes = structured.loop_sizes()
    used = [map_dims(structured.maps[0]), map_dims(structured.maps[1])]
    reduced = {i for i, kind in enumerate(structured.iterators) if kind == "reduction"}
    if not any(r in used[0] and r in used[1] for r in reduced if sizes[r] > 1) and any(
        sizes[r] > 1 for r in reduced
    ):
        return None
    inner = output_dims[-1]
    if inner in used[1] and inner not in used[0]:
        return (0, 1)
    if inner in used[0] and inner not in used[1]:
        return (1, 0)
    return None


def _argument_number(value: ir.Value) -> int:
    return ir.BlockArgument(value).arg_number if isinstance(value.owner, ir.Block) else -1
