"""Models on NVIDIA GPUs."""

from __future__ import annotations

import ctypes
import math
import threading
import weakref
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stepwell.artifact import Artifact, KernelInfo
from stepwell.errors import ArtifactError, Error, UsageError
from stepwell.launch import timed_kernels
from stepwell.runtime import library_functions
from stepwell.runtime.buffers import address
from stepwell.runtime.cuda import Buffer, Device, Spec, check, device, functions
from stepwell.runtime.device_arrays import DeviceArray, DeviceTensor, device_tensor
from stepwell.runtime.inputs import as_input, check_shape, wrong_count
from stepwell.runtime.loaded import LoadedModel, Shape


class Region(NamedTuple):
    """What is in use of an array in the model's memory: `rows` rows of `row_bytes` bytes, `pitch`
    bytes apart. One without rows is not copied."""

    rows: int
    row_bytes: int
    pitch: int


NOTHING = Region(0, 0, 0)


def region_of(used: Shape, capacity: Shape, item: int) -> Region | None:
    """The region of an array of shape `capacity`, of elements of `item` bytes, that has `used` of
    each dimension; None where it is no rows at one distance."""
    if 0 in used:
        return NOTHING
    outer, row = len(used), item
    while outer and used[outer - 1] == capacity[outer - 1]:
        outer -= 1
        row *= used[outer]
    if not outer:
        return Region(1, row, row)
    outer -= 1
    pitch = row * capacity[outer]
    row *= used[outer]
    first = next((d for d in range(outer) if used[d] > 1), outer)
    if used[first + 1 : outer] != capacity[first + 1 : outer]:
        return None
    return Region(math.prod(used[:outer]), row, pitch)


class Placed(NamedTuple):
    """An input or output of a call: where it lies, on the host or the GPU, its bytes close
    together; `owner` lives through the call."""

    address: int
    on_device: bool
    region: Region
    owner: object


