"""Recurrent networks of PyTorch as loops, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import stepwell  # noqa: E402
from stepwell.frontends.torch import backend, exported  # noqa: E402
from stepwell.frontends.torch.decompositions.rules import own_rules  # noqa: E402
from stepwell.frontends.torch.graph import to_array  # noqa: E402
from stepwell.runtime.open_sizes import OpenSizeExecutable  # noqa: E402

nn = torch.nn
TOLERANCE = 1e-5
"""Sums are of other orders; a step keeps what it is given within [-1, 1]."""


def _leaves(value):
    return torch.utils._pytree.tree_leaves(value)


def _check(outputs, expected):
    for output, tensor in zip(outputs, _leaves(expected), strict=True):
        np.testing.assert_allclose(output, tensor.detach().numpy(), atol=TOLERANCE)


R = torch.randn
CASES = {
    "lstm-two-ways": lambda: (nn.LSTM(6, 8, 2, bidirectional=True), R(12, 3, 6)),
    "lstm-projected": lambda: (
        nn.LSTM(6, 8, bidirectional=True, proj_size=4, batch_first=True),
        R(3, 12, 6),
        (R(2, 3, 4), R(2, 3, 8)),
    ),
    "lstm-without-bias": lambda: (nn.LSTM(6, 8, 2, bias=False, dropout=0.5), R(12, 6)),
    "gru": lambda: (nn.GRU(6, 8, 2, bidirectional=True), R(12, 3, 6), R(4, 3, 8)),
    "gru-without-bias": lambda: (nn.GRU(6, 8, bias=False, batch_first=True), R(3, 12, 6)),
    "gru-of-one-step": lambda: (nn.GRU(6, 8), R(1, 3, 6), R(1, 3, 8)),
    "rnn-tanh": lambda: (nn.RNN(6, 8, 2, bidirectional=True), R(12, 3, 6)),
    "rnn-relu": lambda: (nn.RNN(6, 8, nonlinearity="relu"), R(12, 3, 6), R(1, 3, 8)),
}


@pytest.mark.parametrize("name", CASES)
def test_matches_pytorch(name):
    torch.manual_seed(0)
    module, *inputs = CASES[name]()
    module.eval()
    executable = stepwell.compile(module, tuple(inputs))
    _check(executable(*_leaves(inputs)), module(*inputs))


def test_half_precision():
    torch.manual_seed(0)
    module, x = nn.LSTM(6, 8).eval().bfloat16(), R(12, 3, 6).bfloat16()
    output = stepwell.compile(module, x)(to_array(x))[0]
    # Eight bits of the fraction, rounded at each of twelve steps.
    np.testing.assert_allclose(
        output.astype(np.float32), module(x)[0].detach().float().numpy(), atol=0.03
    )


def test_code_does_not_grow_with_the_sequence():
    module = nn.LSTM(6, 8, 2, bidirectional=True).eval()
    programs = [exported.program_of(exported.export(module, R(n, 3, 6))) for n in (12, 300)]
    assert len({program.module.count(" = torch.") for program in programs}) == 1


def test_any_number_of_steps():
    torch.manual_seed(0)
    module = nn.LSTM(6, 8, bidirectional=True, batch_first=True).eval()
    sizes = ({1: torch.export.Dim("time", min=2)},)
    with own_rules():
        program = torch.export.export(module, (R(3, 14, 6),), dynamic_shapes=sizes)
    executable = stepwell.compile(program)
    for steps in (12, 9, 2, 16):
        x = R(3, steps, 6)
        _check(executable(x), module(x))
    assert isinstance(executable.specialized(R(3, 10, 6)), OpenSizeExecutable)


class _Tagger(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.embedding, self.network = nn.Embedding(20, 6), network
        self.head = nn.Linear(network(torch.zeros(1, 1, 6))[0].shape[2], 4)

    def forward(self, ids):
        return self.head(self.network(self.embedding(ids))[0])


def test_torch_compile():
    torch.manual_seed(0)
    module = _Tagger(nn.LSTM(6, 8)).eval()
    fast = torch.compile(module, backend="stepwell")
    backend.reports.clear()
    with torch.no_grad():
        for steps in (12, 20, 30):
            ids = torch.randint(0, 20, (steps, 3))
            torch.testing.assert_close(fast(ids), module(ids), atol=TOLERANCE, rtol=0)
    assert [report.compiled for report in backend.reports] == [True, True]
    assert backend.reports[1].any_size


NETWORKS = {
    "lstm": lambda: nn.LSTM(6, 8, bidirectional=True),
    "lstm-projected": lambda: nn.LSTM(6, 8, proj_size=4),
    "gru": lambda: nn.GRU(6, 8, bidirectional=True, bias=False),
    "gru-bias": lambda: nn.GRU(6, 8),
    "rnn-tanh": lambda: nn.RNN(6, 8),
    "rnn-relu": lambda: nn.RNN(6, 8, nonlinearity="relu"),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients(name):
    torch.manual_seed(0)
    module, ids = _Tagger(NETWORKS[name]()), torch.randint(0, 20, (12, 3))

    def gradients(function):
        module.zero_grad()
        function(ids).square().sum().backward()
        return [parameter.grad for parameter in module.parameters()]

    expected = gradients(module)
    torch._dynamo.reset()
    backend.reports.clear()
    found = gradients(torch.compile(module, backend="stepwell"))
    assert [report.compiled for report in backend.reports] == [True, True]
    # Gradients add up 36 positions.
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_packed_sequences_are_refused():
    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.network = nn.LSTM(6, 8)

        def forward(self, x, lengths):
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
            return self.network(packed)[1][0]

    inputs = (R(12, 3, 6), torch.tensor([12, 9, 4]))
    with pytest.raises(stepwell.ModelError, match="packed sequence"):
        stepwell.compile(Packed().eval(), inputs)


def test_rules_that_overlap_are_restored():
    def rules():
        return dict(torch.ops.aten.lstm.input.py_kernels)

    own, first, second = rules(), own_rules(), own_rules()
    first.__enter__()
    changed = rules()
    second.__enter__()
    first.__exit__(None, None, None)
    assert rules() == changed != own
    second.__exit__(None, None, None)
    assert rules() == own
