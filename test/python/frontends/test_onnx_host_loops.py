"""Loops that the host runs with a compiled body, since what they carry changes its shape and how
often is known in a call alone, or since shapes inside of them depend on data: against onnx's own
evaluator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import stepwell
from stepwell import compiler
from stepwell.artifact import Artifact
from stepwell.frontends.onnx import host_loop
from stepwell.runtime.executable import Executable
from stepwell.specializing import SpecializingExecutable

OPTIONS = {"progress": False}

GROWING = """g (int64 trips, float[2] x) => (float[n] y, float[k, 1] sums) {
    one = Constant <value_int = 1> ()
    go = Cast <to = 9> (one)
    y, sums = Loop (trips, go, x) <body = b (int64 i, bool c, float[n] v)
        => (bool c_out, float[m] v_out, float[1] sum) {
            c_out = Identity(c)
            number = Cast <to = 1> (i)
            shifted = Add(x, number)
            v_out = Concat <axis = 0> (v, shifted)
            sum = ReduceSum (v_out)
        }>
}"""


def parsed(graph: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]>\n{graph}')


def compiled(model: onnx.ModelProto | Path) -> stepwell.SpecializingExecutable:
    exe = stepwell.compile(model, threads=1, options=OPTIONS)
    assert isinstance(exe, SpecializingExecutable)
    return exe


def check(exe: stepwell.SpecializingExecutable, model: onnx.ModelProto, **feed: np.ndarray) -> None:
    """Values are sums of few floats, equal but for rounding."""
    wanted = ReferenceEvaluator(model).run(None, feed)
    for result, expected in zip(exe.run(feed).values(), wanted, strict=True):
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(result, expected, 1e-6, 1e-6)


def numbers(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape) % 7 - 3


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Artifact]:
    """What is compiled during the test."""
    artifacts: list[Artifact] = []
    build = compiler.build

    def noting(*arguments: object, **named: object) -> Artifact:
        artifacts.append(build(*arguments, **named))  # pyright: ignore[reportArgumentType]
        return artifacts[-1]

    monkeypatch.setattr(compiler, "build", noting)
    return artifacts


def test_a_value_that_grows(built: list[Artifact]) -> None:
    """From the second call on, there is code for any number of iterations."""
    model = parsed(GROWING)
    exe = compiled(model)
    for trips in (3, 4):
        check(exe, model, trips=np.array(trips), x=numbers(2))
    before = len(built)
    for trips in (1, 6, 2, 5):
        check(exe, model, trips=np.array(trips), x=numbers(2))
    assert len(built) == before


def test_no_iteration() -> None:
    """onnx's own evaluator cannot stack nothing."""
    exe = compiled(parsed(GROWING))
    x = numbers(2)
    y, sums = exe(np.array(0), x)
    np.testing.assert_array_equal(y, x)
    assert (sums.shape, sums.dtype) == ((0, 1), np.float32)


def test_its_number_of_iterations_is_one_of_the_model() -> None:
    """Unrolled: one artifact holds it all."""
    graph = """g (float[2] x) => (float[n] y) {
        trips = Constant <value_int = 3> ()
        y = Loop (trips, , x) <body = b (int64 i, bool c, float[n] v)
            => (bool c_out, float[m] v_out) {
                c_out = Identity(c)
                v_out = Concat <axis = 0> (v, x)
            }>
    }"""
    model = parsed(graph)
    exe = stepwell.compile(model, threads=1, options=OPTIONS)
    assert isinstance(exe, Executable)
    np.testing.assert_array_equal(exe(numbers(2))[0], np.tile(numbers(2), 4))


def test_a_condition_ends_it() -> None:
    """While the sum of a list that grows is small; what comes before and behind is compiled."""
    model = parsed(
        """g (float[4] x, float limit) => (float[n] y) {
            start = Relu(x)
            none = Constant <value_int = 1> ()
            go = Cast <to = 9> (none)
            grown = Loop (, go, start) <body = b (int64 i, bool c, float[n] v)
                => (bool c_out, float[m] v_out) {
                    half = Constant <value_float = 0.5> ()
                    one = Constant <value_ints = [1]> ()
                    last = ReduceMax <keepdims = 0> (v)
                    next = Mul(last, half)
                    more = Reshape(next, one)
                    v_out = Concat <axis = 0> (v, more)
                    total = ReduceSum <keepdims = 0> (v_out)
                    c_out = Less(total, limit)
                }>
            y = Neg(grown)
        }"""
    )
    exe = compiled(model)
    for limit in (9.0, 20.0, 2.0):
        check(exe, model, x=numbers(4) + 3, limit=np.array(limit, np.float32))


def test_its_number_of_iterations_is_found() -> None:
    """By the first part of the model; the last part takes what the loop gives, of any length."""
    model = parsed(
        """g (float[8, 3] x) => (float[n, 3] y, float[k, 1] s) {
            zero = Constant <value_float = 0.0> ()
            rows = ReduceMax <axes: ints = [1], keepdims = 0> (x)
            found = Greater(rows, zero)
            places = NonZero(found)
            sizes = Shape(places)
            one = Constant <value_int = 1> ()
            trips = Gather(sizes, one)
            go = Cast <to = 9> (one)
            none = Constant <value = float[0, 3] {}> ()
            kept, s = Loop (trips, go, none) <body = b (int64 i, bool c, float[n, 3] v)
                => (bool c_out, float[m, 3] v_out, float[1] sum) {
                    c_out = Identity(c)
                    column = Constant <value_int = 0> ()
                    ends = Gather(places, column)
                    place = Gather(ends, i)
                    row = Gather(x, place)
                    first = Constant <value_ints = [0]> ()
                    wide = Unsqueeze(row, first)
                    v_out = Concat <axis = 0> (v, wide)
                    sum = ReduceSum (row)
                }>
            y = Abs(kept)
        }"""
    )
    model.opset_import[0].version = 13
    exe = compiled(model)
    random = np.random.default_rng(0)
    for bias in (0.0, -1.0, 1.0, -0.5, -0.8):
        x = random.standard_normal((8, 3)).astype(np.float32) + np.float32(bias)
        assert (x.max(1) > 0).any()
        check(exe, model, x=x)


