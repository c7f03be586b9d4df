"""Models that PyTorch's quantisers made: operators, exported programs (PT2E), `torchao`."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import stepwell  # noqa: E402
from stepwell.errors import ModelError  # noqa: E402
from stepwell.frontends.torch import backend  # noqa: E402

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchao.quantization import (
        Int8DynamicActivationInt8WeightConfig,
        Int8WeightOnlyConfig,
        quantize_,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

from torch_comparison import compare  # noqa: E402


@pytest.fixture(autouse=True)
def _without_gradients():
    with torch.no_grad():
        yield


known = torch.ops.quantized_decomposed
R = torch.randn
_I8, _U8, _F32 = torch.int8, torch.uint8, torch.float32

_SCALES, _ZEROS = torch.tensor([0.02, 0.01, 0.05]), torch.tensor([3, -5, 0])
_ROWS = torch.tensor([[0.02], [0.013], [0.03], [0.011]], dtype=torch.float64)
_ROW_ZEROS = torch.tensor([[3], [-9], [0], [8]])
_ONE = torch.tensor([0.02], dtype=torch.float64), torch.tensor([7])
_ENDS = torch.tensor(-100), torch.tensor(100)


def _bytes(*shape):
    return torch.randint(-128, 128, shape, dtype=_I8)


OPERATORS = {
    "tensor": lambda x: known.quantize_per_tensor(x, 0.02, 7, 0, 255, _U8),
    "tensor-of-half": lambda x: known.quantize_per_tensor(x.half(), 0.02, 7, -128, 127, _I8),
    "tensor-words": lambda x: known.quantize_per_tensor(x, 1e-4, 0, -32768, 32767, torch.int16),
    "tensor-given": lambda x: known.quantize_per_tensor.tensor(x, *_ONE, -128, 127, _I8),
    "tensor-given-ends": lambda x: known.quantize_per_tensor.tensor2(x, *_ONE, *_ENDS, _I8),
    "channels": lambda x: known.quantize_per_channel(x, _SCALES, _ZEROS, 1, -128, 127, _I8),
    "rows": lambda x: known.quantize_per_token(x, _ROWS, _ROW_ZEROS, -128, 127, _I8),
    "groups": lambda x: known.quantize_per_channel_group(
        x.reshape(2, 6), _ROWS.reshape(2, 2), _ROW_ZEROS.reshape(2, 2), -8, 7, _I8, 3
    ),
    "fake-channels": lambda x: known.fake_quant_per_channel(x, _SCALES, _ZEROS, 1, -128, 127),
    "conversion": lambda x: known.convert_element_type.no_fuse(x, torch.bfloat16),
    "range": lambda x: known.choose_qparams.tensor(x, 0, 255, 1e-7, _U8),
    "range-of-one-sign": lambda x: known.choose_qparams.tensor(x.abs() + 1, -128, 127, 1e-7, _I8),
    "range-of-zeros": lambda x: known.choose_qparams.tensor(x * 0, 0, 255, 1e-5, _U8),
    "range-symmetric": lambda x: known.choose_qparams_symmetric.tensor(x, -127, 127, 1e-7, _I8),
    "range-symmetric-unsigned": lambda x: known.choose_qparams_symmetric.tensor(
        x, 0, 255, 1e-7, _U8
    ),
    "range-of-rows": lambda x: known.choose_qparams_per_token_asymmetric(x, _I8),
    "range-of-rows-symmetric": lambda x: known.choose_qparams_per_token(x, _I8)[0],
}
"""Each takes floats [4, 3], and what it is compared with is its own result in PyTorch."""


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_of_floats(name):
    compare(OPERATORS[name], R(4, 3))


NUMBERS = {
    "tensor": lambda x: known.dequantize_per_tensor(x, 0.02, 7, -128, 127, _I8),
    "tensor-half": lambda x: known.dequantize_per_tensor(
        x, 0.02, 7, -128, 127, _I8, out_dtype=torch.bfloat16
    ),
    "tensor-given": lambda x: known.dequantize_per_tensor.tensor(x, *_ONE, -128, 127, _I8),
    "tensor-given-ends": lambda x: known.dequantize_per_tensor.tensor2(x, *_ONE, *_ENDS, _I8),
    "channels": lambda x: known.dequantize_per_channel(x, _SCALES, _ZEROS, 1, -128, 127, _I8),
    "channels-without-zeros": lambda x: known.dequantize_per_channel(
        x, _SCALES, None, 1, -128, 127, _I8
    ),
    "rows": lambda x: known.dequantize_per_token(x, _ROWS, _ROW_ZEROS, -128, 127, _I8, _F32),
    "groups": lambda x: known.dequantize_per_channel_group(
        x.reshape(2, 6), _ROWS.reshape(2, 2), _ROW_ZEROS.reshape(2, 2), -128, 127, _I8, 3, _F32
    ),
    "groups-without-zeros": lambda x: known.dequantize_per_channel_group(
        x.reshape(2, 6), _ROWS.reshape(2, 2), None, -128, 127, _I8, 3, _F32
    ),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_operators_of_bytes(name):
    compare(NUMBERS[name], _bytes(4, 3))


# --- Exported programs ----------------------------------------------------------------------------


class _Network(torch.nn.Module):
    """A residual network of two convolutions, the first one normalised, and a linear layer."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.normalized = torch.nn.BatchNorm2d(8)
        self.second = torch.nn.Conv2d(8, 8, 3, padding=1)
        self.last = torch.nn.Linear(8, 5)

    def forward(self, x):
        x = torch.relu(self.normalized(self.first(x)))
        x = torch.nn.functional.max_pool2d(torch.relu(self.second(x) + x), 2)
        return self.last(x.mean((2, 3)))


