"""Matrix products: MatMul, Gemm, Einsum."""

from __future__ import annotations

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import operator
from stepwell.frontends.onnx.shaping import broadcast, broadcast_shape, reduce
from stepwell.mlir import ir


@operator("MatMul")
def matmul(node: Node, a: Tensor, b: Tensor) -> ir.Value:
    """numpy's matmul: leading dimensions are batches and broadcast; vectors gain a dimension."""
    return _matmul(node, a, b, a.dtype)


@operator("MatMulInteger")
def matmul_integer(
    node: Node,
    a: Tensor,
    b: Tensor,
    a_zero_point: Tensor | None = None,
    b_zero_point: Tensor | None = None,
) -> ir.Value:
    """`(a - a_zero_point) @ (b - b_zero_point)` in int32; zero points a row of a, a column of b."""
    left = hlo.convert(a.value, np.int32)
    right = hlo.convert(b.value, np.int32)
    if a_zero_point is not None:
        zero = hlo.convert(a_zero_point.value, np.int32)
        if a_zero_point.rank == 1 and a.rank > 1:
            zero = hlo.reshape(zero, [*a_zero_point.shape, 1])
        left = hlo.subtract(left, broadcast(zero, a.shape))
    if b_zero_point is not None:
        zero = hlo.convert(b_zero_point.value, np.int32)
        right = hlo.subtract(right, broadcast(zero, b.shape))
    scope = node.scope
    return _matmul(
        node, scope.tensor(left, a.name), scope.tensor(right, b.name), np.dtype(np.int32)
    )


def _matmul(node: Node, a: Tensor, b: Tensor, kind: np.dtype) -> ir.Value:
    if a.rank == 0 or b.rank == 0:
        node.unsupported("a scalar operand has no matrix product")
    if a.shape[-1] != b.shape[max(b.rank - 2, 0)]:
        node.unsupported(f"the shapes {list(a.shape)} and {list(b.shape)} do not multiply")
    if b.rank <= 2:
        return hlo.dot_general(a.value, b.value, ([a.rank - 1], [0]), kind=kind)
    if a.rank == 1:
        contracting = ([0], [b.rank - 2])
        return hlo.dot_general(a.value, b.value, contracting, kind=kind)
    batch = broadcast_shape(a.shape[:-2], b.shape[:-2])
    left = broadcast(a, [*batch, *a.shape[-2:]])
    right = broadcast(b, [*batch, *b.shape[-2:]])
    rank = len(batch)
    batching = (range(rank), range(rank))
    return hlo.dot_general(left, right, ([rank + 1], [rank]), batching, kind=kind)


@operator("Gemm")
def gemm(node: Node, a: Tensor, b: Tensor, c: Tensor | None = None) -> ir.Value:
    """`alpha * A' @ B' + beta * C`; transposes become dimension numbers."""
    alpha, beta = node.number("alpha", 1.0), node.number("beta", 1.0)
    left = 0 if node.integer("transA", 0) else 1
    right = 1 if node.integer("transB", 0) else 0
    if (a.rank, b.rank) != (2, 2) or a.shape[left] != b.shape[right]:
        node.unsupported(f"the shapes {list(a.shape)} and {list(b.shape)} do not multiply")
    product = hlo.dot_general(a.value, b.value, ([left], [right]))
    if a.dtype.kind in "iu" and not (alpha.is_integer() and beta.is_integer()):
        product = hlo.convert(product, np.float64)  # factors such as 0.5, of integers
    if alpha != 1:
        product = hlo.multiply(product, hlo.full_like(product, alpha))
    if c is not None and beta != 0:
        addend = hlo.convert(broadcast(c, hlo.shape(product)), hlo.dtype(product))
        if beta != 1:
            addend = hlo.multiply(addend, hlo.full_like(addend, beta))
        product = hlo.add(product, addend)
    return hlo.convert(product, a.dtype)


@operator("Einsum")
def einsum(node: Node, *operands: Tensor) -> ir.Value:
    """Operands are contracted two at a time, from the left, by `dot_general`."""
    terms, output = _equation(node, operands)
    value, term = _sum_repeated(operands[0].value, terms[0])
    for i, operand in enumerate(operands[1:], 1):
        right, right_term = _sum_repeated(operand.value, terms[i])
        needed = set(output).union(*terms[i + 1 :])
        value, term = _contract(value, term, right, right_term, needed)
    dropped = [d for d, letter in enumerate(term) if letter not in output]
    value = reduce(value, dropped, "add", keep=False)
    term = [letter for letter in term if letter in output]
    return hlo.transpose(value, [term.index(letter) for letter in output])


