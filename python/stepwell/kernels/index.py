"""Index arithmetic of loop nests: linear forms over loop variables, simplified by their ranges.

An `Index` is `c0 + sum(ci * vi)` where each `vi` is a loop variable, the lane of a vector, or a
quotient or remainder that could not be simplified. Knowing each variable's range, `(64*j + r)`
divided by 64 is `j` when `0 <= r < 64`: this is how reshapes and packed layouts disappear.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field

from stepwell.mlir import ir

_serial = itertools.count()


@dataclass(frozen=True, eq=False)
class Variable:
    """A loop variable (or the lane of a vector) with its inclusive range and its SSA value. One
    that is `computed` is no variable to MLIR's affine maps: a number that a loop reads."""

    name: str
    low: int
    high: int
    value: ir.Value | None = None
    computed: bool = False
    serial: int = dataclass_field(default_factory=lambda: next(_serial))

    @property
    def order(self) -> tuple:
        return (0, self.serial)


@dataclass(frozen=True)
class Quotient:
    """`dividend floordiv divisor`, or `mod` when `remainder`, that did not simplify."""

    dividend: Index
    divisor: int
    remainder: bool

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        return hash((self.dividend, self.divisor, self.remainder))

    @functools.cached_property
    def order(self) -> tuple:
        inner = tuple((atom.order, factor) for atom, factor in self.dividend.terms)
        return (1, inner, self.dividend.constant, self.divisor, self.remainder)

    @functools.cached_property
    def low(self) -> int:
        return 0 if self.remainder else self.dividend.low // self.divisor

    @functools.cached_property
    def high(self) -> int:
        return self.divisor - 1 if self.remainder else self.dividend.high // self.divisor


Atom = Variable | Quotient


