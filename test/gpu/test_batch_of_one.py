"""Transformers at batch 1: every kernel has an emitter, none is left to one block's threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers

import stepwell

IDS = torch.zeros((1, 512), dtype=torch.int64)
WIDTHS = {"hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 1}


def bert() -> tuple[torch.nn.Module, dict[str, Any]]:
    config = transformers.BertConfig(**WIDTHS, vocab_size=128)
    return transformers.BertModel(config), {"input_ids": IDS}


def llama() -> tuple[torch.nn.Module, dict[str, Any]]:
    config = transformers.LlamaConfig(
        **WIDTHS, num_key_value_heads=4, intermediate_size=2048, vocab_size=128
    )
    return transformers.LlamaForCausalLM(config), {"input_ids": IDS, "use_cache": False}


def vit() -> tuple[torch.nn.Module, dict[str, Any]]:
    image = torch.zeros((1, 3, 224, 224), dtype=torch.float16)
    return transformers.ViTModel(transformers.ViTConfig(**WIDTHS)), {"pixel_values": image}


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a"])
@pytest.mark.parametrize("model", [bert, llama, vit])
def test_no_fallback(
    model: Callable[[], tuple[torch.nn.Module, dict[str, Any]]], target: str
) -> None:
    module, inputs = model()
    exported = torch.export.export(module.half().eval(), (), inputs, strict=False)
    lowered = stepwell.lower(exported, target=target)
    lowered.step("affine")
    assert not lowered.remarks
