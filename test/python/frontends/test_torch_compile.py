"""`torch.compile(module, backend="stepwell")` against PyTorch itself."""

from __future__ import annotations

import copy
import warnings

import pytest

torch = pytest.importorskip("torch")

from stepwell.frontends.torch import backend, decompositions  # noqa: E402
from stepwell.frontends.torch.decompositions.registry import MENDS  # noqa: E402

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


@pytest.mark.parametrize("norm_first", [False, True])
def test_layers_that_torch_runs_as_one_operator(norm_first):
    layer = nn.TransformerEncoderLayer(
        16, 2, 32, batch_first=True, norm_first=norm_first, activation="gelu"
    )
    module = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    attention = nn.MultiheadAttention(16, 2, batch_first=True).eval()

    def function(x, padding):
        weighed = attention(x, x, x, need_weights=False)[0]
        return module(x, src_key_padding_mask=padding), module(weighed)

    x, padding = torch.randn(2, 6, 16), torch.zeros(2, 6, dtype=torch.bool)
    padding[1, 4:] = True
    with torch.no_grad():
        found = _compiled(function)(x, padding)
        torch.testing.assert_close(found, function(x, padding), atol=1e-5, rtol=1e-5)
    assert all(report.compiled for report in backend.reports)


@pytest.mark.parametrize("kind", ["plain", "causal", "mask", "bias", "groups"])
def test_gradients_of_attention(kind):
    masks = {"mask": torch.rand(6, 6) > 0.3, "bias": torch.randn(2, 1, 6, 6)}
    if kind == "mask":
        masks["mask"][:, 0] = True

    def function(q, k, v):
        return nn.functional.scaled_dot_product_attention(
            q, k, v, masks.get(kind), is_causal=kind == "causal", enable_gqa=kind == "groups"
        )

    heads = 2 if kind == "groups" else 4
    inputs = [torch.randn(2, n, 6, 8) for n in (4, heads, heads)]
    results = []
    for run in (_compiled(function), function):
        leaves = [x.clone().requires_grad_() for x in inputs]
        out = run(*leaves)
        out.square().sum().backward()
        results.append([out, *(leaf.grad for leaf in leaves)])
    torch.testing.assert_close(*results, atol=1e-4, rtol=1e-4)
    assert [report.compiled for report in backend.reports] == [True, True]


_NETWORKS = ["convolutions", "padding by name", "other rows than columns", "pools"]


def _networks():
    return {
        "convolutions": (
            nn.Sequential(
                nn.Conv1d(4, 6, 3, 2, 1),
                nn.Conv1d(6, 6, 3, 1, 2, dilation=2, groups=3),
                nn.ConvTranspose1d(6, 4, 4, 2, 1, groups=2),
                nn.Unflatten(2, (4, 3)),
                nn.Conv2d(4, 4, 3, 1, 1, groups=4),
                nn.ConvTranspose2d(4, 6, 3, 2, 1, 1),
                nn.Unflatten(1, (3, 2)),
                nn.Conv3d(3, 2, 3, 2, 1),
            ),
            torch.randn(2, 4, 11),
        ),
        "padding by name": (
            nn.Sequential(
                nn.Conv2d(3, 4, 3, padding="valid"),
                nn.Conv2d(4, 4, (3, 1), padding="same"),
                nn.Conv2d(4, 2, 2, 2, padding="valid", groups=2),
            ),
            torch.randn(2, 3, 9, 8),
        ),
        "other rows than columns": (
            nn.Sequential(
                nn.Conv2d(3, 4, (3, 2), (1, 2)),
                nn.ConvTranspose2d(4, 3, 3, 2, 1, (1, 0)),
                nn.Conv2d(3, 2, 1, (3, 2)),
            ),
            torch.randn(2, 3, 7, 7),
        ),
        "pools": (
            nn.Sequential(
                nn.Linear(9, 9),
                nn.ReplicationPad2d((1, 0, 2, 1)),
                nn.MaxPool2d(3, 2, 1),
                nn.AvgPool2d(2, 1, 1, count_include_pad=False),
                nn.AvgPool2d(3, 1, ceil_mode=True),
                nn.AdaptiveAvgPool2d((4, 3)),
                nn.Unflatten(2, (2, 2)),
                nn.MaxPool3d((1, 2, 2), 1),
                nn.AvgPool3d((1, 1, 2), padding=(0, 0, 1)),
            ),
            torch.randn(1, 2, 9, 9),
        ),
    }


