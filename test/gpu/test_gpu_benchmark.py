"""Both sides of `make bench-gpu`, with the emulator as the GPU: what they write, not the times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from emulator import Emulator
from models import compile_for_gpu, load_on_emulator

from benchmarks.gpu import build, cases, measure, torch_models
from benchmarks.gpu.cases import CASES, Case
from stepwell.options import CompileOptions

SMALL = (
    Case("gemm", "f16", (48, 40, 32)),
    Case("attention", "bf16", (1, 2, 20, 16)),
    Case("softmax", "f32", (3, 100)),
    Case("layer-norm", "f16", (5, 64)),
    Case("bert", "f32", (1,)),
)


def test_names_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert cases.chosen("resnet50-8,gemm-512x") == [
        case for case in CASES if case.name.startswith(("gemm-512x", "resnet50-8"))
    ]


def test_build_and_measure(
    emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile_for_emulator(
        source: object, path: Path, *, target: str, options: CompileOptions
    ) -> None:
        compiled = compile_for_gpu(source, target, precision=options.precision)
        load_on_emulator(compiled, emulator).save(path)

    monkeypatch.setattr(build, "compile_to_artifact", compile_for_emulator)
    monkeypatch.setattr(cases, "CASES", SMALL)
    monkeypatch.setattr(cases, "BERT_LENGTH", 16)
    tiny = {"bert": lambda: torch_models.Bert(layers=1, width=32, heads=2)}
    monkeypatch.setattr(torch_models, "MODULES", tiny)
    folder, out = tmp_path / "built", tmp_path / "results.json"
    for command, arguments in (
        (build.main, [str(folder)]),
        (measure.main, [str(folder), "--seconds", "0.01", "--out", str(out)]),
    ):
        done = CliRunner().invoke(command, arguments, catch_exceptions=False)
        assert done.exit_code == 0
    results = json.loads(out.read_text())
    assert (results["gpu"], results["torch"]) == ("emulated GPU", None)
    assert [row["name"] for row in results["cases"]] == [case.name for case in SMALL]
    for row in results["cases"]:
        assert "error" not in row
        assert row["contenders"]["stepwell"]["median"] > 0
