"""Models with open sizes on NVIDIA GPUs: compiled once, for any size up to the capacities."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np

from stepwell.artifact import Artifact, KernelInfo
from stepwell.errors import InputError, UsageError
from stepwell.runtime.cuda_executable import (
    NOTHING,
    CudaExecutable,
    Placed,
    Region,
    on_host,
    region_of,
)
from stepwell.runtime.device_arrays import DeviceArray
from stepwell.runtime.inputs import input_array, numpy_dtype, wrong_count
from stepwell.runtime.loaded import Shape
from stepwell.runtime.open_model import MOST_SHAPES, OpenSizeModel

T = TypeVar("T")


@dataclass(frozen=True)
class _Plan:
    """A call with these open sizes: what is in use of the model's arrays, and the types and shapes
    of the results. Of an array whose part in use is no region, the leading part that holds it is
    copied, by way of an array of the capacity."""

    sizes: Shape
    inputs: list[Region | None]
    outputs: list[Region | None]
    results: list[tuple[np.dtype, Shape]]


class OpenSizeCudaExecutable(OpenSizeModel):
    """A compiled model with open sizes in the memory of a GPU; used as a `CudaExecutable` is.

    Of inputs and results, no more is copied to the GPU and back than is in use. Calls from several
    threads take turns.
    """

    def __init__(self, source: Artifact) -> None:
        super().__init__(source)
        self._code = CudaExecutable(source)
        self.device = self._code.device
        self._plans: dict[Shape, _Plan] = {}
        self._whole: dict[int, np.ndarray] = {}
        self._lock = threading.Lock()

    @property
    def place(self) -> str:
        """Where it runs: the name of the GPU."""
        return self._code.place

    def __call__(self, *arrays: object) -> tuple[np.ndarray, ...]:
        _, outputs, plan = self._do(self._code.run_placed, arrays)
        shapes = (shape for _, shape in plan.results)
        return self._arranged(list(map(_cut, outputs, shapes)))

    def profile(self, *arrays: object) -> list[tuple[KernelInfo, int]]:
        """Run once; the nanoseconds spent in each kernel, as `CudaExecutable.profile` has them."""
        return self._do(self._code.profile_placed, arrays)[0]

    def time(self, *arrays: object, calls: int) -> float:
        """Seconds that one of `calls` calls takes, as `CudaExecutable.time` has it."""
        return self._do(functools.partial(self._code.time_placed, calls=calls), arrays)[0]

    def _do(
        self, run: Callable[[list[Placed], list[Placed]], T], arrays: Sequence[object]
    ) -> tuple[T, list[np.ndarray], _Plan]:
        """What `run` gives of inputs and outputs; the arrays of the host that these are."""
        with self._lock:
            inputs, plan = self._staged(arrays)
            outputs = self._host_outputs(plan)
            regions = zip(map(on_host, outputs), plan.outputs, strict=True)
            placed = [
                to if region is None else to._replace(region=region) for to, region in regions
            ]
            found = run(inputs, placed)
            self._told = plan.sizes
        return found, outputs, plan

    @property
    def results_are_arrays(self) -> bool:
        """Whether results may stay on the GPU: their shapes do not depend on data, and what is in
        use of each lies in rows there."""
        if self._cuts:
            return False
        almost = (
            max(n, most - 1) for n, most in zip(self._least, self._sizes.capacities, strict=True)
        )
        return None not in self._plan_of(tuple(almost)).outputs

    def run_on_device(self, *arrays: object) -> tuple[DeviceArray, ...]:
        """As a call, with results that stay on the GPU.

        Raises UsageError for results with three open dimensions and more that lie apart, and for
        those whose shapes depend on data.
        """
        with self._lock:
            inputs, plan = self._staged(arrays)
            if self._cuts or None in plan.outputs:
                raise UsageError(
                    "results of which parts of several dimensions are in use, or whose shapes "
                    "depend on data, come to the host: call the model itself"
                )
            outputs = [DeviceArray(shape, dtype) for dtype, shape in plan.results]
            placed = [
                Placed(array.address, True, region or NOTHING, array)
                for array, region in zip(outputs, plan.outputs, strict=True)
            ]
            self._code.run_placed(inputs, placed)
            self._told = plan.sizes
        return tuple(outputs)

    def _staged(self, arrays: Sequence[object]) -> tuple[list[Placed], _Plan]:
        """The inputs of the compiled code for `arrays`, and what to do for their shapes. The caller
        says that the sizes are told when the code has run."""
        if len(arrays) != len(self.inputs):
            raise wrong_count(self.inputs, len(arrays))
        taken = []
        for value, spec, dtype in zip(arrays, self.inputs, self._dtypes, strict=True):
            tensor = self._code.device_tensor(value, spec.name, dtype)
            taken.append(input_array(spec.name, value, spec.dtype) if tensor is None else tensor)
        plan = self._plan_of(self._sizes_of(tuple(array.shape for array in taken)))
        placed = []
        for number, array in enumerate(taken):
            region = plan.inputs[number]
            if not isinstance(array, np.ndarray):
                if region is None:
                    raise InputError(
                        f"input {self.inputs[number].name!r} lies on the GPU, and what is in use "
                        "of it there are no rows at one distance; give it on the host"
                    )
                placed.append(Placed(array.address, True, region, array))
            elif region is None:
                placed.append(self._widened(number, array))
            else:
                dense = np.require(array, requirements=["C", "A"])
                placed.append(Placed(dense.ctypes.data, False, region, dense))
        told = plan.sizes == self._told
        if not told:
            self._tell(plan.sizes)
        for array in (self._scalars, *self._prefixes):
            whole = on_host(array)
            placed.append(whole._replace(region=NOTHING) if told else whole)
        self._told = ()
        return placed, plan

    def _widened(self, number: int, array: np.ndarray) -> Placed:
        """An input in an array of its capacity, of which the leading part is copied."""
        spec = self.artifact.manifest.inputs[number]
        whole = self._whole.setdefault(number, np.zeros(spec.shape, array.dtype))
        whole[tuple(slice(0, n) for n in array.shape)] = array
        leading = whole[: array.shape[0]]
        return on_host(leading)

    def _host_outputs(self, plan: _Plan) -> list[np.ndarray]:
        """Arrays for the results: of the capacity where what is in use is no region."""
        specs = self.artifact.manifest.outputs
        return [
            np.empty(spec.shape if region is None else shape, dtype)
            for spec, region, (dtype, shape) in zip(specs, plan.outputs, plan.results, strict=True)
        ]

    def _plan_of(self, sizes: Shape) -> _Plan:
        plan = self._plans.get(sizes)
        if plan is None:
            if len(self._plans) == MOST_SHAPES:
                self._plans.clear()
            plan = self._plans[sizes] = self._plan_for(sizes)
        return plan

    def _plan_for(self, sizes: Shape) -> _Plan:
        manifest = self.artifact.manifest
        given = [tuple(extent.at(sizes) for extent in shape) for shape in self._sizes.inputs]
        results = self._result_shapes(sizes)
        inputs, outputs = (
            [
                region_of(shape, spec.shape, numpy_dtype(spec.dtype).itemsize)
                for shape, spec in zip(shapes, specs, strict=False)
            ]
            for shapes, specs in ((given, manifest.inputs), (results, manifest.outputs))
        )
        types = [numpy_dtype(spec.dtype) for spec in manifest.outputs]
        return _Plan(sizes, inputs, outputs, list(zip(types, results, strict=True)))


OnGpu: TypeAlias = CudaExecutable | OpenSizeCudaExecutable
"""A compiled model in the memory of a GPU."""


def _cut(array: np.ndarray, shape: Shape) -> np.ndarray:
    """The part of an array that is in use, one of its own."""
    return array if array.shape == shape else array[tuple(slice(0, n) for n in shape)].copy()
