"""Models compiled once for any size of their open dimensions, against onnxruntime's rules (onnx's
reference evaluator) and numpy.

Sums of few floats: results agree within 1e-5 of their largest value.
"""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import stepwell
from stepwell.open_shapes import Relation, generalized
from stepwell.runtime.open_sizes import OpenSizeExecutable
from stepwell.sizes import OpenShapes
from stepwell.specialization import OpenSpec
from stepwell.specializing import SpecializingExecutable

OPTIONS = {"progress": False}
R = np.random.default_rng(7)


def compiled(graph: str, opset: int = 18) -> tuple[SpecializingExecutable, onnx.ModelProto]:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]>\n{graph}')
    exe = stepwell.compile(model, threads=1, options=OPTIONS)
    assert isinstance(exe, SpecializingExecutable)
    return exe, model


def floats(*shape: int) -> np.ndarray:
    return R.standard_normal(shape).astype(np.float32)


def check(graph: str, *shapes: tuple[int, ...], opset: int = 18, is_open: bool = True) -> None:
    """Call the model with an input of each shape; the second call compiles for all."""
    exe, model = compiled(graph, opset)
    reference = ReferenceEvaluator(model)
    for shape in shapes:
        x = floats(*shape)
        wanted = reference.run(None, {"x": x})
        for result, expected in zip(exe(x), wanted, strict=True):
            expected = np.asarray(expected)
            assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
            most = np.abs(expected).max() if expected.size else 0
            np.testing.assert_allclose(result, expected, 0, 1e-5 * most)
    assert isinstance(exe.specialized(x), OpenSizeExecutable) == is_open
    assert repr(exe).endswith("2 compiled>") == is_open


ROWS = ((3, 4), (9, 4), (1, 4), (16, 4))
PLANES = ((2, 5), (7, 9), (16, 16), (3, 12), (1, 1))

GRAPHS = {
    "elementwise": "y = Relu(x)",
    "softmax": "y = Softmax <axis = 1> (x)",
    "softmax of columns": "y = Softmax <axis = 0> (x)",
    "sum": "y = ReduceSum <keepdims = 0> (x)",
    "product": "y = ReduceProd <keepdims = 0> (x)",
    "least": "y = ReduceMin <keepdims = 0> (x)",
    "mean": "y = ReduceMean <keepdims = 0> (x)",
    "root of squares": "y = ReduceL2 <keepdims = 1> (x)",
    "sum of several": "l = ReduceMin <keepdims = 0> (x) "
    "s = ReduceSum <keepdims = 0> (x) h = ReduceMax <keepdims = 0> (x) a = Add(l, s) "
    "y = Sub(a, h)",
    "position of the largest": "y = ArgMax <axis = 1> (x)",
    "transpose": "y = Transpose(x)",
    "products of all rows": "t = Transpose(x) y = MatMul(t, x)",
    "products of all columns": "t = Transpose(x) y = MatMul(x, t)",
    "shape": "y = Shape(x)",
    "a flat form": "s = Constant <value_ints = [-1]> () f = Reshape(x, s) e = Exp(f) "
    "a = Constant <value_ints = [0]> () y = Unsqueeze(e, a)",
    "a sum of what is flat": "s = Constant <value_ints = [-1]> () f = Reshape(x, s) "
    "e = Exp(f) y = ReduceSum <keepdims = 0> (e)",
    "rows twice": "y = Concat <axis = 0> (x, x)",
    "columns twice": "n = Neg(x) y = Concat <axis = 1> (x, n, x)",
    "the last row": "s = Constant <value_ints = [-1]> () e = Constant <value_ints = [99999]> () "
    "a = Constant <value_ints = [0]> () y = Slice(x, s, e, a)",
    "all but the last row": "s = Constant <value_ints = [0]> () "
    "e = Constant <value_ints = [-1]> () a = Constant <value_ints = [0]> () y = Slice(x, s, e, a)",
    "a margin": "p = Constant <value_ints = [1, 0, 2, 3]> () y = Pad(x, p)",
    "a margin of rows, their sum": "p = Constant <value_ints = [1, 0, 2, 0]> () "
    "v = Constant <value_float = 1.0> () m = Pad(x, p, v) a = Constant <value_ints = [0]> () "
    "y = ReduceSum <keepdims = 0> (m, a)",
    "normalized": "m = ReduceMean <axes = [0]> (x) c = Sub(x, m) q = Mul(c, c) "
    "v = ReduceMean <axes = [0]> (q) d = Sqrt(v) o = Constant <value_float = 0.1> () "
    "e = Add(d, o) y = Div(c, e)",
    "rows at computed places": "s = Constant <value_ints = [0, -1, 0, 99]> () "
    "h = Shape(x) z = Constant <value_ints = [0]> () r = Gather(h, z) o = Constant "
    "<value_ints = [1]> () l = Sub(r, o) i = Min(s, l) y = Gather <axis = 0> (x, i)",
    "running sums": "i = Constant <value_int = 0> () y = CumSum(x, i)",
    "running sums up to the end": "i = Constant <value_int = 1> () "
    "y = CumSum <reverse = 1, exclusive = 1> (x, i)",
    "numbers that are sizes by chance": "h = Shape(x) z = Constant <value_int = 0> () "
    "r = Gather(h, z) f = Cast <to = 1> (r) a = Mul(x, f) t = Constant <value_float = 3.0> () "
    "c = Mul(a, t) s = Constant <value_float = 16.0> () y = Mul(c, s)",
    "indices": "i = Constant <value_ints = [1, 0, 0]> () t = Constant <value = float[2, 3] "
    "{1, 2, 3, 4, 5, 6}> () s = Shape(x) u = Cast <to = 1> (s) y = Add(u, u)",
}
OLD_OPSET = (
    "sum of several",
    "mean",
    "normalized",
    "root of squares",
    "product",
    "least",
)


