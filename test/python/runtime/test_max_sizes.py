"""Models compiled ahead for any sizes up to those that are given, and what is said of mistakes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import stepwell
from stepwell.open_shapes import bounded
from stepwell.runtime.open_sizes import OpenSizeExecutable
from stepwell.specialization import OpenSpec
from stepwell.tools import stepwell as tool

OPTIONS = {"progress": False}
PRODUCTS = """<ir_version: 8, opset_import: ["": 18]>
    g (float[batch, n] x, float[batch, n] z, float[batch] w) => (float[batch] y) {
        a = Constant <value_ints = [1]> () p = Mul(x, z)
        s = ReduceSum <keepdims = 0> (p, a) y = Add(s, w) }"""
R = np.random.default_rng(5)


def feed(batch: int, n: int) -> dict[str, np.ndarray]:
    shapes = {"x": (batch, n), "z": (batch, n), "w": (batch,)}
    return {k: R.standard_normal(shape).astype(np.float32) for k, shape in shapes.items()}


def check(exe: object, batch: int, n: int) -> None:
    """Sums of up to 100 products: within 1e-4."""
    assert isinstance(exe, OpenSizeExecutable)
    arrays = feed(batch, n)
    x, z, w = arrays.values()
    np.testing.assert_allclose(exe.run(arrays)["y"], (x * z).sum(1) + w, 1e-4, 1e-4)


def test_names_of_the_model() -> None:
    model = parser.parse_model(PRODUCTS)
    exe = stepwell.compile(model, options=OPTIONS, max_sizes={"batch": 20, "n": 100})
    assert isinstance(exe, OpenSizeExecutable)
    assert exe.capacities == {"batch": 20, "n": 100}
    assert str(exe.inputs[1]) == "z: float32[batch, n]"
    for sizes in ((3, 70), (20, 100), (1, 1)):
        check(exe, *sizes)
    with pytest.raises(stepwell.InputError, match="batch <= 20, n <= 100"):
        exe.run(feed(21, 5))


def test_own_names_and_an_artifact(tmp_path: Path) -> None:
    """What is said of one input holds for dimensions of that name in others, too."""
    model, path = tmp_path / "model.onnx", tmp_path / "model.stepwell"
    onnx.save(parser.parse_model(PRODUCTS), model)
    assert tool.main(["compile", str(model), "--shape=x=2,k", "--max=k=40", "-o", str(path)]) == 0
    exe = stepwell.load(path)
    assert [str(spec) for spec in exe.inputs] == [
        "x: float32[2, k]",
        "z: float32[2, k]",
        "w: float32[2]",
    ]
    for n in (40, 3):
        check(exe, 2, n)


X, Z = OpenSpec("x", "float32", ("batch", "n")), OpenSpec("z", "float32", ("n", 4))


@pytest.mark.parametrize(
    ("shapes", "max_sizes", "message"),
    [
        ({}, {"batch": 8}, r'n, dimension 1 of input x: .* no largest size; .*\{"n": 512\}'),
        ({}, {"batch": 8, "n": 8, "m": 8}, r'"m" is no open dimension .* \(open: batch, n\)'),
        ({"q": (1, "n")}, {"n": 8}, r'"q" is no input of the model \(inputs: x, z\)'),
        ({"x": (1, "n", 2)}, {"n": 8}, r"input x is \(1, n, 2\), but .* of rank 2"),
        ({"z": ("n", "m")}, {"n": 8}, "its dimension 1 is 4 in the model"),
        ({"x": (1, "k"), "z": (3, 4)}, {"k": 8}, "n, its dimension 0, is 3; it is k in another"),
        ({"x": (1, 2)}, {"k": 8}, r'"k" is no open dimension of an input \(open: none\)'),
        ({"x": (1, "k")}, {"k": 0}, "the largest size of k is 0"),
    ],
)
def test_mistakes(shapes: dict, max_sizes: dict, message: str) -> None:
    with pytest.raises(stepwell.UsageError, match=message):
        bounded((X, Z), shapes, max_sizes)


@pytest.mark.parametrize(
    ("shapes", "max_sizes", "message"),
    [
        ({}, {"batch": 9, "n": 8}, "the largest size of batch is 9; the model takes 8 at most"),
        ({"x": ("b", "k")}, {"b": 9, "k": 8}, "the largest size of b is 9"),
        ({}, {"batch": 8, "n": 2}, "the model takes 3 at most for n"),
    ],
)
def test_sizes_that_the_model_does_not_take(shapes: dict, max_sizes: dict, message: str) -> None:
    with pytest.raises(stepwell.UsageError, match=message):
        bounded((X, Z), shapes, max_sizes, {"batch": 8, "n": 3})
    assert bounded((X,), {"x": ("b", 5)}, {"b": 6}, {"batch": 8}).capacities == {"b": 8}


def test_inputs_without_a_declared_shape() -> None:
    free = OpenSpec("x", "float32", None)
    with pytest.raises(stepwell.UsageError, match="no rank"):
        bounded((free,), {}, {"n": 8})
    unnamed = OpenSpec("x", "float32", ("?", 2))
    with pytest.raises(stepwell.UsageError, match="dimension 0 of input x"):
        bounded((unnamed,), {}, {"n": 8})
    sizes = bounded((free,), {"x": ("n", 3)}, {"n": 30})
    assert (sizes.shapes, sizes.capacities) == ({"x": ("n", 3)}, {"n": 30})


def test_sizes_that_are_sums() -> None:
    """Of declared names, which own names may stand for."""
    past = OpenSpec("past", "float32", ("m", 4))
    mask = OpenSpec("mask", "float32", ("m + n", "m + 1"))
    sizes = bounded((X, past, mask), {"x": (1, "k")}, {"k": 20, "m": 30})
    assert sizes.capacities == {"k": 20, "m": 30}
    assert sizes.shapes_at((5, 7)) == {"x": (1, 5), "past": (7, 4), "mask": (12, 8)}
    one = bounded((X, past, mask), {"x": (1, 1)}, {"m": 30})
    assert one.shapes_at((7,)) == {"x": (1, 1), "past": (7, 4), "mask": (8, 8)}
    with pytest.raises(stepwell.UsageError, match="n, dimension 0 of input mask"):
        bounded((past, mask), {}, {"m": 30})


def test_multiples() -> None:
    """Sizes that are multiples of open ones, as strides need them; and declared ones."""
    image = OpenSpec("x", "float32", (1, 3, "h", "w"))
    sizes = bounded((image,), {"x": (1, 3, "32*h", "w * 8")}, {"h": 16, "w": 20})
    assert sizes.shapes_at((5, 7)) == {"x": (1, 3, 160, 56)}
    derived = OpenSpec("y", "float32", ("2*k + 1", "k"))
    sizes = bounded((derived,), {}, {"k": 20})
    assert sizes.shapes_at((5,)) == {"y": (11, 5)}
    with pytest.raises(stepwell.UsageError, match="no dimension of an input tells b"):
        bounded((image,), {"x": (1, 3, "a + b", "a")}, {"a": 20, "b": 20})
    with pytest.raises(stepwell.UsageError, match="no dimension of an input tells a"):
        bounded((image,), {"x": (1, 3, "0*a", 4)}, {"a": 20})
    plain = OpenSpec("a", "float32", ("k",))
    sizes = bounded((derived, plain), {"a": ("3*m",)}, {"m": 20})
    assert sizes.shapes == {"y": ("6*m + 1", "3*m"), "a": ("3*m",)}
    assert sizes.shapes_at((5,)) == {"y": (31, 15), "a": (15,)}


def test_strides_ahead_of_the_first_call(tmp_path: Path) -> None:
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["": 18]> g (float[1, 2, n] x) => (float[1, 2, m] y) {
            y = MaxPool <kernel_shape = [3], strides = [4], pads = [1, 1]> (x) }"""
    )
    reference = ReferenceEvaluator(model)
    exe = stepwell.compile(model, options=OPTIONS, max_sizes={"n": 64})
    assert str(exe.outputs[0]) == "y: float32[1, 2, (n + 3) floordiv 4]"
    for n in (1, 2, 3, 4, 29, 64):
        x = np.random.default_rng(n).standard_normal((1, 2, n)).astype(np.float32)
        np.testing.assert_array_equal(exe(x)[0], reference.run(None, {"x": x})[0])
    exe = stepwell.compile(model, options=OPTIONS, shapes={"x": (1, 2, "4*n")}, max_sizes={"n": 32})
    assert str(exe.outputs[0]) == "y: float32[1, 2, n]"
    more = stepwell.compile(
        model, options=OPTIONS, shapes={"x": (1, 2, "4*n + 4")}, max_sizes={"n": 32}
    )
    x = np.random.default_rng(0).standard_normal((1, 2, 24)).astype(np.float32)
    np.testing.assert_array_equal(more(x)[0], reference.run(None, {"x": x})[0])
    with pytest.raises(stepwell.InputError, match=r"takes x: float32\[1, 2, 4\*n\]"):
        exe(np.zeros((1, 2, 30), np.float32))


def test_a_model_that_is_another_for_each_size() -> None:
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["": 18]> g (float[n] x) => (float[m] y) {
            a = Constant <value_ints = [0, 2]> () z = Unsqueeze(x, a)
            f = DFT(z) s = Constant <value_ints = [-1]> () y = Reshape(f, s) }"""
    )
    with pytest.raises(stepwell.ModelError, match=r"any size with n <= 64: DFT_f: its fft_length"):
        stepwell.compile(model, options=OPTIONS, max_sizes={"n": 64})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--max", "n"], "--max n is not of the form NAME=512"),
        (["--shape", "x=1,n-"], "--shape x=1,n- is not of the form"),
        (["--shape", "x=1,32*"], "--shape x=1,32* is not of the form"),
        (["--max", "n=8", "--emit", "linalg"], "--max is for artifacts"),
    ],
)
def test_mistakes_on_the_command_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model.onnx"
    onnx.save(parser.parse_model(PRODUCTS), model)
    assert tool.main(["compile", str(model), "-o", str(tmp_path / "a.stepwell"), *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "a.stepwell").exists()
