"""`torch.compile(backend="stepwell")` for modules on a GPU. On the emulator, whose memory is the
host's, tensors of the CPU stand for those of the GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from emulator import Emulator
from models import ON_GPU, compiling_for

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from stepwell.frontends.torch import placement  # noqa: E402
from stepwell.frontends.torch.backend import reports, stepwell  # noqa: E402

DEVICE = "cuda" if ON_GPU else "cpu"


@pytest.fixture(autouse=True)
def gpu(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    torch.compiler.reset()
    if ON_GPU and not torch.cuda.is_available():
        pytest.skip("PyTorch here is without CUDA")
    if not ON_GPU:
        monkeypatch.setattr(placement, "target_of", lambda _: placement.GPU)
        monkeypatch.setattr(placement, "from_gpu", lambda a: torch.from_numpy(a.numpy()))
    with compiling_for(emulator):
        yield


def compiled(module: nn.Module) -> nn.Module:
    options = {"progress": False, "use_cache": False}
    return torch.compile(module, backend=stepwell, options=options)


def same(got: torch.Tensor, want: torch.Tensor) -> None:
    assert (got.device, got.dtype, got.shape) == (want.device, want.dtype, want.shape)
    torch.testing.assert_close(got, want, rtol=2e-5, atol=2e-5)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.norm = nn.Linear(32, 96), nn.LayerNorm(32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.norm(x + nn.functional.scaled_dot_product_attention(q, k, v))


def layers() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), Attention(), nn.Linear(32, 8)).to(DEVICE)


def test_inference_of_any_size() -> None:
    """Parameters are read where they lie: changes show."""
    module = layers().eval()
    run = compiled(module)
    begin = len(reports)
    with torch.no_grad():
        for length in (7, 9, 12):
            x = torch.randn(2, length, 16, device=DEVICE)
            same(run(x), module(x))
        module[0].weight.data.mul_(0.5)
        same(run(x), module(x))
    assert [report.compiled for report in reports[begin:]] == [True] * (len(reports) - begin)
    assert reports[-1].any_size


def test_training_step() -> None:
    module = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).to(DEVICE)
    run = compiled(module)
    x, y = (torch.randn(6, n, device=DEVICE) for n in (8, 4))
    begin = len(reports)
    gradients = []
    for call in (module, run):
        module.zero_grad()
        loss = nn.functional.mse_loss(call(x), y)
        loss.backward()
        gradients.append([p.grad.clone() for p in module.parameters()])
    for want, got in zip(*gradients, strict=True):
        same(got, want)
    assert {report.graph for report in reports[begin:] if report.compiled} == {
        "forward",
        "backward",
    }


def test_dtypes() -> None:
    def mixed(x, mask, i, b):
        return torch.where(mask, x, 0.0), i * 2 + 1, b + b, mask.logical_not(), i[:0]

    values = (
        torch.randn(5, 3, device=DEVICE),
        torch.tensor([[True, False, True]], device=DEVICE),
        torch.arange(4, device=DEVICE),
        torch.randn(4, device=DEVICE).to(torch.bfloat16 if ON_GPU else torch.float16),
    )
    run = torch.compile(mixed, backend=stepwell, options={"progress": False, "use_cache": False})
    for got, want in zip(run(*values), mixed(*values), strict=True):
        same(got, want)


def test_placement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    meta = torch.zeros(2, device="meta")
    cpu = torch.zeros(2)
    assert placement.target_of([1, cpu]) == placement.CPU
    assert placement.target_of([meta]) is None
    assert placement.target_of([meta, cpu]) is None
    if ON_GPU:
        gpu = torch.zeros(2, device="cuda")
        assert placement.target_of([gpu, torch.tensor(3.0)]) == placement.GPU
        assert placement.target_of([gpu, cpu]) is None


def test_results_that_lie_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph of tensors of the CPU whose results are on another device runs in PyTorch."""
    monkeypatch.undo()
    begin = len(reports)
    run = torch.compile(lambda x: (x + 1).to("meta"), backend=stepwell)
    with pytest.warns(RuntimeWarning, match="its tensors lie on cpu and meta; graphs of the CPU's"):
        assert run(torch.zeros(3)).device.type == "meta"
    assert [report.compiled for report in reports[begin:]] == [False]