@pytest.mark.parametrize("name", GRAPHS)
def test_operators(name: str) -> None:
    opset = 17 if name in OLD_OPSET else 18
    kind = {"shape": "int64", "position of the largest": "int64"}.get(name, "float")
    graph = f"g (float[n, m] x) => ({kind}[...] y) {{ {GRAPHS[name]} }}".replace("[...]", "[a, b]")
    check(graph, *PLANES, opset=opset)


@pytest.mark.parametrize(
    "body",
    ["y = Conv <pads = [1, 1, 1, 1]> (x, w)", "y = Conv (x, w)"],
    ids=["padded", "not padded"],
)
def test_convolution(body: str) -> None:
    graph = f"""g (float[b, 2, h, w] x) => (float[b, 3, i, j] y)
        <float[3, 2, 3, 3] w = {{{", ".join(f"{v:.3f}" for v in floats(54))}}}> {{ {body} }}"""
    check(graph, (1, 2, 8, 8), (3, 2, 8, 8), (2, 2, 8, 8))
    check(graph, (1, 2, 8, 8), (1, 2, 12, 9), (1, 2, 5, 16))


def test_pooling() -> None:
    body = "y = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x)"
    graph = f"g (float[b, 2, h, w] x) => (float[b, 2, h, w] y) {{ {body} }}"
    check(graph, (1, 2, 8, 8), (2, 2, 11, 8), (1, 2, 6, 8))


@pytest.mark.parametrize("first", ["sum", "largest"])
def test_a_join_that_two_readers_pad_with_other_values(first: str) -> None:
    """What one of them sees beyond the image is not what the other does."""
    steps = {
        "sum": "p = Conv <pads = [1, 1, 1, 1]> (c, w)",
        "largest": "q = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (c)",
    }
    ordered = " ".join(steps[name] for name in sorted(steps, key=lambda name: name != first))
    weights = ", ".join(f"{v:.3f}" for v in floats(144))
    graph = f"""g (float[b, 2, h, w_] x) => (float[b, 4, h, w_] y)
        <float[4, 4, 3, 3] w = {{{weights}}}> {{
        a = Abs(x) n = Neg(a) c = Concat <axis = 1> (n, n) {ordered} y = Add(p, q) }}"""
    check(graph, (1, 2, 8, 8), (1, 2, 12, 9), (1, 2, 5, 7))


def test_padding_with_a_value_that_is_computed() -> None:
    body = """p = Constant <value_ints = [1, 0, 2, 3]> () m = ReduceMax <keepdims = 0> (x)
        y = Pad(x, p, m)"""
    check(f"g (float[n, m] x) => (float[a, b] y) {{ {body} }}", *PLANES)


@pytest.mark.parametrize("counted", [0, 1])
def test_average_pooling(counted: int) -> None:
    """Elements in the padding count, or do not: what is divided by is another at the edges."""
    body = f"""y = AveragePool
        <kernel_shape = [3, 2], pads = [1, 1, 1, 0], count_include_pad = {counted}> (x)"""
    graph = f"g (float[1, 2, h, w] x) => (float[1, 2, h, w] y) {{ {body} }}"
    check(graph, (1, 2, 8, 8), (1, 2, 11, 7), (1, 2, 2, 3), (1, 2, 1, 1), opset=22)


