"""Models compiled once for any size, on the emulated GPU: each kind of kernel against JAX, what is
copied, tensors on the GPU, and models that are compiled when they are called."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import onnx
import pytest
from emulator import Emulator
from jax import lax
from jax import numpy as jnp
from models import ON_GPU, TARGET, compiling_for
from onnx import parser

import stepwell
from stepwell.runtime.cuda_executable import NOTHING, CudaExecutable, Region, on_host, region_of
from stepwell.runtime.cuda_open_sizes import OpenSizeCudaExecutable
from stepwell.runtime.device_arrays import DeviceArray
from stepwell.specializing import SpecializingExecutable

OPTIONS = {"progress": False, "use_cache": False}
R = np.random.default_rng(3)


def normal(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return R.standard_normal(shape).astype(dtype)


W = {n: normal(n, n) / np.float32(n**0.5) for n in (64, 128)}
FILTERS = normal(3, 3, 8, 16) / 8


def norm(x):
    centered = x - x.mean(-1, keepdims=True)
    return centered / jnp.sqrt((centered * centered).mean(-1, keepdims=True) + 1e-5)


def attention(x):
    """Of [b, n, 64], two heads."""
    b, n, _ = x.shape
    heads = x.reshape(b, n, 2, 32).transpose(0, 2, 1, 3)
    wide = jnp.float32
    scores = jnp.einsum("bhmd,bhnd->bhmn", heads, heads, preferred_element_type=wide) * 0.2
    weights = jax.nn.softmax(scores).astype(x.dtype)
    out = jnp.einsum("bhmn,bhnd->bhmd", weights, heads, preferred_element_type=wide)
    return out.transpose(0, 2, 1, 3).reshape(b, n, 64).astype(x.dtype)


def product(x, w):
    wide = jnp.float32
    return jnp.tanh(jnp.matmul(x, w.astype(x.dtype), preferred_element_type=wide))


def convolution(x):
    dims = ("NHWC", "HWIO", "NHWC")
    return jax.nn.relu(lax.conv_general_dilated(x, FILTERS, (1, 1), "SAME", dimension_numbers=dims))


def encoder(x):
    h = norm(x + attention(x))
    return norm(h + product(product(h, W[64]), W[64].T))


F16, F32 = np.float16, np.float32
CASES: dict[str, tuple[Callable, str, dict[str, int], type]] = {
    "elementwise": (lambda x: jnp.exp(x) + 1, "b, n, 5", {"b": 4, "n": 40}, F32),
    "norm": (norm, "b, n, 96", {"b": 4, "n": 24}, F32),
    "softmax": (jax.nn.softmax, "b, n", {"b": 6, "n": 300}, F32),
    "long rows": (norm, "b, 16384", {"b": 6}, F32),
    "sum of rows": (lambda x: x.sum(1), "b, n, 24", {"b": 4, "n": 70}, F32),
    "transpose": (lambda x: x.transpose(2, 1, 0) * 2, "b, n, 36", {"b": 9, "n": 33}, F32),
    "concatenation": (
        lambda x: jnp.concatenate([x, x[:, ::-1]], 1), "b, n, 8", {"b": 3, "n": 20}, F32,
    ),
    "running sums": (lambda x: jnp.cumsum(x, 1), "b, n", {"b": 4, "n": 90}, F32),
    "product by threads": (lambda x: product(x, W[64][:, :30]), "b, n, 64", {"b": 3, "n": 9}, F32),
    "product by warps": (lambda x: product(x, W[64]), "b, n, 64", {"b": 3, "n": 40}, F16),
    "product by warpgroups": (lambda x: product(x, W[128]), "b, n, 128", {"b": 8, "n": 192}, F16),
    "open sums": (lambda x: jnp.einsum("bni,bnj->bij", x, x), "b, n, 64", {"b": 2, "n": 128}, F32),
    "open columns": (lambda x: jnp.einsum("bni,bmi->bnm", x, x), "b,n,64", {"b": 2, "n": 128}, F16),
    "attention": (attention, "b, n, 64", {"b": 2, "n": 160}, F32),
    "attention in f16": (attention, "b, n, 64", {"b": 3, "n": 300}, F16),
    "convolution": (convolution, "b, h, w, 8", {"b": 3, "h": 14, "w": 20}, F32),
    "encoder": (encoder, "b, n, 64", {"b": 2, "n": 70}, F32),
}  # fmt: skip
TOLERANCE = {np.float32: 2e-5, F16: 4e-3}
"""Of results below 10 or so: sums in another order, exponentials and products of parts of f32; of
f16, roundings of results and of the weights of attention."""


def sizes_of(capacities: dict[str, int]) -> list[dict[str, int]]:
    """A few sizes: all, one, and about a third, three quarters of the others."""
    found = [capacities, dict.fromkeys(capacities, 1)]
    for part, rest in ((3, 1), (1.3, 0), (3, 0)):
        size = {name: max(1, int(n / part) + rest) for name, n in capacities.items()}
        found.append(size)
    return found


def compiled(function: Callable, dims: str, capacities: dict[str, int], dtype: type) -> object:
    spec = jax.ShapeDtypeStruct(jax.export.symbolic_shape(dims), dtype)
    exported = jax.export.export(jax.jit(function))(spec)
    return stepwell.compile(exported, TARGET, options=OPTIONS, max_sizes=capacities)


@pytest.mark.parametrize("name", CASES)
def test_kernels(name: str, emulator: Emulator) -> None:
    function, dims, capacities, dtype = CASES[name]
    with compiling_for(emulator):
        exe = compiled(function, dims, capacities, dtype)
    assert isinstance(exe, OpenSizeCudaExecutable)
    for number, sizes in enumerate(sizes_of(capacities)):
        emulator.configure(backwards=number % 2 == 1)
        shape = [sizes.get(part.strip()) or int(part) for part in dims.split(",")]
        x = normal(*shape, dtype=dtype)
        (got,) = exe(x)
        want = np.asarray(jax.jit(function)(x))
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        error = np.abs(got.astype(np.float64) - want.astype(np.float64)).max()
        assert error <= TOLERANCE[dtype] * max(1, np.abs(want).max()), sizes


LEFT_OUT = ("elementwise", "norm", "long rows", "product by threads", "product by warps",
            "product by warpgroups", "attention", "attention in f16")  # fmt: skip


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_nobody_needs_is_left_out(name: str, emulator: Emulator) -> None:
    """A call is given other inputs of all of the capacity, and told that one element of the batch
    is in use: of the model's own array of results the last one stays as a call before left it."""
    function, dims, capacities, dtype = CASES[name]
    with compiling_for(emulator):
        exe = compiled(function, dims, capacities, dtype)
    assert isinstance(exe, OpenSizeCudaExecutable)
    manifest = exe.artifact.manifest
    given, (result,) = manifest.inputs[0], manifest.outputs
    before, after = (normal(*given.shape, dtype=dtype) for _ in range(2))
    (first,) = exe(before)
    inputs, _ = exe._staged([after[:1]])
    second = np.zeros(result.shape, result.dtype)
    exe._code.run_placed([on_host(after), *inputs[1:]], [on_host(second)])
    assert (second[0] != first[0]).any()
    np.testing.assert_array_equal(second[-1], first[-1])