def test_a_loop_within() -> None:
    """The body is a model like any other: its loop runs on the host as well."""
    model = parsed(
        """g (int64 trips, float[1] x) => (float[n] y) {
            one = Constant <value_int = 1> ()
            go = Cast <to = 9> (one)
            y = Loop (trips, go, x) <body = outer (int64 i, bool c, float[n] v)
                => (bool c_out, float[m] v_out) {
                    c_out = Identity(c)
                    v_out = Loop (i, c, v) <body = inner (int64 j, bool d, float[n] w)
                        => (bool d_out, float[m] w_out) {
                            d_out = Identity(d)
                            w_out = Concat <axis = 0> (w, x)
                        }>
                }>
        }"""
    )
    exe = compiled(model)
    for trips in (3, 5, 4):
        check(exe, model, trips=np.array(trips), x=numbers(1))


PASTING = """g (int64[n, 2] ends, float[12] x) => (float[k] y) {
    whole = Shape(ends)
    zero = Constant <value_int = 0> ()
    trips = Gather(whole, zero)
    none = Constant <value = float[0] {}> ()
    one = Constant <value_int = 1> ()
    go = Cast <to = 9> (one)
    y = Loop (trips, go, none) <body = b (int64 i, bool c, float[a] v)
        => (bool c_out, float[m] v_out) {
            c_out = Identity(c)
            first = Constant <value_ints = [0]> ()
            second = Constant <value_ints = [1]> ()
            most = Constant <value_ints = [12]> ()
            pair = Gather(ends, i)
            low = Gather(pair, first)
            high = Gather(pair, second)
            begin = Max(low, first)
            end = Min(high, most)
            part = Slice(x, begin, end)
            rest = Sub(most, end)
            before = ConstantOfShape(begin)
            behind = ConstantOfShape(rest)
            bent = Tanh(part)
            all = Concat <axis = 0> (before, bent, behind)
            v_out = Concat <axis = 0> (v, all)
        }>
}"""
"""As masks are pasted into images: the sum of three sizes is always the same."""


def test_shapes_that_hang_together(monkeypatch: pytest.MonkeyPatch, built: list[Artifact]) -> None:
    """Of such a body, the host moves the elements, too, and the rest is compiled once."""
    monkeypatch.setattr(host_loop, "_MOST_COMPILED", 3)
    model = parsed(PASTING)
    exe = compiled(model)
    random = np.random.default_rng(0)
    for count in (6, 3, 9):
        ends = np.sort(random.integers(-3, 15, (count, 2)), axis=1)
        check(exe, model, ends=ends, x=numbers(12) / 4)
    before = len(built)
    ends = np.sort(random.integers(-3, 15, (8, 2)), axis=1)
    check(exe, model, ends=ends, x=numbers(12) / 4)
    assert len(built) == before


def test_iterations_that_do_not_stack() -> None:
    model = parsed(
        """g (int64 trips, float[4] x) => (float[k, n] y) {
            one = Constant <value_int = 1> ()
            go = Cast <to = 9> (one)
            y = Loop (trips, go) <body = b (int64 i, bool c) => (bool c_out, float[n] part) {
                c_out = Identity(c)
                first = Constant <value_ints = [0]> ()
                zero = Constant <value_ints = [0]> ()
                number = Unsqueeze(i, zero)
                end = Add(number, one)
                part = Slice(x, first, end)
            }>
        }"""
    )
    exe = compiled(model)
    with pytest.raises(stepwell.InputError, match=r'"part" of the shapes \(1,\) and \(2,\), which'):
        exe(np.array(2), numbers(4))


def test_weights_of_the_body_in_a_file(tmp_path: Path) -> None:
    """What the body captures of the model's own is not handed over, and may lie in a file."""
    model = parsed(
        """g (int64 trips, float[1, 64] x) => (float[n, 64] y) {
            one = Constant <value_int = 1> ()
            go = Cast <to = 9> (one)
            y = Loop (trips, go, x) <body = b (int64 i, bool c, float[n, 64] v)
                => (bool c_out, float[m, 64] v_out) {
                    c_out = Identity(c)
                    last = ReduceSum <axes: ints = [0]> (v)
                    row = MatMul(last, w)
                    v_out = Concat <axis = 0> (v, row)
                }>
        }"""
    )
    weights = onnx.numpy_helper.from_array(numbers(64, 64) / 64, "w")
    model.graph.initializer.append(weights)
    model.opset_import[0].version = 12
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, size_threshold=0)
    exe = compiled(path)
    loaded = onnx.load(path)
    for trips in (2, 4):
        check(exe, loaded, trips=np.array(trips), x=numbers(1, 64))


def test_an_initializer_that_is_an_input() -> None:
    """Another value for it in a later call reaches the body."""
    model = parsed(GROWING)
    model.graph.initializer.append(onnx.numpy_helper.from_array(numbers(2), "x"))
    exe = compiled(model)
    for x in (None, numbers(2) * 3, None):
        feed = {"trips": np.array(2)} | ({} if x is None else {"x": x})
        results = exe.run(feed).values()
        wanted = ReferenceEvaluator(parsed(GROWING)).run(
            None, {"trips": np.array(2), "x": numbers(2) if x is None else x}
        )
        for result, expected in zip(results, wanted, strict=True):
            np.testing.assert_allclose(result, expected, 1e-6)