def test_average_pooling_of_dilated_windows() -> None:
    body = "y = AveragePool <kernel_shape = [3], pads = [2, 2], dilations = [2]> (x)"
    graph = f"g (float[1, 2, n] x) => (float[1, 2, n] y) {{ {body} }}"
    check(graph, (1, 2, 8), (1, 2, 11), (1, 2, 3), (1, 2, 16), opset=22)


@pytest.mark.parametrize(
    ("mode", "coordinates"),
    [
        ("linear", "half_pixel"),
        ("linear", "align_corners"),
        ("linear", "asymmetric"),
        ("nearest", "half_pixel"),
        ("nearest", "asymmetric"),
    ],
)
def test_resizing(mode: str, coordinates: str) -> None:
    how = f'mode = "{mode}", coordinate_transformation_mode = "{coordinates}"'
    graph = f"""g (float[1, 2, h, w] x) => (float[1, 2, i, j] y)
        <float[4] s = {{1, 1, 2, 3}}> {{ y = Resize <{how}, nearest_mode = "ceil"> (x,, s) }}"""
    check(graph, (1, 2, 4, 6), (1, 2, 5, 3), (1, 2, 1, 7), (1, 2, 16, 1))


def test_means_of_images_that_convolutions_made_smaller() -> None:
    """(h - 2) * (w - 1) elements are added up, and become one dimension."""
    graph = f"""g (float[1, 2, h, w] x) => (float[1, 2, 1, 1] y, float[1, 2, k] z)
        <float[2, 2, 3, 2] v = {{{", ".join(f"{v:.3f}" for v in floats(24))}}},
         int64[3] s = {{0, 0, -1}}> {{
            c = Conv (x, v) y = GlobalAveragePool(c) r = Reshape(c, s) z = Softmax(r) }}"""
    check(graph, (1, 2, 8, 8), (1, 2, 12, 9), (1, 2, 5, 16), (1, 2, 4, 4))


@pytest.mark.parametrize(
    "body",
    [
        'p = Constant <value_ints = [0, 1, 0, 1]> () y = Pad <mode = "edge"> (x, p)',
        "d = Shape(x) two = Constant <value_ints = [1, 2]> () s = Mul(d, two) y = Resize(x,,, s)",
    ],
    ids=["padded", "resized"],
)
def test_no_rows(body: str) -> None:
    exe, _ = compiled(f"g (float[n, 4] x) => (float[n, m] y) {{ {body} }}")
    for rows in (0, 2):
        assert exe(floats(rows, 4))[0].shape == (rows, 6 if "Pad" in body else 8)


def test_what_is_compiled_for_each_shape() -> None:
    """There is no code for all sizes, so that each call's shape has its own."""
    graph = "g (float[1, n, 1] x) => (float[1, n, 2] y) { y = DFT (x) }"
    check(graph, (1, 3, 1), (1, 9, 1), (1, 5, 1), is_open=False)


