"""Loops, branches, sequences and shapes that depend on data, against onnx's own evaluator.

Values are small integers or sums of few floats, so that results are equal but for rounding (1e-6).
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import stepwell
from stepwell.runtime.executable import Executable

OPTIONS = {"progress": False}
X = np.arange(12, dtype=np.float32).reshape(3, 4) % 5 - 2


def check(graph: str, opset: int = 18, **feed: object) -> None:
    """Compile, run and compare."""
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]>\n{graph}')
    exe = stepwell.compile(model, threads=1, options=OPTIONS)
    results = list(exe.run(feed).values())
    wanted = ReferenceEvaluator(model).run(None, feed)
    for result, expected in zip(results, wanted, strict=True):
        _compare(result, expected)


def _compare(result: object, expected: object) -> None:
    if isinstance(expected, list):
        assert isinstance(result, list)
        assert len(result) == len(expected)
        for pair in zip(result, expected, strict=True):
            _compare(*pair)
    else:
        assert isinstance(result, np.ndarray)
        wanted = np.asarray(expected)
        assert (result.shape, result.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(result, wanted, 1e-6)


@pytest.mark.parametrize("x", [X, np.ones_like(X)])
def test_what_follows_non_zero(x: np.ndarray) -> None:
    check(
        """g (float[3, 4] x) => (float[n] picked, int64[2, n] places, float m) {
            places = NonZero(x)
            pairs = Transpose(places)
            picked = GatherND(x, pairs)
            m = ReduceSum <keepdims = 0> (picked)
        }""",
        x=x,
    )


def test_lengths_that_depend_on_lengths() -> None:
    """Each stage has as many elements as the data of the one before says."""
    check(
        """g (float[3, 4] x) => (float[n] y) {
            flat = Constant <value_ints = [-1]> ()
            line = Reshape(x, flat)
            zero = Constant <value_float = 0.0> ()
            above = Greater(line, zero)
            some = Compress <axis = 0> (line, above)
            one = Constant <value_float = 1.0> ()
            more = Greater(some, one)
            y = Compress <axis = 0> (some, more)
        }""",
        x=X,
    )


@pytest.mark.parametrize("attributes", ["", "<axis = 0>", "<axis = 1>", "<sorted = 0>"])
@pytest.mark.parametrize("dtype", ["float", "int64"])
def test_unique(attributes: str, dtype: str) -> None:
    x = np.random.default_rng(0).integers(0, 3, (6, 2)).astype(np.float32)
    if "axis" not in attributes:  # onnx's evaluator gives inverse positions of the shape of x
        x = x.reshape(-1)
    sizes = ", ".join(map(str, x.shape))
    check(
        f"g ({dtype}[{sizes}] x) => ({dtype}[a] y, int64[b] i, int64[c] j, int64[d] k) "
        f"{{ y, i, j, k = Unique {attributes} (x) }}",
        x=x.astype(np.float32 if dtype == "float" else np.int64),
    )


BRANCHES = """g (bool c, float[3, 4] x) => (float[a, b] y) {
    y = If (c) <
        then_branch = t () => (float[3, 4] p) { p = Exp(x) },
        else_branch = e () => (float[n, m] q) { %s }
    >
}"""


@pytest.mark.parametrize("condition", [True, False])
@pytest.mark.parametrize("body", ["q = Neg(x)", "q = Transpose(x)"], ids=["same", "other"])
def test_branches(condition: bool, body: str) -> None:
    """Of the same shape: both compiled; of different shapes: the condition is made known."""
    check(BRANCHES % body, c=np.array(condition), x=X)


LOOP = """g (int64 trips, bool start, float[2] x) => (float[2] y, float[n, 2] s) {
    y, s = Loop (%s, start, x) <body = b (int64 i, bool c, float[2] v)
        => (bool c_out, float[2] v_out, float[2] row) {
            v_out = Add(v, v)
            most = ReduceMax <keepdims = 0> (v_out)
            limit = Constant <value_float = %s> ()
            c_out = Less(most, limit)
            row = Identity(v_out)
        }>
}"""


@pytest.mark.parametrize("trips", ["trips", ""], ids=["counted", "while"])
@pytest.mark.parametrize("limit", ["100.0", "1.0"], ids=["long", "short"])
def test_loop_that_ends_early(trips: str, limit: str) -> None:
    feed = {"trips": np.array(4), "start": np.array(True), "x": np.array([1, 2], np.float32)}
    check(LOOP % (trips, limit), **feed)


def test_loop_without_an_iteration() -> None:
    """onnx's own evaluator cannot."""
    text = LOOP % ("trips", "100.0")
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]>\n{text}')
    x = np.array([1, 2], np.float32)
    y, rows = stepwell.compile(model, threads=1, options=OPTIONS)(np.array(0), np.array(True), x)
    np.testing.assert_array_equal(y, x)
    assert rows.shape == (0, 2)


