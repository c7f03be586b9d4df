"""Branches and loops of PyTorch, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch._higher_order_ops import associative_scan, cond, while_loop  # noqa: E402
from torch._higher_order_ops.map import map as map_over  # noqa: E402
from torch._higher_order_ops.scan import scan  # noqa: E402

import stepwell  # noqa: E402
from stepwell.frontends.torch import backend  # noqa: E402
from stepwell.frontends.torch.graph import to_array  # noqa: E402

TOLERANCE = 1e-5


class _Function(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.w = torch.nn.Parameter(torch.linspace(-0.5, 0.5, 16).view(4, 4))

    def forward(self, *inputs):
        return self.function(self.w, *inputs)


def _branch(w, x):
    return cond(x.sum() > 0, lambda x: (x @ w).relu(), lambda x: x - 1, (x,))


def _branch_by_input(w, x, choice):
    return cond(choice, lambda x: (x.sin(), x + w), lambda x: (x.cos(), x * 2), (x,))


def _branch_in_branch(w, x):
    def inner(x):
        return cond(x[0, 0] > 0, lambda x: x + 1, lambda x: x * 2, (x,))

    return cond(x.sum() > 0, inner, lambda x: x - 1, (x,))


def _counted_loop(w, x):
    start = (torch.zeros((), dtype=torch.int64), x)
    return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, (x @ w).tanh()), start)


def _loop_until(w, x):
    return while_loop(lambda x: x.norm() < 100, lambda x: (x * 1.5,), (x,))


def _scan(w, x):
    return scan(lambda state, row: (state @ w + row, state * row), x[0] * 0, x)


def _scan_backwards(w, x):
    return scan(lambda state, row: (state @ w + row, state * row), x[0] * 0, x, reverse=True)


def _scan_of_tree(w, x):
    def step(state, rows):
        return {"a": state["a"] + rows["k"]}, [state["a"] * 2, rows["j"] + 1]

    return scan(step, {"a": x[:, 0] * 0}, {"k": x, "j": x * 2}, dim=1)


def _associative_scan(w, x):
    def combine(a, b):
        return a[0] * b[0], b[0] * a[1] + b[1]

    return associative_scan(combine, (x, x + 1), 1, reverse=True, combine_mode="generic")


def _map(w, x):
    return map_over(lambda row, w: (row @ w).relu(), x, w)


X = torch.linspace(-1, 2, 16).view(4, 4)
ROWS = torch.linspace(-1, 1, 144).view(12, 3, 4)
CASES = {
    "branch": (_branch, [(X,), (-X,)]),
    "branch-by-input": (_branch_by_input, [(X, torch.tensor(True)), (X, torch.tensor(False))]),
    "branch-in-branch": (_branch_in_branch, [(X,), (X + 2,), (-X,)]),
    "counted-loop": (_counted_loop, [(X,)]),
    "loop-until": (_loop_until, [(X,), (X * 100,)]),
    "scan": (_scan, [(ROWS,)]),
    "scan-backwards": (_scan_backwards, [(ROWS,)]),
    "scan-of-tree": (_scan_of_tree, [(ROWS,)]),
    "associative-scan": (_associative_scan, [(X,)]),
    "map": (_map, [(ROWS,)]),
}


def _leaves(value):
    return torch.utils._pytree.tree_leaves(value)


@pytest.mark.parametrize("name", CASES)
def test_exported(name):
    function, calls = CASES[name]
    module = _Function(function).eval()
    executable = stepwell.compile(module, calls[0])
    for inputs in calls:
        outputs = executable(*map(to_array, inputs))
        for output, expected in zip(outputs, _leaves(module(*inputs)), strict=True):
            np.testing.assert_allclose(output, expected.detach().numpy(), atol=TOLERANCE)


@pytest.mark.parametrize("name", ["branch-in-branch", "counted-loop", "scan-backwards", "map"])
def test_torch_compile(name):
    function, calls = CASES[name]
    module = _Function(function).eval()
    torch._dynamo.reset()
    backend.reports.clear()
    fast = torch.compile(module, backend="stepwell")
    with torch.no_grad():
        for inputs in calls:
            for output, expected in zip(
                _leaves(fast(*inputs)), _leaves(module(*inputs)), strict=True
            ):
                torch.testing.assert_close(output, expected, atol=TOLERANCE, rtol=0)
    assert [report.compiled for report in backend.reports] == [True]


def test_a_loop_that_stays_in_pytorch_is_named():
    def noisy(w, x):
        return while_loop(lambda x: x.norm() < 9, lambda x: (x * 2 + torch.rand_like(x),), (x,))

    module = _Function(noisy).eval()
    with pytest.raises(stepwell.UnsupportedError, match="random numbers are not supported"):
        stepwell.compile(module, (X,))
