"""What decompositions make lies where their operands do: graphs of a GPU's tensors have none of the
CPU's. The device "meta", which is everywhere, stands for a GPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from stepwell.frontends.torch.decompositions import decompositions  # noqa: E402
from stepwell.frontends.torch.decompositions.rules import own_rules  # noqa: E402


class Several(nn.Module):
    """Selections, running sums, distances and lookups."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        first = torch.zeros(1, 8, dtype=torch.int64, device=y.device)
        sums = y[:, 1:3].cumsum(1).sum() + nn.functional.avg_pool1d(y, 2)[1].sum()
        return y[0] * 2 + sums + torch.cdist(y, y)[0].sum() + torch.gather(y, 0, first)[0]


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "encoder": (
        lambda: nn.TransformerEncoderLayer(64, 2, 128, dropout=0.0, batch_first=True),
        (4, 33, 64),
    ),
    "several": (Several, (4, 8)),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.GELU(), nn.AdaptiveAvgPool2d(3)
        ),
        (2, 3, 11, 13),
    ),
    "pools": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3),
            nn.MaxPool2d(2),
            nn.Upsample(scale_factor=2, mode="bilinear"),
            nn.AvgPool2d(2),
            nn.AdaptiveMaxPool2d(2),
        ),
        (2, 3, 11, 13),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_graphs_lie_on_one_device(name: str) -> None:
    make, shape = MODELS[name]
    module = make().to("meta")
    parameters = list(module.parameters())

    def gradients(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(module(x).square().mean(), parameters)

    with own_rules():
        graph = make_fx(gradients, decomposition_table=decompositions())(
            torch.randn(shape, device="meta")
        )
    values = [node.meta.get("val") for node in graph.graph.nodes]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    assert len(tensors) > 20
    assert {tensor.device.type for tensor in tensors} == {"meta"}
