"""StableHLO operations at edges that JAX does not reach, against exact numbers."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from scipy import special

import stepwell
from stepwell import dtypes

COUNT = 300


def _exact_power(base: int, exponent: int, info: np.iinfo) -> int:
    if exponent < 0:
        return {1: 1, -1: 1 - 2 * (exponent & 1)}.get(base, 0)
    value = pow(base, exponent, 1 << info.bits)
    return value - (1 << info.bits) if value > info.max else value


@pytest.mark.parametrize("kind", ["i8", "ui8", "ui16", "i32", "i64"])
def test_power_of_integers_with_any_exponent(kind: str) -> None:
    dtype = np.dtype(kind.replace("ui", "uint") if "u" in kind else kind.replace("i", "int"))
    info, generator = np.iinfo(dtype), np.random.default_rng(0)
    x, y = generator.integers(info.min, info.max, (2, COUNT), dtype, endpoint=True)
    x[:50] = generator.integers(0, 4, 50)
    if info.min:
        x[25:50] = -x[:25]
    y[100:150] = generator.integers(0, 9, 50)
    y[150:] //= 2
    y[:2] = info.min, info.max
    kind = f"tensor<{COUNT}x{kind}>"
    (got,) = stepwell.compile(
        f"func.func @main(%x: {kind}, %y: {kind}) -> {kind} {{"
        f" %r = stablehlo.power %x, %y : {kind} return %r : {kind} }}"
    )(x, y)
    want = [_exact_power(int(a), int(b), info) for a, b in zip(x, y, strict=True)]
    np.testing.assert_array_equal(got, np.array(want, dtype))


def test_arithmetic_shift_of_unsigned_nibbles() -> None:
    """The upper bit of the nibble is repeated, as of unsigned bytes that of the byte."""
    x = np.arange(16).astype(ml_dtypes.uint4)
    kind = "tensor<16xui4>"
    (got,) = stepwell.compile(
        f"func.func @main(%x: {kind}, %y: {kind}) -> {kind} {{"
        f" %r = stablehlo.shift_right_arithmetic %x, %y : {kind} return %r : {kind} }}"
    )(x, np.full(16, 1, ml_dtypes.uint4))
    want = [code >> 1 | code & 8 for code in range(16)]
    np.testing.assert_array_equal(np.asarray(got).astype(np.int32), want)


def test_inverse_of_error_function_in_double() -> None:
    """Within three units in the last place; SciPy's is within one or two of them."""
    generator = np.random.default_rng(0)
    inside = [generator.uniform(-1, 1, 500), np.exp(generator.uniform(-700, 0, 200))]
    near_one = 1 - np.exp(generator.uniform(-36, 0, 500))
    x = np.concatenate([*inside, near_one, [0.0, -0.0, 1, -1, 2, np.nan]])
    kind = f"tensor<{len(x)}xf64>"
    (got,) = stepwell.compile(
        f"func.func @main(%x: {kind}) -> {kind} {{"
        f" %r = chlo.erf_inv %x : {kind} -> {kind} return %r : {kind} }}"
    )(x)
    want = special.erfinv(x)
    finite = np.isfinite(want)
    np.testing.assert_array_equal(got[~finite], want[~finite])
    error = np.abs(got[finite] - want[finite]) / np.spacing(np.abs(want[finite]))
    assert error.max() <= 4
    assert np.signbit(got[-5])


WIDTHS = {"ui2": 2, "i4": 4, "f6E2M3FN": 6, "f8E5M2": 8, "i8": 8, "bf16": 16, "f64": 64}
PAIRS = [
    pair
    for pair in itertools.permutations(WIDTHS, 2)
    if not any(max(WIDTHS[k] for k in pair) % WIDTHS[k] for k in pair)
]


