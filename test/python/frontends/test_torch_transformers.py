"""Small models of `transformers` with random weights, compiled, against PyTorch within 1e-4."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from torch_comparison import compare  # noqa: E402

import stepwell  # noqa: E402
from stepwell.frontends.torch import backend  # noqa: E402

_IDS = {"input_ids": torch.arange(20).reshape(2, 10), "attention_mask": torch.ones(2, 10).long()}
_IDS["attention_mask"][1, 7:] = 0
_SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}


def _bert(kind):
    config = transformers.BertConfig(**_SMALL, vocab_size=100, attn_implementation=kind)
    return transformers.BertModel(config), _IDS


def _gpt2(kind, layers=2):
    config = transformers.GPT2Config(
        n_embd=32,
        n_layer=layers,
        n_head=4,
        vocab_size=100,
        n_positions=64,
        attn_implementation=kind,
    )
    return transformers.GPT2LMHeadModel(config), {**_IDS, "use_cache": False}


def _llama(kind, layers=2):
    sizes = _SMALL | {"num_hidden_layers": layers}
    config = transformers.LlamaConfig(
        **sizes, num_key_value_heads=2, vocab_size=100, attn_implementation=kind
    )
    return transformers.LlamaForCausalLM(config), _IDS  # returns its key-value cache, too


def _mixtral(kind):
    config = transformers.MixtralConfig(
        **_SMALL, num_key_value_heads=2, vocab_size=100, num_local_experts=4
    )
    config._experts_implementation = kind
    return transformers.MixtralForCausalLM(config), {**_IDS, "use_cache": False}


def _vit(kind):
    config = transformers.ViTConfig(**_SMALL, image_size=32, patch_size=8, attn_implementation=kind)
    return transformers.ViTModel(config), {"pixel_values": torch.randn(1, 3, 32, 32)}


def _whisper(kind):
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = transformers.WhisperConfig(
        d_model=32,
        encoder_layers=2,
        encoder_attention_heads=4,
        encoder_ffn_dim=64,
        num_mel_bins=8,
        max_source_positions=20,
        attn_implementation=kind,
    )
    return WhisperEncoder(config), {"input_features": torch.randn(1, 8, 40)}


def _resnet(kind):
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic"
    )
    return transformers.ResNetModel(config), {"pixel_values": torch.randn(1, 3, 32, 32)}


@pytest.mark.parametrize("kind", ["eager", "sdpa"])
@pytest.mark.parametrize("model", [_bert, _gpt2, _llama, _vit, _whisper])
def test_transformer(model, kind):
    torch.manual_seed(0)
    module, inputs = model(kind)
    compare(module, **inputs)


@pytest.mark.parametrize(
    ("model", "masked", "layers"),
    [(_gpt2, False, 1), (_llama, True, 2)],
    ids=["gpt2-not masked", "llama-masked"],
)
def test_decoder_of_any_size(model, masked, layers):
    """One program for any batch and length; without a mask, positions are added up. It is exported
    at a dozen sizes, which takes a second a layer."""
    torch.manual_seed(0)
    module, example = model("sdpa", layers)
    module.eval()
    names = ["input_ids", "attention_mask"][: 1 + masked]
    inputs = {name: example[name] for name in names}
    auto = torch.export.Dim.AUTO
    sizes = {name: {0: auto, 1: auto} for name in names}
    program = torch.export.export(
        module,
        (),
        inputs | {"use_cache": False},
        dynamic_shapes={**sizes, "use_cache": None},
        strict=False,
    )
    executable = stepwell.compile(
        program,
        threads=1,
        shapes=dict.fromkeys(names, ("batch", "n")),
        max_sizes={"batch": 16, "n": 24},
    )
    for shape in ((2, 10), (1, 24), (3, 1), (16, 5)):
        inputs = {"input_ids": torch.randint(100, shape)}
        if masked:
            inputs["attention_mask"] = torch.ones(shape).long()
            inputs["attention_mask"][0, 1 + shape[1] // 2 :] = 0
        with torch.no_grad():
            expected = module(**inputs, use_cache=False).logits.numpy()
        (logits,) = executable.run({name: t.numpy() for name, t in inputs.items()}).values()
        np.testing.assert_allclose(logits, expected, 1e-4, 1e-4)


def test_resnet():
    torch.manual_seed(0)
    module, inputs = _resnet("")
    compare(module, **inputs)


@pytest.mark.parametrize("kind", ["batched_mm", "grouped_mm"])
def test_experts(kind):
    torch.manual_seed(0)
    module, inputs = _mixtral(kind)
    assert module.config._experts_implementation == kind
    compare(module, **inputs)


def test_gradients_of_experts():
    """Rows behind the last group have none, and no expert either."""
    pytest.importorskip("transformers.integrations.moe")  # enters the operator
    torch.manual_seed(0)
    x, matrices = torch.randn(40, 8), torch.randn(3, 8, 5)
    ends = torch.tensor([9, 9, 31])

    def function(x, matrices):
        return torch.ops.transformers.grouped_mm_fallback(x, matrices, ends)

    results = []
    for call in (function, torch.compile(function, backend="stepwell")):
        leaves = [tensor.clone().requires_grad_() for tensor in (x, matrices)]
        result = call(*leaves)
        result.square().sum().backward()
        results.append([result, *(leaf.grad for leaf in leaves)])
    for expected, got in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


def _speech():
    config = transformers.WhisperConfig(
        vocab_size=30,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        num_mel_bins=8,
        max_source_positions=10,
        max_target_positions=12,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        dropout=0.0,
    )
    labels = torch.randint(3, 30, (2, 6))
    inputs = {"input_features": torch.randn(2, 8, 20), "labels": labels, "use_cache": False}
    return transformers.WhisperForConditionalGeneration(config), inputs


def test_gradients_of_encoder_and_decoder():
    """Forward and backward under torch.compile, wholly in compiled code."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    backend.reports.clear()
    module, inputs = _speech()
    results = []
    for run in (torch.compile(module, backend=backend.stepwell), module):
        module.zero_grad()
        loss = run(**inputs).loss
        loss.backward()
        gradients = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
        results.append((loss.detach(), gradients))
    torch.testing.assert_close(*results, atol=1e-4, rtol=1e-3)
    assert [report.compiled for report in backend.reports] == [True, True]
