"""`stepwell bench` of an artifact for GPUs, on the emulator: what it prints, not how fast it is."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import pytest
from click.testing import CliRunner
from emulator import Emulator
from models import Compiled, compile_for_gpu, load_on_emulator
from test_models import exported, normal

from stepwell.inspection.gpu_roofline import peak_flops
from stepwell.runtime.cuda import Device
from stepwell.tools.commands.bench import bench


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    arrays = normal(64, 48), normal(48, 32)
    return compile_for_gpu(exported(lambda x, w: jax.nn.softmax(x @ w), *arrays))


def run(compiled: Compiled, emulator: Emulator, path: Path, *options: str) -> str:
    load_on_emulator(compiled, emulator).save(path)
    arguments = [str(path), "--per-kernel", "--seconds", "0.01", *options]
    result = CliRunner().invoke(bench, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_json(compiled: Compiled, emulator: Emulator, tmp_path: Path) -> None:
    data = json.loads(run(compiled, emulator, tmp_path / "model.stepwell", "--json"))
    assert (data["gpu"], data["target"]) == ("emulated GPU", "cuda:sm_90a")
    assert [c["name"] for c in data["contenders"]] == ["stepwell", "stepwell, on the GPU"]
    # Four multiprocessors at 1 GHz, of 1024 products of tf32, three for one of f32.
    assert data["peak"]["gflops"] == pytest.approx(8192 / 3)
    names = {kernel["name"] for kernel in data["kernels"]}
    assert names == {kernel.name for kernel in compiled.artifact.manifest.kernels}
    assert all(k["seconds"] > 0 and 0 < k["share_of_peak"] for k in data["kernels"])


def test_table(compiled: Compiled, emulator: Emulator, tmp_path: Path) -> None:
    text = run(compiled, emulator, tmp_path / "model.stepwell")
    assert "emulated GPU, ms a call" in text
    assert "2731 GFLOP/s on emulated GPU" in text


@pytest.mark.parametrize(
    ("capability", "ptx", "tflops"),
    [
        ((8, 0), "fma.rn.f32", 19.5),
        ((8, 0), "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 312),
        ((8, 0), "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", 156),
        ((8, 0), "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", 624),
        ((9, 0), "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16", 989),
    ],
)
def test_peaks(capability: tuple[int, int], ptx: str, tflops: float) -> None:
    """Of the A100 and the H100 SXM, in TFLOP/s: data sheets round to three digits."""
    sizes = {(8, 0): (108, 1.41e9), (9, 0): (132, 1.83e9)}
    device = Device("", capability, (13, 0), *sizes[capability])
    assert peak_flops(device, ptx) / 1e12 == pytest.approx(tflops, rel=0.005)
    split = tflops / 3 if "tf32" in ptx else tflops
    assert peak_flops(device, ptx, splits_f32=True) / 1e12 == pytest.approx(split, rel=0.005)
