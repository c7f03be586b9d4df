"""Tensors on the GPU go in and out through DLPack, without copies."""

from __future__ import annotations

import ctypes
import gc

import ml_dtypes
import numpy as np
import pytest
from emulator import Emulator
from models import Compiled, compile_for_gpu, load_on_emulator
from test_models import exported

import stepwell
from stepwell.runtime.device_arrays import DeviceArray, device_tensor

X = np.arange(12, dtype=np.float32).reshape(3, 4)


class FakeTensor:
    """An array of the host that says it lies on a GPU, which is true of the emulated one."""

    def __init__(self, array: np.ndarray, device: tuple[int, int] = (2, 0)) -> None:
        self.array, self.device = array, device
        self.streams: list[int | None] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, *, stream: int | None = None) -> object:
        self.streams.append(stream)
        return self.array.__dlpack__()


def aligned(array: np.ndarray, skip: int = 0) -> np.ndarray:
    """A copy that begins `skip` bytes after a multiple of 64."""
    memory = np.zeros(array.nbytes + 128, np.uint8)
    start = -memory.ctypes.data % 64 + skip
    result = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    result[...] = array
    return result


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return compile_for_gpu(exported(lambda x: x * 2 + 1, X))


def test_inputs_are_read_in_place(compiled: Compiled, emulator: Emulator) -> None:
    executable = load_on_emulator(compiled, emulator)
    tensor = FakeTensor(aligned(X))
    before = emulator.library.emulator_copies()
    np.testing.assert_array_equal(executable(tensor)[0], X * 2 + 1)
    assert emulator.library.emulator_copies() - before == 1  # the output
    assert tensor.streams == [executable._stream]
    tensor.array[0, 0] = 7
    assert executable(tensor)[0][0, 0] == 15


def test_unaligned_inputs_are_copied(compiled: Compiled, emulator: Emulator) -> None:
    """Kernels read 16 bytes at once."""
    executable = load_on_emulator(compiled, emulator)
    np.testing.assert_array_equal(executable(FakeTensor(aligned(X, skip=4)))[0], X * 2 + 1)


def test_results_stay_on_the_gpu(compiled: Compiled, emulator: Emulator) -> None:
    executable = load_on_emulator(compiled, emulator)
    before = emulator.library.emulator_copies()
    (first,) = executable.run_on_device(FakeTensor(aligned(X)))
    (second,) = executable.run_on_device(first)
    assert emulator.library.emulator_copies() == before
    assert (second.shape, second.dtype) == (X.shape, X.dtype)
    np.testing.assert_array_equal(second.numpy(), X * 4 + 3)
    np.testing.assert_array_equal(first.numpy(), X * 2 + 1)
    np.testing.assert_array_equal(executable(X)[0], X * 2 + 1)


class FromDevice:
    """What numpy takes for an array of the host: the memory of the emulated GPU is."""

    def __init__(self, array: DeviceArray) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **_: object) -> object:
        capsule = self.array.__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer(id(capsule), b"dltensor")
        ctypes.cast(pointer, ctypes.POINTER(ctypes.c_int32))[2] = 1  # the kind of the device
        return capsule


def test_memory_lives_as_long_as_its_tensors(compiled: Compiled, emulator: Emulator) -> None:
    executable = load_on_emulator(compiled, emulator)
    (result,) = executable.run_on_device(X)
    taken = np.from_dlpack(FromDevice(result))  # pyright: ignore[reportArgumentType]
    place = result.address
    unused = result.__dlpack__()
    del result, unused
    gc.collect()
    (other,) = executable.run_on_device(X + 1)
    assert other.address != place
    np.testing.assert_array_equal(taken, X * 2 + 1)
    del taken
    gc.collect()
    (again,) = executable.run_on_device(X + 2)
    assert again.address == place


@pytest.mark.parametrize(
    ("tensor", "sentence"),
    [
        (FakeTensor(X, (2, 1)), "input '{}' lies on GPU 1 and the model runs on GPU 0"),
        (FakeTensor(X.astype(np.int32)), "has dtype int32 and the model takes float32"),
        (FakeTensor(X[:2]), "has shape (2, 4) and the model was compiled for (3, 4)"),
        (FakeTensor(X[0]), "has rank 1"),
        (FakeTensor(X.T.copy().T), "is not contiguous: its strides are (1, 3)"),
    ],
)
def test_unfit_tensors(
    tensor: FakeTensor, sentence: str, compiled: Compiled, emulator: Emulator
) -> None:
    executable = load_on_emulator(compiled, emulator)
    with pytest.raises(stepwell.InputError) as caught:
        executable(tensor)
    assert sentence.format(executable.inputs[0].name) in str(caught.value)


def test_a_tensor_that_refuses(compiled: Compiled, emulator: Emulator) -> None:
    class Refuses(FakeTensor):
        def __dlpack__(self, *, stream: int | None = None) -> object:
            raise BufferError("it requires a gradient")

    with pytest.raises(stepwell.InputError, match=r"by DLPack: it requires a gradient"):
        load_on_emulator(compiled, emulator)(Refuses(X))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "float64",
                                   "complex64", "bfloat16", "float8_e4m3fn"])  # fmt: skip
def test_types_survive(dtype: str, compiled: Compiled, emulator: Emulator) -> None:
    """A result is known again as an input: types, and sizes of 1 whatever their strides."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    load_on_emulator(compiled, emulator)
    array = DeviceArray((2, 1, 3), kind)
    spec = stepwell.artifact.TensorSpec("x", dtype, (2, 1, 3))
    found = device_tensor(array, spec, kind, 0)
    assert found is not None
    assert found.address == array.address
    assert device_tensor(np.zeros(3), spec, kind, 0) is None


def test_arrays_of_the_host(compiled: Compiled, emulator: Emulator) -> None:
    executable = load_on_emulator(compiled, emulator)
    array = DeviceArray.copy_of(X.T.copy().T)
    np.testing.assert_array_equal(array.numpy(), X)
    np.testing.assert_array_equal(executable(array)[0], X * 2 + 1)


def test_what_dlpack_cannot_say(compiled: Compiled, emulator: Emulator) -> None:
    load_on_emulator(compiled, emulator)
    with pytest.raises(BufferError, match="DLPack has no type for int4"):
        DeviceArray((2,), np.dtype(ml_dtypes.int4)).__dlpack__()
    with pytest.raises(BufferError, match="given away where it lies"):
        DeviceArray((2,), np.dtype("f4")).__dlpack__(dl_device=(1, 0))