def _bits(array: np.ndarray, width: int) -> np.ndarray:
    """All bits of an array, from the lowest of each element up."""
    codes = np.ascontiguousarray(array).view(np.uint8).reshape(-1, array.dtype.itemsize)
    return np.unpackbits(codes, axis=1, bitorder="little")[:, :width].reshape(-1)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_bits_of_elements_of_another_width(source: str, target: str) -> None:
    """The bits stay in their order, the lowest first; narrow elements are not padded."""
    before, after = WIDTHS[source], WIDTHS[target]
    wide = max(before, after)
    shape, wanted = ([3, wide // k] if k < wide else [3] for k in (before, after))
    generator = np.random.default_rng(before * 64 + after)
    dtype = dtypes.to_numpy_by_name(source)
    bits = generator.integers(0, 2, (3 * wide // before, before), np.uint8)
    padded = np.pad(bits, ((0, 0), (0, 8 * dtype.itemsize - before)))
    x = np.packbits(padded, axis=1, bitorder="little").view(dtype).reshape(shape)
    first = f"tensor<{'x'.join(map(str, [*shape, source]))}>"
    last = f"tensor<{'x'.join(map(str, [*wanted, target]))}>"
    (got,) = stepwell.compile(
        f"func.func @main(%x: {first}) -> {last} {{"
        f" %r = stablehlo.bitcast_convert %x : ({first}) -> {last} return %r : {last} }}"
    )(x)
    assert list(got.shape) == wanted
    np.testing.assert_array_equal(_bits(np.asarray(got), after), _bits(x, before))


def test_bits_of_complex_numbers_of_another_width() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).view(np.complex128)
    wide, narrow = "tensor<2x3x2xcomplex<f64>>", "tensor<2x3x2x2xcomplex<f32>>"
    there, back = stepwell.compile(
        f"func.func @main(%x: {wide}) -> ({narrow}, {wide}) {{"
        f" %r = stablehlo.bitcast_convert %x : ({wide}) -> {narrow}"
        f" %s = stablehlo.bitcast_convert %r : ({narrow}) -> {wide}"
        f" return %r, %s : {narrow}, {wide} }}"
    )(x)
    assert there.tobytes() == back.tobytes() == x.tobytes()


def test_clamp_of_complex_numbers_is_lexicographic() -> None:
    x = np.array([1 + 2j, 3, -1 - 1j, 0, 2 + 1j], np.complex64)
    kind, one = "tensor<5xcomplex<f32>>", "tensor<complex<f32>>"
    (got,) = stepwell.compile(
        f"func.func @main(%l: {one}, %x: {kind}, %h: {kind}) -> {kind} {{"
        f" %r = stablehlo.clamp %l, %x, %h : ({one}, {kind}, {kind}) -> {kind}"
        f" return %r : {kind} }}"
    )(np.array(1j, np.complex64), x, np.full(5, 2, np.complex64))
    np.testing.assert_array_equal(got, np.array([1 + 2j, 2, 1j, 1j, 2], np.complex64))


_SHAPES = {
    "vectors": ((17,), (17,), "contracting_dims = [0] x [0]"),
    "matrices": ((5, 16), (16, 7), "contracting_dims = [1] x [0]"),
    "batch": ((2, 3, 9), (2, 9, 4), "batching_dims = [0] x [0], contracting_dims = [2] x [1]"),
}


def _product(kind: str, result: str, shapes: str, low: int, high: int) -> tuple[np.ndarray, ...]:
    """Of integers from [low, high], compiled and exact."""
    first, second, dimensions = _SHAPES[shapes]
    generator, element = np.random.default_rng(0), dtypes.to_numpy_by_name(kind)
    x, y = (generator.integers(low, high, s, endpoint=True) for s in (first, second))
    exact = np.matmul(x.astype(object), y.astype(object))
    types = [
        f"tensor<{''.join(f'{n}x' for n in shape)}{element_type}>"
        for shape, element_type in ((first, kind), (second, kind), (np.shape(exact), result))
    ]
    (found,) = stepwell.compile(
        f"func.func @main(%x: {types[0]}, %y: {types[1]}) -> {types[2]} {{"
        f" %r = stablehlo.dot_general %x, %y, {dimensions} : ({types[0]}, {types[1]}) -> {types[2]}"
        f" return %r : {types[2]} }}"
    )(x.astype(element), y.astype(element))
    return found.astype(object), np.array(exact, object)


@pytest.mark.parametrize("shapes", _SHAPES)
@pytest.mark.parametrize("kind", ["i4", "ui4", "i8", "ui8"])
def test_products_of_narrow_integers(kind: str, shapes: str) -> None:
    bits = int(kind.lstrip("ui"))
    low = 0 if "u" in kind else -(1 << bits - 1)
    found, exact = _product(kind, "i32", shapes, low, low + (1 << bits) - 1)
    np.testing.assert_array_equal(found, exact)


@pytest.mark.parametrize("shapes", _SHAPES)
@pytest.mark.parametrize("kind", ["ui8", "ui16", "ui32"])
@pytest.mark.parametrize("result", ["i32", "ui32", "i64", "ui64"])
def test_products_of_unsigned_integers(kind: str, result: str, shapes: str) -> None:
    high = (1 << int(kind.lstrip("ui"))) - 1
    found, exact = _product(kind, result, shapes, 0, high)
    assert np.all((found - exact) % (1 << int(result.lstrip("ui"))) == 0)


@pytest.mark.parametrize(("kind", "result"), [("i8", "i32"), ("ui8", "i32"), ("i16", "f32")])
def test_depthwise_convolutions_of_narrow_integers(kind: str, result: str) -> None:
    """Three channels by themselves, rows alone."""
    element, generator = dtypes.to_numpy_by_name(kind), np.random.default_rng(0)
    x, w = (generator.integers(0, 99, shape) for shape in ((1, 6, 1, 3), (2, 1, 1, 3)))
    (found,) = stepwell.compile(
        f"func.func @main(%x: tensor<1x6x1x3x{kind}>, %w: tensor<2x1x1x3x{kind}>)"
        f" -> tensor<1x5x1x3x{result}> {{ %y = stablehlo.convolution(%x, %w)"
        " dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {}"
        " {batch_group_count = 1 : i64, feature_group_count = 3 : i64}"
        f" : (tensor<1x6x1x3x{kind}>, tensor<2x1x1x3x{kind}>) -> tensor<1x5x1x3x{result}>"
        f" return %y : tensor<1x5x1x3x{result}> }}"
    )(x.astype(element), w.astype(element))
    np.testing.assert_array_equal(found, x[:, :5] * w[0, 0, 0] + x[:, 1:] * w[1, 0, 0])