@pytest.mark.parametrize("name", _NETWORKS)
def test_gradients_of_layers(name):
    """All of them in compiled code."""
    module, x = _networks()[name]
    results = []
    for run in (_compiled(module), module):
        module.zero_grad()
        leaf = x.clone().requires_grad_()
        out = run(leaf)
        (out * torch.arange(out.numel()).reshape(out.shape).sin()).sum().backward()
        results.append([out, leaf.grad, *(parameter.grad for parameter in module.parameters())])
    torch.testing.assert_close(*results, atol=1e-4, rtol=1e-4)
    assert [report.compiled for report in backend.reports] == [True, True]


def test_gradients_of_weight_norms_and_bags():
    weight_norm = nn.utils.parametrizations.weight_norm
    words, ends = torch.randint(0, 9, (7,)), torch.tensor([0, 3, 3])
    cases = [
        (nn.Sequential(weight_norm(nn.Linear(5, 3))), (torch.randn(2, 5),)),
        (weight_norm(nn.Conv1d(3, 4, 3), dim=1), (torch.randn(2, 3, 6),)),
        (nn.EmbeddingBag(9, 4, mode="sum", padding_idx=2), (words, ends)),
        (nn.EmbeddingBag(9, 4, mode="mean"), (words, ends)),
        (nn.EmbeddingBag(9, 4, mode="sum"), (words, ends, torch.randn(7))),
    ]
    for module, inputs in cases:
        results = []
        for run in (_compiled(module), module):
            module.zero_grad()
            out = run(*inputs)
            out.square().sum().backward()
            results.append([out, *(parameter.grad for parameter in module.parameters())])
        torch.testing.assert_close(*results, atol=1e-4, rtol=1e-4)
    assert len(backend.reports) == 2 * len(cases)
    assert all(report.compiled for report in backend.reports)


def test_steps_of_optimizers():
    """Their moments are multiplied and added in one operator of PyTorch's own compiler."""
    for kind in (torch.optim.AdamW, torch.optim.RMSprop):
        results = []
        for compiled in (False, True):
            parameters = [nn.Parameter(torch.arange(6.0).sin()), nn.Parameter(torch.ones(2, 3))]
            optimizer = kind(parameters, lr=1e-2)
            step = _compiled(lambda run=optimizer: run.step()) if compiled else optimizer.step
            for number in range(3):
                for parameter in parameters:
                    parameter.grad = (parameter.detach() + number).cos()
                step()
            results.append([parameter.detach() for parameter in parameters])
        torch.testing.assert_close(*results, atol=1e-5, rtol=1e-5)
    assert backend.reports
    assert all(report.compiled for report in backend.reports)


def test_forward_mode_and_functions_over_batches():
    matrix, x = torch.randn(4, 5), torch.randn(3, 5)

    def function(matrix, x):
        def of_one(a):
            return torch.tanh(matrix @ a)

        forward = torch.func.jacfwd(of_one)(x[0])
        twice = torch.func.hessian(lambda a: of_one(a).sum())(x[1])
        return forward, twice, torch.func.vmap(torch.func.jacrev(of_one))(x)

    found = _compiled(function)(matrix, x)
    torch.testing.assert_close(found, function(matrix, x), atol=1e-4, rtol=1e-4)
    assert all(report.compiled for report in backend.reports)


def test_gradients_of_distances_and_of_complex_numbers():
    def function(x, y):
        apart = sum(torch.cdist(x, y, p).sin().sum() for p in (1.0, 2.0, 3.0, torch.inf))
        return apart + (torch.fft.rfft(x) * torch.polar(y, x)[:, :3] * (1 - 2j)).abs().sum()

    results = []
    for run in (_compiled(function), function):
        leaves = [torch.arange(12.0).sin().reshape(3, 4), torch.arange(12.0).cos().reshape(3, 4)]
        leaves = [leaf.requires_grad_() for leaf in leaves]
        run(*leaves).backward()
        results.append([leaf.grad for leaf in leaves])
    torch.testing.assert_close(*results, atol=1e-4, rtol=1e-4)
    assert [report.compiled for report in backend.reports] == [True, True]


