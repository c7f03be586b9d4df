"""`torch.compile(module, backend="stepwell")` against PyTorch itself."""

from __future__ import annotations

import copy
import warnings

import pytest

torch = pytest.importorskip("torch")

from stepwell.frontends.torch import backend  # noqa: E402

nn = torch.nn


@pytest.fixture(autouse=True)
def _fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()
    backend.reports.clear()


def _network():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 8 * 8, 64),
        nn.ReLU(),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def _compiled(module, **options):
    return torch.compile(module, backend=backend.stepwell, options=options or None)


def test_is_registered():
    assert "stepwell" in torch._dynamo.list_backends()
    function = torch.compile(lambda x: x.sin() + 1, backend="stepwell")
    x = torch.randn(5)
    torch.testing.assert_close(function(x), x.sin() + 1)


def test_inference_follows_shapes_and_weights():
    module = _network().eval()
    compiled = _compiled(module)
    with torch.no_grad():
        for batch in (2, 4, 5):
            x = torch.randn(batch, 3, 8, 8)
            torch.testing.assert_close(compiled(x), module(x), atol=1e-5, rtol=1e-5)
        module[4].weight.mul_(2)
        torch.testing.assert_close(compiled(x), module(x), atol=1e-5, rtol=1e-5)
        module[4].weight.data.mul_(2)
        torch.testing.assert_close(compiled(x), module(x), atol=1e-5, rtol=1e-5)
    assert all(report.compiled for report in backend.reports)


def test_changes_behind_the_version_counter_are_seen():
    module, x = nn.Linear(8, 8), torch.randn(2, 8)
    compiled = _compiled(module)
    with torch.no_grad():
        compiled(x)
        module.weight.data.mul_(2)
        torch.testing.assert_close(compiled(x), module(x))


def test_training():
    module = _network()
    reference = copy.deepcopy(module)
    compiled = _compiled(module)
    optimizers = [torch.optim.SGD(m.parameters(), 0.1) for m in (module, reference)]
    for _ in range(3):
        x, target = torch.randn(4, 3, 8, 8), torch.randint(0, 10, (4,))
        for run, optimizer in zip((compiled, reference), optimizers, strict=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(run(x), target).backward()
            optimizer.step()
    for own, other in zip(
        module.state_dict().values(), reference.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(own, other, atol=1e-5, rtol=1e-4)
    assert [report.graph for report in backend.reports] == ["forward", "backward"]
    assert all(report.compiled for report in backend.reports)


def test_unsupported_operators_run_in_pytorch_and_are_reported():
    x = torch.eye(3)
    function = _compiled(lambda x: torch.linalg.eigvalsh(x @ x.mT) + 1)
    with pytest.warns(RuntimeWarning, match="linalg_eigh"):
        result = function(x)
    torch.testing.assert_close(result, torch.full((3,), 2.0))
    (report,) = backend.reports
    assert not report.compiled
    assert report.operators == ("aten._linalg_eigh",)


def test_structures_mutation_and_types():
    def function(x, flags):
        x.add_(1)
        return {"y": x[:, 1:].bfloat16(), "n": flags.sum(), "same": x, "k": 3}

    compiled = _compiled(function)
    flags = torch.tensor([True, False, True])
    ours, theirs = torch.zeros(2, 3), torch.zeros(2, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        found = compiled(ours, flags)
    expected = function(theirs, flags)
    torch.testing.assert_close(ours, theirs)
    assert found["same"] is ours
    torch.testing.assert_close(found, expected)