def test_scan_backwards_along_another_axis() -> None:
    """onnx's own evaluator does not scan backwards."""
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["": 18]>
        g (float[3] start, float[3, 4] x) => (float[3] last, float[3, 4] all) {
            last, all = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1],
                scan_input_directions = [1], scan_output_directions = [1],
                body = b (float[3] s, float[3] v) => (float[3] t, float[3] o) {
                    t = Add(s, v)
                    o = Identity(t)
                }> (start, x)
        }"""
    )
    last, every = stepwell.compile(model, threads=1, options=OPTIONS)(np.ones(3, np.float32), X)
    sums = 1 + np.cumsum(X[:, ::-1], 1)[:, ::-1]
    np.testing.assert_allclose(every, sums, 1e-6)
    np.testing.assert_allclose(last, sums[:, 0], 1e-6)


def test_sequences_in_and_out() -> None:
    graph = """g (seq(float[n]) s, int64 at) => (seq(float[k]) t, float[m] joined, int64 length) {
        first = SequenceAt(s, at)
        double = Add(first, first)
        t = SequenceInsert(s, double)
        joined = ConcatFromSequence <axis = 0> (t)
        length = SequenceLength(t)
    }"""
    parts = [np.ones(2, np.float32), np.arange(3, dtype=np.float32)]
    check(graph, s=parts, at=np.array(1))
    check(graph, s=parts[:1], at=np.array(-1))


def test_empty_sequence() -> None:
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["": 18]>
        g (seq(float[n]) s, float[2] x) => (seq(float[k]) t, float[2] y) {
            t = Identity(s)
            y = Neg(x)
        }"""
    )
    exe = stepwell.compile(model, threads=1, options=OPTIONS)
    empty, negative = exe([], np.ones(2, np.float32))
    assert empty == []
    np.testing.assert_array_equal(negative, [-1, -1])
    with pytest.raises(stepwell.InputError, match="'s' is a ndarray; the model takes a list"):
        exe(np.ones(2, np.float32), np.ones(2, np.float32))


def test_optional_input() -> None:
    x = onnx.helper.make_tensor_value_info("d", onnx.TensorProto.FLOAT, [2])
    kind = onnx.helper.make_optional_type_proto(x.type)
    nodes = [
        onnx.helper.make_node("OptionalHasElement", ["x"], ["has"]),
        onnx.helper.make_node("Identity", ["x"], ["y"]),
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "g",
        [onnx.helper.make_value_info("x", kind)],
        [
            onnx.helper.make_tensor_value_info("has", onnx.TensorProto.BOOL, []),
            onnx.helper.make_value_info("y", kind),
        ],
    )
    opset = [onnx.helper.make_opsetid("", 18)]
    exe = stepwell.compile(
        onnx.helper.make_model(graph, opset_imports=opset), threads=1, options=OPTIONS
    )
    has, value = exe(np.ones(2, np.float32))
    assert has
    np.testing.assert_array_equal(value, [1, 1])
    has, value = exe(None)
    assert not has
    assert value is None