def test_unsupported_operators_run_in_pytorch_and_are_reported():
    x = torch.zeros(3, 3)
    function = _compiled(lambda x: torch.special.bessel_j0(x @ x.mT) + 1)
    with pytest.warns(RuntimeWarning, match="special_bessel_j0"):
        result = function(x)
    torch.testing.assert_close(result, torch.full((3, 3), 2.0))
    (report,) = backend.reports
    assert not report.compiled
    assert report.operators == ("aten.special_bessel_j0",)


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


def _with_bessel(x):
    y = torch.relu(x @ x.mT + 1)
    values = torch.special.bessel_j0(y)
    return torch.exp(values * 0.1) * 2 + y.sum(-1), y.mT


def test_what_stands_around_an_unsupported_operator_is_compiled():
    x = torch.randn(4, 6)
    compiled = _compiled(_with_bessel)
    with pytest.warns(RuntimeWarning, match="runs a node of the inference graph in PyTorch"):
        found = compiled(x)
    torch.testing.assert_close(found, _with_bessel(x))
    (report,) = backend.reports
    assert (report.compiled, report.parts) == (False, 2)
    assert [node.operator for node in report.nodes] == ["aten.special_bessel_j0"]
    assert report.nodes[0].reason == "it has no lowering to StableHLO for these inputs"


def test_what_is_unknown_of_complex_numbers_is_left_to_pytorch():
    def function(x):
        y = torch.relu(x @ x.mT + 1)
        return torch.linalg.ldl_factor_ex(torch.fft.fft(y)).LD.abs() * 2 + y

    x = torch.randn(4, 6)
    with pytest.warns(RuntimeWarning, match="not supported for complex numbers"):
        found = _compiled(function)(x)
    torch.testing.assert_close(found, function(x), atol=1e-4, rtol=1e-4)
    assert backend.reports[0].parts == 2


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_branches_are_left_to_pytorch_where_a_graph_is_cut():
    def function(x):
        y = torch.relu(x @ x.mT + torch.special.bessel_j0(x @ x.mT))
        z = torch.cond(y.sum() > 1e9, lambda y: y.sin(), lambda y: y.cos(), (y,))
        return torch.exp(z) * 2 + y.sum(-1)

    x = torch.randn(4, 6)
    torch.testing.assert_close(_compiled(function)(x), function(x), atol=1e-5, rtol=1e-5)
    assert backend.reports[0].parts > 0
    assert "operators that take functions" in backend.reports[0].reason