def _quantized(module, *inputs, dynamic=False):
    """`module` quantised as for x86 CPUs, with ranges of `inputs` and of random numbers."""
    config = x86.get_default_x86_inductor_quantization_config(is_dynamic=dynamic)
    quantizer = x86.X86InductorQuantizer().set_global(config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prepared = prepare_pt2e(torch.export.export(module.eval(), inputs).module(), quantizer)
        for _ in range(3):
            prepared(*(R(x.shape) for x in inputs))
        prepared(*inputs)
        return torch.export.export(convert_pt2e(prepared), inputs)


def _perceptron():
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))


def _is_close(found, expected):
    """Sums are exact in compiled code and rounded in PyTorch, so that a value in the middle of two
    steps is now and then rounded to the other one: by less than a step, a 200th of the largest."""
    step = float(expected.abs().max()) / 200
    np.testing.assert_allclose(np.asarray(found), expected.numpy(), rtol=0, atol=step)


@pytest.mark.parametrize("dynamic", [False, True])
def test_network(dynamic):
    x = R(2, 3, 8, 8)
    exported = _quantized(_Network(), x, dynamic=dynamic)
    expected = exported.module()(x)
    _is_close(stepwell.compile(exported)(x)[0], expected)
    torch._dynamo.reset()
    backend.reports.clear()
    compiled = torch.compile(exported.module(), backend="stepwell", fullgraph=True)
    _is_close(compiled(x), expected)
    assert [report.compiled for report in backend.reports] == [True]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("target", ["x86_64-v3", "x86_64-v4+vnni"])
def test_products_of_integers(target, dynamic):
    """Bytes, or words of 16 bits where these are what the target multiplies."""
    exported = _quantized(_perceptron(), R(4, 16), dynamic=dynamic)
    module = str(stepwell.lower(exported, target, threads=1).step("linalg"))
    loops = '["parallel", "parallel", "reduction"]'
    products = [line for line in module.splitlines() if loops in line]
    assert len(products) == 2
    kind = "xi8" if "vnni" in target else "xi16"
    assert all(line.count(kind) == 2 and "xf32" not in line for line in products), products


def test_files_of_quantized_programs(tmp_path):
    x = R(4, 16)
    exported = _quantized(_perceptron(), x)
    torch.export.save(exported, tmp_path / "quantized.pt2")
    _is_close(stepwell.compile(tmp_path / "quantized.pt2")(x)[0], exported.module()(x))


def test_files_that_call_unknown_operators(tmp_path, capfd):
    library = torch.library.Library("of_no_library", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
    library.impl("twice", lambda x: torch.empty_like(x), "Meta")
    path = tmp_path / "unknown.pt2"

    class Module(torch.nn.Module):
        def forward(self, x):
            return torch.ops.of_no_library.twice(x)

    torch.export.save(torch.export.export(Module(), (R(3),)), path)
    library._destroy()
    with pytest.raises(ModelError, match=r"calls torch\.ops\.of_no_library\.twice\.default, which"):
        stepwell.compile(path)
    assert "Traceback" not in capfd.readouterr().err


def test_packed_weights_are_a_sentence():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        packed = torch.ao.quantization.quantize_dynamic(_perceptron().eval(), {torch.nn.Linear})
    with pytest.raises(ModelError, match="quantise the module by torchao"):
        stepwell.compile(packed, R(4, 16))


# --- torchao --------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [Int8WeightOnlyConfig, Int8DynamicActivationInt8WeightConfig])
def test_quantized_weights(config):
    """Exported, and by `torch.compile`."""
    module, x = _perceptron().eval(), R(4, 16)
    quantize_(module, config())
    expected = module(x)
    _is_close(stepwell.compile(module, x)(x)[0], expected)
    torch._dynamo.reset()
    _is_close(torch.compile(module, backend="stepwell")(x), expected)


@pytest.mark.parametrize("kind", [_U8, _I8])
def test_products_of_bytes(kind):
    """As `torchao` has them where the processor multiplies unsigned bytes by signed ones."""
    x = torch.randint(0, 256, (5, 48)).to(kind)
    weights = torch.randint(-128, 128, (24, 48)).to(_I8)

    class Product(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("weights", weights)

        def forward(self, x):
            return torch._int_mm(x, self.weights.T)

    expected = x.int() @ weights.T.int()
    (result,) = stepwell.compile(Product(), x)(x)
    np.testing.assert_array_equal(result, expected.numpy())
    exported = torch.export.export(Product(), (x,))
    module = str(stepwell.lower(exported, "x86_64-v4+vnni", threads=1).step("linalg"))
    loops = '["parallel", "parallel", "reduction"]'
    (product,) = [line for line in module.splitlines() if loops in line]
    assert product.count("xi8") == 2
