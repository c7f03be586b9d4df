"""`flex_attention` against PyTorch itself: functions of scores, masks, shared keys."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn.attention.flex_attention import (  # noqa: E402
    AuxRequest,
    create_block_mask,
    flex_attention,
)

import stepwell  # noqa: E402
from stepwell.frontends.torch import backend  # noqa: E402

TOLERANCE = 1e-5
"""Sums of 48 terms near 1, in another order."""
ROWS = 48


@pytest.fixture(autouse=True)
def _fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()
    backend.reports.clear()


class _Attention(torch.nn.Module):
    """With a slope for each head, documents that do not see each other, and what `kind` asks."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.register_buffer("slopes", torch.randn(8))
        documents = torch.arange(ROWS) // 20
        self.mask = None
        sees = {
            "documents": lambda b, h, q, k: (documents[q] == documents[k]) & (q >= k),
            "unseen": lambda b, h, q, k: q < k,
        }
        if kind in sees:
            self.mask = create_block_mask(sees[kind], 2, 8, ROWS, ROWS, "cpu", BLOCK_SIZE=16)

    def _score(self, score, b, h, q, k):
        if self.kind == "slopes":
            return score + self.slopes[h] * (k - q)
        return 2 * torch.tanh(score / 2)

    def forward(self, query, key, value):
        score = self._score if self.kind in ("slopes", "capped") else None
        return flex_attention(query, key, value, score, self.mask, enable_gqa=True)


def _inputs(dtype=torch.float32):
    """Eight heads share two of keys and values; the heads of queries lie apart in memory."""
    query = torch.randn(2, ROWS, 8, 16).transpose(1, 2)
    return [x.to(dtype) for x in (query, torch.randn(2, 2, ROWS, 16), torch.randn(2, 2, ROWS, 24))]


def _expected(module, inputs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is not compiled
        return module(*inputs)


@pytest.mark.parametrize("kind", ["plain", "slopes", "capped", "documents", "unseen"])
def test_torch_compile(kind):
    module, inputs = _Attention(kind).eval(), _inputs()
    result, expected = torch.compile(module, backend="stepwell")(*inputs), _expected(module, inputs)
    torch.testing.assert_close(result, expected, atol=TOLERANCE, rtol=TOLERANCE)
    assert result.stride() == expected.stride()
    assert [report.compiled for report in backend.reports] == [True]


def test_sums_of_weights_and_keys_for_all_batches():
    mask = create_block_mask(lambda b, h, q, k: q < k, 2, None, ROWS, ROWS, "cpu", BLOCK_SIZE=16)

    def attention(*inputs):
        out, found = flex_attention(
            *inputs, block_mask=mask, enable_gqa=True, return_aux=AuxRequest(lse=True)
        )
        return out, found.lse

    query, key, value = _inputs()
    inputs = (query, key[:1], value[:1])
    result = torch.compile(attention, backend="stepwell")(*inputs)
    torch.testing.assert_close(result, _expected(attention, inputs), atol=TOLERANCE, rtol=TOLERANCE)
    assert [report.compiled for report in backend.reports] == [True]


def test_export_is_one_attention_kernel():
    module, inputs = _Attention("documents").eval(), _inputs()
    executable = stepwell.compile(module, tuple(inputs))
    expected = _expected(module, inputs).numpy()
    np.testing.assert_allclose(executable(*inputs)[0], expected, atol=TOLERANCE)
    strategies = [kernel.strategy for kernel in executable.kernels]
    assert strategies.count("attention") == 1
    assert "contraction" not in strategies


def test_half_precision():
    module, inputs = _Attention("slopes").eval(), _inputs(torch.bfloat16)
    result = torch.compile(module, backend="stepwell")(*inputs)
    # Eight bits of the fraction, rounded at the weights and at the result, of values within 4.
    torch.testing.assert_close(result, _expected(module, inputs), atol=4 / 256, rtol=0)
    assert [report.compiled for report in backend.reports] == [True]