class _Cut(nn.Module):
    """Two layers with functions between them: one that has no lowering, and one whose gradient has
    none."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        y = torch.tanh(self.first(x)) + 2
        z = torch.special.gammainc(torch.ones_like(y), y)
        rows = torch.arange(z.shape[0])[:, None]
        z = nn.functional.embedding_bag(rows, torch.exp(z), mode="sum", scale_grad_by_freq=True)
        return self.second(torch.sigmoid(z * 2))


def test_parts_follow_weights():
    module, x = _Cut(), torch.randn(4, 6)
    compiled = _compiled(module)
    with torch.no_grad():
        for factor in (1, 2):
            module.second.weight.mul_(factor)
            with pytest.warns(RuntimeWarning, match="igamma"):
                found = compiled(x)
            torch.testing.assert_close(found, module(x), atol=1e-5, rtol=1e-5)
    assert [report.parts for report in backend.reports] == [2, 2]


def test_parts_of_training_graphs():
    module = _Cut()
    reference = copy.deepcopy(module)
    compiled, x = _compiled(module), torch.randn(4, 6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for run in (compiled, reference):
            run(x).square().sum().backward()
    for own, other in zip(module.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(own.grad, other.grad, atol=1e-5, rtol=1e-4)
    assert all(report.parts >= 2 for report in backend.reports)


@pytest.mark.parametrize("sizes", [(4, 5), (3, 4, 5)], ids=["images", "volumes"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_gradients_of_sampling_at_points(mode, sizes):
    def function(x, grid):
        found = [
            nn.functional.grid_sample(x, grid, mode, padding, corners)
            for number, padding in enumerate(("zeros", "border", "reflection"))
            for corners in ((False, True) if len(sizes) == 2 else (number % 2 == 0,))
        ]
        return torch.stack(found).sin().sum()

    x = torch.randn(2, 3, *sizes)
    grid = torch.randn(2, *(size - 1 for size in sizes), len(sizes)) * 1.5
    gradients = []
    for run in (_compiled(function), function):
        leaves = [x.clone().requires_grad_(), grid.clone().requires_grad_()]
        run(*leaves).backward()
        gradients.append([leaf.grad for leaf in leaves])
    torch.testing.assert_close(*gradients, atol=1e-4, rtol=1e-4)
    assert [(report.graph, report.compiled) for report in backend.reports] == [
        ("forward", True),
        ("backward", True),
    ]


def test_random_numbers_are_those_of_pytorch():
    def function(x):
        noise = torch.rand(16, 16)
        return torch.exp(torch.relu(x @ x.mT + noise) * 0.1) * 2 + torch.rand(16)

    x = torch.randn(16, 8)
    torch.manual_seed(1)
    expected = function(x)
    torch.manual_seed(1)
    with pytest.warns(RuntimeWarning, match="random numbers"):
        torch.testing.assert_close(_compiled(function)(x), expected, atol=1e-5, rtol=1e-5)
    (report,) = backend.reports
    assert report.parts == 1
    assert [node.operator for node in report.nodes] == ["aten.rand", "aten.rand"]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_dropout_draws_the_numbers_of_pytorch():
    """Also where what it drops is turned, and between the layers of a recurrent network."""
    encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)
    recurrent = nn.LSTM(8, 4, 3, dropout=0.4, batch_first=True, bidirectional=True)
    results = []

    def function(x):
        return recurrent(nn.functional.dropout(encoder(x).mT * 2, 0.5).mT)[0]

    for run in (_compiled(function), function):
        for module in (encoder, recurrent):
            module.zero_grad()
        torch.manual_seed(1)
        x = torch.randn(2, 5, 8, requires_grad=True)
        out = run(x)
        out.square().sum().backward()
        results.append(
            [out, x.grad, *(p.grad for p in (*encoder.parameters(), *recurrent.parameters()))]
        )
    torch.testing.assert_close(*results, atol=1e-5, rtol=1e-4)
    forward, backward = backend.reports
    assert "aten.bernoulli.p" in forward.operators
    assert forward.parts > 0
    assert backward.parts > 0


def test_results_of_parts_have_the_strides_that_pytorch_expects():
    def function(x):
        turned = torch.relu(x @ x.mT + 1).permute(1, 0)
        return turned, torch.rand_like(turned)  # filled in the order of memory

    x = torch.randn(4, 6)
    torch.manual_seed(1)
    expected = function(x)
    torch.manual_seed(1)
    with pytest.warns(RuntimeWarning, match="random numbers"):
        found = _compiled(function)(x)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert found[0].stride() == expected[0].stride()


def _results_of_one_memory(x):
    y = (x * 2).t()
    return y, y.t().view(2, 12)[1], y.t(), y.detach(), *y.unbind(0), y[:, :1].expand(6, 5)


def test_results_share_memory_as_in_pytorch():
    x = torch.randn(4, 6)
    expected = _results_of_one_memory(x)
    with torch.no_grad():
        found = _compiled(_results_of_one_memory)(x)
    for own, other in zip(found, expected, strict=True):
        torch.testing.assert_close(own, other)
        assert own.stride() == other.stride()
    for results in (found, expected):
        results[0].zero_()
    torch.testing.assert_close(found, expected)


def test_results_that_share_no_memory():
    """Of a part alone, the rest is not computed; what is turned lies as PyTorch has it."""

    def function(x):
        y = x @ x.T
        bits = y.view(torch.int32)
        return y[0] + 1, (x + 1)[1:], (x * 3).permute(1, 0), bits, torch.complex(x, x).conj()

    x = torch.randn(4, 6)
    expected = function(x)
    with torch.no_grad():
        found = _compiled(function)(x)
    torch.testing.assert_close(found[0], expected[0], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found[1:3], expected[1:3])
    torch.testing.assert_close(found[4], expected[4])
    assert found[2].stride() == (1, 6)
    assert found[1].untyped_storage().nbytes() == 3 * 6 * 4


def test_results_whose_dimensions_of_one_lie_in_another_order():
    def function(x):
        return x.mT.clone(), x + 1

    x = torch.randn(1, 3)
    with torch.no_grad():
        found = _compiled(function)(x)
    torch.testing.assert_close(found, function(x))


def test_changing_sizes_are_compiled_once():
    """The first graph is for the sizes of its call; that for other sizes has symbols for them."""
    module = _sequence_network().eval()
    compiled = _compiled(module)
    with torch.no_grad():
        for shape in ((2, 5), (3, 7), (4, 12), (2, 2), (5, 16), (2, 20)):
            ids = torch.randint(30, shape)
            torch.testing.assert_close(compiled(ids), module(ids), atol=1e-4, rtol=1e-4)
        module[2].weight.mul_(2)
        torch.testing.assert_close(compiled(ids), module(ids), atol=1e-4, rtol=1e-4)
    assert [report.any_size for report in backend.reports] == [False, True, True, True]
    compiled_for = zip(backend.reports[1:], [(3, 7), (2, 20), (2, 20)], strict=True)
    assert all(shape in report.shapes for report, shape in compiled_for)


def _sequence_network():
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Embedding(30, 16), layer, nn.Linear(16, 4))


def test_training_for_changing_sizes():
    module = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    compiled = torch.compile(module, backend="stepwell", dynamic=True)
    for batch in (5, 9, 3):
        x, gradients = torch.randn(batch, 8), []
        for run in (compiled, module):
            module.zero_grad()
            run(x).square().mean().backward()
            gradients.append([parameter.grad for parameter in module.parameters()])
        torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-4)
    assert [(report.graph, report.any_size) for report in backend.reports] == [
        ("forward", True),
        ("backward", True),
    ]


def test_sizes_among_results_and_of_turned_inputs():
    def function(x, y):
        return x.sum(0) @ y, x.shape[0] * 2 + 1, None, torch.cat([x, x]).T

    compiled = torch.compile(function, backend="stepwell", dynamic=True)
    for size in (6, 11):
        x, y = torch.randn(size, 8), torch.randn(3, 8).T
        torch.testing.assert_close(compiled(x, y), function(x, y), atol=1e-5, rtol=1e-5)
    assert [report.any_size for report in backend.reports] == [True]


def test_sizes_for_which_there_is_no_code_for_any():
    """Each is compiled by itself."""
    compiled = torch.compile(lambda x: torch.fft.rfft(x).abs(), backend="stepwell", dynamic=True)
    for size in (6, 11):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), torch.fft.rfft(x).abs())
    assert [(report.compiled, report.any_size) for report in backend.reports] == [(True, False)] * 2


@pytest.mark.parametrize(("size", "stride", "offset"), [((3, 4), (8, 2), 0), ((4, 3), (1, 9), 2)])
def test_gradients_of_strided_reads(size, stride, offset):
    x = torch.randn(6, 8)

    def function(x):
        return (x * 2).t().contiguous().t().as_strided(size, stride, offset).sin()

    results = []
    for called in (function, _compiled(function)):
        leaf = x.clone().requires_grad_()
        called(leaf).square().sum().backward()
        results.append(leaf.grad)
    torch.testing.assert_close(results[1], results[0])
    assert [report.compiled for report in backend.reports] == [True, True]


def test_an_operator_without_a_lowering_is_named_though_its_constants_come_first(monkeypatch):
    scatter = torch.ops.aten.as_strided_scatter.default
    monkeypatch.delitem(MENDS, scatter)
    monkeypatch.setattr(decompositions, "_of_torch", decompositions._of_torch.__wrapped__)
    leaf = torch.randn(6, 8, requires_grad=True)
    with pytest.warns(RuntimeWarning, match="nodes of the backward graph .* as_strided_scatter"):
        _compiled(lambda x: x.as_strided((3, 4), (8, 2)).sin())(leaf).sum().backward()
    forward, backward = backend.reports
    assert forward.compiled
    assert backward.operators == ("aten.as_strided_scatter",)
    assert backward.parts == 1
