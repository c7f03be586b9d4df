"""Linear algebra of PyTorch: custom calls of LAPACK as JAX makes them, and triangular solves.

    %f, %info = torch.aten.linalg_cholesky_ex %x  ->  stablehlo.custom_call @lapack_spotrf_ffi(%x)
    torch.aten.linalg_solve_triangular %a, %b     ->  stablehlo.triangular_solve %a, %b

A matrix is the last two dimensions of a tensor. What PyTorch computes by other means comes down to
these in `decompositions.linear_algebra`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.torch.hidden_calls import created
from stepwell.mlir import ir

Lowering = Callable[..., list[ir.Value]]

FORMS: dict[str, Lowering] = {}
"""What makes the results of an operator, given the call that stands for it and its operands."""

_PREFIXES = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}


def _lowering(*names: str) -> Callable[[Lowering], Lowering]:
    def enter(function: Lowering) -> Lowering:
        FORMS.update(dict.fromkeys(names, function))
        return function

    return enter


# --- Tensors of matrices --------------------------------------------------------------------------


def _real(x: ir.Value) -> np.dtype:
    kind = hlo.dtype(x)
    return np.dtype(f"f{kind.itemsize // 2}") if kind.kind == "c" else kind


def _type(shape: Sequence[int], element: ir.Type) -> ir.RankedTensorType:
    return ir.RankedTensorType.get(list(shape), element)


def _full(shape: Sequence[int], like: ir.Value, number: float) -> ir.Value:
    """Of the element type of `like`; complex numbers have no imaginary part, or NaN for it."""
    real = hlo.full(number, shape, _real(like))
    if hlo.dtype(like).kind != "c":
        return real
    imaginary = real if math.isnan(number) else hlo.full(0.0, shape, _real(like))
    return hlo.binary("complex", real, imaginary)


def _as_complex(real: ir.Value, imaginary: ir.Value) -> ir.Value:
    return hlo.binary("complex", real, imaginary)


def _turned(x: ir.Value) -> ir.Value:
    rank = len(hlo.shape(x))
    return hlo.transpose(x, [*range(rank - 2), rank - 1, rank - 2])


def _adjoint(x: ir.Value) -> ir.Value:
    if hlo.dtype(x).kind == "c":
        x = _as_complex(hlo.unary("real", x), hlo.negate(hlo.unary("imag", x)))
    return _turned(x)


def _spread(x: ir.Value, batch: Sequence[int], matrix: int = 2) -> ir.Value:
    """`x`, whose last `matrix` dimensions are its own, for every matrix of `batch`."""
    shape = hlo.shape(x)
    own = shape[len(shape) - matrix :]
    outer = shape[: len(shape) - matrix]
    first = len(batch) - len(outer)
    kept = [d for d, size in enumerate(outer) if size == batch[first + d]]
    x = hlo.reshape(x, [*(outer[d] for d in kept), *own])
    dims = [*(first + d for d in kept), *range(len(batch), len(batch) + matrix)]
    return hlo.broadcast_in_dim(x, [*batch, *own], dims)


def _places(x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The row and the column of each element."""
    shape = hlo.shape(x)
    return tuple(hlo.iota(shape, len(shape) + d, np.int32) for d in (-2, -1))  # pyright: ignore[reportReturnType]


def _triangle(x: ir.Value, *, lower: bool, unit: bool = False) -> ir.Value:
    """`x` with zeros on the other side of the diagonal, which is all ones for `unit`."""
    row, column = _places(x)
    shape = hlo.shape(x)
    kept = hlo.compare(column, row, "LE" if lower else "GE")
    x = hlo.select(kept, x, _full(shape, x, 0.0))
    if not unit:
        return x
    return hlo.select(hlo.compare(row, column, "EQ"), _full(shape, x, 1.0), x)


