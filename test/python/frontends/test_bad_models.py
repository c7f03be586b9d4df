"""Every kind of bad input gets one clear sentence, and never a traceback of another library."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from stepwell.errors import ModelError, UnsupportedError, UsageError
from stepwell.frontends import load


def _model(
    nodes: list[onnx.NodeProto],
    shape: list[int | str] | None = None,
    initializers: list[onnx.TensorProto] | None = None,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape or [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        initializers or [],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def _with_weights() -> onnx.ModelProto:
    weights = numpy_helper.from_array(np.ones((3, 4096), np.float32), "w")
    return _model([helper.make_node("MatMul", ["x", "w"], ["y"])], initializers=[weights])


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"there is no model file .*nothing\.onnx"):
        load(tmp_path / "nothing.onnx")


@pytest.mark.parametrize(
    "content", [b"", b"hello, world\n", b"\x00" * 64, b"PK\x03\x04 a zip file"]
)
def test_not_a_model(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"model\.onnx is (empty|not an ONNX model)"):
        load(path)


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.99])
def test_truncated_file(tmp_path: Path, keep: float) -> None:
    data = _with_weights().SerializeToString()
    path = tmp_path / "model.onnx"
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(ModelError, match="not an ONNX model"):
        load(path)


def test_missing_external_data(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(_with_weights(), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(ModelError, match=r'data of "w" should be in .*w\.bin'):
        load(path)


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("offset", "-4", 'the data of "w" has the offset "-4", no number of bytes'),
        ("length", "all", 'the data of "w" has the length "all", no number of bytes'),
        ("length", "8", 'the data of "w" has 49152 bytes, and its length is 8'),
        ("offset", "96", 'the data of "w" (49152 bytes at offset 96) reaches past the end'),
    ],
)
def test_external_data_of_wrong_extent(tmp_path: Path, key: str, value: str, sentence: str) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(_with_weights(), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    model = onnx.load(path, load_external_data=False)
    (tensor,) = model.graph.initializer
    kept = [entry for entry in tensor.external_data if entry.key != key]
    entries = {entry.key: entry.value for entry in kept} | {key: value}
    del tensor.external_data[:]
    for name, text in entries.items():
        tensor.external_data.add(key=name, value=text)
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=re.escape(sentence)):
        load(path)


def test_external_data_outside_the_folder() -> None:
    model = _with_weights()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../etc/passwd")
    with pytest.raises(ModelError, match="outside the model's folder"):
        load(model)


def test_short_initializer() -> None:
    model = _with_weights()
    model.graph.initializer[0].raw_data = b"\x00" * 12
    with pytest.raises(ModelError, match=r'"w" of shape \[3, 4096\]'):
        load(model)


def test_open_dimension_names_the_input() -> None:
    model = _model([helper.make_node("Relu", ["x"], ["y"])], ["batch", 3])
    with pytest.raises(ModelError, match=r'input "x" has open dimensions \[batch, 3\].*shapes='):
        load(model)
    assert load(model, shapes={"x": (7, 3)}).outputs[0].shape == (7, 3)


@pytest.mark.parametrize("shape", [(2, 3, 1), (2, 4)])
def test_shape_that_does_not_fit(shape: tuple[int, ...]) -> None:
    model = _model([helper.make_node("Relu", ["x"], ["y"])])
    with pytest.raises(ModelError, match=r'input "x" is declared \[2, 3\]'):
        load(model, shapes={"x": shape})


def test_unknown_input_in_shapes() -> None:
    model = _model([helper.make_node("Relu", ["x"], ["y"])])
    with pytest.raises(ModelError, match=r'shapes= names "z".*inputs: x'):
        load(model, shapes={"z": (1,)})


def test_cycle() -> None:
    nodes = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])]
    with pytest.raises(ModelError, match=r'reads "b" before any node computes it'):
        load(_model([*nodes, helper.make_node("Relu", ["b"], ["y"])]))


def test_value_computed_twice() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Neg", ["x"], ["y"], "n")]
    with pytest.raises(ModelError, match=r'node "n" \(Neg\) computes "y", which has a value'):
        load(_model(nodes))


def test_unknown_value() -> None:
    with pytest.raises(ModelError, match=r'\(Add\) reads "z" which no node computes'):
        load(_model([helper.make_node("Add", ["x", "z"], ["y"])]))


def test_wrong_number_of_inputs() -> None:
    with pytest.raises(ModelError, match=r"\(Add\) has 1 inputs; the operator takes 2"):
        load(_model([helper.make_node("Add", ["x"], ["y"])]))


def test_attribute_of_a_wrong_type() -> None:
    node = helper.make_node("Concat", ["x", "x"], ["y"], axis=1.0)
    with pytest.raises(ModelError, match=r'attribute "axis" of type FLOAT; it should be INT'):
        load(_model([node]))


def test_missing_attribute() -> None:
    with pytest.raises(ModelError, match=r'\(Concat\) lacks the attribute "axis"'):
        load(_model([helper.make_node("Concat", ["x", "x"], ["y"])]))


def test_errors_come_before_open_dimensions() -> None:
    node = helper.make_node("Add", ["x", "z"], ["y"])
    with pytest.raises(ModelError, match="which no node computes"):
        load(_model([node], ["batch", 3]))


def test_undefined_output() -> None:
    with pytest.raises(ModelError, match='output "y" is computed by no node'):
        load(_model([helper.make_node("Relu", ["x"], ["z"])]))


def test_all_unsupported_nodes_are_listed() -> None:
    nodes = [
        helper.make_node("ImageDecoder", ["x"], ["a"], name="first"),
        helper.make_node("Relu", ["x"], ["b"]),
        helper.make_node("Frobnicate", ["b"], ["c"], name="second", domain="com.example"),
        helper.make_node("NoSuchThing", ["c"], ["d"], name="third"),
        helper.make_node("Relu", ["d"], ["y"]),
    ]
    with pytest.raises(UnsupportedError, match="3 nodes are not supported") as caught:
        load(_model(nodes))
    assert [finding.node for finding in caught.value.findings] == ["first", "second", "third"]
    assert "com.example" in str(caught.value)


def test_shapes_that_do_not_multiply() -> None:
    weights = numpy_helper.from_array(np.ones((4, 5), np.float32), "w")
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    with pytest.raises(UnsupportedError, match=r"product: .*\[2, 3\] and \[4, 5\] do not multiply"):
        load(_model([node], initializers=[weights]))


def test_inputs_of_two_types() -> None:
    """As the standard has it, and onnxruntime; numpy would widen one of them."""
    weights = numpy_helper.from_array(np.ones((3, 5)), "w")
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    sentence = r'product: .*its inputs "x" \(float32\) and "w" \(float64\) should be of one type'
    with pytest.raises(UnsupportedError, match=sentence):
        load(_model([node], initializers=[weights]))


def test_wrong_rank() -> None:
    weights = numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w")
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="convolution")
    with pytest.raises(UnsupportedError, match=r"convolution: .*does not fit the input \[2, 3\]"):
        load(_model([node], initializers=[weights]))


_IMAGE, _FILTERS = [1, 8, 9, 9], [8, 8, 3, 3]


def _refusal(
    operator: str, shapes: list[list[int]], constants: list[np.ndarray] | None = None, **fields: Any
) -> str:
    """Why node "n" of `operator` is refused, whose inputs are x of the first shape, ones of the
    others, w1, w2, .., and `constants`."""
    weights = [np.ones(shape, np.float32) for shape in shapes[1:]] + (constants or [])
    names = [f"w{i + 1}" for i in range(len(weights))]
    node = helper.make_node(operator, ["x", *names], ["y"], name="n", **fields)
    model = _model(
        [node],
        list(shapes[0]),
        [numpy_helper.from_array(w, name) for w, name in zip(weights, names, strict=True)],
    )
    return _reason(model, operator)


def _refusal_without(operator: str, shape: list[int]) -> str:
    """Why node "n" of `operator` is refused, whose second input is left out."""
    node = helper.make_node(operator, ["x", ""], ["y"], name="n")
    return _reason(_model([node], list(shape)), operator)


def _reason(model: onnx.ModelProto, operator: str) -> str:
    with pytest.raises(UnsupportedError) as caught:
        load(model)
    (finding,) = caught.value.findings
    assert (finding.node, finding.operator) == ("n", operator)
    return finding.reason


_POOLS = ("MaxPool", "AveragePool", "LpPool")
_ZERO_STRIDE = "strides [0, 1] should be 2 positive numbers: one for each spatial dimension"


@pytest.mark.parametrize("operator", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"strides": [0, 1]}, _ZERO_STRIDE),
        (
            {"strides": [1]},
            "strides [1] should be 2 positive numbers: one for each spatial dimension",
        ),
        (
            {"dilations": [1, -1]},
            "dilations [1, -1] should be 2 positive numbers: one for each spatial dimension",
        ),
        (
            {"kernel_shape": [5, 5]},
            "kernel_shape [5, 5] contradicts the kernel, which is of [3, 3]",
        ),
        (
            {"auto_pad": "SAME"},
            'auto_pad "SAME" is not one of NOTSET, VALID, SAME_UPPER, SAME_LOWER',
        ),
        ({"pads": [1, 1]}, "pads [1, 1] should have 4 entries"),
        ({"group": 0}, "group 0 should be positive"),
    ],
)
def test_windows_of_convolutions(operator: str, fields: dict[str, Any], sentence: str) -> None:
    assert _refusal(operator, [_IMAGE, _FILTERS], **fields) == sentence


@pytest.mark.parametrize("operator", _POOLS)
@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"strides": [0, 1]}, _ZERO_STRIDE),
        (
            {"kernel_shape": [2, 0]},
            "kernel_shape [2, 0] should be 2 positive numbers: one for each spatial dimension",
        ),
        ({"auto_pad": "FOO"}, 'auto_pad "FOO" is not one of NOTSET, VALID, SAME_UPPER, SAME_LOWER'),
        (
            {"kernel_shape": [2, 11]},
            "the window spans 11 elements of spatial dimension 1, where the input has 9, padded "
            "by 0 and 0",
        ),
    ],
)
def test_windows_of_poolings(operator: str, fields: dict[str, Any], sentence: str) -> None:
    assert _refusal(operator, [_IMAGE], **{"kernel_shape": [2, 2], **fields}) == sentence


@pytest.mark.parametrize(
    ("operator", "shapes", "fields", "sentence"),
    [
        (
            "Conv", [[1, 9, 9, 9], [8, 3, 3, 3]], {"group": 3},
            "3 groups do not divide the 8 channels of the result",
        ),
        (
            "ConvTranspose", [_IMAGE, _FILTERS], {"group": 3},
            "3 groups do not divide the 8 channels of the input",
        ),
        (
            "Conv", [[1, 8, 4, 4], _FILTERS], {"dilations": [1, 2]},
            "the window spans 5 elements of spatial dimension 1, where the input has 4, padded by "
            "0 and 0",
        ),
        (
            "ConvTranspose", [_IMAGE, _FILTERS], {"pads": [0, 6, 0, 5]},
            "nothing is left of spatial dimension 1 of the result, 11 elements that are cut by 6 "
            "and 5",
        ),
        (
            "ConvTranspose", [_IMAGE, _FILTERS], {"output_padding": [0, -1]},
            "output_padding [0, -1] should be 2 numbers that are not negative",
        ),
        (
            "Conv", [_IMAGE, _FILTERS, [7]], {},
            'the input "w2" [7] should be a vector of 8 numbers, as many as [1, 8, 7, 7] has along '
            "dimension 1",
        ),
        (
            "DeformConv", [_IMAGE, _FILTERS, [1, 18, 6, 7]], {},
            '"w2" [1, 18, 6, 7] should be [1, 18, 7, 7]',
        ),
        ("LpPool", [_IMAGE], {"kernel_shape": [2, 2], "p": 0}, "p 0 should be positive"),
        (
            "BatchNormalization", [_IMAGE, [8], [8], [8], [7]], {},
            'the input "w4" [7] should be a vector of 8 numbers, as many as [1, 8, 9, 9] has along '
            "dimension 1",
        ),
        (
            "InstanceNormalization", [_IMAGE, [8], [1]], {},
            'the input "w2" [1] should be a vector of 8 numbers, as many as [1, 8, 9, 9] has along '
            "dimension 1",
        ),
        (
            "GroupNormalization", [_IMAGE, [3], [3]], {"num_groups": 3},
            "3 groups do not divide the channels of [1, 8, 9, 9]",
        ),
        (
            "LayerNormalization", [_IMAGE, [8]], {},
            'the input "w1" [8] does not broadcast to [1, 8, 9, 9]',
        ),
        ("LRN", [_IMAGE], {"size": 0}, "size 0 is no number of channels of [1, 8, 9, 9]"),
        ("Cast", [_IMAGE], {"to": 1 << 62}, f"to={1 << 62} is no type of elements"),
        ("LpNormalization", [_IMAGE], {"p": 3}, "p 3 should be 1 or 2"),
        (
            "ConvTranspose", [_IMAGE, _FILTERS], {"pads": [2, 1, -(2**63), 0]},
            "one of its attributes or sizes is too large a number",
        ),
    ],
)  # fmt: skip
def test_parameters_that_do_not_fit(
    operator: str, shapes: list[list[int]], fields: dict[str, Any], sentence: str
) -> None:
    assert sentence in _refusal(operator, shapes, **fields)


_LEFT_OUT = "its input 1 (%s) is missing"


@pytest.mark.parametrize(
    ("operator", "x", "constants", "fields", "sentence"),
    [
        (
            "Einsum", [2, 3], [np.ones((3, 4), np.float32)], {"equation": "ij"},
            'the equation "ij" is not one of 2 operands',
        ),
        (
            "Einsum", [2, 3], [np.ones((4, 4), np.float32)], {"equation": "ij,jk->ik"},
            'the equation "ij,jk->ik" does not fit the input "w1" of shape [4, 4]',
        ),
        (
            "Einsum", [2, 3], [], {"equation": "ijk->i"},
            'the equation "ijk->i" does not fit the input "x" of shape [2, 3]',
        ),
        (
            "Einsum", [2, 3], [], {"equation": "ij->ik"},
            'the result of the equation "ij->ik" is not made of its operands',
        ),
        (
            "TopK", [4, 3], [np.array([2, 1])], {},
            'the input "w1" (K) of shape [2] should be one number',
        ),
        ("Unsqueeze", [4, 3], [np.array([1, 1])], {}, "axes [1, 1] name a dimension twice"),
        ("Pad", [4, 3], [np.array([1, 1])], {}, "pads [1, 1] should be 4 numbers"),
        (
            "Resize", [4, 3], [np.zeros(0, np.float32), np.array([1, -2], np.float32)], {},
            "scales [1.0, -2.0] should be positive",
        ),
        (
            "Resize", [4, 3], [np.zeros(0, np.float32), np.ones(3, np.float32)], {},
            "scales [1.0, 1.0, 1.0] should be 2 numbers",
        ),
        (
            "QuantizeLinear", [4, 3], [np.float32(0.5), np.array(True)], {},
            "the zero point of the result is of bool, which is no number",
        ),
        (
            "Tile", [4, 3], [np.array([1, -1])], {},
            "repeats [1, -1] should be 2 numbers that are not negative",
        ),
        (
            "Slice", [4, 3], [np.array([0]), np.array([2]), np.array([0, 1])], {},
            "starts, ends, axes and steps should be as many",
        ),
        ("Pow", [4, 3], None, {}, _LEFT_OUT % "exponent"),
        ("QuantizeLinear", [4, 3], None, {}, _LEFT_OUT % "scale"),
    ],
)  # fmt: skip
def test_inputs_that_do_not_fit(
    operator: str,
    x: list[int],
    constants: list[np.ndarray] | None,
    fields: dict[str, Any],
    sentence: str,
) -> None:
    if constants is None:
        assert _refusal_without(operator, x) == sentence
    else:
        assert _refusal(operator, [x], constants, **fields) == sentence


def test_operations_that_make_no_sense_together() -> None:
    """What no operator looks for is found when the module is verified."""
    weights = [
        numpy_helper.from_array(np.ones(shape, np.float32), name)
        for name, shape in (("w", [1, 4, 6]), ("r", [1, 4, 4]))
    ]
    node = helper.make_node("RNN", ["x", "w", "r"], ["y"], name="n", hidden_size=4)
    with pytest.raises(ModelError, match="n: error: contracting dimension sizes must match"):
        load(_model([node], [3, 2, 5], weights))


def test_blocks_without_a_stride() -> None:
    sizes = [np.array([5, 5]), np.array([1, 5])]
    assert _refusal("Col2Im", [[1, 5, 5]], sizes, strides=[0, 1]) == _ZERO_STRIDE


@pytest.mark.parametrize("operator", _POOLS)
def test_a_window_that_ends_in_what_rounding_up_adds(operator: str) -> None:
    fields = {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}
    node = helper.make_node(operator, ["x"], ["y"], **fields)
    assert load(_model([node], [1, 8, 2, 2])).outputs[0].shape == (1, 8, 1, 1)


@pytest.mark.parametrize("shape", [[0, 8, 9, 9], [1, 8, 0, 9]])
def test_images_without_elements(shape: list[int]) -> None:
    """As numpy has it: the result has none either."""
    weights = numpy_helper.from_array(np.ones(_FILTERS, np.float32), "w")
    convolution = _model([helper.make_node("Conv", ["x", "w"], ["y"])], shape, [weights])
    pooling = _model([helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3])], shape)
    wanted = (shape[0], 8, max(shape[2] - 2, 0), 7)
    assert load(convolution).outputs[0].shape == load(pooling).outputs[0].shape == wanted


def test_string_input() -> None:
    model = _model([helper.make_node("Identity", ["x"], ["y"])])
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
    with pytest.raises(ModelError, match='input "x" has element type STRING'):
        load(model)


def test_bad_stablehlo_text() -> None:
    with pytest.raises(ModelError, match="the given model is not StableHLO"):
        load("module { func.func @main( }")


def test_not_a_model_at_all() -> None:
    with pytest.raises(UsageError, match="int is not a model"):
        load(3)


def test_a_function_that_calls_itself() -> None:
    text = """<ir_version: 8, opset_import: ["": 18, "f": 1]>
    g (float[2] x) => (float[2] y) { y = f.a (x) }
    <domain: "f", opset_import: ["": 18, "f": 1]> a (x) => (y) { y = f.a (x) }"""
    with pytest.raises(ModelError, match="must not be recursive"):
        load(parser.parse_model(text))
