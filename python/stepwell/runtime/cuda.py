"""The C runtime's CUDA half by ctypes (runtime/stepwell_cuda.h), and the GPU of this machine."""

from __future__ import annotations

import ctypes
import functools
import os
from dataclasses import dataclass

from stepwell.errors import Error
from stepwell.runtime import library

DRIVER = "libcuda.so.1"
DRIVER_VARIABLE = "STEPWELL_CUDA_DRIVER"
"""Environment variable that names another driver library."""

_POINTER = ctypes.c_void_p
_NUMBERS = ctypes.POINTER(ctypes.c_int64)


class _Device(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char * 128),
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
        ("driver", ctypes.c_int),
        ("multiprocessors", ctypes.c_int),
        ("clock", ctypes.c_int),
    )


class Spec(ctypes.Structure):
    """stepwell_cuda_spec."""

    _fields_ = (
        ("images", ctypes.POINTER(ctypes.c_char_p)),
        ("others", ctypes.POINTER(ctypes.c_char_p)),
        ("kernels", ctypes.POINTER(ctypes.c_char_p)),
        ("kernel_count", ctypes.c_int64),
        ("program", _NUMBERS),
        ("program_length", ctypes.c_int64),
        ("slots", ctypes.c_int64),
        ("library_functions", ctypes.POINTER(_POINTER)),
        ("library_function_count", ctypes.c_int64),
        ("input_bytes", _NUMBERS),
        ("input_count", ctypes.c_int64),
        ("output_bytes", _NUMBERS),
        ("output_count", ctypes.c_int64),
        ("weights", _POINTER),
        ("weights_bytes", ctypes.c_int64),
        ("arena_bytes", ctypes.c_int64),
        ("zeroed_bytes", ctypes.c_int64),
        ("early", ctypes.c_char_p),
    )


class Buffer(ctypes.Structure):
    """stepwell_cuda_buffer."""

    _fields_ = (
        ("data", _POINTER),
        ("on_device", ctypes.c_int64),
        ("rows", ctypes.c_int64),
        ("row_bytes", ctypes.c_int64),
        ("pitch", ctypes.c_int64),
    )


@dataclass(frozen=True)
class Device:
    """A GPU: its name, compute capability, the newest CUDA release that its driver knows, and its
    multiprocessors with their highest clock in Hz."""

    name: str
    capability: tuple[int, int]
    driver: tuple[int, int]
    multiprocessors: int
    clock: float


@functools.cache
def functions() -> ctypes.CDLL:
    """The C runtime, with the types of its functions for GPUs."""
    lib = library.library()
    buffers, milliseconds = ctypes.POINTER(Buffer), ctypes.POINTER(ctypes.c_float)
    number, message, pointers = ctypes.c_int64, ctypes.c_char_p, ctypes.POINTER(_POINTER)
    signatures: dict[str, tuple[object, list]] = {
        "open": (message, [ctypes.c_char_p, ctypes.POINTER(_Device)]),
        "time_copy": (message, [number, milliseconds]),
        "create": (message, [ctypes.POINTER(Spec), pointers]),
        "run": (message, [_POINTER, buffers, buffers]),
        "profile": (message, [_POINTER, buffers, buffers, milliseconds, _NUMBERS]),
        "time": (message, [_POINTER, buffers, buffers, number, milliseconds]),
        "stream": (_POINTER, [_POINTER]),
        "destroy": (None, [_POINTER]),
        "take": (message, [number, pointers]),
        "release": (None, [_POINTER]),
        "address": (_POINTER, [_POINTER]),
        "upload": (message, [_POINTER, _POINTER, number]),
        "download": (message, [_POINTER, _POINTER, number]),
        "export": (_POINTER, [_POINTER, ctypes.c_int, ctypes.c_int, ctypes.c_int, _NUMBERS]),
        "discard": (None, [_POINTER]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(lib, f"stepwell_cuda_{name}")
        function.restype, function.argtypes = result, arguments
    return lib


def check(message: bytes | None) -> None:
    """Raise Error when a function of the runtime gave a message."""
    if message is not None:
        raise Error(message.decode(errors="replace"))


def device() -> Device:
    """The first GPU. Raises Error with a sentence when there is no driver or no GPU."""
    found = _Device()
    driver = os.environ.get(DRIVER_VARIABLE, DRIVER)
    check(functions().stepwell_cuda_open(driver.encode(), ctypes.byref(found)))
    return Device(
        found.name.decode(),
        (found.major, found.minor),
        (found.driver // 1000, found.driver % 1000 // 10),
        found.multiprocessors,
        found.clock * 1e3,
    )


def copy_bandwidth(size: int = 256 << 20) -> float:
    """Bytes a second that a copy on the GPU reads and writes; `size` bytes are copied."""
    device()
    milliseconds = ctypes.c_float()
    check(functions().stepwell_cuda_time_copy(size, ctypes.byref(milliseconds)))
    return 2 * size / max(milliseconds.value * 1e-3, 1e-12)