def test_reads_at_no_index() -> None:
    """A detector that finds nothing reads its boxes at no place."""
    check(
        """g (float[3, 4] x, float limit) => (float[n, 4] y, float[n, 4] z, float[n, 4] same)
        {
            axis = Constant <value_ints: ints = [1]> ()
            scores = ReduceMax <keepdims = 0> (x, axis)
            kept = Greater(scores, limit)
            found = NonZero(kept)
            one = Constant <value_ints: ints = [-1]> ()
            flat = Reshape(found, one)
            boxes = Gather(x, flat)
            length = Shape(flat)
            four = Constant <value_ints: ints = [4]> ()
            shape = Concat <axis = 0> (length, four)
            none = Sub(flat, flat)
            y = Gather(boxes, none)
            pairs = Unsqueeze(none, axis)
            z = GatherND(boxes, pairs)
            wide = Expand(pairs, shape)
            same = GatherElements(boxes, wide)
        }""",
        x=X,
        limit=np.float32(9),
    )


def test_blocks_that_have_to_be_known() -> None:
    """Numbers that are repeated and joined are computed at run time, and they and what is made of
    them can still tell a shape."""
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["": 18]>
        g (float[3, 4] x) => (float[a, b] y, int64[4] p) {
            two = Constant <value_ints = [2]> ()
            low = ConstantOfShape <value = int64[1] {1}> (two)
            high = ConstantOfShape <value = int64[1] {2}> (two)
            joined = Concat <axis = 0> (low, high)
            zero = Constant <value_ints = [0]> ()
            four = Constant <value_ints = [4]> ()
            part = Slice(joined, zero, four)
            p = Add(part, zero)
            y = Pad(x, p)
        }"""
    )
    exe = stepwell.compile(model, options=OPTIONS)
    assert isinstance(exe, Executable)
    y, p = exe(X)
    np.testing.assert_array_equal(y, np.pad(X, (1, 2)))
    np.testing.assert_array_equal(p, [1, 1, 2, 2])


@pytest.mark.parametrize("order", [range(10), [0, 1, 7, 2, 9, 4, 3], [6, 7, 8, 1, 2, 3]])
def test_slices_between_numbers_that_differ(order: list[int]) -> None:
    """Most pairs of numbers are no ends of a slice: code for any of them is right for those of
    calls, or there is none."""
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["": 11]>
        g (int64 i, float[1] y) => (float[n] s) {
            x = Constant <value = float[5] {1.0, 2.0, 3.0, 4.0, 5.0}> ()
            one = Constant <value = int64 {1}> ()
            end = Add(i, one)
            begin_vector = Unsqueeze <axes = [0]> (i)
            end_vector = Unsqueeze <axes = [0]> (end)
            part = Slice(x, begin_vector, end_vector)
            s = Add(part, y)
        }"""
    )
    exe = stepwell.compile(model, threads=1, options=OPTIONS)
    x = np.arange(1, 6, dtype=np.float32)
    for i in order:
        (result,) = exe(np.array(i), np.array([10], np.float32))
        np.testing.assert_array_equal(result, x[i : i + 1] + 10)


def test_slices_between_numbers_that_are_multiples() -> None:
    """Where numbers of the calls have a factor in common, the code would be for multiples."""
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["": 13]>
        g (float[20] x, int64[1] begin, int64[1] count) => (float[n] y) {
            end = Add(begin, count)
            part = Slice(x, begin, end)
            y = Neg(part)
        }"""
    )
    exe = stepwell.compile(model, threads=1, options=OPTIONS)
    x = np.arange(20, dtype=np.float32)
    for begin, count in ((2, 3), (4, 9), (1, 6), (8, 2)):
        np.testing.assert_array_equal(exe(x, [begin], [count])[0], -x[begin : begin + count])
