"""Writing what kernels compute with: constants, `Index`es as values, arithmetic on numbers and
vectors. It is the part of `NestBuilder` without loops and memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from stepwell.kernels.index import Atom, Index, Variable
from stepwell.mlir import dialect, ir

affine = dialect("affine")
arith = dialect("arith")
vector = dialect("vector")

CONTRACT = "#arith.fastmath<contract>"
"""Cloned float arithmetic may fuse a multiply into an add; nothing else is relaxed."""

NO_SIGNED_ZEROS = "#arith.fastmath<nsz>"
"""Of two zeros either may be the largest: telling them apart would double the work."""

EXACT = "#arith.fastmath<none>"
"""Every operation is rounded by itself."""


@dataclass(frozen=True)
class Lanes:
    """The lanes of a vector as an index variable of range [0, count); count 1 means scalar code."""

    count: int
    variable: Variable

    @staticmethod
    def of(count: int) -> Lanes:
        return Lanes(count, Variable("lane", 0, count - 1))

    @property
    def index(self) -> Index:
        return Index.of(self.variable)

    def stride(self, index: Index) -> int | None:
        """How far `index` moves from lane to lane; None when not by a constant."""
        if not index.depends_on(self.variable):
            return 0
        rest = Index(tuple((a, c) for a, c in index.terms if a is not self.variable))
        return None if rest.depends_on(self.variable) else index.coefficient(self.variable)

    def at(self, index: Index, lane: int) -> Index:
        """`index` for one lane."""
        return index.substitute(self.variable, Index((), lane))


class Arithmetic:
    """Emits affine, vector and arith operations at the current insertion point."""

    def __init__(self) -> None:
        self._constants: dict[tuple[str, str], ir.Value] = {}
        self._anchor: ir.Operation | None = None

    def start(self, entry: ir.Block) -> None:
        """Emit into `entry`; constants and views of arguments are kept at its top."""
        with ir.InsertionPoint(entry):
            marker = arith.ConstantOp(ir.IndexType.get(), 0)
        self._anchor = marker.operation

    @property
    def entry(self) -> ir.Block:
        """The kernel's entry block."""
        assert self._anchor is not None, "start() comes first"
        return self._anchor.block

    @contextmanager
    def at_top(self) -> Iterator[None]:
        """Emit before everything else in the kernel."""
        assert self._anchor is not None, "start() comes first"
        with ir.InsertionPoint(self._anchor):
            yield

    def _map(self, indices: Sequence[Index]) -> tuple[ir.AffineMap, list[ir.Value]]:
        found = self._affine(indices)
        assert found is not None, "an affine map of what is computed"
        return found

    def _affine(self, indices: Sequence[Index]) -> tuple[ir.AffineMap, list[ir.Value]] | None:
        """A map to `indices` and its operands; None where one of these is computed."""
        variables: dict[Variable, int] = {}
        for index in indices:
            for variable in index.variables():
                variables.setdefault(variable, len(variables))
        if any(variable.computed for variable in variables):
            return None
        expressions = [index.to_affine(variables.__getitem__) for index in indices]
        return ir.AffineMap.get(len(variables), 0, expressions), [ssa(v) for v in variables]

    def constant(self, attribute: ir.Attribute) -> ir.Value:
        """A scalar or vector constant, made once at the top of the kernel."""
        key = (str(attribute), str(attribute.type))
        if key not in self._constants:
            with self.at_top():
                self._constants[key] = arith.ConstantOp(attribute.type, attribute).result
        return self._constants[key]

    def float_constant(self, value: float, element: ir.Type) -> ir.Value:
        return self.constant(ir.FloatAttr.get(element, value))

    def as_vector(self, value: ir.Value, lanes: Lanes) -> ir.Value:
        """`value` in all lanes when it is a scalar."""
        if lanes.count == 1 or isinstance(value.type, ir.VectorType):
            return value
        kind = ir.VectorType.get([lanes.count], value.type)
        return vector.BroadcastOp(kind, value).result

    def index_value(self, index: Index, lanes: Lanes) -> ir.Value:
        """`index` as a value of type index: a scalar, or a vector when it moves with the lane."""
        stride = lanes.stride(index)
        if stride == 0:
            return self._apply(index)
        if stride is None:
            parts = [self._apply(lanes.at(index, lane)) for lane in range(lanes.count)]
            kind = ir.VectorType.get([lanes.count], ir.IndexType.get())
            return vector.FromElementsOp(kind, parts).result
        kind = ir.VectorType.get([lanes.count], ir.IndexType.get())
        steps = ir.DenseElementsAttr.get(
            [ir.IntegerAttr.get(ir.IndexType.get(), stride * i) for i in range(lanes.count)], kind
        )
        base = vector.BroadcastOp(kind, self._apply(lanes.at(index, 0))).result
        return arith.AddIOp(base, self.constant(steps)).result

    def _apply(self, index: Index) -> ir.Value:
        found = self._affine([index])
        if found is not None:
            return affine.AffineApplyOp(*found).result
        computed = [term for term in index.terms if Index((term,)).is_computed]
        total, *parts = [self._computed(atom, factor) for atom, factor in computed]
        rest = Index(tuple(term for term in index.terms if term not in computed), index.constant)
        if rest != Index():
            parts.append(self._apply(rest))
        for part in parts:
            total = arith.AddIOp(total, part).result
        return total

    def _computed(self, atom: Atom, factor: int) -> ir.Value:
        """`factor` times an atom that no affine map takes."""
        if isinstance(atom, Variable):
            value = ssa(atom)
        else:
            assert atom.dividend.low >= 0
            divide = arith.RemUIOp if atom.remainder else arith.DivUIOp
            value = divide(self._apply(atom.dividend), self._index_constant(atom.divisor)).result
        if factor == 1:
            return value
        return arith.MulIOp(value, self._index_constant(factor)).result

    def _index_constant(self, value: int) -> ir.Value:
        return self.constant(ir.IntegerAttr.get(ir.IndexType.get(), value))

    def fma(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        """a * b + c, on vectors of floats or on scalars."""
        if isinstance(a.type, ir.VectorType) and str(a.type.element_type) in ("f32", "f64"):
            return vector.FMAOp(a, b, c).result
        if isinstance(_scalar_type(a.type), ir.IntegerType):
            return arith.AddIOp(arith.MulIOp(a, b).result, c).result
        contract = ir.Attribute.parse(CONTRACT)
        return arith.AddFOp(
            arith.MulFOp(a, b, fastmath=contract).result, c, fastmath=contract
        ).result

    def add(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """a + b."""
        if isinstance(_scalar_type(a.type), ir.IntegerType):
            return arith.AddIOp(a, b).result
        return arith.AddFOp(a, b).result

    def subtract(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """a - b on floats."""
        return arith.SubFOp(a, b).result

    def splat_like(self, value: ir.Value, number: float) -> ir.Value:
        """`number` in as many lanes as `value` has."""
        scalar = ir.FloatAttr.get(_scalar_type(value.type), number)
        if isinstance(value.type, ir.VectorType):
            return self.constant(ir.DenseElementsAttr.get_splat(value.type, scalar))
        return self.constant(scalar)

    def scaled(self, value: ir.Value, factor: float) -> ir.Value:
        """value * factor."""
        return arith.MulFOp(value, self.splat_like(value, factor)).result

    def zero(self, element: ir.Type, count: int) -> ir.Value:
        """Zero, in `count` lanes."""
        if isinstance(element, ir.IntegerType):
            scalar: ir.Attribute = ir.IntegerAttr.get(element, 0)
        else:
            scalar = ir.FloatAttr.get(element, 0.0)
        if count == 1:
            return self.constant(scalar)
        kind = ir.VectorType.get([count], element)
        return self.constant(ir.DenseElementsAttr.get_splat(kind, scalar))


def ssa(variable: Variable) -> ir.Value:
    """The value of a loop's variable."""
    assert variable.value is not None, f"{variable.name} has no loop"
    return variable.value


def _scalar_type(kind: ir.Type) -> ir.Type:
    return kind.element_type if isinstance(kind, ir.VectorType) else kind