@pytest.mark.parametrize("largest", [0, 1])
def test_the_first_few_of_a_sorted_dimension(largest: int) -> None:
    """What is not in use comes behind infinity and NaN."""
    graph = f"""g (float[n, 4] x) => (float[a, b] v, int64[a, b] p, float[n, 4] w) {{
        k = Constant <value_ints = [3]> () v, p = TopK <axis = 0, largest = {largest}> (x, k)
        h = Shape <end = 1> (x) w, q = TopK <axis = 0, largest = {largest}> (x, h) }}"""
    exe, _ = compiled(graph)
    special = np.array([np.nan, np.inf, -np.inf, 0], np.float32)
    for rows in (4, 9, 3, 16, 7):
        x = np.round(floats(rows, 4))
        x[rows // 2 :] = R.choice(special, (rows - rows // 2, 4))
        order = np.argsort(-x if largest else x, 0, kind="stable")  # NaN is last in both
        nan = np.isnan(np.take_along_axis(x, order, 0))
        order = np.take_along_axis(order, np.argsort(~nan if largest else nan, 0, "stable"), 0)
        values, places, every = exe(x)
        np.testing.assert_array_equal(places, order[:3])
        np.testing.assert_array_equal(every, np.take_along_axis(x, order, 0))
        np.testing.assert_array_equal(values, every[:3])
    assert isinstance(exe.specialized(x), OpenSizeExecutable)


def test_no_more_than_so_many() -> None:
    """As many of the best as there are, up to a limit: 20 of more than 20."""
    exe, _ = compiled(
        """g (float[n] x, float[2, m] z) => (float[a] y, float[b, c] s) {
            most = Constant <value_ints = [20]> () h = Shape(x) k = Min(h, most)
            v, p = TopK (x, k) e = Exp(v) t = ReduceSum(e) y = Div(e, t)
            begin = Constant <value_ints = [0]> () along = Constant <value_ints = [1]> ()
            f = Slice(z, begin, most, along) r = Constant <value_ints = [0]> ()
            o = Unsqueeze(v, r) s = Concat <axis = 1> (f, f) }"""
    )
    for n, m in ((30, 25), (50, 40), (7, 9), (20, 20), (21, 19), (64, 64), (1, 1)):
        x, z = floats(n), floats(2, m)
        best = np.exp(np.sort(x)[::-1][:20])
        y, s = exe(x, z)
        np.testing.assert_allclose(y, best / best.sum(), 1e-5)
        np.testing.assert_array_equal(s, np.concatenate([z[:, :20]] * 2, 1))
    (code,) = exe.codes_for_any_size
    assert [spec.shape for spec in code.outputs] == [("n min 20",), (2, "2*(m min 20)")]


def test_reversal() -> None:
    body = """
        s = Constant <value_ints = [-1]> () e = Constant <value_ints = [-999]> ()
        a = Constant <value_ints = [0]> () y = Slice(x, s, e, a, s)"""
    check(f"g (float[n, 4] x) => (float[a, b] y) {{ {body} }}", (3, 4), (9, 4), (5, 4), (1, 4))


SMALL = {
    "slices that reach beyond the end": "s = Constant <value_ints = [0]> () "
    "e = Constant <value_ints = [2]> () t = Slice(x, s, e) y = Exp(t)",
    "a last part": "s = Constant <value_ints = [-2]> () e = Constant <value_ints = [99]> () "
    "y = Slice(x, s, e)",
    "slices of nothing": "s = Constant <value_ints = [1]> () e = Constant <value_ints = [99]> () "
    "t = Slice(x, s, e) y = Slice(t, s, e)",
    "numbers": "h = Shape <end = 1> (x) l = Constant <value_ints = [2]> () k = Max(h, l) "
    "f = Cast <to = 1> (k) y = Mul(x, f)",
    "branches": "h = Shape <end = 1> (x) l = Constant <value_ints = [1]> () k = Greater(h, l) "
    "c = Squeeze(k) y = If(c) <then_branch = t() => (float[n, m] p) { p = Neg(x) }, "
    "else_branch = e() => (float[n, m] q) { q = Exp(x) }>",
}


@pytest.mark.parametrize("name", SMALL)
def test_models_that_are_others_for_small_sizes(name: str) -> None:
    """One row has code of its own, for any number of columns, and so have none."""
    exe, model = compiled(f"g (float[n, m] x) => (float[a, b] y) {{ {SMALL[name]} }}")
    reference = ReferenceEvaluator(model)
    for shape in ((7, 3), (9, 4), (1, 7), (1, 9), (1, 5), (3, 1), (0, 4), (0, 5), (0, 3), (6, 6)):
        x = floats(*shape)
        (expected,) = reference.run(None, {"x": x})
        (result,) = exe(x)
        assert result.shape == np.asarray(expected).shape
        np.testing.assert_allclose(result, expected, 1e-5)
        if shape in ((1, 5), (3, 1), (0, 3), (6, 6)):
            assert isinstance(exe.specialized(x), OpenSizeExecutable)


@pytest.mark.parametrize(
    ("end", "least"), [(2, (1, 2)), (3, (1, 4)), (4, (1, 4)), (6, (1, 8)), (7, ())]
)
def test_the_second_size_may_be_larger_at_least(end: int, least: tuple[int, ...]) -> None:
    """Where two sizes below the end are looked at, code for any size takes all there are."""
    exe, _ = compiled(
        f"""g (float[n, m] x) => (float[a, b] y) {{ s = Constant <value_ints = [0]> ()
            e = Constant <value_ints = [{end}]> () a = Constant <value_ints = [1]> ()
            y = Slice(x, s, e, a) }}"""
    )
    for shape in ((7, 9), (9, 11), (3, end - 1), (5, end), (4, end - 1), (1, end), (2, end + 1)):
        x = floats(*shape)
        np.testing.assert_array_equal(exe(x)[0], x[:, :end])
    found = [code.artifact.manifest.open_sizes.least for code in exe.codes_for_any_size]
    assert found[0] == least
    assert {*found[1:]} <= {()}


def test_a_bound_that_only_small_sizes_keep_to() -> None:
    exe, _ = compiled(
        """g (float[n, 4] x) => (float[a, b] y) { s = Constant <value_ints = [0]> ()
            e = Constant <value_ints = [6]> () y = Slice(x, s, e) }"""
    )
    for rows in (3, 9, 5, 6, 16, 1):
        x = floats(rows, 4)
        np.testing.assert_array_equal(exe(x)[0], x[:6])
        assert isinstance(exe.specialized(x), OpenSizeExecutable) == (rows != 3)


def test_a_larger_size_compiles_again() -> None:
    exe, _ = compiled("g (float[n] x) => (float s) { s = ReduceSum <keepdims = 0> (x) }")
    capacities = []
    for size in (3, 5, 16, 17, 40, 2, 33):
        x = floats(size)
        np.testing.assert_allclose(exe(x)[0], x.sum(), 1e-4, 1e-5)
        code = exe.specialized(x)
        capacities.append(code.capacities["n"] if isinstance(code, OpenSizeExecutable) else 0)
    assert capacities == [0, 16, 16, 32, 64, 16, 64]


def test_numbers_that_depend_on_whether_sizes_are_even() -> None:
    """Also where the capacity is the largest size so far, which is odd."""
    exe, _ = compiled(
        """g (float[n, 4] x) => (float[n, 4] y) { h = Shape <end = 1> (x)
            t = Constant <value_ints = [2]> () k = Mod(h, t) f = Cast <to = 1> (k)
            y = Add(x, f) }"""
    )
    for rows in (7, 33, 8, 16, 5):
        x = floats(rows, 4)
        np.testing.assert_array_equal(exe(x)[0], x + np.float32(rows % 2))


def test_what_stands_beyond_the_sizes_does_not_count() -> None:
    """After a call with infinities and NaN in all rows, shorter calls see nothing of them."""
    exe, _ = compiled(
        """g (float[n, 4] x, float[n, 4] z) => (float[4, 4] y, float[4] m) {
            t = Transpose(x) y = MatMul(t, z) a = Constant <value_ints = [0]> ()
            m = ReduceMax <keepdims = 0> (x, a) }"""
    )
    exe(floats(2, 4), floats(2, 4))
    exe(np.full((16, 4), np.inf, np.float32), np.full((16, 4), np.nan, np.float32))
    x, z = floats(5, 4), floats(5, 4)
    y, m = exe(x, z)
    np.testing.assert_allclose(y, x.T @ z, 1e-5, 1e-5)
    np.testing.assert_array_equal(m, x.max(0))


def at_the_end_of_a_page(array: np.ndarray) -> np.ndarray:
    """A copy behind which nothing may be read: that would end the process."""
    pages = -(-array.nbytes // mmap.PAGESIZE)
    memory = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
    whole = np.frombuffer(memory, np.uint8)
    end = pages * mmap.PAGESIZE
    protected = ctypes.CDLL(None).mprotect(
        ctypes.c_void_p(whole.ctypes.data + end), ctypes.c_size_t(mmap.PAGESIZE), 0
    )
    assert protected == 0
    copy = whole[end - array.nbytes : end].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def test_inputs_that_are_not_copied() -> None:
    """Where each row is read by itself, inputs and results are arrays of just the size in use; a
    sum over rows reads no more than these either, that over columns is given copies."""
    exe, _ = compiled(
        """g (float[n, 64] x, float[8, n] z) => (float[n, 64] y, float[1, 64] s, float[8, 1] c) {
            a = Constant <value_ints = [0]> () b = Constant <value_ints = [1]> ()
            y = Softmax <axis = 1> (x) e = Mul(x, x) s = ReduceSum (e, a) c = ReduceSum (z, b) }"""
    )
    for rows in (2, 5, 16, 11):
        x, z = at_the_end_of_a_page(floats(rows, 64)), at_the_end_of_a_page(floats(8, rows))
        y, s, c = exe(x, z)
        weights = np.exp(x - x.max(1, keepdims=True))
        np.testing.assert_allclose(y, weights / weights.sum(1, keepdims=True), 1e-5, 1e-6)
        np.testing.assert_allclose(s[0], (x * x).sum(0), 1e-5, 1e-5)
        np.testing.assert_allclose(c[:, 0], z.sum(1), 1e-5, 1e-5)
    code = exe.specialized(x, z)
    assert isinstance(code, OpenSizeExecutable)
    sizes = code.artifact.manifest.open_sizes
    assert sizes is not None
    assert (sizes.exact_inputs, sizes.exact_outputs) == ((0,), (0,))


def test_keys_of_earlier_calls() -> None:
    """A decoder that is given the keys so far: the mask is as long as these and the new ones."""
    exe, model = compiled(
        """g (float[b, n, 4] q, float[b, n, 4] k, float[b, p, 4] past, float[b, t] mask)
            => (float[b, n, 4] y, float[b, t, 4] keys) {
            keys = Concat <axis = 1> (past, k) columns = Transpose <perm = [0, 2, 1]> (keys)
            scores = MatMul(q, columns) one = Constant <value_ints = [1]> ()
            row = Unsqueeze(mask, one) masked = Add(scores, row) weights = Softmax(masked)
            y = MatMul(weights, keys) }"""
    )
    reference = ReferenceEvaluator(model)
    for batch, n, past in ((1, 7, 0), (1, 1, 7), (1, 1, 8), (1, 1, 14), (1, 3, 9), (1, 6, 2)):
        feed = {
            "q": floats(batch, n, 4),
            "k": floats(batch, n, 4),
            "past": floats(batch, past, 4),
            "mask": floats(batch, n + past),
        }
        for result, expected in zip(exe.run(feed).values(), reference.run(None, feed), strict=True):
            np.testing.assert_allclose(result, expected, 1e-5, 1e-5)
    assert repr(exe).endswith("4 compiled>")  # the first two, any past, any past and length
    assert isinstance(exe.specialized(*feed.values()), OpenSizeExecutable)


def test_sums_among_the_sizes_of_calls() -> None:
    specs = [OpenSpec(name, "float32", ("?",)) for name in "abcd"]
    calls = [(1, 5, 6, 7), (1, 6, 7, 8), (3, 6, 9, 8)]
    history = [{s.name: (n,) for s, n in zip(specs, call, strict=True)} for call in calls]
    found = generalized(specs, history, related=Relation.SUMS)
    assert found is not None
    assert (list(found.capacities), dict(found.sums)) == (
        ["a.0", "b.0"],
        {"c.0": (("a.0", 1), ("b.0", 1)), "d.0": (("b.0", 1), ("", 2))},
    )
    assert OpenShapes.from_json(found.to_json()) == found
    assert generalized(specs[:2], history, related=Relation.SUMS) is None
    history = [{"a": (n,), "b": (3 * n,)} for n in (2, 5)]
    found = generalized(specs[:2], history, related=Relation.SUMS)
    assert found is not None
    assert found.sums == {"b.0": (("a.0", 3),)}


def test_multiples_among_the_sizes_of_calls() -> None:
    specs = [OpenSpec("x", "float32", (1, 3, "h", "w")), OpenSpec("y", "float32", ("2*h",))]
    history = [{"x": (1, 3, h, w), "y": (2 * h,)} for h, w in ((96, 40), (128, 64))]
    found = generalized(specs, history)
    assert found is not None
    assert (found.shapes["y"], found.sums) == (("2*h",), {"2*h": (("h", 2),)})
    found = generalized(specs[:1], history, related=Relation.MULTIPLES)
    assert found is not None
    assert found.shapes["x"] == (1, 3, "32*h", "8*w")
    assert found.shapes_at([5, 7]) == {"x": (1, 3, 160, 56)}
    assert OpenShapes.from_json(found.to_json()) == found
    odd = [{"x": (1, 3, n, n)} for n in (7, 9)]
    assert generalized(specs[:1], odd, related=Relation.MULTIPLES) is None


def test_sizes_that_the_model_has_as_multiples_alone() -> None:
    """The 8 of a stride is said by the name; calls are for any h, and another w + 1."""
    specs = [OpenSpec("x", "float32", ("8*h", "w + 1"))]
    found = generalized(specs, [{"x": shape} for shape in ((24, 5), (40, 8))])
    assert found is not None
    assert found.shapes == {"x": ("8*h", "w + 1")}
    assert found.capacities == {"h": 16, "w": 16}
    assert found.sums == {"8*h": (("h", 8),), "w + 1": (("w", 1), ("", 1))}
    found = generalized(specs, [{"x": shape} for shape in ((24, 5), (41, 8))])
    assert found is not None
    assert found.capacities == {"8*h": 64, "w": 16}


def test_no_capacity_is_above_what_the_model_takes() -> None:
    specs = [OpenSpec("x", "float32", ("b", "n")), OpenSpec("y", "float32", ("m", "2*b"))]
    history = [{"x": (b, n), "y": (n, 2 * b)} for b, n in ((2, 20), (3, 70))]
    for limits, capacities in (
        ({"b": 8}, {"b": 8, "n": 128}),
        ({"b": 8, "m": 100}, {"b": 8, "n": 100}),
        ({"b": 4, "n": 500}, {"b": 4, "n": 128}),
    ):
        found = generalized(specs, history, limits)
        assert found is not None
        assert found.capacities == capacities
    assert generalized(specs, history, {"b": 3}) is None
    history = [{"x": (b, n), "y": (n, 2 * b)} for b, n in ((8, 20), (16, 70))]
    found = generalized(specs, history, {"b": 100}, related=Relation.MULTIPLES)
    assert found is not None
    assert found.capacities == {"b": 12, "n": 64, "2*b": 16}
    assert generalized(specs, history, {"b": 31}, related=Relation.MULTIPLES) is None


STRIDED = {
    "network": """
        c = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (x, stem) r = Relu(c)
        m = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (r)
        d = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (m, square)
        s = Conv <strides = [2, 2]> (m, single) a = Add(d, s)
        axes = Constant <value_ints = [2, 3]> () z = ReduceMean <keepdims = 0> (a, axes)
        p = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (a)
        y = ConvTranspose <strides = [2, 2]> (p, up)""",
    "windows": """
        m = MaxPool <kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1> (x)
        a = AveragePool <kernel_shape = [3, 3], strides = [2, 1], pads = [1, 1, 1, 1]> (m)
        c = Conv <strides = [3, 2], pads = [2, 2, 2, 2], dilations = [2, 2]> (a, stem)
        y = Softmax(c) z = GlobalMaxPool(c)""",
    "windows that others leave": """
        c = Conv (x, stem) d = Conv <strides = [2, 2]> (c, single)
        e = Conv <strides = [3, 3], pads = [1, 1, 1, 1]> (d, square)
        y = MaxPool <kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1> (e) z = Relu(d)""",
    "beside": """
        c = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (x, stem)
        d = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (c, square)
        s = Shape(c) n = Resize <mode = "nearest"> (d,,, s) l = Resize <mode = "linear"> (d,,, s)
        y = Concat <axis = 1> (c, n, l) z = Sum(c, n, l)""",
    "as many as the stride leaves": """
        c = Conv <auto_pad = "SAME_UPPER", strides = [2, 3], dilations = [2, 1]> (x, stem)
        y = Conv <auto_pad = "SAME_LOWER", strides = [2, 2]> (c, square)
        z = Conv <auto_pad = "SAME_LOWER", strides = [2, 2]> (c, single)""",
    "up to a multiple": """
        n = Shape <start = 2> (x) m = Mod(n, eight) r = Sub(eight, m) b = Mod(r, eight)
        f = Constant <value_ints = [0, 0, 0, 0, 0, 0]> () p = Concat <axis = 0> (f, b)
        q = Pad(x, p) c = Conv <strides = [4, 4]> (q, stem) y = Softmax(c) z = GlobalMaxPool(c)""",
    "steps": """
        first, last, axes, steps = Split(table) c = Slice(x, first, last, axes, steps)
        k = Constant <value_ints = [0, 0, -1]> () f = Reshape(c, k) z = Softmax(f)
        t = Shape(c) r = Reshape(z, t) y = Conv <pads = [1, 1, 1, 1]> (r, stem)""",
}
"""Networks on [1, 3, h, w] with strides that need not divide h and w."""


@pytest.mark.parametrize("body", STRIDED.values(), ids=STRIDED)
def test_strides(body: str) -> None:
    """Images of any height and width: rounded down where the strides do not divide them."""
    random = np.random.default_rng(0)
    shapes = {"stem": (8, 3, 3, 3), "square": (8, 8, 3, 3), "single": (8, 8, 1, 1)}
    arrays = {
        name: random.standard_normal(shape).astype(np.float32) / 5
        for name, shape in (shapes | {"up": (8, 4, 2, 2)}).items()
    }
    arrays["eight"] = np.array([8])
    arrays["table"] = np.array([0, 1, 10**6, 10**6, 2, 3, 2, 3])
    body = body.replace("Split", "Split <num_outputs = 4>")
    model = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 18]>
        g (float[1, 3, h, w] x) => (float[1, k, a, b] y, float[] z) {{ {body} }}"""
    )
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()
    )
    exe = stepwell.compile(model, options=OPTIONS)
    assert isinstance(exe, SpecializingExecutable)
    reference = ReferenceEvaluator(model)
    for height, width in ((37, 64), (63, 33), (40, 50), (33, 41), (64, 49), (51, 62)):
        x = floats(1, 3, height, width)
        for result, expected in zip(exe(x), reference.run(None, {"x": x}), strict=True):
            expected = np.asarray(expected)
            assert result.shape == expected.shape
            np.testing.assert_allclose(result, expected, 1e-5, 1e-5)
    assert isinstance(exe.specialized(floats(1, 3, 49, 46)), OpenSizeExecutable)
    assert str(exe.codes_for_any_size[0].inputs[0]) == "x: float32[1, 3, h, w]"
    assert repr(exe).endswith("2 compiled>")


def test_sizes_that_blocks_divide() -> None:
    """Code for any size takes the multiples that the network does."""
    exe, model = compiled(
        "g (float[1, 2, h, w] x) => (float[1, 8, a, b] y) { y = SpaceToDepth <blocksize = 2> (x) }"
    )
    reference = ReferenceEvaluator(model)
    for height, width in ((4, 8), (8, 16), (12, 4), (20, 6)):
        x = floats(1, 2, height, width)
        np.testing.assert_array_equal(exe(x)[0], reference.run(None, {"x": x})[0])
    assert isinstance(exe.specialized(floats(1, 2, 12, 24)), OpenSizeExecutable)
    assert str(exe.codes_for_any_size[0].inputs[0]) == "x: float32[1, 2, 4*h, 8*w]"


def test_sizes_that_contradict_each_other() -> None:
    exe, _ = compiled("g (float[n] x, float[n] z) => (float[n] y) { y = Add(x, z) }")
    for size in (2, 5):
        exe(floats(size), floats(size))
    code = exe.specialized(floats(3), floats(3))
    assert isinstance(code, OpenSizeExecutable)
    with pytest.raises(stepwell.InputError, match=r"takes x: float32\[n\].*n <= 16"):
        code(floats(3), floats(4))
    with pytest.raises(stepwell.InputError, match="17"):
        code(floats(17), floats(17))


def test_saved_artifact_takes_any_size(tmp_path: Path) -> None:
    exe, _ = compiled(
        "g (float[n, 3] x) => (float[3] y) { y = ReduceSum <keepdims = 0> (x, a) }".replace(
            "{ y", "{ a = Constant <value_ints = [0]> () y"
        )
    )
    for size in (2, 5):
        exe(floats(size, 3))
    exe.save(tmp_path / "a.stepwell")
    loaded = stepwell.load(tmp_path / "a.stepwell")
    assert str(loaded.inputs[0]) == "x: float32[n, 3]"
    for size in (1, 7, 16):
        x = floats(size, 3)
        np.testing.assert_allclose(loaded.run({"x": x})["y"], x.sum(0), 1e-5, 1e-5)
    session = stepwell.Session(tmp_path / "a.stepwell")
    assert session.get_inputs()[0].shape == ["n", 3]


def test_dimensions_keep_their_names() -> None:
    exe, _ = compiled(
        "g (float[s1, s0] x, float[b, s0] z) => (float[c, s0] y) { y = Concat <axis = 0> (x, z) }"
    )
    for sizes in ((3, 1, 4), (5, 2, 6)):
        a, b, width = sizes
        exe(floats(a, width), floats(b, width))
    code = exe.specialized(floats(2, 3), floats(7, 3))
    assert [str(spec) for spec in (*code.inputs, *code.outputs)] == [
        "x: float32[s1, s0]",
        "z: float32[b, s0]",
        "y: float32[s1 + b, s0]",
    ]


def test_each_shape_is_compiled_when_asked_for() -> None:
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> g (float[n] x) => (float[n] y) { y = Exp(x) }'
    )
    exe = stepwell.compile(model, options={**OPTIONS, "any_size": False})
    for size in (2, 3, 4):
        exe(floats(size))
    assert repr(exe).endswith("3 compiled>")
