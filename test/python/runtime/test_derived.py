"""Weights that the runtime packs: arguments of the model at the first call, and again when they
change; transformed filters when it loads the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import stepwell
from stepwell.lowering import Lowered
from stepwell.packing import (
    PanelPacking,
    WinogradPacking,
    packing_from_dict,
    packing_to_dict,
)

CONVOLUTION = (
    "dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], "
    "window = {stride = [1, 1], pad = [[1, 1], [1, 1]]} "
    "{batch_group_count = 1 : i64, feature_group_count = 1 : i64}"
)
MODEL = f"""
func.func @main(%k: tensor<3x3x32x32xf32>, %w: tensor<32x140xf32>, %v: tensor<140x64xf32>,
                %x: tensor<1x12x12x32xf32>) -> tensor<144x64xf32> {{
  %0 = stablehlo.convolution(%x, %k) {CONVOLUTION}
      : (tensor<1x12x12x32xf32>, tensor<3x3x32x32xf32>) -> tensor<1x12x12x32xf32>
  %1 = stablehlo.reshape %0 : (tensor<1x12x12x32xf32>) -> tensor<144x32xf32>
  %2 = stablehlo.dot %1, %w : (tensor<144x32xf32>, tensor<32x140xf32>) -> tensor<144x140xf32>
  %3 = stablehlo.dot %2, %v : (tensor<144x140xf32>, tensor<140x64xf32>) -> tensor<144x64xf32>
  return %3 : tensor<144x64xf32>
}}
"""
TOLERANCE = 1e-5
"""Relative L2 error: sums of up to 288 terms in float32, one layer by Winograd's algorithm."""


def arguments() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    shapes = [(3, 3, 32, 32), (32, 140), (140, 64), (1, 12, 12, 32)]
    return [random.standard_normal(shape).astype(np.float32) for shape in shapes]


def expected(k: np.ndarray, w: np.ndarray, v: np.ndarray, x: np.ndarray) -> np.ndarray:
    padded = np.pad(x[0].astype(np.float64), ((1, 1), (1, 1), (0, 0)))
    image = sum(padded[i : i + 12, j : j + 12] @ k[i, j] for i in range(3) for j in range(3))
    return np.asarray(image).reshape(144, 32) @ w @ v


def check(exe: stepwell.Executable, given: list[np.ndarray]) -> None:
    (result,) = exe(*given)
    wanted = expected(*given)
    assert np.linalg.norm(result - wanted) <= TOLERANCE * np.linalg.norm(wanted)


def test_parameters_are_packed_and_followed() -> None:
    exe = stepwell.compile(MODEL)
    packed = [weight.input for weight in exe.artifact.manifest.derived]
    assert sorted(packed) == [0, 1, 2]
    given = arguments()
    check(exe, given)
    check(exe, given)
    for array in given:  # in place: the same objects with another content
        array.reshape(-1)[5] += 3
        check(exe, given)


def test_a_deleted_array_is_refused() -> None:
    jax = pytest.importorskip("jax")
    exe = stepwell.compile(MODEL)
    given = [jax.device_put(array) for array in arguments()]
    exe(*given)
    given[1].delete()
    with pytest.raises(stepwell.InputError, match=r"input 'arg1', a ArrayImpl, cannot be taken"):
        exe(*given)
    given[1] = jax.device_put(2 * arguments()[1])
    check(exe, [np.asarray(array) for array in given])
    (result,) = exe(*given)
    wanted = expected(*map(np.asarray, given))
    assert np.linalg.norm(result - wanted) <= TOLERANCE * np.linalg.norm(wanted)


def test_an_immutable_array_is_known_by_itself() -> None:
    jax = pytest.importorskip("jax")
    exe = stepwell.compile(MODEL)
    first, second = arguments(), [2 * array for array in arguments()]
    for given in (first, second, first):
        (result,) = exe(*(jax.numpy.asarray(array) for array in given))
        wanted = expected(*given)
        assert np.linalg.norm(result - wanted) <= TOLERANCE * np.linalg.norm(wanted)


def test_an_immutable_array_comes_back_after_another() -> None:
    jax = pytest.importorskip("jax")
    exe = stepwell.compile(MODEL)
    fixed = [jax.numpy.asarray(array) for array in arguments()]
    between = [2 * array for array in arguments()]
    for given in (fixed, between, fixed):
        (result,) = exe(*given)
        wanted = expected(*(np.asarray(array) for array in given))
        assert np.linalg.norm(result - wanted) <= TOLERANCE * np.linalg.norm(wanted)


