"""Models of which parts run on the host: strings, maps, image files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, parser

import stepwell
from stepwell.errors import InputError, ModelError, UsageError
from stepwell.frontends.onnx.partition import partition
from stepwell.partitioned import PartitionedExecutable

OPTIONS = {"progress": False}
HEAD = '<ir_version: 8, opset_import: ["": 20, "ai.onnx.ml": 3]>'

WORDS = f"""{HEAD}
words (string[N] text, float[3, 4] table) => (float[M, 4] rows, string[M] kept, float[] total) {{
    kept = StringNormalizer <case_change_action = "LOWER", stopwords = ["the"]> (text)
    number = ai.onnx.ml.LabelEncoder
        <keys_strings = ["a", "step", "well"], values_int64s = [0, 1, 2], default_int64 = 0> (kept)
    found = Gather <axis = 0> (table, number)
    rows = Exp (found)
    total = ReduceSum <keepdims = 0> (rows)
}}"""


def compiled(model: str | onnx.ModelProto, **more: object) -> PartitionedExecutable:
    if isinstance(model, str):
        model = parser.parse_model(model)
    exe = stepwell.compile(model, threads=1, options=OPTIONS, **more)  # pyright: ignore[reportArgumentType]
    assert isinstance(exe, PartitionedExecutable)
    return exe


def test_strings_and_numbers_by_turns() -> None:
    model = parser.parse_model(WORDS)
    assert [part.on_host for part in partition(model)] == [True, False]
    exe = compiled(model)
    table = np.arange(12, dtype=np.float32).reshape(3, 4) / 10
    for text in (["The", "Step", "well"], ["none"], ["WELL", "a", "step", "the", "the"]):
        rows, kept, total = exe(text, table)
        words = [word.lower() for word in text if word.lower() != "the"]
        numbers = [{"step": 1, "well": 2}.get(word, 0) for word in words]
        assert kept.tolist() == words
        np.testing.assert_allclose(rows, np.exp(table[numbers]), rtol=1e-6)
        np.testing.assert_allclose(total, np.exp(table[numbers]).sum(), rtol=1e-6)


def test_the_signature() -> None:
    session = stepwell.Session(parser.parse_model(WORDS), options=OPTIONS)
    assert [(arg.name, arg.type, arg.shape) for arg in session.get_inputs()] == [
        ("text", "tensor(string)", ["N"]),
        ("table", "tensor(float)", [3, 4]),
    ]
    table = np.zeros((3, 4), np.float32)
    (kept,) = session.run(["kept"], {"text": np.array(["a"]), "table": table})
    assert kept.dtype == object


@pytest.mark.parametrize(
    ("feed", "sentence"),
    [
        ({"text": ["a"]}, "the input 'table' was not given"),
        ({"text": [1], "table": np.zeros((3, 4), np.float32)}, "the model takes strings"),
        ({"text": [["a"]], "table": np.zeros((3, 4), np.float32)}, "has rank 2"),
        ({"text": ["a"], "table": np.zeros((3, 5), np.float32)}, r"shape \(3, 5\)"),
        ({"text": ["a"], "table": np.zeros((3, 4), np.float32), "x": 1}, "no input 'x'"),
    ],
)
def test_wrong_inputs_are_named(feed: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        compiled(WORDS).run(feed)


def test_what_only_compiled_models_do() -> None:
    exe = compiled(WORDS)
    assert "StringNormalizer" in repr(exe)
    with pytest.raises(UsageError, match=r"cannot be saved.*\(StringNormalizer\).*run on the host"):
        exe.save("model.stepwell")
    with pytest.raises(UsageError, match="cannot be profiled"):
        exe.profile()


def test_shapes_reach_their_parts() -> None:
    text = f"""{HEAD}
    g (string[2] s, float[N] x) => (string[2] t, float[N] y) {{ t = Identity (s)  y = Neg (x) }}"""
    exe = compiled(text, shapes={"x": (3,)})
    assert exe(["a", "b"], np.ones(3, np.float32))[1].tolist() == [-1, -1, -1]
    with pytest.raises(InputError, match="shape"):
        exe(["a", "b"], np.ones(4, np.float32))
    with pytest.raises(ModelError, match='"z"'):
        compiled(text, shapes={"z": (3,)})


def test_an_operator_that_nothing_has() -> None:
    text = f"""{HEAD}
    g (string[2] s) => (string[2] t) {{ t = other.Shout (s) }}"""
    with pytest.raises(ModelError, match="Shout"):
        compiled(text.replace('"": 20,', '"": 20, "other": 1,'))


@pytest.mark.parametrize(
    ("nodes", "sentence"),
    [
        ("t = StringConcat (s, q)", 'reads "q" which no node computes'),
        ("t = StringConcat (s, u)  u = StringConcat (t, s)", "the graph has a cycle"),
        ("t = StringConcat (s)", "StringConcat"),
        ("y = Abs (q)", 'reads "q" which no node computes'),
    ],
)
def test_graphs_that_make_no_sense(nodes: str, sentence: str) -> None:
    kind = "string" if "t =" in nodes else "float"
    output = "t" if "t =" in nodes else "y"
    text = f"{HEAD} g ({kind}[2] s) => ({kind}[2] {output}) {{ {nodes} }}"
    with pytest.raises(ModelError, match=sentence):
        stepwell.compile(parser.parse_model(text), options=OPTIONS)


def test_a_constant_result() -> None:
    text = f"""{HEAD}
    g (string[1] s) => (string[1] t, float[2] c) <float[2] c = {{3, 4}}> {{ t = Identity (s) }}"""
    assert compiled(text).run({"s": ["a"]})["c"].tolist() == [3, 4]


def test_weights_of_a_file(tmp_path: Path) -> None:
    model = parser.parse_model(WORDS)
    table = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    wide = np.repeat(table, 300, axis=0)
    del model.graph.input[1]
    model.graph.initializer.append(onnx.numpy_helper.from_array(wide, "table"))
    path = tmp_path / "words.onnx"
    onnx.save(model, path)
    exe = stepwell.compile(path, threads=1, options=OPTIONS)
    (rows, _, _) = exe(["well"])
    np.testing.assert_allclose(rows, np.exp(wide[2:3]), rtol=1e-6)


def test_a_branch_on_strings() -> None:
    text = f"""{HEAD}
    g (bool c, string[2] s, float[2] x) => (string[2] t, float[2] y) {{
        y = Abs (x)
        t = If (c) <
            then_branch = a () => (string[2] u) {{ u = Identity (s) }},
            else_branch = b () => (string[2] v) {{ v = StringConcat (s, s) }}
        >
    }}"""
    exe = compiled(text)
    x = np.array([-1, 2], np.float32)
    for condition, wanted in ((True, ["p", "q"]), (False, ["pp", "qq"])):
        t, y = exe(np.array(condition), ["p", "q"], x)
        assert t.tolist() == wanted
        assert y.tolist() == [1, 2]


def _run_both(model: onnx.ModelProto, feed: dict[str, object]) -> None:
    """Our results against onnxruntime's, floats to 1e-5."""
    session = onnxruntime.InferenceSession(model.SerializeToString())
    wanted = session.run(None, feed)
    results = list(compiled(model).run(feed).values())
    for result, reference in zip(results, wanted, strict=True):
        if isinstance(reference, list):
            for ours, theirs in zip(result, reference, strict=True):
                assert ours.keys() == theirs.keys()
                assert list(ours.values()) == pytest.approx(list(theirs.values()), rel=1e-5)
        elif np.asarray(reference).dtype == object:
            assert result.tolist() == np.asarray(reference).tolist()
        else:
            np.testing.assert_allclose(result, np.asarray(reference), rtol=1e-5)