def _unless_failed(x: ir.Value, info: ir.Value) -> ir.Value:
    """NaN where LAPACK has not come to an end, as JAX has it; PyTorch ends with an error."""
    shape, batch = hlo.shape(x), len(hlo.shape(info))
    failed = hlo.compare(info, hlo.full_like(info, 0), "NE")
    return hlo.select(
        hlo.broadcast_in_dim(failed, shape, range(batch)), _full(shape, x, math.nan), x
    )


def _first(x: ir.Value, sizes: Sequence[int]) -> ir.Value:
    """As many elements of the last dimensions as `sizes` says, from the first on."""
    shape = hlo.shape(x)
    limits = [*shape[: len(shape) - len(sizes)], *sizes]
    return hlo.slice(x, [0] * len(shape), limits)


def _taken(x: ir.Value, rows: ir.Value) -> ir.Value:
    """The `rows` [..., m] of `x` [..., m, n], each of its matrix."""
    shape, sizes = hlo.shape(x), hlo.shape(rows)
    rank = len(shape)
    outer = [hlo.iota(sizes, d, np.int32) for d in range(rank - 2)]
    places = [hlo.reshape(place, [*sizes, 1]) for place in (*outer, rows)]
    dimensions = hlo.GatherDimensions(
        [rank - 1], range(rank - 1), range(rank - 1), index_vector_dim=rank - 1
    )
    places = hlo.concatenate(places, rank - 1)
    return hlo.gather(x, places, dimensions, [1] * (rank - 1) + [shape[-1]])


# --- LAPACK ---------------------------------------------------------------------------------------


def _lapack(
    function: str,
    operands: Sequence[ir.Value],
    results: Sequence[ir.Type],
    letters: Mapping[str, str | bool] | None = None,
) -> list[ir.Value]:
    """A custom call of `function` for the type of the first operand, with its `letters` (and
    flags); matrices lie in memory column by column."""
    byte = ir.IntegerType.get_signless(8)
    options = {
        name: ir.BoolAttr.get(value)
        if isinstance(value, bool)
        else ir.IntegerAttr.get(byte, ord(value))
        for name, value in (letters or {}).items()
    }
    batch = len(hlo.shape(operands[0])) - 2
    prefix = _PREFIXES[hlo.dtype(operands[0]).name]
    attributes = {
        "call_target_name": ir.StringAttr.get(f"lapack_{prefix}{function}_ffi"),
        "mhlo.backend_config": ir.DictAttr.get(options),
        "operand_layouts": _layouts([value.type for value in operands], batch),
        "result_layouts": _layouts(results, batch),
    }
    return created("stablehlo.custom_call", results, operands, attributes)


def _layouts(types: Sequence[ir.Type], batch: int) -> ir.ArrayAttr:
    """The dimensions of each, the fastest first."""
    texts = []
    for kind in types:
        rank = len(ir.RankedTensorType(kind).shape)
        order = list(range(rank))[::-1]
        if rank == batch + 2:
            order[:2] = order[1], order[0]
        listed = f"dense<{order}>" if order else "dense<>"
        texts.append(f"{listed} : tensor<{rank}xindex>")
    return ir.ArrayAttr.get([ir.Attribute.parse(text) for text in texts])


class _Matrices:
    """The types of results for matrices `x` [*batch, m, n]."""

    def __init__(self, x: ir.Value) -> None:
        *self.batch, self.m, self.n = hlo.shape(x)
        self.least = min(self.m, self.n)
        self._element = hlo.element_type(x)
        self._part = (
            ir.ComplexType(self._element).element_type if self.is_complex else self._element
        )

    @property
    def is_complex(self) -> bool:
        return isinstance(self._element, ir.ComplexType)

    def of(self, *sizes: int) -> ir.Type:
        """Elements of the matrices."""
        return _type([*self.batch, *sizes], self._element)

    def real(self, *sizes: int) -> ir.Type:
        """Real numbers."""
        return _type([*self.batch, *sizes], self._part)

    def complex(self, *sizes: int) -> ir.Type:
        """Complex numbers."""
        return _type([*self.batch, *sizes], ir.ComplexType.get(self._part))

    def integers(self, *sizes: int) -> ir.Type:
        """32-bit integers."""
        return _type([*self.batch, *sizes], ir.IntegerType.get_signless(32))


