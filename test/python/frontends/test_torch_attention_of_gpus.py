"""The forms that PyTorch gives attention on GPUs, as they are broken down: against its own
attention and gradients. Sums of a few products: within 1e-5."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from stepwell.frontends.torch.decompositions.registry import MENDS  # noqa: E402

aten = torch.ops.aten
FORMS = ("flash", "efficient", "cudnn")


def forward(form: str, tensors, bias, causal: bool, dropout: float = 0.0):
    """What stands for the form; its output and logarithms of sums come first."""
    rule = MENDS[getattr(aten, f"_scaled_dot_product_{form}_attention").default]
    if form == "flash":
        return rule(*tensors, dropout, causal, scale=0.3)
    return rule(*tensors, bias, True, dropout, causal, scale=0.3)


def backward(form: str, grad, tensors, bias, saved, causal: bool, dropout: float = 0.0):
    rule = MENDS[getattr(aten, f"_scaled_dot_product_{form}_attention_backward").default]
    rows, keys = tensors[0].shape[2], tensors[1].shape[2]
    seed = torch.zeros(())
    numbers = None, None, rows, keys
    if form == "flash":
        return rule(grad, *tensors, *saved, *numbers, dropout, causal, seed, seed, scale=0.3)
    if form == "efficient":
        asked = [True, True, True, False]
        return rule(grad, *tensors, bias, *saved, seed, seed, dropout, asked, causal, scale=0.3)[:3]
    return rule(grad, *tensors, *saved, seed, seed, bias, *numbers, dropout, causal, scale=0.3)


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("form", FORMS)
def test_attention(form: str, causal: bool) -> None:
    torch.manual_seed(0)
    shapes = (2, 4, 7, 8), (2, 4, 9, 8), (2, 4, 9, 6)
    tensors = [torch.randn(shape, requires_grad=True) for shape in shapes]
    bias = None if form == "flash" or causal else torch.randn(2, 4, 7, 9)
    want = torch.nn.functional.scaled_dot_product_attention(
        *tensors, attn_mask=bias, is_causal=causal, scale=0.3
    )
    out, sums, *_ = forward(form, tensors, bias, causal)
    torch.testing.assert_close(out, want, rtol=1e-5, atol=1e-5)
    assert sums.shape == {"flash": (2, 4, 7), "efficient": (2, 4, 32), "cudnn": (2, 4, 7, 1)}[form]
    scores = tensors[0] @ tensors[1].transpose(2, 3) * 0.3
    scores = scores if bias is None else scores + bias
    seen = torch.ones(7, 9, dtype=torch.bool).tril() if causal else torch.tensor(True)
    wanted = torch.where(seen, scores, -torch.inf).logsumexp(-1)
    torch.testing.assert_close(sums.flatten(2)[..., :7], wanted, rtol=1e-5, atol=1e-5)
    grad = torch.randn_like(want)
    gradients = torch.autograd.grad(want, tensors, grad)
    with torch.no_grad():
        found = backward(form, grad, tensors, bias, (out, sums), causal)
    for got, expected in zip(found, gradients, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_dropout_is_left_to_pytorch(form: str) -> None:
    tensors = [torch.randn(1, 2, 3, 4)] * 3
    assert forward(form, tensors, None, False, dropout=0.5) is NotImplemented
