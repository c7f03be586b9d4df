"""ResNet-50 and BERT in plain torch, with seeded weights: what is compiled, and its peer."""

# pyright: reportMissingImports=false
from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Bottleneck(nn.Module):
    """A block of https://arxiv.org/abs/1512.03385, with the stride in its 3x3 convolution."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        after = 4 * width
        self.reduce = _convolution(before, width, 1)
        self.spatial = _convolution(width, width, 3, stride)
        self.expand = _convolution(width, after, 1)
        changes = stride != 1 or before != after
        self.shortcut = _convolution(before, after, 1, stride) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        inner = functional.relu(self.spatial(functional.relu(self.reduce(x))))
        return functional.relu(self.expand(inner) + self.shortcut(x))


def _convolution(before: int, after: int, size: int, stride: int = 1) -> nn.Module:
    convolution = nn.Conv2d(before, after, size, stride, size // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(after))


class ResNet(nn.Module):
    """ResNet-50 for blocks of (3, 4, 6, 3)."""

    def __init__(self, blocks: tuple[int, ...] = (3, 4, 6, 3), width: int = 64) -> None:
        super().__init__()
        self.stem = _convolution(3, width, 7, 2)
        stages: list[nn.Module] = []
        channels = width
        for stage, count in enumerate(blocks):
            inner = width << stage
            for block in range(count):
                stages.append(Bottleneck(channels, inner, 2 if stage and not block else 1))
                channels = 4 * inner
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(channels, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(functional.relu(self.stem(x)), 3, 2, 1)
        return self.head(self.stages(x).mean((2, 3)))


class EncoderLayer(nn.Module):
    """A layer of https://arxiv.org/abs/1810.04805: attention, then a perceptron, norms behind."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        mixed = functional.scaled_dot_product_attention(q, k, v)
        x = self.norm_1(x + self.mix(mixed.transpose(1, 2).reshape(batch, length, width)))
        return self.norm_2(x + self.down(functional.gelu(self.up(x))))


class Bert(nn.Module):
    """BERT-base without the pooler, for sequences without padding."""

    def __init__(self, layers: int = 12, width: int = 768, heads: int = 12) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(30522, width), nn.Embedding(512, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.Sequential(*(EncoderLayer(width, heads) for _ in range(layers)))

    def forward(self, ids: Tensor) -> Tensor:
        embedded = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        return self.layers(self.norm(embedded))


_PERIOD = 251
"""Weights repeat after so many, which makes artifacts small when they are compressed."""


def _pattern(parameter: Tensor) -> Tensor:
    """Numbers of at most 0.5, of the shape of `parameter`."""
    numbers = torch.arange(parameter.numel()) * 97 % _PERIOD / _PERIOD - 0.5
    return numbers.reshape(parameter.shape)


def seeded(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """The module for inference in `dtype`, its matrices made of a pattern that keeps activations of
    the order of 1, and their biases of a tenth of it; norms stay as they are."""
    for parameter in module.parameters():
        if parameter.dim() > 1:
            scale = (12 / (parameter.numel() / parameter.shape[0])) ** 0.5
            parameter.data = _pattern(parameter) * scale
    for inner in module.modules():
        if isinstance(inner, nn.Linear):
            inner.bias.data = _pattern(inner.bias) * 0.1
    return module.eval().requires_grad_(False).to(dtype)


MODULES = {"resnet50": ResNet, "bert": Bert}