def _equation(node: Node, operands: tuple[Tensor, ...]) -> tuple[list[list[str]], list[str]]:
    """Letters of every operand and of the output; an ellipsis becomes digits."""
    text = node.text("equation", "").replace(" ", "")
    left, arrow, right = text.partition("->")
    terms: list[list[str]] = []
    widest = 0
    if left.count(",") != len(operands) - 1:
        node.unsupported(f'the equation "{text}" is not one of {len(operands)} operands')
    for part, operand in zip(left.split(","), operands, strict=True):
        hidden = operand.rank - len(part.replace("...", "")) if "..." in part else 0
        widest = max(widest, hidden)
        digits = [chr(0x100 - hidden + i) for i in range(hidden)]
        before, dots, after = part.partition("...")
        terms.append([*before, *(digits if dots else []), *after])
    _check_sizes(node, text, terms, operands)
    ellipsis = [chr(0x100 - widest + i) for i in range(widest)]
    if arrow:
        before, dots, after = right.partition("...")
        output = [*before, *(ellipsis if dots else []), *after]
        if len(set(output)) < len(output) or not set(output) <= set().union(*terms):
            node.unsupported(f'the result of the equation "{text}" is not made of its operands')
        return terms, output
    letters = [letter for term in terms for letter in term if letter < "\x80"]
    return terms, ellipsis + sorted(x for x in set(letters) if letters.count(x) == 1)


def _check_sizes(
    node: Node, text: str, terms: list[list[str]], operands: tuple[Tensor, ...]
) -> None:
    """Refuse an equation that does not fit the operands: a letter for each dimension, and the same
    size for the same letter, or one."""
    sizes: dict[str, int] = {}
    for term, operand in zip(terms, operands, strict=True):
        fits = len(term) == operand.rank
        for letter, size in zip(term, operand.shape, strict=False):
            known = sizes.setdefault(letter, size)
            fits = fits and (size in (known, 1) or known == 1)
            sizes[letter] = size if known == 1 else known
        if not fits:
            node.unsupported(
                f'the equation "{text}" does not fit the input "{operand.name}" of shape '
                f"{list(operand.shape)}"
            )


def _sum_repeated(value: ir.Value, term: list[str]) -> tuple[ir.Value, list[str]]:
    """Take the diagonal of letters that stand several times in one operand."""
    while repeated := [x for x in term if term.count(x) > 1]:
        first, second = [d for d, x in enumerate(term) if x == repeated[0]][:2]
        shape = hlo.shape(value)
        on = hlo.compare(hlo.iota(shape, first, np.int64), hlo.iota(shape, second, np.int64), "EQ")
        value = reduce(hlo.select(on, value, hlo.full_like(value, 0)), [second], "add", keep=False)
        term = [x for d, x in enumerate(term) if d != second]
    return value, term


def _contract(
    left: ir.Value, lterm: list[str], right: ir.Value, rterm: list[str], needed: set[str]
) -> tuple[ir.Value, list[str]]:
    shared = [x for x in lterm if x in rterm]
    batching = [x for x in shared if x in needed]
    contracting = [x for x in shared if x not in needed]
    left, right = _match(left, lterm, right, rterm), _match(right, rterm, left, lterm)
    value = hlo.dot_general(
        left,
        right,
        ([lterm.index(x) for x in contracting], [rterm.index(x) for x in contracting]),
        ([lterm.index(x) for x in batching], [rterm.index(x) for x in batching]),
    )
    rest = [x for x in lterm if x not in shared] + [x for x in rterm if x not in shared]
    return value, batching + rest


def _match(value: ir.Value, term: list[str], other: ir.Value, other_term: list[str]) -> ir.Value:
    """`value` with dimensions of size one broadcast to those of `other` of the same letter."""
    sizes = dict(zip(other_term, hlo.shape(other), strict=True))
    own = zip(term, hlo.shape(value), strict=True)
    return broadcast(value, [max(n, sizes.get(x, n)) for x, n in own])
