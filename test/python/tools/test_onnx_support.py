"""docs/onnx-support.md says what the registry holds."""

from __future__ import annotations

from pathlib import Path

from stepwell.tools import onnx_support

PAGE = Path(__file__).parents[3] / "docs" / "onnx-support.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == onnx_support.page(), (
        "run: python -m stepwell.tools.onnx_support > docs/onnx-support.md"
    )


def test_what_the_page_says() -> None:
    lines = onnx_support.page().splitlines()
    assert any(line.startswith("| MatMul |") for line in lines)
    assert any(line.startswith("| TreeEnsemble | 5 |") for line in lines)
    assert any(line.startswith("On the host:") and "StringConcat" in line for line in lines)
    assert not any(line.startswith("Not supported:") for line in lines)
