"""PyTorch as an entrance: what may be given, names, shapes, weights, errors."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import stepwell  # noqa: E402
from stepwell.frontends.torch import exported, program_file  # noqa: E402
from stepwell.runtime.open_sizes import OpenSizeExecutable  # noqa: E402

nn = torch.nn


def _mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)).eval()


def _check(executable, module, x):
    (output,) = executable(x)
    np.testing.assert_allclose(output, module(x).detach().numpy(), atol=1e-5)


def test_module_and_example_inputs():
    module, x = _mlp(), torch.randn(4, 16)
    for executable in (
        stepwell.compile(module, (x,)),
        stepwell.compile(module, example_inputs=x),
        stepwell.compile((module, (x,))),
        stepwell.compile(torch.export.export(module, (x,))),
        stepwell.lower(module, (x,)).compile(),
        stepwell.lower(module, "cpu", example_inputs=x).compile(),
    ):
        _check(executable, module, x)
        assert [spec.name for spec in executable.inputs] == ["input"]
        assert [spec.name for spec in executable.outputs] == ["linear_1"]


def test_keyword_arguments():
    class Scaled(nn.Module):
        def forward(self, x, *, scale, shift=None):
            return x * scale if shift is None else x * scale + shift

    x, scale = torch.randn(3), torch.randn(3)
    executable = stepwell.compile(Scaled(), {"x": x, "scale": scale})
    output = executable.run({"x": x, "scale": scale})
    np.testing.assert_allclose(output["mul"], (x * scale).numpy())


def test_an_output_that_comes_twice_has_two_names():
    class Twice(nn.Module):
        def forward(self, x):
            y = x + 1
            return y, y, x

    executable = stepwell.compile(Twice(), torch.zeros(2))
    names = [spec.name for spec in executable.outputs]
    assert names == ["add", "add_1", "x"]
    assert [output.tolist() for output in executable(torch.zeros(2))] == [[1, 1], [1, 1], [0, 0]]


def test_open_dimensions_are_compiled_when_called():
    module = _mlp()
    batch = torch.export.Dim("batch")
    program = torch.export.export(module, (torch.randn(4, 16),), dynamic_shapes=({0: batch},))
    executable = stepwell.compile(program)
    assert executable.inputs[0].is_open
    for size in (2, 3, 9, 1):
        _check(executable, module, torch.randn(size, 16))
    assert isinstance(executable.specialized(torch.randn(5, 16)), OpenSizeExecutable)
    fixed = stepwell.compile(program, shapes={"input": (7, 16)})
    assert fixed.inputs[0].shape == (7, 16)
    with pytest.raises(stepwell.ModelError, match="16"):
        stepwell.compile(program, shapes={"input": (7, 15)})


def test_a_largest_size_below_16():
    module = _mlp()
    sizes = ({0: torch.export.Dim("batch", max=8)},)
    program = torch.export.export(module, (torch.randn(4, 16),), dynamic_shapes=sizes)
    at_once = stepwell.compile(program)
    ahead = stepwell.compile(program, shapes={"input": ("b", 16)}, max_sizes={"b": 8})
    for size in (2, 3, 8):
        _check(at_once, module, torch.randn(size, 16))
        _check(ahead, module, torch.randn(size, 16))
    assert at_once.specialized(torch.randn(5, 16)) is at_once.specialized(torch.randn(8, 16))
    assert ahead.capacities == {"b": 8}
    with pytest.raises(stepwell.InputError, match="may be 8 at most"):
        at_once(torch.randn(9, 16))


def test_a_table_as_long_as_the_largest_size():
    """Its first rows are all of it there, and PyTorch leaves the slice out."""

    class Places(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(30, 8), nn.Embedding(64, 8)

        def forward(self, ids):
            return torch.softmax(self.words(ids) + self.places.weight[: ids.shape[1]], 1)

    module = Places().eval()
    sides = {0: torch.export.Dim("b", max=16), 1: torch.export.Dim("n", max=64)}
    ids = torch.randint(30, (16, 64))
    program = torch.export.export(module, (ids,), dynamic_shapes=(sides,))
    largest = {"b": 16, "n": 64}
    executable = stepwell.compile(program, shapes={"ids": ("b", "n")}, max_sizes=largest)
    assert isinstance(executable, OpenSizeExecutable)
    for size in ((16, 64), (3, 17), (1, 1), (2, 63)):
        _check(executable, module, ids[: size[0], : size[1]])


def test_images_of_any_size():
    """Strides need not divide them, and features are resized to those of another layer."""

    class Features(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Conv2d(3, 8, 3, 2, 1)
            self.second = nn.Conv2d(8, 4, 3, 2, 1)
            self.pool = nn.MaxPool2d(2)

        def forward(self, x):
            near = self.first(x)
            far = torch.relu(self.second(near))
            size = near.shape[-2:]
            pair = [nn.functional.interpolate(far, size, mode=m) for m in ("nearest", "bilinear")]
            return self.pool(torch.cat([near, *pair], 1))

    module = Features().eval()
    sides = {2: torch.export.Dim("h", min=8), 3: torch.export.Dim("w", min=8)}
    program = torch.export.export(module, (torch.randn(1, 3, 33, 47),), dynamic_shapes=(sides,))
    executable = stepwell.compile(program)
    for size in ((33, 47), (64, 62), (57, 33), (40, 51)):
        _check(executable, module, torch.randn(1, 3, *size))
    assert isinstance(executable.specialized(torch.randn(1, 3, 39, 60)), OpenSizeExecutable)


def test_open_dimensions_that_are_bounded_below():
    """The least size that the export allows is no other model."""
    module = nn.Conv1d(3, 4, 3, padding=1)
    sizes = ({0: torch.export.Dim("batch"), 2: torch.export.Dim("n", min=8)},)
    program = torch.export.export(module, (torch.randn(4, 3, 16),), dynamic_shapes=sizes)
    executable = stepwell.compile(program)
    for batch, length in ((2, 16), (3, 9), (1, 8), (16, 15)):
        _check(executable, module, torch.randn(batch, 3, length))
    assert repr(executable).endswith("2 compiled>")


def test_positions_of_open_dimensions():
    class Positions(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            row = torch.arange(x.shape[0])
            return x * row[:, None].float() + x[row.flip(0) * 0]

    module = Positions()
    sizes = ({0: torch.export.Dim("n")},)
    program = torch.export.export(module, (torch.randn(4, 3),), dynamic_shapes=sizes)
    executable = stepwell.compile(program)
    for size in (2, 5, 9):
        _check(executable, module, torch.randn(size, 3))


def test_saved_program(tmp_path):
    module, x = _mlp(), torch.randn(4, 16)
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(module, (x,)), path)
    _check(stepwell.compile(path), module, x)


def test_tied_weights_and_buffers():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(50, 64)
            self.head = nn.Linear(64, 50, bias=False)
            self.head.weight = self.embedding.weight
            self.register_buffer("scale", torch.randn(64))
            self.register_buffer("offset", torch.randn(64), persistent=False)

        def forward(self, ids):
            return self.head(self.embedding(ids) * self.scale + self.offset)

    module, ids = Tied().eval(), torch.randint(0, 50, (2, 5))
    program = exported.program_of(exported.export(module, ids))
    assert sum(array.nbytes for array in program.weights.values()) == 4 * (50 * 64 + 64 + 64)
    _check(stepwell.compile(module, ids), module, ids)


def test_constants_of_the_same_name_in_two_submodules():
    class Shifted(nn.Module):
        def __init__(self, shift):
            super().__init__()
            self.shift = shift

        def forward(self, x):
            return x + self.shift

    module = nn.Sequential(Shifted(torch.randn(4)), nn.ReLU(), Shifted(torch.randn(4))).eval()
    x = torch.randn(2, 4)
    _check(stepwell.compile(module, x), module, x)


def test_a_buffer_of_a_submodule_called_as_a_parameter_of_the_module():
    class Rotary(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("position", torch.randn(4), persistent=False)

        def forward(self, x):
            return x * self.position

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.position = nn.Parameter(torch.randn(4))
            self.rotary = Rotary()

        def forward(self, x):
            return self.rotary(x + self.position)

    module, x = Model().eval(), torch.randn(2, 4)
    _check(stepwell.compile(module, x), module, x)


def test_weights_are_part_of_what_the_cache_knows():
    x = torch.randn(2, 16)
    for seed in range(2):
        module = nn.Linear(16, 8)
        nn.init.normal_(module.weight, generator=torch.Generator().manual_seed(seed))
        _check(stepwell.compile(module.eval(), x), module, x)


def test_program_file(tmp_path):
    arrays = {
        "odd": np.arange(3, dtype=np.uint8),
        "wide": np.linspace(0, 1, 5),
        "none": np.zeros((0, 4), np.float32),
    }
    value = program_file.Value("x", "float32", (2,))
    path = tmp_path / "a.torch_program"
    program_file.write(path, program_file.Program("text", ("odd", value), (value,), arrays))
    read = program_file.read(path)
    assert (read.module, read.arguments, read.outputs) == ("text", ("odd", value), (value,))
    for name, array in arrays.items():
        np.testing.assert_array_equal(read.weights[name], array)
        assert read.weights[name].flags.aligned
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(stepwell.ModelError, match="no PyTorch program"):
        program_file.read(path)


def test_unsupported_operators_are_named_at_once():
    class Special(nn.Module):
        def forward(self, x):
            return torch.special.bessel_j0(x) + torch.special.bessel_j1(x)

    report = stepwell.check((Special(), torch.randn(3)))
    assert {finding.operator for finding in report.findings} == {
        "aten.special_bessel_j0",
        "aten.special_bessel_j1",
    }


class _Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count += 1
        return x + self.count


class _Random(nn.Module):
    def forward(self, x):
        return x + torch.rand(3)


class _Positive(nn.Module):
    def forward(self, x):
        return x[x > 0]


class _Spectrum(nn.Module):
    def forward(self, x):
        return torch.linalg.ldl_factor_ex(torch.fft.fft(x.outer(x))).LD.abs()


@pytest.mark.parametrize(
    ("model", "kind", "message"),
    [
        (lambda: nn.Linear(3, 3), stepwell.UsageError, "needs example inputs"),
        (
            lambda: (_Positive(), torch.randn(3)),
            stepwell.UnsupportedError,
            "the shape of its result depends on data",
        ),
        (lambda: (_Spectrum(), torch.randn(8)), stepwell.UnsupportedError, "complex numbers"),
        (lambda: (nn.Dropout(0.5).train(), torch.randn(3)), stepwell.UsageError, "eval"),
        (lambda: (nn.Linear(4, 3).eval(), torch.randn(3)), stepwell.ModelError, "torch.export"),
        (lambda: (_Counting(), torch.randn(3)), stepwell.ModelError, "changes count in place"),
        (lambda: (_Random(), torch.randn(3)), stepwell.UnsupportedError, "random"),
    ],
)
def test_refused(model, kind, message):
    with pytest.raises(kind, match=message):
        stepwell.compile(model())


def test_example_inputs_are_for_modules():
    with pytest.raises(stepwell.UsageError, match="example_inputs"):
        stepwell.compile("model.onnx", example_inputs=(1,))


def test_pytorch_is_imported_for_its_models_alone():
    code = (
        "import sys, numpy, stepwell; x = numpy.ones(2, numpy.float32);"
        "f = stepwell.compile('func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {"
        " %0 = stablehlo.add %a, %a : tensor<2xf32>\\n return %0 : tensor<2xf32> }');"
        "f(x); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
