"""Both sides of `make bench-gpu`, with the emulator as the GPU: what they write, not the times."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from emulator import Emulator
from models import compile_for_gpu, load_on_emulator

from benchmarks.gpu import build, cases, measure, torch_models, xla_peer
from benchmarks.gpu.cases import CASES, Case
from stepwell.options import CompileOptions

SMALL = (
    Case("gemm", "f16", (48, 40, 32)),
    Case("gemm", "s8", (24, 40, 32)),
    Case("attention", "bf16", (1, 2, 20, 16)),
    Case("causal", "f16", (1, 2, 20, 16)),
    Case("decode", "f16", (1, 8, 20, 16)),
    Case("softmax", "f32", (3, 100)),
    Case("layer-norm", "f16", (5, 64)),
    Case("bert", "f32", (1,)),
)


def test_names_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert cases.chosen("resnet50-8,gemm-512x") == [
        case for case in CASES if case.name.startswith(("gemm-512x", "resnet50-8"))
    ]


@pytest.mark.parametrize("family", ["bert", "resnet50"])
def test_models_of_xla(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The models in jax give what the modules of torch give."""
    tiny = {
        "bert": lambda: torch_models.Bert(layers=2, width=32, heads=2),
        "resnet50": lambda: torch_models.ResNet(blocks=(1, 2, 1, 1), width=8),
    }
    monkeypatch.setattr(torch_models, "MODULES", tiny)
    monkeypatch.setattr(cases, "BERT_LENGTH", 16)
    case = Case(family, "f32", (2,))
    module = torch_models.seeded(tiny[family](), torch.float32)
    expected = module(*(torch.from_numpy(x) for x in case.inputs())).numpy()
    # Sums in another order, relative to the greatest element.
    distance = measure._distance(np.asarray(xla_peer.call_of(case)()), expected)
    assert distance < 1e-5


@pytest.mark.parametrize("case", SMALL[:-1], ids=lambda case: case.name)
def test_kernels_of_torch(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch is asked for is what jax computes."""
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor: tensor)
    (found,) = (call() for call in measure._torch_calls(case, frozenset(measure.PEERS)).values())
    result = np.asarray(xla_peer.call_of(case)(), np.float32)
    assert measure._distance(result, found.float().numpy()) < 2e-2


@pytest.mark.parametrize("case", SMALL[:-1], ids=lambda case: case.name)
def test_kernels_of_xla(case: Case) -> None:
    result = np.asarray(xla_peer.call_of(case)())
    shape = case.sizes[:2] if case.family == "gemm" else case.inputs()[0].shape
    assert result.shape == shape
    assert np.isfinite(result.astype(np.float32)).all()


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
    assert (results["gpu"], results["torch"], results["jax"]) == ("emulated GPU", None, None)
    assert [row["name"] for row in results["cases"]] == [case.name for case in SMALL]
    for row in results["cases"]:
        assert "error" not in row
        assert row["contenders"]["stepwell"]["median"] > 0