@dataclass(frozen=True)
class Index:
    """A linear form over atoms."""

    terms: tuple[tuple[Atom, int], ...] = ()
    constant: int = 0

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        return hash((self.terms, self.constant))

    @staticmethod
    def of(atom: Atom) -> Index:
        """The index that is just `atom`; a constant when its range has one element."""
        if atom.low == atom.high:
            return Index((), atom.low)
        return Index(((atom, 1),))

    @functools.cached_property
    def low(self) -> int:
        """Smallest value over the ranges of the atoms."""
        return self.constant + sum(c * (a.low if c > 0 else a.high) for a, c in self.terms)

    @functools.cached_property
    def high(self) -> int:
        """Greatest value over the ranges of the atoms."""
        return self.constant + sum(c * (a.high if c > 0 else a.low) for a, c in self.terms)

    @property
    def is_constant(self) -> bool:
        return not self.terms

    @property
    def is_linear(self) -> bool:
        """Whether there is no quotient or remainder in it."""
        return all(isinstance(atom, Variable) for atom, _ in self.terms)

    def known_below(self, bound: int) -> Index:
        """The same number where code runs only if it is less than `bound`, which a variable's
        range then says; other forms are as they were."""
        match self.terms:
            case ((Variable() as variable, 1),) if self.constant == 0 and bound <= variable.high:
                narrowed = Variable(
                    variable.name, variable.low, bound - 1, variable.value, variable.computed
                )
                return Index.of(narrowed)
        return self

    def coefficient(self, atom: Atom) -> int:
        """The factor of `atom`, 0 when it does not occur."""
        return next((c for a, c in self.terms if a == atom), 0)

    def depends_on(self, variable: Variable) -> bool:
        """Whether `variable` occurs anywhere, inside quotients too."""
        return any(
            atom is variable if isinstance(atom, Variable) else atom.dividend.depends_on(variable)
            for atom, _ in self.terms
        )

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.terms, self.constant + other)
        if not other.terms:
            return Index(self.terms, self.constant + other.constant)
        if not self.terms:
            return Index(other.terms, self.constant + other.constant)
        factors: dict[Atom, int] = dict(self.terms)
        for atom, factor in other.terms:
            factors[atom] = factors.get(atom, 0) + factor
        return _normal(factors, self.constant + other.constant)

    def __mul__(self, factor: int) -> Index:
        if factor == 0:
            return Index()
        return Index(tuple((a, c * factor) for a, c in self.terms), self.constant * factor)

    def __sub__(self, other: Index) -> Index:
        return self + other * -1

    def _split(self, divisor: int) -> tuple[Index, Index]:
        """(q, r) with self == divisor * q + r, the multiples of the divisor all in q."""
        quotient = tuple((a, c // divisor) for a, c in self.terms if c % divisor == 0)
        rest = tuple((a, c) for a, c in self.terms if c % divisor)
        whole = self.constant // divisor
        return Index(quotient, whole), Index(rest, self.constant - whole * divisor)

    def floordiv(self, divisor: int) -> Index:
        """`self floordiv divisor`."""
        if divisor == 1:
            return self
        quotient, rest = self._split(divisor)
        if rest.low // divisor == rest.high // divisor:
            return quotient + rest.low // divisor
        grain, coarse, _ = rest._coarsen(divisor)
        divisor //= grain
        inner = coarse._quotient()
        if inner is not None:  # (x floordiv a + k) floordiv b
            dividend = inner.dividend + coarse.constant * inner.divisor
            return quotient + dividend.floordiv(inner.divisor * divisor)
        return quotient + Index.of(Quotient(coarse, divisor, remainder=False))

    def _quotient(self) -> Quotient | None:
        """The quotient that is all of this index but its constant, if there is one."""
        if len(self.terms) != 1:
            return None
        ((atom, factor),) = self.terms
        if isinstance(atom, Quotient) and not atom.remainder and factor == 1:
            return atom
        return None

    def _coarsen(self, divisor: int) -> tuple[int, Index, Index]:
        """(g, coarse, fine) with self == g * coarse + fine, 0 <= fine < g, and g a divisor of
        `divisor` as large as can be: only `coarse` matters to the quotient."""
        for grain in sorted({math.gcd(c, divisor) for _, c in self.terms}, reverse=True):
            coarse, fine = self._split(grain)
            if 0 <= fine.low and fine.high < grain:
                return grain, coarse, fine
        return 1, self, Index()

    def mod(self, divisor: int) -> Index:
        """`self mod divisor`."""
        if divisor == 1:
            return Index()
        _, rest = self._split(divisor)
        if 0 <= rest.low and rest.high < divisor:
            return rest
        grain, coarse, fine = rest._coarsen(divisor)
        return Index.of(Quotient(coarse, divisor // grain, remainder=True)) * grain + fine

    def substitute(self, variable: Variable, value: Index) -> Index:
        """The form with `variable` replaced."""
        result = Index((), self.constant)
        for atom, factor in self.terms:
            if isinstance(atom, Quotient):
                inner = atom.dividend.substitute(variable, value)
                part = inner.mod(atom.divisor) if atom.remainder else inner.floordiv(atom.divisor)
            else:
                part = value if atom is variable else Index(((atom, 1),))
            result = result + part * factor
        return result

    def least(self, over: set[Variable]) -> Index:
        """What the form is not below, for any values of the variables `over`: one of the others."""
        for atom, factor in self.terms:
            inner = [atom] if isinstance(atom, Variable) else atom.dividend.variables()
            if not any(variable in over for variable in inner):
                continue
            rest = Index(tuple(t for t in self.terms if t[0] is not atom), self.constant)
            least = Index((), atom.low if factor > 0 else atom.high)
            if isinstance(atom, Quotient) and not atom.remainder and factor > 0:
                least = atom.dividend.least(over).floordiv(atom.divisor)
            return (rest + least * factor).least(over)
        return self

    @property
    def is_computed(self) -> bool:
        """Whether it depends on a variable that is computed."""
        return any(variable.computed for variable in self.variables())

    def variables(self) -> list[Variable]:
        """The loop variables in it, each once, in order of occurrence."""
        found: dict[Variable, None] = {}
        for atom, _ in self.terms:
            inner = [atom] if isinstance(atom, Variable) else atom.dividend.variables()
            found.update(dict.fromkeys(inner))
        return list(found)

    def to_affine(self, position: Callable[[Variable], int]) -> ir.AffineExpr:
        """MLIR's expression, each variable being the dimension that `position` gives."""
        result = ir.AffineExpr.get_constant(self.constant)
        for atom, factor in self.terms:
            if isinstance(atom, Variable):
                part = ir.AffineExpr.get_dim(position(atom))
            else:
                inner = atom.dividend.to_affine(position)
                part = (
                    ir.AffineExpr.get_mod(inner, atom.divisor)
                    if atom.remainder
                    else ir.AffineExpr.get_floor_div(inner, atom.divisor)
                )
            result = ir.AffineExpr.get_add(result, ir.AffineExpr.get_mul(part, factor))
        return result


def _normal(factors: dict[Atom, int], constant: int) -> Index:
    """Drop zeros, and join `k*c*(x floordiv c) + k*(x mod c)` to `k*x`."""
    for atom, factor in list(factors.items()):
        if not isinstance(atom, Quotient) or not atom.remainder or not factor:
            continue
        whole = atom.dividend.floordiv(atom.divisor)
        quotient = None if whole.constant else whole._quotient()
        if quotient is not None and factors.get(quotient, 0) == factor * atom.divisor:
            factors[atom] = factors[quotient] = 0
            return _normal({a: c for a, c in factors.items() if c}, constant) + (
                atom.dividend * factor
            )
    terms = [(a, c) for a, c in factors.items() if c]
    if len(terms) > 1:
        terms.sort(key=lambda term: term[0].order)
    return Index(tuple(terms), constant)


def constant(value: int) -> Index:
    """The index that is always `value`."""
    return Index((), value)


def linearize(indices: Sequence[Index], shape: Sequence[int]) -> Index:
    """Row-major position of `indices` in `shape`."""
    flat = Index()
    for index, size in zip(indices, shape, strict=True):
        flat = flat * size + index
    return flat


def delinearize(flat: Index, shape: Sequence[int]) -> list[Index]:
    """Indices in `shape` of the row-major position `flat`."""
    result: list[Index] = []
    for position in range(len(shape)):
        inner = math.prod(shape[position + 1 :])
        outer = flat.floordiv(inner)
        result.append(outer if position == 0 else outer.mod(shape[position]))
        if shape[position] == 1:
            result[-1] = Index()
    return result


def reshaped(indices: Sequence[Index], shape: Sequence[int], into: Sequence[int]) -> list[Index]:
    """Indices in the shape `into` of the element at `indices` of `shape`. Dimensions that a reshape
    leaves alone, but for others of one element, keep their indices, also where those lie beyond
    them."""
    result: list[Index] = []
    first = 0
    for begin, end in _common_factors(shape, into):
        sizes = into[len(result) : end]
        flat = linearize(indices[first:begin], shape[first:begin])
        if sum(size != 1 for size in sizes) == 1:
            result += [Index() if size == 1 else flat for size in sizes]
        else:
            result += delinearize(flat, sizes)
        first = begin
    return result


def _common_factors(shape: Sequence[int], into: Sequence[int]) -> list[tuple[int, int]]:
    """Where both shapes may be cut, so that the parts have as many elements; last, their ends."""
    cuts, i, j, left, right = [], 0, 0, 1, 1
    while i < len(shape) and j < len(into) and 0 not in (*shape, *into):
        left, right = left * shape[i], right * into[j]
        i, j = i + 1, j + 1
        while left != right and (i if left < right else j) < len(shape if left < right else into):
            if left < right:
                left, i = left * shape[i], i + 1
            else:
                right, j = right * into[j], j + 1
        cuts.append((i, j))
    return [*cuts[:-1], (len(shape), len(into))]


def apply_map(affine_map: ir.AffineMap, dims: Sequence[Index]) -> list[Index]:
    """The results of `affine_map` at `dims`."""
    return [_apply(expression, dims) for expression in affine_map.results]


def _apply(expression: ir.AffineExpr, dims: Sequence[Index]) -> Index:
    if isinstance(expression, ir.AffineDimExpr):
        return dims[expression.position]
    if isinstance(expression, ir.AffineConstantExpr):
        return constant(expression.value)
    assert isinstance(expression, ir.AffineBinaryExpr)
    left, right = _apply(expression.lhs, dims), _apply(expression.rhs, dims)
    if isinstance(expression, ir.AffineAddExpr):
        return left + right
    if isinstance(expression, ir.AffineMulExpr):
        return left * right.constant if right.is_constant else right * left.constant
    if isinstance(expression, ir.AffineFloorDivExpr):
        return left.floordiv(right.constant)
    if isinstance(expression, ir.AffineModExpr):
        return left.mod(right.constant)
    return (left + (right.constant - 1)).floordiv(right.constant)


def same(left: Sequence[Index], right: Sequence[Index], shape: Sequence[int]) -> bool:
    """Whether two points of `shape` are equal for all values of their variables."""
    return list(left) == list(right) or linearize(left, shape) == linearize(right, shape)
