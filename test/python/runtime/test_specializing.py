"""Models that are compiled when they are called: open shapes, shape operands, values on the way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

import stepwell
from stepwell import compiler
from stepwell.errors import OpenModelError
from stepwell.specializing import SpecializingExecutable

OPTIONS = {"progress": False}


def model(graph: str, opset: int = 18) -> onnx.ModelProto:
    """A model from the text of its graph."""
    return parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]>\n{graph}')


def compiled(graph: str, opset: int = 18) -> SpecializingExecutable:
    exe = stepwell.compile(model(graph, opset), threads=1, options=OPTIONS)
    assert isinstance(exe, SpecializingExecutable)
    return exe


def count_builds(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The compilations that really run, by their specialization."""
    asked: list[object] = []
    run_worker = compiler.run_worker

    def counted(request: compiler.Request, folder: Path, progress: object) -> None:
        asked.append(request.specialization)
        run_worker(request, folder, progress)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(compiler, "run_worker", counted)
    return asked


def test_open_dimensions() -> None:
    exe = compiled("g (float[n, 3] x) => (float[n, 3] y) { y = Relu(x) }")
    assert str(exe.inputs[0]) == "x: float32[n, 3]"
    for rows in (1, 4, 0):
        x = np.random.default_rng(rows).standard_normal((rows, 3), np.float32)
        np.testing.assert_array_equal(exe(x)[0], np.maximum(x, 0))
    assert "2 compiled" in repr(exe) or "3 compiled" in repr(exe)


def test_saved_artifact_takes_the_shapes_seen(tmp_path: Path) -> None:
    exe = compiled("g (float[n] x) => (float[n] y) { y = Neg(x) }")
    with pytest.raises(stepwell.UsageError, match="x is not known yet"):
        exe.save(tmp_path / "a.stepwell")
    exe(np.ones(5, np.float32))
    exe.save(tmp_path / "a.stepwell")
    np.testing.assert_array_equal(
        stepwell.load(tmp_path / "a.stepwell")(np.ones(5, np.float32))[0], -np.ones(5)
    )


def test_shape_operands_are_asked_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = count_builds(monkeypatch)
    exe = compiled(
        """g (float[4, 6] x, int64[1] starts, int64[1] ends, int64[1] axes, int64[1] steps)
        => (float[a, b] y) { y = Slice(x, starts, ends, axes, steps) }"""
    )
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    (y,) = exe(x, [1], [6], [1], [2])
    np.testing.assert_array_equal(y, x[:, 1:6:2])
    np.testing.assert_array_equal(exe(x, [0], [2], [0], [1])[0], x[:2])
    builds = len(asked)
    np.testing.assert_array_equal(exe(x + 1, [1], [6], [1], [2])[0], x[:, 1:6:2] + 1)
    assert len(asked) == builds <= 5


def test_a_shape_computed_on_the_way(tmp_path: Path) -> None:
    exe = compiled(
        """g (float[2, 6] x, int64[2] parts) => (float[a, b] y) {
            doubled = Add(parts, parts)
            z = Neg(x)
            y = Reshape(z, doubled)
        }"""
    )
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    np.testing.assert_array_equal(exe(x, [1, 3])[0], -x.reshape(2, 6))
    np.testing.assert_array_equal(exe(x, [3, 1])[0], -x.reshape(6, 2))
    exe.save(tmp_path / "a.stepwell")
    saved = stepwell.load(tmp_path / "a.stepwell")
    np.testing.assert_array_equal(saved(x, [3, 1])[0], -x.reshape(6, 2))


def test_a_shape_computed_inside_a_function() -> None:
    """The body of AffineGrid makes a tensor of the shape in its input `size`."""
    exe = compiled(
        "g (float[2, 2, 3] theta, int64[4] size) => (float[a, b, c, d] y) "
        "{ y = AffineGrid(theta, size) }",
        20,
    )
    (y,) = exe(np.array([[[1, 0, 0], [0, 1, 0]]] * 2, np.float32), [2, 1, 2, 2])
    np.testing.assert_allclose(y[0, :, :, 0], [[-0.5, 0.5], [-0.5, 0.5]])