def _in_place_of(results: Sequence[ir.Value], op: ir.Operation) -> list[ir.Value]:
    """`results`, without elements where the operator has been asked for none."""
    return [
        value if hlo.shape(value) == hlo.shape(expected) else _full(hlo.shape(expected), value, 0.0)
        for value, expected in zip(results, op.results, strict=True)
    ]


@_lowering("aten.linalg_cholesky_ex")
def _cholesky(
    op: ir.Operation, x: ir.Value, upper: bool = False, check_errors: bool = False
) -> list[ir.Value]:
    kinds = _Matrices(x)
    results = [kinds.of(kinds.m, kinds.n), kinds.integers()]
    factor, info = _lapack("potrf", [x], results, {"uplo": "U" if upper else "L"})
    return [_triangle(factor, lower=not upper), info]


def _factored(x: ir.Value) -> list[ir.Value]:
    kinds = _Matrices(x)
    results = [kinds.of(kinds.m, kinds.n), kinds.integers(kinds.least), kinds.integers()]
    return _lapack("getrf", [x], results)


@_lowering("aten.linalg_lu_factor_ex")
def _lu_factor(
    op: ir.Operation, x: ir.Value, pivot: bool = True, check_errors: bool = False
) -> list[ir.Value]:
    return _factored(x)


@_lowering("aten.geqrf")
def _reflectors(op: ir.Operation, x: ir.Value) -> list[ir.Value]:
    kinds = _Matrices(x)
    return _lapack("geqrf", [x], [kinds.of(kinds.m, kinds.n), kinds.of(kinds.least)])


@_lowering("aten.linalg_householder_product")
def _product_of_reflectors(op: ir.Operation, x: ir.Value, factors: ir.Value) -> list[ir.Value]:
    function = "ungqr" if hlo.dtype(x).kind == "c" else "orgqr"
    return _lapack(function, [x, factors], [x.type])


@_lowering("aten.ormqr")
def _multiplied_by_reflectors(
    op: ir.Operation,
    x: ir.Value,
    factors: ir.Value,
    other: ir.Value,
    left: bool = True,
    transpose: bool = False,
) -> list[ir.Value]:
    function = "unmqr" if hlo.dtype(x).kind == "c" else "ormqr"
    x = _first(x, hlo.shape(factors)[-1:])
    flags = {"left": bool(left), "transpose": bool(transpose)}
    return _lapack(function, [x, factors, other], [other.type], flags)


@_lowering("aten.linalg_qr")
def _qr(op: ir.Operation, x: ir.Value, mode: str = "reduced") -> list[ir.Value]:
    kinds = _Matrices(x)
    reflectors, factors = _reflectors(op, x)
    columns = kinds.m if mode == "complete" else kinds.least
    r = _triangle(_first(reflectors, [columns, kinds.n]), lower=False)
    if columns > kinds.n:
        rank = len(kinds.batch) + 2
        zero, more = _full([], x, 0.0), [0] * (rank - 1) + [columns - kinds.n]
        reflectors = hlo.pad(reflectors, zero, [0] * rank, more)
    q = reflectors if mode == "r" else _first(reflectors, [kinds.m, columns])
    if mode != "r":
        (q,) = _product_of_reflectors(op, q, factors)
    return _in_place_of([q, r], op)


@_lowering("aten._linalg_svd")
def _svd(
    op: ir.Operation,
    x: ir.Value,
    full_matrices: bool = False,
    compute_uv: bool = True,
    driver: str | None = None,
) -> list[ir.Value]:
    kinds = _Matrices(x)
    m, n, least = kinds.m, kinds.n, kinds.least
    left, right = (m, n) if compute_uv and full_matrices else (least, least)
    letter = "N" if not compute_uv else "A" if full_matrices else "S"
    results = [kinds.of(m, n), kinds.real(least), kinds.of(m, left), kinds.of(right, n)]
    _, s, u, v, info = _lapack("gesdd", [x], [*results, kinds.integers()], {"mode": letter})
    return _in_place_of([_unless_failed(part, info) for part in (u, s, v)], op)