def _ml_model(
    nodes: list[onnx.NodeProto], outputs: list[onnx.ValueInfoProto], *inputs: onnx.ValueInfoProto
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "ml", list(inputs), outputs)
    domains = [helper.make_opsetid("ai.onnx.ml", 3), helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=domains, ir_version=8)


def test_a_classifier_with_names_and_a_map() -> None:
    names = ["cat", "dog", "emu"]
    rng = np.random.default_rng(0)
    classify = helper.make_node(
        "LinearClassifier", ["x"], ["label", "scores"], domain="ai.onnx.ml",
        coefficients=rng.standard_normal(12).tolist(), intercepts=[0.1, 0.2, 0.3],
        classlabels_strings=names, post_transform="SOFTMAX",
    )  # fmt: skip
    zipped = helper.make_node(
        "ZipMap", ["scores"], ["maps"], domain="ai.onnx.ml", classlabels_strings=names
    )
    value = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    maps = helper.make_sequence_type_proto(helper.make_map_type_proto(TensorProto.STRING, value))
    model = _ml_model(
        [classify, zipped],
        [
            helper.make_tensor_value_info("label", TensorProto.STRING, ["N"]),
            helper.make_value_info("maps", maps),
        ],
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4]),
    )
    assert [part.on_host for part in partition(model)] == [False, True]
    assert str(compiled(model).outputs[1]) == "maps: seq(map(string, float32[]))"
    _run_both(model, {"x": rng.standard_normal((6, 4)).astype(np.float32)})