def test_stages_follow_one_another() -> None:
    """A length depends on the data of a tensor whose length depends on data."""
    exe = compiled(
        """g (float[3] x) => (float[n] y) {
            most = ReduceMax <keepdims = 0> (x)
            length = Cast <to = 7> (most)
            zero = Constant <value_int = 0> ()
            one = Constant <value_int = 1> ()
            numbers = Range(zero, length, one)
            squares = Mul(numbers, numbers)
            total = ReduceSum <keepdims = 1> (squares)
            many = Expand(x, total)
            y = Neg(many)
        }"""
    )
    with pytest.raises(stepwell.UnsupportedError, match="do not broadcast"):
        exe(np.array([1, 2, 3], np.float32))  # 0 + 1 + 4 = 5 elements from 3


def test_many_stages_are_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever waits learns what for; once it is compiled, nothing is said."""
    monkeypatch.setattr("stepwell.specializing._MANY_STEPS", 1)
    exe = compiled(
        """g (float[2, 3] x) => (float[n] y) {
            places = NonZero(x)
            pairs = Transpose(places)
            y = GatherND(x, pairs)
        }"""
    )
    for _ in range(2):
        exe(np.eye(2, 3, dtype=np.float32))
    (told,) = caplog.records
    assert told.getMessage().startswith("1 parts of the model have been compiled, and it goes on")


PARTS = """g (float[n, 6] x) => (float[a] y, float[b, 3] z, int64 many) {
    zero = Constant <value_float = 0.0> ()
    above = Greater(x, zero)
    places = NonZero(above)
    pairs = Transpose(places)
    found = GatherND(x, pairs)
    e = Exp(found)
    total = ReduceSum <keepdims = 1> (e)
    y = Div(e, total)
    limit = Constant <value_float = 1.5> ()
    large = Greater(e, limit)
    kept = Compress <axis = 0> (e, large)
    h = Shape(kept)
    most = Constant <value_ints = [5]> ()
    k = Min(h, most)
    best, order = TopK(kept, k)
    along = Constant <value_ints = [1]> ()
    column = Unsqueeze(best, along)
    w = Constant <value_floats = [1.0, 2.0, 3.0]> ()
    z = Mul(column, w)
    many = Size(kept)
}"""
"""As many as are positive; of those, as many as are large, the five largest at most."""


def test_sizes_that_depend_on_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every part of the model is compiled for the first call, and once for any number found; none
    found is a model of its own."""
    asked = count_builds(monkeypatch)
    exe = stepwell.compile(model(PARTS), threads=1, options={**OPTIONS, "use_cache": False})
    assert isinstance(exe, SpecializingExecutable)
    random = np.random.default_rng(0)
    builds = []
    for positive, large in ((30, 20), (36, 25), (40, 18), (34, 31), (33, 4)):
        x = np.full(42, -1, np.float32)
        x[:positive] = random.uniform(0.01, 0.4, positive)
        x[:large] += 0.5  # exp(0.5) is 1.65
        x = random.permutation(x).reshape(7, 6)
        found = np.exp(x[x > 0])
        best = np.outer(np.sort(found)[::-1][: min(5, large)], [1, 2, 3])
        y, z, many = exe(x)
        np.testing.assert_allclose(y, found / found.sum(), 1e-6)
        np.testing.assert_allclose(z, best, 1e-6)
        assert many == large
        builds.append(len(asked))
    assert builds[1] == builds[-1]
    assert [len(code.capacities) for code in exe.codes_for_any_size] == [1, 2]
    y, z, many = exe(-np.ones((7, 6), np.float32))
    assert (y.shape, z.shape, many) == ((0,), (0, 3), 0)