def test_a_packing_that_fails_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    exe = stepwell.compile(MODEL)
    given, other = arguments(), [2 * array for array in arguments()]
    check(exe, given)

    def fail(self: PanelPacking, array: np.ndarray) -> np.ndarray:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(PanelPacking, "apply", fail)
        with pytest.raises(MemoryError):
            exe(*other)
    check(exe, given)
    check(exe, other)


def with_filters(filters: np.ndarray) -> str:
    """A convolution by filters that are a constant."""
    return f"""
    func.func @main(%x: tensor<1x12x12x32xf32>) -> tensor<1x12x12x32xf32> {{
      %k = stablehlo.constant dense<"0x{filters.tobytes().hex()}"> : tensor<3x3x32x32xf32>
      %0 = stablehlo.convolution(%x, %k) {CONVOLUTION}
          : (tensor<1x12x12x32xf32>, tensor<3x3x32x32xf32>) -> tensor<1x12x12x32xf32>
      return %0 : tensor<1x12x12x32xf32>
    }}
    """


def check_convolution(exe: stepwell.Executable, filters: np.ndarray) -> None:
    *_, image = arguments()
    identity = np.eye(32, dtype=np.float32)
    wanted = expected(filters, identity, identity, image).reshape(image.shape)
    (result,) = exe(image)
    assert np.linalg.norm(result - wanted) <= TOLERANCE * np.linalg.norm(wanted)


def test_filters_are_stored_as_they_are_and_transformed_when_loaded(tmp_path: Path) -> None:
    filters, path = arguments()[0], tmp_path / "model.stepwell"
    stepwell.compile(with_filters(filters)).save(path)
    exe = stepwell.load(path)
    manifest = exe.artifact.manifest
    (derived,) = manifest.derived
    assert isinstance(derived.packing, WinogradPacking)
    assert manifest.plain_bytes == derived.constant == 0
    assert manifest.weights_bytes == filters.nbytes < derived.bytes
    check_convolution(exe, filters)


@pytest.mark.parametrize("level", ["linalg", "affine", "llvm"])
def test_a_saved_walk_transforms_filters_as_well(level: str, tmp_path: Path) -> None:
    filters, path = arguments()[0], tmp_path / "model.mlir"
    lowered = stepwell.lower(with_filters(filters))
    lowered.step(level)
    lowered.save(path)
    resumed = Lowered.resume(path.read_text(), level, weights=f"{path}.safetensors")
    check_convolution(resumed.compile(), filters)


def test_a_saved_model_packs_its_parameters(tmp_path: Path) -> None:
    path = tmp_path / "model.stepwell"
    stepwell.compile(MODEL).save(path)
    exe = stepwell.load(path)
    assert len(exe.artifact.manifest.derived) == 3
    check(exe, arguments())


def test_packing_can_be_turned_off() -> None:
    exe = stepwell.compile(MODEL, options={"pack_parameters": False})
    assert not exe.artifact.manifest.derived
    check(exe, arguments())


@pytest.mark.parametrize("level", ["linalg", "affine", "llvm"])
def test_a_resumed_walk_packs_as_well(level: str, tmp_path: Path) -> None:
    lowered = stepwell.lower(MODEL)
    lowered.step(level)
    check(lowered.compile(), arguments())


def test_panels() -> None:
    packing = PanelPacking((5, 20), (0, 1), 0, 16)
    array = np.arange(100, dtype=np.float32).reshape(5, 20)
    packed = packing.apply(array)
    assert packed.shape == packing.shape == (2, 5, 16)
    np.testing.assert_array_equal(packed[0], array[:, :16])
    np.testing.assert_array_equal(packed[1, :, :4], array[:, 16:])
    assert not packed[1, :, 4:].any()


def test_packings_are_data() -> None:
    for packing in (
        PanelPacking((2, 5, 20), (0, 1, 2), 1, 16),
        WinogradPacking((1, 3, 16, 16), (((1.0,),), ((1.0, 0.0, 0.0), (0.0, 0.0, 1.0))), 16),
    ):
        assert packing_from_dict(packing_to_dict(packing)) == packing


def test_filters_of_earlier_artifacts() -> None:
    """Up to format 11, a filter's rows and columns had one matrix and one stride."""
    matrix = [[1.0, 0.5], [0.0, 1.0]]
    data = {"kind": "winograd", "source": [3, 3, 4, 8], "matrix": matrix, "panel": 8, "stride": 2}
    rows = ((1.0, 0.5), (0.0, 1.0))
    assert packing_from_dict(data) == WinogradPacking((3, 3, 4, 8), (rows, rows), 8, (2, 2))
