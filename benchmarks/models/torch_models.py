"""Architectures as torch modules with seeded random weights."""

# pyright: reportMissingImports=false
from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.models.catalog import SEED


@dataclass(frozen=True)
class TorchModel:
    """A module in evaluation mode, its inputs, and their names."""

    module: nn.Module
    inputs: tuple[Tensor, ...]
    names: tuple[str, ...]


def build(name: str) -> TorchModel:
    """The model `name`; the same weights and inputs at each call."""
    torch.manual_seed(SEED)
    if name.startswith("resnet50_b"):
        model = _resnet50(batch=int(name.removeprefix("resnet50_b")))
    elif name.startswith("gpt2_"):
        model = _gpt2(past=128 if name == "gpt2_decode_p128" else 0)
    else:
        model = _BUILDERS[name]()
    model.module.eval().requires_grad_(False)
    return model


class Field(nn.Module):
    """A transformers model reduced to one tensor of its output."""

    def __init__(self, model: nn.Module, field: str) -> None:
        super().__init__()
        self.model = model
        self.field = field

    def forward(self, *inputs: Tensor) -> Tensor:
        return getattr(self.model(*inputs), self.field)


class UNet(nn.Module):
    """The encoder-decoder of https://arxiv.org/abs/1505.04597 with batch normalization."""

    def __init__(self, width: int = 32, depth: int = 4) -> None:
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        self.down = nn.ModuleList(
            _double_convolution(before, after)
            for before, after in zip([3, *widths[:-2]], widths[:-1], strict=True)
        )
        self.bottom = _double_convolution(widths[-2], widths[-1])
        self.widen = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in widths[-2::-1])
        self.up = nn.ModuleList(_double_convolution(2 * w, w) for w in widths[-2::-1])
        self.head = nn.Conv2d(width, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = functional.max_pool2d(x, 2)
        x = self.bottom(x)
        for widen, block in zip(self.widen, self.up, strict=True):
            x = block(torch.cat([skips.pop(), widen(x)], dim=1))
        return self.head(x)


def _double_convolution(before: int, after: int) -> nn.Module:
    layers: list[nn.Module] = []
    for channels in (before, after):
        layers.append(nn.Conv2d(channels, after, 3, padding=1, bias=False))
        layers += [nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers)


class DecoderBlock(nn.Module):
    """One GPT-2 block: attention over past and present keys, then a perceptron."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, past: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor]:
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (t.view(shape).transpose(1, 2) for t in self.qkv(self.norm_1(x)).chunk(3, -1))
        if past:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=not past)
        x = x + self.projection(mixed.transpose(1, 2).reshape(batch, length, width))
        hidden = functional.gelu(self.up(self.norm_2(x)), approximate="tanh")
        return x + self.down(hidden), k, v


class Gpt2(nn.Module):
    """GPT-2 (small) that returns the last position's logits and all keys and values."""

    def __init__(
        self, layers: int = 12, width: int = 768, heads: int = 12, vocabulary: int = 50257
    ) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(1024, width)
        self.blocks = nn.ModuleList(DecoderBlock(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor, positions: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        x = self.tokens(ids) + self.positions(positions)
        present: list[Tensor] = []
        for index, block in enumerate(self.blocks):
            x, k, v = block(x, past[2 * index : 2 * index + 2])
            present += [k, v]
        return (self.head(self.norm(x[:, -1])), *present)


class Recurrent(nn.Module):
    """Two layers of LSTM and a linear one, over time."""

    def __init__(self, width: int = 256, hidden: int = 512, classes: int = 1000) -> None:
        super().__init__()
        self.cells = nn.LSTM(width, hidden, num_layers=2)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cells(x)[0])


def _resnet50(batch: int) -> TorchModel:
    import transformers

    config = transformers.ResNetConfig()
    config.num_labels = 1000
    module = Field(transformers.ResNetForImageClassification(config), "logits")
    return _image_model(module, (batch, 3, 224, 224), calibration_batch=8)


def _mobilenetv2() -> TorchModel:
    import transformers

    config = transformers.MobileNetV2Config()
    config.num_labels = 1000
    module = Field(transformers.MobileNetV2ForImageClassification(config), "logits")
    return _image_model(module, (1, 3, 224, 224), calibration_batch=8)


def _unet() -> TorchModel:
    return _image_model(UNet(), (1, 3, 256, 256), calibration_batch=2)


def _image_model(module: nn.Module, shape: tuple[int, ...], calibration_batch: int) -> TorchModel:
    """The module with batch statistics of one random batch, so that activations keep a normal
    range through random layers."""
    for child in module.modules():
        if isinstance(child, nn.BatchNorm2d):
            child.momentum = None
    module.train()
    with torch.no_grad():
        module(torch.randn(calibration_batch, *shape[1:]))
    return TorchModel(module, (torch.randn(shape),), ("x",))


def _bert(width: int = 768, layers: int = 12) -> TorchModel:
    import transformers

    config = transformers.BertConfig(
        hidden_size=width, num_hidden_layers=layers, intermediate_size=4 * width
    )
    module = Field(transformers.BertModel(config), "last_hidden_state")
    mask = torch.ones(1, 128, dtype=torch.int64)
    mask[:, 112:] = 0
    return TorchModel(module, (torch.randint(0, 30000, (1, 128)), mask), ("ids", "mask"))


def _gpt2(past: int) -> TorchModel:
    """A prompt of 128 tokens, or (with `past`) one token after that many cached ones."""
    module = Gpt2()
    length = 1 if past else 128
    cache = [torch.randn(1, 12, past, 64) for _ in range(24 if past else 0)]
    names = [f"past_{kind}{layer}" for layer in range(12) for kind in "kv"]
    ids = torch.randint(0, 32000, (1, length))
    positions = torch.arange(past, past + length)
    return TorchModel(module, (ids, positions, *cache), ("ids", "positions", *names[: len(cache)]))


_BUILDERS = {
    "mobilenetv2_b1": _mobilenetv2,
    "unet_256_b1": _unet,
    "bert_base_s128": _bert,
    "minilm6_s128": lambda: _bert(width=384, layers=6),
    "lstm2_t64": lambda: TorchModel(Recurrent(), (torch.randn(64, 1, 256),), ("x",)),
}