PRODUCTS = """<ir_version: 8, opset_import: ["": 18]>
    g (float[batch, n] x, float[batch, n] z, float[batch] w) => (float[batch, n] y) {
        p = Mul(x, z) a = Constant <value_ints = [1]> () u = Unsqueeze(w, a) y = Add(p, u) }"""


def operands(batch: int, n: int) -> list[np.ndarray]:
    return [normal(batch, n), normal(batch, n), normal(batch)]


def wanted(x: np.ndarray, z: np.ndarray, w: np.ndarray) -> np.ndarray:
    return x * z + w[:, None]


@pytest.fixture(scope="module")
def products(emulator_library: Emulator) -> OpenSizeCudaExecutable:
    with compiling_for(emulator_library):
        model = parser.parse_model(PRODUCTS)
        exe = stepwell.compile(model, TARGET, options=OPTIONS, max_sizes={"batch": 20, "n": 100})
    assert isinstance(exe, OpenSizeCudaExecutable)
    return exe


def test_only_what_is_in_use_is_copied(products: OpenSizeCudaExecutable) -> None:
    assert str(products.inputs[0]) == "x: float32[batch, n]"
    for sizes in ((3, 70), (20, 100), (1, 1), (20, 99), (7, 100)):
        given = operands(*sizes)
        (got,) = products(*given)
        np.testing.assert_allclose(got, wanted(*given), 1e-6, 1e-6)
        assert got.flags.owndata
    plan = products._plan_of((3, 70))
    assert plan.inputs == [Region(3, 280, 400)] * 2 + [Region(1, 12, 80)]
    assert plan.outputs == [Region(3, 280, 400)]


