"""Arrays on the GPU: results of calls, and other libraries' tensors through DLPack.

Structures as in https://dmlc.github.io/dlpack/latest/c_api.html.
"""

from __future__ import annotations

import ctypes
import weakref
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np

from stepwell.errors import InputError
from stepwell.runtime.cuda import check, device, functions
from stepwell.runtime.inputs import check_dtype, numpy_dtype

_CUDA, _MANAGED = 2, 13
"""Kinds of devices: memory of a GPU, and memory that GPU and host share."""

_GPU = (_CUDA, 0)
_CAPSULE, _CAPSULE_TAKEN = b"dltensor", b"used_dltensor"
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
"""Type codes by the kind of numpy's dtypes."""

_NAMED_CODES = {
    "bfloat16": 4,
    "float8_e3m4": 7,
    "float8_e4m3": 8,
    "float8_e4m3b11fnuz": 9,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
}
"""Type codes of ml_dtypes."""


class _Tensor(ctypes.Structure):
    """DLTensor, with which a DLManagedTensor begins."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Exporter(Protocol):
    def __dlpack__(self, *, stream: int | None = None) -> object: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...


@dataclass(frozen=True)
class DeviceTensor:
    """Another library's tensor on the GPU, dense and row-major, for as long as this object is."""

    address: int
    shape: tuple[int, ...]
    capsule: object


def is_on_gpu(value: object) -> bool:
    """Whether `value` is a tensor in the memory of a GPU."""
    if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack_device__"):
        return False
    return int(cast("_Exporter", value).__dlpack_device__()[0]) in (_CUDA, _MANAGED)


def host_copy(name: str, value: object) -> np.ndarray:
    """`value` on the host: an array as it is, a copy of a tensor on the GPU. It is input `name`,
    whose value has to be known. Raises InputError where its library makes no such copy."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, DeviceArray):
        return value.numpy()
    try:
        return np.from_dlpack(value, device="cpu", copy=True)  # pyright: ignore[reportArgumentType]
    except (BufferError, TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"shapes of the model depend on the value of input {name!r}, which lies on the GPU: "
            f"give it on the host ({error})"
        ) from error


def device_tensor(value: object, name: str, dtype: np.dtype, stream: int) -> DeviceTensor | None:
    """`value` if it lies on the GPU, ready for work on the CUDA stream `stream`; None if not. It is
    input `name`, which has `dtype`.

    Raises InputError for another GPU or dtype, and for a tensor that is not contiguous.
    """
    if not is_on_gpu(value):
        return None
    exporter = cast("_Exporter", value)
    number = int(exporter.__dlpack_device__()[1])
    if number != 0:
        raise InputError(
            f"input {name!r} lies on GPU {number} and the model runs on GPU 0; move it there"
        )
    try:
        capsule = exporter.__dlpack__(stream=stream)
    except (BufferError, TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"input {name!r}, a {type(value).__name__}, cannot be taken by DLPack: {error}"
        ) from error
    tensor = ctypes.cast(_capsule_pointer(capsule), ctypes.POINTER(_Tensor)).contents
    check_dtype(_dtype_of(tensor, name), name, dtype)
    shape = tuple(tensor.shape[: tensor.rank])
    if tensor.strides and not _is_dense(shape, tensor.strides[: tensor.rank]):
        raise InputError(
            f"input {name!r} is not contiguous: its strides are "
            f"{tuple(tensor.strides[: tensor.rank])}; make it so, with .contiguous() for instance"
        )
    return DeviceTensor((tensor.data or 0) + tensor.byte_offset, shape, capsule)


def _dtype_of(tensor: _Tensor, name: str) -> np.dtype:
    named = {code: dtype for dtype, code in _NAMED_CODES.items()}
    kinds = {code: kind for kind, code in _CODES.items()}
    if tensor.lanes == 1 and tensor.code in named:
        return numpy_dtype(named[tensor.code])
    if tensor.lanes != 1 or tensor.code not in kinds or tensor.bits % 8:
        raise InputError(
            f"input {name!r} has a type of DLPack that is not known here: code {tensor.code}, "
            f"{tensor.bits} bits, {tensor.lanes} lanes"
        )
    return np.dtype(f"{kinds[tensor.code]}{tensor.bits // 8}")


def _is_dense(shape: tuple[int, ...], strides: list[int]) -> bool:
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size > 1 and stride != step:
            return False
        step *= size
    return True


class DeviceArray:
    """A result on the GPU, row-major and finished: `torch.from_dlpack` and its like take it without
    a copy, so do calls of models, and `numpy` copies it to the host."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        """Uninitialised memory. Raises Error when there is none left."""
        self.shape, self.dtype = shape, dtype
        self.nbytes = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        self._block = ctypes.c_void_p()
        check(functions().stepwell_cuda_take(self.nbytes, ctypes.byref(self._block)))
        weakref.finalize(self, functions().stepwell_cuda_release, self._block)

    @staticmethod
    def copy_of(array: np.ndarray) -> DeviceArray:
        """A copy of `array` on the GPU."""
        device()
        copy, source = DeviceArray(array.shape, array.dtype), np.ascontiguousarray(array)
        check(functions().stepwell_cuda_upload(copy._block, source.ctypes.data, copy.nbytes))
        return copy

    @property
    def address(self) -> int:
        """Where it begins on the GPU."""
        return functions().stepwell_cuda_address(self._block)

    def numpy(self) -> np.ndarray:
        """A copy on the host."""
        array = np.empty(self.shape, self.dtype)
        check(functions().stepwell_cuda_download(self._block, array.ctypes.data, array.nbytes))
        return array

    def __dlpack_device__(self) -> tuple[int, int]:
        return _GPU

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A capsule with the array. It is finished, so that no `stream` has to wait for it."""
        del stream, max_version
        if (dl_device is not None and tuple(map(int, dl_device)) != _GPU) or copy:
            raise BufferError("this array is given away where it lies, on GPU 0, and not copied")
        code = _NAMED_CODES.get(self.dtype.name, _CODES.get(self.dtype.kind))
        if code is None:
            raise BufferError(f"DLPack has no type for {self.dtype}")
        rank = len(self.shape)
        shape = (ctypes.c_int64 * max(1, rank))(*self.shape)
        pointer = functions().stepwell_cuda_export(
            self._block, code, 8 * self.dtype.itemsize, rank, shape
        )
        if not pointer:
            raise MemoryError("there is not enough memory for a DLPack tensor")
        return _python.PyCapsule_New(pointer, _CAPSULE, _discard)

    def __repr__(self) -> str:
        return f"<stepwell.DeviceArray {self.dtype}[{', '.join(map(str, self.shape))}]>"


_python = ctypes.pythonapi
_python.PyCapsule_New.restype = ctypes.py_object
_python.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
# Capsules by address: the one that is being destroyed may not be counted again.
_python.PyCapsule_IsValid.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
_python.PyCapsule_GetPointer.restype = ctypes.c_void_p
_python.PyCapsule_GetPointer.argtypes = [ctypes.c_void_p, ctypes.c_char_p]


def _capsule_pointer(capsule: object) -> int:
    return _python.PyCapsule_GetPointer(id(capsule), _CAPSULE)


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _discard(capsule: int) -> None:
    """What becomes of a capsule that nobody took; who takes one renames it."""
    if _python.PyCapsule_IsValid(capsule, _CAPSULE):
        functions().stepwell_cuda_discard(_python.PyCapsule_GetPointer(capsule, _CAPSULE))