@_lowering("aten._linalg_eigh")
def _eigh(
    op: ir.Operation, x: ir.Value, triangle: str = "L", compute_v: bool = True
) -> list[ir.Value]:
    kinds = _Matrices(x)
    results = [kinds.of(kinds.m, kinds.n), kinds.real(kinds.n), kinds.integers()]
    letters = {"mode": "V" if compute_v else "N", "uplo": triangle.upper()}
    function = "heevd" if kinds.is_complex else "syevd"
    vectors, values, info = _lapack(function, [x], results, letters)
    return _in_place_of([_unless_failed(part, info) for part in (values, vectors)], op)


@_lowering("aten.linalg_eig")
def _eig(op: ir.Operation, x: ir.Value) -> list[ir.Value]:
    kinds = _Matrices(x)
    n = kinds.n
    values = [kinds.of(n)] if kinds.is_complex else [kinds.real(n)] * 2
    results = [*values, kinds.complex(n, n), kinds.complex(n, n), kinds.integers()]
    letters = {"compute_left": "N", "compute_right": "V"}
    *found, _, vectors, info = _lapack("geev", [x], results, letters)
    value = found[0] if kinds.is_complex else _as_complex(*found)
    return [_unless_failed(part, info) for part in (value, vectors)]


@_lowering("aten._linalg_eigvals", "aten.linalg_eigvals")
def _eigvals(op: ir.Operation, x: ir.Value) -> list[ir.Value]:
    return _eig(op, x)[:1]


# --- Triangular and general solves ----------------------------------------------------------------


def _solved_triangular(
    a: ir.Value, b: ir.Value, *, lower: bool, left: bool = True, unit: bool = False
) -> ir.Value:
    attributes = {
        "left_side": ir.BoolAttr.get(left),
        "lower": ir.BoolAttr.get(lower),
        "unit_diagonal": ir.BoolAttr.get(unit),
        "transpose_a": ir.Attribute.parse("#stablehlo<transpose NO_TRANSPOSE>"),
    }
    return created("stablehlo.triangular_solve", [b.type], [a, b], attributes)[0]