@pytest.mark.skipif(ON_GPU, reason="the emulator counts copies")
def test_sizes_are_told_once(products: OpenSizeCudaExecutable, emulator_library: Emulator) -> None:
    given = operands(7, 100)
    copies = []
    for array in (*operands(8, 100)[:1], given[0], given[0]):
        begin = emulator_library.library.emulator_copies()
        products(array, *operands(len(array), 100)[1:])
        copies.append(emulator_library.library.emulator_copies() - begin)
    hidden = len(products.artifact.manifest.inputs) - len(products.inputs)
    assert copies[1:] == [4 + hidden, 4]


def test_inputs_and_results_on_the_gpu(products: OpenSizeCudaExecutable) -> None:
    for sizes in ((3, 70), (20, 100), (5, 100)):
        given = operands(*sizes)
        tensors = [DeviceArray.copy_of(array) for array in given]
        np.testing.assert_allclose(products(*tensors)[0], wanted(*given), 1e-6, 1e-6)
        assert products.results_are_arrays
        (result,) = products.run_on_device(*tensors)
        assert isinstance(result, DeviceArray)
        assert result.shape == sizes
        np.testing.assert_allclose(result.numpy(), wanted(*given), 1e-6, 1e-6)


def test_unfit_sizes(products: OpenSizeCudaExecutable) -> None:
    x, z, w = operands(21, 5)
    with pytest.raises(stepwell.InputError, match="batch <= 20, n <= 100"):
        products(x, z, w)
    with pytest.raises(stepwell.InputError, match="takes 3 inputs"):
        products(x, z)
    x, z, w = operands(2, 5)
    with pytest.raises(stepwell.InputError, match=r"z: \[2, 4\]"):
        products(x, z[:, :4], w)
    np.testing.assert_allclose(products(x, z, w)[0], wanted(x, z, w), 1e-6, 1e-6)


def test_times(products: OpenSizeCudaExecutable) -> None:
    given = operands(4, 30)
    assert products.time(*given, calls=3) > 0
    assert [kernel.name for kernel, _ in products.profile(*given)] == [
        kernel.name for kernel in products.kernels
    ]


def test_three_open_dimensions_that_lie_apart(emulator: Emulator) -> None:
    """On the host by way of an array of the capacity; not on the GPU."""
    with compiling_for(emulator):
        exe = compiled(lambda x: x * 2, "a, b, c", {"a": 3, "b": 5, "c": 7}, np.float32)
    assert isinstance(exe, OpenSizeCudaExecutable)
    assert not exe.results_are_arrays
    for shape in ((2, 3, 4), (3, 5, 7), (2, 5, 3), (1, 2, 7), (3, 2, 7)):
        x = normal(*shape)
        np.testing.assert_array_equal(exe(x)[0], 2 * x)
    tensor = DeviceArray.copy_of(normal(2, 3, 4))
    with pytest.raises(stepwell.InputError, match="no rows at one distance; give it on the host"):
        exe(tensor)
    with pytest.raises(stepwell.UsageError, match="call the model itself"):
        exe.run_on_device(normal(2, 3, 4))


@pytest.mark.parametrize(
    ("used", "capacity", "region"),
    [
        ((3, 4), (3, 4), Region(1, 48, 48)),
        ((2, 4), (3, 4), Region(1, 32, 48)),
        ((2, 3), (3, 4), Region(2, 12, 16)),
        ((1, 3), (3, 4), Region(1, 12, 16)),
        ((0, 3), (3, 4), NOTHING),
        ((2, 3, 4), (2, 5, 4), Region(2, 48, 80)),
        ((2, 5, 3), (3, 5, 4), Region(10, 12, 16)),
        ((2, 3, 3), (2, 5, 4), None),
        ((1, 3, 3), (2, 5, 4), Region(3, 12, 16)),
        ((), (), Region(1, 4, 4)),
    ],
)
def test_regions(used: tuple, capacity: tuple, region: Region | None) -> None:
    assert region_of(used, capacity, 4) == region