NUMBERS: dict[str, tuple[str, list[object]]] = {
    "a slice": (
        """g (float[64, 6] x, int64[1] n) => (float[a, b] y) {
            z = Constant <value_ints = [0]> () s = Slice(x, z, n) y = Softmax <axis = 0> (s) }""",
        [[5], [9], [7], [1], [16], [0]],
    ),
    "the first few": (
        "g (float[50] x, int64[1] n) => (float[a] y, int64[a] i) { y, i = TopK(x, n) }",
        [[3], [7], [5], [1], [16]],
    ),
    "an image": (
        """g (float[1, 1, 7, 9] x, int64[4] n) => (float[a, b, c, d] y) {
            y = Resize <mode = "linear"> (x,,, n) }""",
        [[1, 1, 14, 18], [1, 1, 20, 11], [1, 1, 9, 9], [1, 1, 3, 30]],
    ),
    "rows": (
        """g (float[1, 6] x, int64[2] n) => (float[a, b] y) { i = Constant <value_int = 0> ()
            s = Expand(x, n) c = CumSum(s, i) y = Exp(c) }""",
        [[3, 6], [9, 6], [5, 6], [1, 6]],
    ),
    "copies": (
        "g (float[3, 4] x, int64[2] n) => (float[a, b] y) { y = Tile(x, n) }",
        [[2, 3], [4, 5], [3, 3], [1, 1], [7, 2]],
    ),
    "a frame": (
        """g (float[3, 4] x, int64[4] n) => (float[a, b] y) {
            p = Pad(x, n) y = Softmax <axis = 0> (p) }""",
        [[1, 2, 3, 4], [2, 4, 1, 5], [4, 1, 2, 2], [3, 7, 5, 3], [0, 0, 1, 1]],
    ),
    "all but the last": (
        """g (float[5, 40] x, int64[2] n) => (float[a, b] y) {
            z = Constant <value_ints = [0, 0]> () s = Slice(x, z, n)
            y = Softmax <axis = 0> (s) }""",
        [[-1, 4], [-1, 6], [-1, 12], [-1, 1], [3, 7]],
    ),
    "found on the way": (
        """g (float[1] x, int64[1] n) => (float[a] y) {
            h = Cast <to = 6> (n) m = Add(h, h) k = Cast <to = 7> (m) e = Expand(x, k)
            f = Cast <to = 1> (m) y = Mul(e, f) }""",
        [[3], [8], [5], [7]],
    ),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_are_sizes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the second value on, the code takes any."""
    graph, values = NUMBERS[name]
    made = model(graph)
    asked = count_builds(monkeypatch)
    exe = stepwell.compile(made, threads=1, options={**OPTIONS, "use_cache": False})
    assert isinstance(exe, SpecializingExecutable)
    reference = ReferenceEvaluator(made)
    builds = []
    for value in values:
        shape = [d.dim_value for d in made.graph.input[0].type.tensor_type.shape.dim]
        feed = {
            "x": np.random.default_rng(0).standard_normal(shape).astype(np.float32),
            "n": np.array(value),
        }
        for result, expected in zip(exe(*feed.values()), reference.run(None, feed), strict=True):
            assert result.shape == np.asarray(expected).shape
            np.testing.assert_allclose(result, expected, 2e-6, 1e-6)
        builds.append(len(asked))
    assert builds[3] == builds[1]
    assert exe.codes_for_any_size


def test_boxes_of_many_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each class as many boxes as have a good score, 20 at most; of all, those that overlap none
    chosen before. There are as many sizes as classes, seen at a few points for all of them."""
    asked = count_builds(monkeypatch)
    classes, boxes = 9, 40
    body = "".join(
        f"""place{c} = Constant <value_ints = [{c}]> ()
        row{c} = Gather <axis = 0> (scores, place{c})
        line{c} = Reshape(row{c}, flat) good{c} = Greater(line{c}, bound)
        found{c} = NonZero(good{c}) where{c} = Reshape(found{c}, flat)
        some{c} = Gather(line{c}, where{c}) h{c} = Shape(some{c}) k{c} = Min(h{c}, most)
        best{c}, order{c} = TopK(some{c}, k{c}) taken{c} = Gather(where{c}, order{c})
        n{c} = Shape(best{c})
        label{c} = ConstantOfShape <value = int64[1] {{{c}}}> (n{c})
        """
        for c in range(classes)
    )
    joined = {
        name: ", ".join(f"{name}{c}" for c in range(classes)) for name in ("best", "taken", "label")
    }
    graph = f"""g (float[{classes}, {boxes}] scores, float[{boxes}, 4] corners)
        => (float[n] score, float[n, 4] box, int64[n] class) {{
        flat = Constant <value_ints = [-1]> () bound = Constant <value_float = 0.5> ()
        most = Constant <value_ints = [20]> () {body}
        all = Concat <axis = 0> ({joined["best"]})
        places = Concat <axis = 0> ({joined["taken"]})
        labels = Concat <axis = 0> ({joined["label"]})
        chosen = Gather <axis = 0> (corners, places)
        one = Constant <value_ints = [0]> () two = Constant <value_ints = [0, 1]> ()
        b = Unsqueeze(chosen, one) s = Unsqueeze(all, two)
        many = Constant <value_ints = [1000]> () share = Constant <value_floats = [0.3]> ()
        kept = NonMaxSuppression(b, s, many, share)
        column = Constant <value_ints = [2]> () number = Gather <axis = 1> (kept, column)
        line = Reshape(number, flat)
        score = Gather(all, line) box = Gather <axis = 0> (chosen, line)
        class = Gather(labels, line)
    }}"""
    made = model(graph)
    exe = stepwell.compile(made, threads=1, options={**OPTIONS, "use_cache": False})
    reference = ReferenceEvaluator(made)
    random = np.random.default_rng(0)
    builds = []
    for good in (0.6, 0.45, 0.7, 0.5, 0.65):
        scores = random.random((classes, boxes)).astype(np.float32) ** (1 / good)
        corners = random.random((boxes, 2, 2)).astype(np.float32)
        corners = np.concatenate([corners.min(2), corners.max(2)], 1)
        feed = {"scores": scores, "corners": corners}
        for result, expected in zip(exe(*feed.values()), reference.run(None, feed), strict=True):
            np.testing.assert_array_equal(result, expected)
        builds.append(len(asked))
    assert builds[1] == builds[-1]


def test_each_size_that_depends_on_data_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = count_builds(monkeypatch)
    options = {**OPTIONS, "any_size": False, "use_cache": False}
    exe = stepwell.compile(model(PARTS), threads=1, options=options)
    builds = [len(asked)]
    for size in (5, 9, 6):
        x = np.full((7, 6), -1, np.float32)
        x.reshape(-1)[:size] = 1
        assert exe(x)[2] == size
        builds.append(len(asked))
    assert np.diff(builds).min() > 0
    assert isinstance(exe, SpecializingExecutable)
    assert not exe.codes_for_any_size


def test_nothing_is_computed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code ahead of NonZero gives z and least as well, which the rest reads."""
    exe = compiled(
        """g (float[2, 3] x) => (float[n] y) {
            z = Exp(x)
            least = ReduceMin <keepdims = 0> (z)
            above = Greater(z, least)
            places = NonZero(above)
            pairs = Transpose(places)
            picked = GatherND(z, pairs)
            y = Div(picked, least)
        }"""
    )
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(exe(x)[0], np.exp(x).reshape(-1)[1:], 1e-6)
    sources = [name for kernel in exe.specialized(x).kernels for name in kernel.sources]
    assert not any("Exp" in name for name in sources)
    assert any("Gather" in name for name in sources)


def test_errors_of_the_model_come_when_it_is_compiled() -> None:
    text = "g (float[n] x) => (float[n] y) { z = Frobnicate(x)  y = Relu(z) }"
    with pytest.raises(stepwell.UnsupportedError, match="Frobnicate: the operator is not"):
        stepwell.compile(model(text), options=OPTIONS)


def test_what_is_open_is_named() -> None:
    text = "g (float[2, 3] x, int64[2] shape) => (float[a, b] y) { y = Reshape(x, shape) }"
    with pytest.raises(OpenModelError, match=r'Reshape.*"shape" \(shape\)') as caught:
        stepwell.lower(model(text))
    assert caught.value.values == ("shape",)


def test_inputs_that_do_not_fit() -> None:
    exe = compiled("g (float[n, 3] x) => (float[n, 3] y) { y = Relu(x) }")
    with pytest.raises(stepwell.InputError, match="has dtype float64 and the model takes float32"):
        exe(np.ones((2, 3)))
    with pytest.raises(stepwell.InputError, match=r"shape \(2, 4\) and the model takes \(n, 3\)"):
        exe(np.ones((2, 4), np.float32))
    with pytest.raises(stepwell.InputError, match=r"takes 1 input \(x: float32\[n, 3\]\)"):
        exe()
    with pytest.raises(stepwell.InputError, match="no input 'z'"):
        exe.run({"z": 1})


def test_unknown_rank() -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy")
    exe = stepwell.compile(
        helper.make_model(helper.make_graph([node], "g", [x], [y])), options=OPTIONS
    )
    assert str(exe.inputs[0]) == "x: float32[...]"
    for shape in ((), (2,), (2, 2)):
        np.testing.assert_array_equal(exe(-np.ones(shape, np.float32))[0], np.zeros(shape))


def overridable() -> onnx.ModelProto:
    weight = numpy_helper.from_array(np.array([1, 2], np.float32), "w")
    made = model("g (float[2] x, float[2] w) => (float[2] y) { y = Add(x, w) }")
    made.graph.initializer.append(weight)
    return made


def test_inputs_that_have_a_value() -> None:
    exe = stepwell.compile(overridable(), threads=1, options=OPTIONS)
    assert isinstance(exe, stepwell.Executable)
    assert [spec.name for spec in exe.inputs] == ["x"]
    x = np.zeros(2, np.float32)
    np.testing.assert_array_equal(exe.run({"x": x})["y"], [1, 2])
    for w in ([5, 6], [7, 8]):
        np.testing.assert_array_equal(exe.run({"x": x, "w": w})["y"], w)
    np.testing.assert_array_equal(exe(x)[0], [1, 2])


def test_a_shape_that_has_a_value() -> None:
    made = model("g (float[6] x, int64[2] s) => (float[a, b] y) { y = Reshape(x, s) }")
    made.graph.initializer.append(numpy_helper.from_array(np.array([2, 3]), "s"))
    exe = stepwell.compile(made, threads=1, options=OPTIONS)
    x = np.arange(6, dtype=np.float32)
    assert exe.run({"x": x})["y"].shape == (2, 3)
    assert exe.run({"x": x, "s": [6, 1]})["y"].shape == (6, 1)


def test_sparse_initializer() -> None:
    made = model("g (float[2, 2] x) => (float[2, 2] y) { y = Add(x, w) }")
    values = numpy_helper.from_array(np.array([5, 7], np.float32), "w")
    for indices in (np.array([1, 2]), np.array([[0, 1], [1, 0]])):
        del made.graph.sparse_initializer[:]
        made.graph.sparse_initializer.append(
            helper.make_sparse_tensor(values, numpy_helper.from_array(indices), [2, 2])
        )
        (y,) = stepwell.compile(made, threads=1, options=OPTIONS)(np.zeros((2, 2), np.float32))
        np.testing.assert_array_equal(y, [[0, 5], [7, 0]])


def test_no_code_for_any_size_is_tried_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The remainder of a size; for small sizes, two ways to choose the capacity are one."""
    asked = count_builds(monkeypatch)
    graph = model("""g (float[n, n] x) => (float[m, n] y) {
        s = Shape(x) k = ReduceProd <keepdims = 0> (s) i = Constant <value_ints = [7]> ()
        q = Mod(k, i) y = Gather(x, q) }""")
    exe = stepwell.compile(graph, threads=1, options={**OPTIONS, "use_cache": False})
    for n in (8, 9):
        x = np.arange(n * n, dtype=np.float32).reshape(n, n)
        np.testing.assert_array_equal(exe(x)[0], x[[n * n % 7]])
    tried = [text for text in asked if '"sizes": [[' in str(text)]
    assert len(tried) == 1