class CudaExecutable(LoadedModel):
    """A model compiled for an NVIDIA GPU, in the memory of the first one.

    Call it with arrays in the order of `inputs`, or use `run` with a dict; `run_on_device` leaves
    results on the GPU. Tensors of torch, cupy or jax that lie on the GPU are read where they are.
    Calls from several threads take turns. Outputs are fresh at each call.
    """

    def __init__(self, source: Artifact) -> None:
        manifest = source.manifest
        if manifest.cuda is None:
            raise ArtifactError(f"{source.path} was compiled for {manifest.target}, not for a GPU")
        super().__init__(source)
        self._program = manifest.cuda
        self.device = self._checked_device()
        self._input_buffers = (Buffer * max(1, len(self._expected)))()
        self._output_buffers = (Buffer * max(1, len(self._results)))()
        self._lock = threading.Lock()
        self._model = self._create()
        self._stream: int = functions().stepwell_cuda_stream(self._model)
        weakref.finalize(self, functions().stepwell_cuda_destroy, self._model)

    @property
    def place(self) -> str:
        """Where it runs: the name of the GPU."""
        return self.device.name

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
        takes_ptx = self.device.driver >= program.toolkit
        others = [
            parts[image.ptx] if takes_ptx and not from_ptx else None for image in program.images
        ]
        weights = self.artifact.weights
        called = [library_functions.address(n, self.artifact.path) for n in manifest.functions]
        spec = Spec(
            images=(ctypes.c_char_p * max(1, len(images)))(*images),
            others=(ctypes.c_char_p * max(1, len(others)))(*others),
            kernels=_names([image.kernel for image in program.images]),
            kernel_count=len(images),
            program=_numbers(program.code),
            program_length=len(program.code),
            slots=program.slots,
            library_functions=(ctypes.c_void_p * max(1, len(called)))(*called),
            library_function_count=len(called),
            input_bytes=_numbers(_sizes(self._expected)),
            input_count=len(self._expected),
            output_bytes=_numbers(_sizes(self._results)),
            output_count=len(self._results),
            weights=weights.ctypes.data if weights.size else None,
            weights_bytes=weights.size,
            arena_bytes=manifest.arena_bytes,
            zeroed_bytes=program.zeroed_bytes,
            early=bytes(image.early for image in program.images),
        )
        model = ctypes.c_void_p()
        try:
            check(functions().stepwell_cuda_create(ctypes.byref(spec), ctypes.byref(model)))
        except Error as error:
            if takes_ptx:
                raise
            have = ".".join(map(str, self.device.driver))
            raise ArtifactError(
                f"{error}; its cubins may be of a later CUDA release than {have}, the driver's, "
                "which does not take its PTX either: update the driver, or compile the model for "
                f"an older PTX version ({program.architecture}+ptx..)"
            ) from error
        return model

    def __call__(self, *arrays: object) -> tuple[np.ndarray, ...]:
        """Run on `arrays`, one for each of `inputs`: numpy arrays, or anything with `__dlpack__` on
        the host or on the GPU. Returns one numpy array for each of `outputs`.

        Raises InputError for a wrong number, dtype, rank, shape or device, and for a tensor on the
        GPU that is not contiguous; Error when the driver fails.
        """
        inputs, outputs = self._placed_inputs(arrays), self._host_outputs()
        self.run_placed(inputs, list(map(on_host, outputs)))
        return self._arranged(outputs)

    def run_placed(self, inputs: Sequence[Placed], outputs: Sequence[Placed]) -> None:
        """Run on inputs and into outputs that lie anywhere."""
        with self._lock:
            check(functions().stepwell_cuda_run(self._model, *self._entered(inputs, outputs)))

    @property
    def results_are_arrays(self) -> bool:
        """Whether all results are arrays of known shapes, not to be checked: they may stay on the
        GPU."""
        return not self._cuts and not self._layouts and not self._checks

    def run_on_device(self, *arrays: object) -> tuple[DeviceArray, ...]:
        """As a call, with results that stay on the GPU.

        Raises UsageError for a model with results of other kinds than arrays of known shapes.
        """
        if not self.results_are_arrays:
            raise UsageError(
                "results that are lists or checked, or whose shapes depend on data, come to the "
                "host: call the model itself"
            )
        inputs = self._placed_inputs(arrays)
        outputs = [DeviceArray(shape, dtype) for dtype, shape in self._results]
        self.run_placed(inputs, [on_device(array, array.nbytes) for array in outputs])
        return tuple(outputs)

    def profile(self, *arrays: object) -> list[tuple[KernelInfo, int]]:
        """Run once and return the nanoseconds spent in each kernel by the GPU's clock, in the order
        of the program; times and work of a kernel in a loop are added up."""
        outputs = list(map(on_host, self._host_outputs()))
        return self.profile_placed(self._placed_inputs(arrays), outputs)

    def profile_placed(
        self, inputs: Sequence[Placed], outputs: Sequence[Placed]
    ) -> list[tuple[KernelInfo, int]]:
        """`profile` of `run_placed`."""
        count = len(timed_kernels(self._program.code))
        milliseconds = (ctypes.c_float * max(1, count))()
        runs = (ctypes.c_int64 * max(1, count))()
        with self._lock:
            buffers = self._entered(inputs, outputs)
            check(functions().stepwell_cuda_profile(self._model, *buffers, milliseconds, runs))
        return [
            (kernel.repeated(times), round(spent * 1e6))
            for kernel, times, spent in zip(self.kernels, runs, milliseconds, strict=False)
            if times
        ]

    def time(self, *arrays: object, calls: int) -> float:
        """Seconds that one of `calls` calls takes, one behind another, by the GPU's clock: without
        copies between it and the host. Raises UsageError for less than one."""
        outputs = list(map(on_host, self._host_outputs()))
        return self.time_placed(self._placed_inputs(arrays), outputs, calls)

    def time_placed(self, inputs: Sequence[Placed], outputs: Sequence[Placed], calls: int) -> float:
        """`time` of `run_placed`."""
        if calls < 1:
            raise UsageError(f"calls is {calls}; it must be 1 or more")
        milliseconds = ctypes.c_float()
        with self._lock:
            buffers = self._entered(inputs, outputs)
            check(
                functions().stepwell_cuda_time(
                    self._model, *buffers, calls, ctypes.byref(milliseconds)
                )
            )
        return milliseconds.value * 1e-3

    def _entered(
        self, inputs: Sequence[Placed], outputs: Sequence[Placed]
    ) -> tuple[ctypes.Array[Buffer], ctypes.Array[Buffer]]:
        """The buffers of a call."""
        for buffers, given in ((self._input_buffers, inputs), (self._output_buffers, outputs)):
            for buffer, (place, is_on_device, region, _) in zip(buffers, given, strict=False):
                buffer.data, buffer.on_device = place, is_on_device
                buffer.rows, buffer.row_bytes, buffer.pitch = region
        return self._input_buffers, self._output_buffers

    def _placed_inputs(self, arrays: Sequence[object]) -> list[Placed]:
        if len(arrays) != len(self._expected):
            raise wrong_count(self.inputs, len(arrays))
        placed = []
        for value, spec, (dtype, _) in zip(arrays, self.inputs, self._expected, strict=False):
            tensor = self.device_tensor(value, spec.name, dtype)
            if tensor is None:
                placed.append(on_host(as_input(value, spec, dtype)))
            else:
                check_shape(tensor.shape, spec)
                placed.append(on_device(tensor, dtype.itemsize * math.prod(tensor.shape)))
        return placed

    def device_tensor(self, value: object, name: str, dtype: np.dtype) -> DeviceTensor | None:
        """`value` as an input of calls where it lies on the GPU (`device_arrays.device_tensor`)."""
        return device_tensor(value, name, dtype, self._stream)

    def _host_outputs(self) -> list[np.ndarray]:
        return [np.empty(shape, dtype) for dtype, shape in self._results]


def on_host(array: np.ndarray) -> Placed:
    """All of an array, dense, of the host."""
    return Placed(address(array), False, Region(1, array.nbytes, array.nbytes), array)


def on_device(array: DeviceArray | DeviceTensor, bytes: int) -> Placed:
    """All of an array of so many bytes on the GPU."""
    return Placed(array.address, True, Region(1, bytes, bytes), array)


def _sizes(arrays: Sequence[tuple[np.dtype, tuple[int, ...]]]) -> list[int]:
    return [dtype.itemsize * int(np.prod(shape, dtype=np.int64)) for dtype, shape in arrays]


def _numbers(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * max(1, len(values)))(*values)


def _names(values: Sequence[str]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * max(1, len(values)))(*(value.encode() for value in values))