@_lowering("aten.linalg_solve_triangular")
def _solve_triangular(
    op: ir.Operation,
    a: ir.Value,
    b: ir.Value,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> list[ir.Value]:
    batch = hlo.shape(op.results[0])[:-2]
    a, b = _spread(a, batch), _spread(b, batch)
    found = _solved_triangular(a, b, lower=not upper, left=bool(left), unit=bool(unitriangular))
    return [found]


def _permutation(pivots: ir.Value, size: int) -> ir.Value:
    """The rows [..., size] that a matrix has after row i has changed places with row `pivots[i]`,
    from 1 on, for one i after the other."""
    *batch, count = hlo.shape(pivots)
    rank = len(batch)
    sizes = [*batch, size]
    place = hlo.iota(sizes, rank, np.int32)
    zero = hlo.full(0, [], np.int32)

    def everywhere(x: ir.Value) -> ir.Value:
        return hlo.broadcast_in_dim(hlo.reshape(x, batch), sizes, range(rank))

    def goes_on(i: ir.Value, rows: ir.Value) -> ir.Value:
        return hlo.compare(i, hlo.full(count, [], np.int32), "LT")

    def swapped(i: ir.Value, rows: ir.Value) -> list[ir.Value]:
        start = [hlo.full(0, [], np.int32)] * rank + [i]
        other = hlo.dynamic_slice(pivots, start, [*batch, 1])
        other = everywhere(hlo.subtract(other, hlo.full_like(other, 1)))
        here = hlo.compare(place, hlo.broadcast_in_dim(i, sizes, []), "EQ")
        there = hlo.compare(place, other, "EQ")
        own = everywhere(hlo.dynamic_slice(rows, start, [*batch, 1]))
        hit = hlo.select(there, rows, hlo.full_like(rows, 0))
        its = everywhere(hlo.reduce(hit, hlo.full(0, [], np.int32), [rank], "add"))
        rows = hlo.select(there, own, hlo.select(here, its, rows))
        return [hlo.add(i, hlo.full_like(i, 1)), rows]

    return hlo.while_loop([zero, place], goes_on, swapped)[1]


def _inverse(rows: ir.Value) -> ir.Value:
    """The permutation that undoes `rows`."""
    shape = hlo.shape(rows)
    index = hlo.iota(shape, len(shape) - 1, np.int32)
    return hlo.sort([rows, index], len(shape) - 1, "LT")[1]


def _solved(
    factors: ir.Value, pivots: ir.Value, b: ir.Value, *, left: bool = True, adjoint: bool = False
) -> ir.Value:
    """X of P L U X = B, with the adjoint of the matrix, or of X P L U = B; all of one batch."""
    if not left:
        found = _solved(factors, pivots, _adjoint(b), adjoint=not adjoint)
        return _adjoint(found)
    rows = _permutation(pivots, hlo.shape(factors)[-1])
    if not adjoint:
        below = _solved_triangular(factors, _taken(b, rows), lower=True, unit=True)
        return _solved_triangular(factors, below, lower=False)
    turned = _adjoint(factors)
    above = _solved_triangular(turned, b, lower=True)
    found = _solved_triangular(turned, above, lower=False, unit=True)
    return _taken(found, _inverse(rows))


@_lowering("aten.linalg_lu_solve")
def _lu_solve(
    op: ir.Operation,
    factors: ir.Value,
    pivots: ir.Value,
    b: ir.Value,
    left: bool = True,
    adjoint: bool = False,
) -> list[ir.Value]:
    batch = hlo.shape(op.results[0])[:-2]
    factors, pivots, b = _spread(factors, batch), _spread(pivots, batch, 1), _spread(b, batch)
    return [_solved(factors, pivots, b, left=bool(left), adjoint=bool(adjoint))]


@_lowering("aten._linalg_solve_ex")
def _solve(
    op: ir.Operation, a: ir.Value, b: ir.Value, left: bool = True, check_errors: bool = False
) -> list[ir.Value]:
    """`b` may be vectors, one for each matrix."""
    shape = hlo.shape(op.results[0])
    factors, pivots, info = _factored(a)
    are_vectors = len(hlo.shape(b)) == 1 or hlo.shape(b) == hlo.shape(a)[:-1]
    batch = shape[:-1] if are_vectors else shape[:-2]
    if are_vectors:
        b = hlo.reshape(b, [*hlo.shape(b), 1])
    found = _solved(
        _spread(factors, batch), _spread(pivots, batch, 1), _spread(b, batch), left=bool(left)
    )
    return [hlo.reshape(found, shape), factors, pivots, info]


@_lowering("aten.linalg_inv_ex")
def _inv(op: ir.Operation, x: ir.Value, check_errors: bool = False) -> list[ir.Value]:
    factors, pivots, info = _factored(x)
    shape = hlo.shape(x)
    row, column = _places(x)
    diagonal = hlo.compare(row, column, "EQ")
    identity = hlo.select(diagonal, _full(shape, x, 1.0), _full(shape, x, 0.0))
    return [_solved(factors, pivots, identity), info]


def _unpacked(
    op: ir.Operation, factors: ir.Value, pivots: ir.Value
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """P, L and U."""
    kinds = _Matrices(factors)
    m, n, least = kinds.m, kinds.n, kinds.least
    rows = _permutation(pivots, m)
    square = [*kinds.batch, m, m]
    dims = [*range(len(kinds.batch)), len(kinds.batch) + 1]
    spread = hlo.broadcast_in_dim(rows, square, dims)  # [..., any row, column]
    row = hlo.iota(square, len(square) - 2, np.int32)
    ones, zeros = _full(square, factors, 1.0), _full(square, factors, 0.0)
    p = hlo.select(hlo.compare(row, spread, "EQ"), ones, zeros)
    lower = _triangle(_first(factors, [m, least]), lower=True, unit=True)
    return p, lower, _triangle(_first(factors, [least, n]), lower=False)


@_lowering("aten.linalg_lu")
def _lu(op: ir.Operation, x: ir.Value, pivot: bool = True) -> list[ir.Value]:
    factors, pivots, _ = _factored(x)
    return list(_unpacked(op, factors, pivots))


@_lowering("aten.lu_unpack")
def _lu_unpack(
    op: ir.Operation,
    factors: ir.Value,
    pivots: ir.Value,
    unpack_data: bool = True,
    unpack_pivots: bool = True,
) -> list[ir.Value]:
    return _in_place_of(_unpacked(op, factors, pivots), op)


# --- Determinants ---------------------------------------------------------------------------------


def _diagonal(x: ir.Value, otherwise: float) -> ir.Value:
    """`x` with `otherwise` off the diagonal."""
    row, column = _places(x)
    return hlo.select(hlo.compare(row, column, "EQ"), x, _full(hlo.shape(x), x, otherwise))


def _product(x: ir.Value) -> ir.Value:
    """Of the elements on the diagonal."""
    rank = len(hlo.shape(x))
    rows = _combined(_diagonal(x, 1.0), rank - 1)
    return _combined(rows, rank - 2)


def _combined(x: ir.Value, dim: int) -> ir.Value:
    return hlo.reduce(x, _full([], x, 1.0), [dim], "multiply")


def _parity(pivots: ir.Value, like: ir.Value) -> ir.Value:
    """-1 for an odd number of rows that have changed places, of the element type of `like`."""
    shape = hlo.shape(pivots)
    rank = len(shape)
    place = hlo.iota(shape, rank - 1, np.int32)
    own = hlo.add(place, hlo.full_like(place, 1))
    moved = hlo.convert(hlo.compare(pivots, own, "NE"), np.int32)
    count = hlo.reduce(moved, hlo.full(0, [], np.int32), [rank - 1], "add")
    odd = hlo.compare(hlo.and_(count, hlo.full_like(count, 1)), hlo.full_like(count, 1), "EQ")
    batch = shape[:-1]
    return hlo.select(odd, _full(batch, like, -1.0), _full(batch, like, 1.0))


@_lowering("aten._linalg_det")
def _det(op: ir.Operation, x: ir.Value) -> list[ir.Value]:
    factors, pivots, _ = _factored(x)
    product = _product(factors)
    return [hlo.multiply(_parity(pivots, product), product), factors, pivots]


@_lowering("aten.linalg_det")
def _det_alone(op: ir.Operation, x: ir.Value) -> list[ir.Value]:
    return _det(op, x)[:1]


@_lowering("aten._linalg_slogdet")
def _slogdet(op: ir.Operation, x: ir.Value) -> list[ir.Value]:
    factors, pivots, _ = _factored(x)
    rank = len(hlo.shape(x))
    lengths = hlo.unary("abs", _diagonal(factors, 1.0))
    logs = hlo.unary("log", lengths)
    total = hlo.reduce(logs, hlo.full(0.0, [], _real(x)), [rank - 2, rank - 1], "add")
    signs = _product(hlo.unary("sign", _diagonal(factors, 1.0)))
    return [hlo.multiply(_parity(pivots, signs), signs), total, factors, pivots]


@_lowering("aten.linalg_slogdet")
def _slogdet_alone(op: ir.Operation, x: ir.Value) -> list[ir.Value]:
    return _slogdet(op, x)[:2]


__all__ = ["FORMS"]
