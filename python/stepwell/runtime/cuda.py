"""Models on NVIDIA GPUs: the C runtime's driver shim by ctypes (runtime/stepwell_cuda.h)."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stepwell import artifact
from stepwell.artifact import Artifact, KernelInfo, TensorSpec
from stepwell.errors import ArtifactError, Error
from stepwell.runtime import library
from stepwell.runtime.buffers import address
from stepwell.runtime.inputs import as_input, named_inputs, numpy_dtype, wrong_count
from stepwell.runtime.results import arranged

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
    )


class _Spec(ctypes.Structure):
    _fields_ = (
        ("images", ctypes.POINTER(ctypes.c_char_p)),
        ("kernels", ctypes.POINTER(ctypes.c_char_p)),
        ("kernel_count", ctypes.c_int64),
        ("program", _NUMBERS),
        ("program_length", ctypes.c_int64),
        ("slots", ctypes.c_int64),
        ("input_bytes", _NUMBERS),
        ("input_count", ctypes.c_int64),
        ("output_bytes", _NUMBERS),
        ("output_count", ctypes.c_int64),
        ("weights", _POINTER),
        ("weights_bytes", ctypes.c_int64),
        ("arena_bytes", ctypes.c_int64),
    )


@dataclass(frozen=True)
class Device:
    """A GPU: its name, compute capability, and the newest CUDA release that its driver knows."""

    name: str
    capability: tuple[int, int]
    driver: tuple[int, int]


@functools.cache
def _functions() -> ctypes.CDLL:
    lib = library.library()
    for name, arguments in (
        ("open", [ctypes.c_char_p, ctypes.POINTER(_Device)]),
        ("create", [ctypes.POINTER(_Spec), ctypes.POINTER(_POINTER)]),
        ("run", [_POINTER, _POINTER, _POINTER]),
    ):
        function = getattr(lib, f"stepwell_cuda_{name}")
        function.argtypes, function.restype = arguments, ctypes.c_char_p
    lib.stepwell_cuda_destroy.argtypes, lib.stepwell_cuda_destroy.restype = [_POINTER], None
    return lib


def device() -> Device:
    """The first GPU. Raises Error with a sentence when there is no driver or no GPU."""
    found = _Device()
    _check(
        _functions().stepwell_cuda_open(
            os.environ.get(DRIVER_VARIABLE, DRIVER).encode(), ctypes.byref(found)
        )
    )
    driver = found.driver // 1000, found.driver % 1000 // 10
    return Device(found.name.decode(), (found.major, found.minor), driver)


def _check(message: bytes | None) -> None:
    if message is not None:
        raise Error(message.decode(errors="replace"))


class CudaExecutable:
    """A model compiled for an NVIDIA GPU, in the memory of the first one.

    Call it with arrays in the order of `inputs`, or use `run` with a dict. Calls from several
    threads take turns. Outputs are fresh numpy arrays at each call.
    """

    def __init__(self, source: Artifact) -> None:
        manifest = source.manifest
        if manifest.cuda is None:
            raise ArtifactError(f"{source.path} was compiled for {manifest.target}, not for a GPU")
        self.artifact = source
        self.inputs: tuple[TensorSpec, ...] = manifest.inputs
        visible = len(manifest.outputs) - len(manifest.cuts)
        self.outputs: tuple[TensorSpec, ...] = manifest.outputs[:visible]
        self.kernels: tuple[KernelInfo, ...] = manifest.kernels
        self.result_names = list(manifest.results) or [spec.name for spec in self.outputs]
        self._program = manifest.cuda
        self.device = self._checked_device()
        self._expected = [(numpy_dtype(spec.dtype), spec.shape) for spec in manifest.inputs]
        self._results = [(spec.shape, numpy_dtype(spec.dtype)) for spec in manifest.outputs]
        self._input_pointers = (_POINTER * max(1, len(self._expected)))()
        self._output_pointers = (_POINTER * max(1, len(self._results)))()
        self._lock = threading.Lock()
        self._model = self._create()
        weakref.finalize(self, _functions().stepwell_cuda_destroy, self._model)

    def _checked_device(self) -> Device:
        """The GPU, if it runs this code; raises ArtifactError if not."""
        program, name = self._program, self.artifact.path
        found = device()
        capability, wanted = (".".join(map(str, c)) for c in (found.capability, program.capability))
        if not program.runs_on(found.capability):
            others = "" if program.exact else " or higher"
            raise ArtifactError(
                f"{name} was compiled for {program.architecture}, compute capability {wanted}"
                f"{others}, and {found.name} has {capability}; compile the model again for it"
            )
        if found.driver < program.toolkit and self._needs_ptx(found):
            have, need = (".".join(map(str, v)) for v in (found.driver, program.toolkit))
            raise ArtifactError(
                f"{name} holds PTX of CUDA {need}, and the driver of {found.name} knows CUDA "
                f"{have}; update the driver"
            )
        return found

    def _needs_ptx(self, found: Device) -> bool:
        """Whether the driver has to assemble PTX: a cubin runs on its own capability, and on those
        with the same major and a higher minor number."""
        program = self._program
        fits = found.capability[0] == program.capability[0]
        return not fits or any(image.cubin is None for image in program.images)

    def _create(self) -> ctypes.c_void_p:
        manifest, program = self.artifact.manifest, self._program
        parts = self.artifact.code_parts()
        from_ptx = self._needs_ptx(self.device)
        images = [
            parts[image.ptx if from_ptx or image.cubin is None else image.cubin]
            for image in program.images
        ]
        weights = self.artifact.weights
        spec = _Spec(
            images=(ctypes.c_char_p * max(1, len(images)))(*images),
            kernels=_names([image.kernel for image in program.images]),
            kernel_count=len(images),
            program=_numbers(program.code),
            program_length=len(program.code),
            slots=program.slots,
            input_bytes=_numbers(_sizes(self._expected)),
            input_count=len(self._expected),
            output_bytes=_numbers(_sizes([(d, s) for s, d in self._results])),
            output_count=len(self._results),
            weights=weights.ctypes.data if weights.size else None,
            weights_bytes=weights.size,
            arena_bytes=manifest.arena_bytes,
        )
        model = _POINTER()
        _check(_functions().stepwell_cuda_create(ctypes.byref(spec), ctypes.byref(model)))
        return model

    def __call__(self, *arrays: object) -> tuple[np.ndarray, ...]:
        """Run on `arrays`, one for each of `inputs`; returns one array for each of `outputs`.

        Raises InputError for a wrong number, dtype, rank or shape, Error when the driver fails.
        """
        if len(arrays) != len(self._expected):
            raise wrong_count(self.inputs, len(arrays))
        with self._lock:
            taken = [
                as_input(array, spec, dtype)
                for array, spec, (dtype, _) in zip(arrays, self.inputs, self._expected, strict=True)
            ]
            outputs = [np.empty(shape, dtype) for shape, dtype in self._results]
            for index, array in enumerate(taken):
                self._input_pointers[index] = address(array)
            for index, array in enumerate(outputs):
                self._output_pointers[index] = address(array)
            _check(
                _functions().stepwell_cuda_run(
                    self._model, self._input_pointers, self._output_pointers
                )
            )
        manifest = self.artifact.manifest
        if manifest.cuts or manifest.results:
            return tuple(arranged(outputs, manifest.cuts, manifest.results))
        return tuple(outputs)

    def run(self, feed: Mapping[str, object]) -> dict[str, np.ndarray]:
        """Run on arrays by input name; returns arrays by output name. Raises InputError."""
        outputs = self(*named_inputs(self.inputs, feed))
        return dict(zip(self.result_names, outputs, strict=True))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the artifact to `path`, which appears whole or not at all. Raises ArtifactError."""
        with artifact.replaced_file(path) as file:
            file.write(self.artifact.file)

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.inputs))
        outputs = ", ".join(map(str, self.outputs))
        return f"<stepwell.CudaExecutable ({inputs}) -> ({outputs}) on {self.device.name}>"


def _sizes(arrays: Sequence[tuple[np.dtype, tuple[int, ...]]]) -> list[int]:
    return [dtype.itemsize * int(np.prod(shape, dtype=np.int64)) for dtype, shape in arrays]


def _numbers(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * max(1, len(values)))(*values)


def _names(values: Sequence[str]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * max(1, len(values)))(*(value.encode() for value in values))