def test_compiled_at_the_call(emulator: Emulator) -> None:
    """For the first shapes, then for any size; an artifact of that is loaded for the GPU."""
    model = parser.parse_model("""<ir_version: 8, opset_import: ["": 18]>
        g (float[n, 6] x) => (float[n, 6] y) { y = Softmax <axis = 0> (x) }""")
    softmax = functools.partial(jax.nn.softmax, axis=0)
    with compiling_for(emulator):
        exe = stepwell.compile(model, TARGET, options=OPTIONS)
        assert isinstance(exe, SpecializingExecutable)
        for number, rows in enumerate((3, 9, 1, 16, 5)):
            x = normal(rows, 6)
            given = DeviceArray.copy_of(x) if number % 2 else x
            np.testing.assert_allclose(exe(given)[0], softmax(x), 1e-5, 1e-6)
        assert isinstance(exe.specialized(x), OpenSizeCudaExecutable)
        assert repr(exe).endswith("2 compiled>")


def test_values_that_tell_shapes(emulator: Emulator, tmp_path: Path) -> None:
    """Those of results on the way, and of an input that lies on the GPU."""
    model = parser.parse_model("""<ir_version: 8, opset_import: ["": 18]>
        g (float[8] x, int64[1] n) => (float[m] y, float[k] z) {
            i = NonZero(x) f = Constant <value_ints = [-1]> () j = Reshape(i, f) y = Gather(x, j)
            r = Reshape(x, f) z = Tile(r, n) }""")
    onnx.save(model, tmp_path / "model.onnx")
    x = np.array([0, 1, 0, 0, 2, 3, 0, 4], np.float32)
    with compiling_for(emulator):
        exe = stepwell.compile(tmp_path / "model.onnx", TARGET, options=OPTIONS)
        for count in (np.array([2]), DeviceArray.copy_of(np.array([3]))):
            y, z = exe(x, count)
            np.testing.assert_array_equal(y, x[x != 0])
            times = count if isinstance(count, np.ndarray) else count.numpy()
            np.testing.assert_array_equal(z, np.tile(x, times))


def test_sizes_that_depend_on_data(emulator: Emulator) -> None:
    """The part behind what is found takes any number; a result is cut to what is counted there."""
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["": 18]> g (float[5, 8] x) => (float[n] y, float[m] z) {
            zero = Constant <value_float = 0.0> () above = Greater(x, zero)
            places = NonZero(above) pairs = Transpose(places) found = GatherND(x, pairs)
            y = Exp(found) two = Constant <value_float = 2.0> ()
            large = Greater(y, two) z = Compress <axis = 0> (y, large) }"""
    )
    with compiling_for(emulator):
        exe = stepwell.compile(model, TARGET, options=OPTIONS)
        assert isinstance(exe, SpecializingExecutable)
        for _ in range(4):
            x = normal(5, 8)
            y, z = exe(x)
            np.testing.assert_allclose(y, np.exp(x[x > 0]), 1e-6)
            np.testing.assert_array_equal(z, y[y > 2])
    (code,) = exe.codes_for_any_size
    assert isinstance(code, OpenSizeCudaExecutable)
    assert not code.results_are_arrays
    with pytest.raises(stepwell.UsageError, match="shapes depend on data"):
        code.run_on_device(x, np.argwhere(x > 0).T)


def test_known_shapes_as_before(emulator: Emulator) -> None:
    model = parser.parse_model(PRODUCTS)
    with compiling_for(emulator):
        shapes = {"x": (2, 3), "z": (2, 3), "w": (2,)}
        exe = stepwell.compile(model, TARGET, shapes=shapes, options=OPTIONS)
    assert isinstance(exe, CudaExecutable)
    given = operands(2, 3)
    np.testing.assert_allclose(exe(*given)[0], wanted(*given), 1e-6, 1e-6)