@pytest.mark.parametrize(
    ("value", "kind"), [(np.array([["b", "q"]], object), "INT64"), (np.array([2, 7]), "STRING")]
)
def test_category_mapper(value: np.ndarray, kind: str) -> None:
    node = helper.make_node(
        "CategoryMapper", ["x"], ["y"], domain="ai.onnx.ml",
        cats_int64s=[1, 2], cats_strings=["a", "b"], default_string="none", default_int64=9,
    )  # fmt: skip
    source = TensorProto.STRING if kind == "INT64" else TensorProto.INT64
    model = _ml_model(
        [node],
        [helper.make_tensor_value_info("y", getattr(TensorProto, kind), None)],
        helper.make_tensor_value_info("x", source, list(value.shape)),
    )
    _run_both(model, {"x": value})


@pytest.mark.parametrize("attributes", [{}, {"map_form": "SPARSE", "max_map": 7}])
@pytest.mark.parametrize("to", ["FLOAT", "INT64", "STRING"])
def test_cast_map(attributes: dict[str, object], to: str) -> None:
    node = helper.make_node(
        "CastMap", ["x"], ["y"], domain="ai.onnx.ml", cast_to=f"TO_{to}", **attributes
    )
    value = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    source = helper.make_value_info("x", helper.make_map_type_proto(TensorProto.INT64, value))
    target = helper.make_tensor_value_info("y", getattr(TensorProto, to), None)
    result = compiled(_ml_model([node], [target], source)).run({"x": {5: 3.0, 2: 1.0}})["y"]
    row = [0.0, 0, 1, 0, 0, 3, 0] if attributes else [1.0, 3]
    texts = ["", "", "1.0", "", "", "3.0", ""] if attributes else ["1.0", "3.0"]
    assert result.tolist() == [texts if to == "STRING" else row]


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from stepwell.tools.stepwell import main

    path = tmp_path / "words.onnx"
    onnx.save(parser.parse_model(WORDS), path)
    table = tmp_path / "table.npy"
    np.save(table, np.zeros((3, 4), np.float32))
    arguments = ["--input", 'text=["A", "the", "Well"]', "--input", f"table=@{table}"]
    assert main(["run", str(path), *arguments, "--json"]) == 0
    found = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert found["kept"]["shape"] == [2]
    assert found["total"]["max"] == 8
    results = tmp_path / "results.npz"
    assert main(["run", str(path), *arguments, "--output", f"@{results}"]) == 0
    assert np.load(results)["kept"].tolist() == ["a", "well"]
    capsys.readouterr()
    assert main(["run", str(path), "--random-inputs", "0"]) != 0
    assert "no random values" in capsys.readouterr().err
