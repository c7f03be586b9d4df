"""`stepwell check`: all findings at once, with what a person needs to act on them."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
from onnx import TensorProto, helper

import stepwell


def _model(nodes: list[onnx.NodeProto], kind: int = TensorProto.FLOAT) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "checked",
        [helper.make_tensor_value_info("x", kind, ["N", 4])],
        [onnx.ValueInfoProto(name=nodes[-1].output[0])],
    )
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=10)


def _broken() -> onnx.ModelProto:
    """Two nodes that cannot be compiled, the second behind the first."""
    return _model(
        [
            helper.make_node("Relu", ["x"], ["r"]),
            helper.make_node("Softplus", ["r"], ["s"], name="first", domain="com.microsoft"),
            helper.make_node("NoSuchThing", ["s"], ["y"], name="second"),
        ]
    )


def test_all_findings_at_once() -> None:
    report = stepwell.check(_broken())
    assert not report.supported
    first, second = report.findings
    assert (first.node, first.operator, first.domain) == ("first", "Softplus", "com.microsoft")
    assert first.version == 1
    assert first.inputs == ("r: float[N, 4]",)
    assert first.nearest == "Softplus of domain ai.onnx"
    assert (second.node, second.version) == ("second", 17)
    assert "nearest: Softplus of domain ai.onnx" in str(report)


def test_supported_with_open_shapes() -> None:
    report = stepwell.check(_model([helper.make_node("Relu", ["x"], ["y"])]))
    assert report.supported
    assert str(report) == "every operator is supported"


def test_attributes_that_are_refused() -> None:
    node = helper.make_node("FusedMatMul", ["x", "x"], ["y"], domain="com.microsoft", transBatchA=1)
    (finding,) = stepwell.check(_model([node]), shapes={"x": (4, 4)}).findings
    assert "transBatchA" in finding.reason


def test_strings_have_their_reason() -> None:
    model = _model([helper.make_node("Identity", ["x"], ["y"], name="same")], TensorProto.STRING)
    (finding,) = stepwell.check(model).findings
    assert finding.node == "same"
    assert "strings" in finding.reason
    assert finding.inputs == ("x: string[N, 4]",)


def test_command_line(tmp_path: Path, capsys) -> None:
    from stepwell.tools.stepwell import main

    broken, fine = tmp_path / "broken.onnx", tmp_path / "fine.onnx"
    onnx.save(_broken(), broken)
    onnx.save(_model([helper.make_node("Relu", ["x"], ["y"])]), fine)
    assert main(["check", str(fine)]) == 0
    capsys.readouterr()
    assert main(["check", str(broken), "--json"]) == 1
    findings = json.loads(capsys.readouterr().out)
    assert [f["node"] for f in findings] == ["first", "second"]
    assert findings[0]["inputs"] == ["r: float[N, 4]"]
