"""Elementwise kernels: every broadcast, element type, comparison, conversion, integer operation."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator

import ml_dtypes
import numpy as np
from jax import lax
from jax import numpy as jnp
from programs import Batch, Case, integers, normal

BROADCASTS = [
    ((19,), (19,)), ((7, 19), (19,)), ((7, 19), (7, 1)), ((7, 1), (1, 19)), ((7, 19), ()),
    ((), (7, 19)), ((3, 1, 5), (7, 1)), ((2, 3, 5, 17), (3, 1, 1)), ((2, 3, 5, 17), (1, 3, 1, 17)),
    ((2, 1, 5, 1), (1, 3, 1, 17)), ((1, 1), (3, 4)), ((3, 5, 1), (1, 5, 33)), ((), ()),
    ((1,), (130,)), ((65, 1, 1), (1, 1, 3)), ((2, 3, 4, 5, 6), (4, 1, 6)),
]  # fmt: skip


def shape_name(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def every_broadcast() -> Iterator[Case]:
    for a, b in BROADCASTS:
        name = f"{shape_name(a)}-with-{shape_name(b)}"
        yield Case(f"add-{name}", operator.add, (normal(*a), normal(*b, seed=1)))
        select = (integers(*a, low=0, high=1).astype(bool), normal(*a), normal(*b, seed=1))
        yield Case(f"select-{name}", jnp.where, select)


INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = {"float64": 1e-14, "float32": 1e-6, "float16": 2e-3, "bfloat16": 1.6e-2}
"""Tolerances: a few units in the last place of each type."""

ARITHMETIC: dict[str, Callable[..., object]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "maximum": jnp.maximum,
    "minimum": jnp.minimum,
}
COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)


def as_type(x: np.ndarray, dtype: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        return x.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def every_type() -> Iterator[Case]:
    for dtype in INTEGERS:
        low = 0 if dtype.startswith("u") else -9
        x, y = (integers(5, n, low=low, dtype=dtype) for n in (33, 33))
        y = np.roll(y, 1)
        for name, function in ARITHMETIC.items():
            yield Case(f"{name}-{dtype}", function, (x, y))
        positive = np.where(y == 0, 1, y).astype(dtype)
        yield Case(f"divide-{dtype}", lax.div, (x, positive))
        yield Case(f"remainder-{dtype}", lax.rem, (x, positive))
        yield Case(f"bits-{dtype}", lambda a, b: [a & b, a | b, a ^ b, ~a], (x, y))
        shift = integers(5, 33, low=0, high=7, dtype=dtype)
        yield Case(f"shift-left-{dtype}", lax.shift_left, (x, shift))
        yield Case(f"shift-right-{dtype}", lax.shift_right_logical, (x, shift))
        yield Case(f"shift-right-signed-{dtype}", lax.shift_right_arithmetic, (x, shift))
        yield Case(f"count-{dtype}", lambda a: [lax.population_count(a), lax.clz(a)], (x,))
        yield Case(f"compare-{dtype}", lambda a, b: [c(a, b) for c in COMPARISONS], (x, y))
        signs = [jnp.abs, jnp.sign, operator.neg]
        yield Case(f"sign-{dtype}", lambda a, f=signs: [g(a) for g in f], (x,))
        yield Case(f"clamp-{dtype}", lambda a: lax.clamp(a.dtype.type(1), a, a.dtype.type(3)), (x,))
    for dtype, tolerance in FLOATS.items():
        x, y = as_type(normal(5, 33), dtype), as_type(normal(5, 33, seed=1), dtype)
        for name, function in (ARITHMETIC | {"divide": operator.truediv}).items():
            yield Case(f"{name}-{dtype}", function, (x, y), tolerance)
        yield Case(f"compare-{dtype}", lambda a, b: [c(a, b) for c in COMPARISONS], (x, y))
        signs = [jnp.abs, jnp.sign, operator.neg, jnp.floor, jnp.ceil]
        yield Case(f"sign-{dtype}", lambda a, f=signs: [g(a) for g in f], (x,), tolerance)
        yield Case(f"chain-{dtype}", lambda a, b: jnp.maximum(a * b + a, 0) - b, (x, y),
                   4 * tolerance)  # fmt: skip


def every_conversion() -> Iterator[Case]:
    kinds = ("bool", "int8", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64")
    values = np.array([0, 1, 2, 3, 17, 63, 100, 126, 0] * 3)
    for source, target in itertools.permutations(kinds, 2):
        x = as_type(values, source)
        wanted = as_type(x, target).astype("float64" if "float" in target else target)

        def convert(a: np.ndarray, target: str = target) -> object:
            return lax.convert_element_type(a, jnp.dtype(target))

        yield Case(f"{source}-to-{target}", convert, (x,), 0, lambda a, w=wanted: w)
    fractions = np.array([-2.9, -0.5, 0.0, 0.5, 1.5, 2.5, 126.99], np.float32)
    for target in ("int8", "int32", "int64"):
        yield Case(f"fractions-to-{target}", lambda a, t=target: a.astype(t), (fractions,), 0)
    for source in FLOATS:
        yield Case(
            f"all-{source}-to-integers",
            lambda a: [lax.convert_element_type(a, target) for target in INTEGERS],
            (as_type(ANY_SIZE, source),),
            reference=lambda a: [nearest(np.asarray(a), target) for target in INTEGERS],
        )


ANY_SIZE = np.array(
    [np.nan, np.inf, 0.0, 0.5, *(2.0**n + d for n in (7, 8, 15, 16, 31, 32, 63, 64, 99)
                                 for d in (-(2.0 ** max(n - 11, 0)), 0, 1))]
)  # fmt: skip
ANY_SIZE = np.concatenate([ANY_SIZE, -ANY_SIZE])


def nearest(x: np.ndarray, target: str) -> np.ndarray:
    """Towards zero, limited to the integers of the target; NaN is 0."""
    limits = np.iinfo(target)
    numbers = [0 if np.isnan(v) else max(min(v, 2.0**70), -(2.0**70)) for v in x.tolist()]
    return np.array([min(max(int(v), limits.min), limits.max) for v in numbers], target)


X, Y = normal(7, 33), normal(7, 33, seed=1)
MASK = X > 0
POSITIVE = np.abs(X) + np.float32(0.1)
FORMS = [
    Case("bool-operations", lambda a, b: [a & b, a | b, a ^ b, ~a], (MASK, Y > 0)),
    Case("bool-compared", lambda a, b: [a == b, a != b], (MASK, Y > 0)),
    Case("bool-selected", lambda p, a, b: jnp.where(p, a > 0, b > 0), (MASK, X, Y)),
    Case("select-scalar-predicate", lambda p, a, b: lax.select(p, a, b), (np.array(True), X, Y)),
    Case("circular-of-far-numbers", lambda a: [jnp.sin(a), jnp.cos(a), jnp.tan(a)],
         (X * np.float32(10) ** np.arange(33, dtype=np.float32),)),
    Case("mask-to-float", lambda a: (a > 0).astype(a.dtype) * a, (X,)),
    Case("mask-kept-and-used", lambda a, b: [m := a > b, jnp.where(m, a, b)], (X, Y)),
    Case("shared-by-two-results", lambda a, b: [(s := a * b) + 1, s - a], (X, Y)),
    Case("long-chain", lambda a: sum((a * k + 1) / (k + 2) for k in range(20)), (X,), 1e-5),
    Case("roots", lambda a: [jnp.sqrt(a), lax.rsqrt(a), jnp.cbrt(a)], (POSITIVE,)),
    Case("rounding", lambda a: [jnp.round(a), jnp.floor(a), lax.round(a)], (4 * X,)),
    Case("rounding-halves", lambda a: [jnp.round(a), lax.round(a)],
         (np.arange(-5, 5.5, 0.5, np.float32),), 0),
    Case("remainder-float", lax.rem, (4 * X, POSITIVE), 1e-5),
    Case("divide-by-one-value", lambda a, s: a / s, (X, np.asarray(np.float32(3.1)))),
    Case("finite", lambda a: jnp.isfinite(a), (np.array([1, np.inf, -np.inf, np.nan], "f4"),)),
    Case("minus-zero", lambda a: 1 / jnp.maximum(a, a), (np.array([-0.0, 0.0], np.float32),)),
    Case("clamped-between", lax.clamp, (-np.abs(Y), X, np.abs(Y))),
    Case("maximum-of-three", lambda a, b: jnp.maximum(jnp.maximum(a, b), -a), (X, Y)),
    Case("integer-power", lambda a: [a**2, a**3, lax.integer_pow(a, -1)], (POSITIVE,), 1e-5),
    Case("iota", lambda a: a + lax.broadcasted_iota(a.dtype, a.shape, 1), (X,)),
    Case("iota-only", lambda: [jnp.arange(19), lax.broadcasted_iota(np.int32, (3, 7), 0)], ()),
    Case("constants-only", lambda: [jnp.full((3, 7), 2.5), jnp.ones(())], ()),
    Case("argument-returned", lambda a: [a, a], (X,)),
    Case("argument-reshaped", lambda a: a.reshape(33, 7), (X,)),
    Case("rank-five", lambda a: jnp.maximum(a, 0) + a[:1], (normal(2, 3, 4, 5, 6),)),
    Case("one-element", lambda a: a * a + 1, (normal(1, 1, 1),)),
]  # fmt: skip

EMPTY = np.zeros((0, 4), np.float32)
EMPTY_CASES = [
    Case("empty-elementwise", lambda a: a * a + 1, (EMPTY,)),
    Case("empty-sum", lambda a: a.sum(0), (EMPTY,)),
    Case("empty-rows-sum", lambda a: a.sum(1), (EMPTY,)),
    Case("empty-matmul", jnp.matmul, (EMPTY, normal(4, 3))),
    Case("empty-contraction", jnp.matmul, (EMPTY.T, EMPTY)),
    Case("empty-concatenate", lambda a, b: jnp.concatenate([a, b]), (EMPTY, normal(3, 4))),
]

BROADCAST_BATCH = Batch([*every_broadcast()])
TYPE_BATCH = Batch([*every_type()])
CONVERSION_BATCH = Batch([*every_conversion()])
FORM_BATCH = Batch(FORMS)
EMPTY_BATCH = Batch(EMPTY_CASES)


@BROADCAST_BATCH.parametrize()
def test_broadcasts(name: str) -> None:
    BROADCAST_BATCH.check(name)


@TYPE_BATCH.parametrize()
def test_types(name: str) -> None:
    TYPE_BATCH.check(name)


@CONVERSION_BATCH.parametrize()
def test_conversions(name: str) -> None:
    CONVERSION_BATCH.check(name)


@FORM_BATCH.parametrize()
def test_forms(name: str) -> None:
    FORM_BATCH.check(name)


@EMPTY_BATCH.parametrize()
def test_sizes_of_zero(name: str) -> None:
    EMPTY_BATCH.check(name)
