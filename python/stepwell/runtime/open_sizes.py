"""A loaded model that takes inputs of any size up to its capacities, compiled once, for a CPU."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np

from stepwell.artifact import Artifact, KernelInfo
from stepwell.runtime.executable import Executable
from stepwell.runtime.inputs import input_array, numpy_dtype, wrong_count
from stepwell.runtime.loaded import Shape
from stepwell.runtime.open_model import MOST_SHAPES, OpenSizeModel
from stepwell.runtime.trace import Trace


@dataclass(frozen=True)
class _Plan:
    """A call with these open sizes: the types and shapes of the arrays that the code writes its
    results into, and the shapes of those that are then cut."""

    sizes: Shape
    results: list[tuple[np.dtype, Shape]]
    cuts: dict[int, Shape]


class OpenSizeExecutable(OpenSizeModel):
    """A compiled model with open sizes in memory; used as an `Executable` is.

    Inputs are copied to buffers of the capacities and results cut, but for those that the code is
    known to access no further than they are in use. Calls from several threads take turns.
    """

    def __init__(self, source: Artifact, threads: int | None = None) -> None:
        super().__init__(source)
        self._code = Executable(source, threads)
        self.threads = self._code.threads
        self._buffers = [
            None
            if number in self._sizes.exact_inputs
            else np.zeros(spec.shape, numpy_dtype(spec.dtype))
            for number, spec in enumerate(source.manifest.inputs[: len(self.inputs)])
        ]
        self._plans: dict[Shape, _Plan] = {}
        self._code.hold_inputs(len(self.inputs), [self._scalars, *self._prefixes])
        self._open_lock = threading.Lock()

    @property
    def place(self) -> str:
        """Where it runs: "2 threads"."""
        return self._code.place

    def __call__(self, *arrays: object) -> tuple[np.ndarray, ...]:
        with self._open_lock:
            return self._called(*self._staged(arrays), arrays)

    def profile(self, *arrays: object) -> list[tuple[KernelInfo, int]]:
        """Run once; the nanoseconds spent in each kernel, as `Executable.profile` has them."""
        return self._traced(arrays).totals(self.kernels)

    def trace(self, *arrays: object) -> Trace:
        """Run once; when each kernel ran, as `Executable.trace` has it."""
        return self._traced(arrays, with_shares=True)

    def _traced(self, arrays: Sequence[object], *, with_shares: bool = False) -> Trace:
        with self._open_lock:
            staged, plan = self._staged(arrays)
            with self.traced(with_shares=with_shares) as trace:
                self._called(staged, plan, arrays)
        return trace

    def traced(self, *, with_shares: bool = False) -> AbstractContextManager[Trace]:
        """Gives a trace, as `Executable.traced` does."""
        return self._code.traced(with_shares=with_shares)

    def _staged(self, arrays: Sequence[object]) -> tuple[list[np.ndarray], _Plan]:
        """The inputs of the compiled code for `arrays`, and what to do for their shapes."""
        if len(arrays) != len(self.inputs):
            raise wrong_count(self.inputs, len(arrays))
        taken: list[np.ndarray] = []
        shapes = []
        for array, dtype in zip(arrays, self._dtypes, strict=True):
            if type(array) is not np.ndarray or array.dtype is not dtype:
                spec = self.inputs[len(taken)]
                array = input_array(spec.name, array, spec.dtype)
            taken.append(array)
            shapes.append(array.shape)
        sizes = self._sizes_of(tuple(shapes))
        plan = self._plans.get(sizes)
        if plan is None:
            if len(self._plans) == MOST_SHAPES:
                self._plans.clear()
            plan = self._plans[sizes] = self._plan_for(sizes)
        for number, buffer in enumerate(self._buffers):
            array = taken[number]
            if buffer is None:
                if not array.flags.carray:
                    taken[number] = np.require(array, requirements=["C", "A"])
            elif array.shape != buffer.shape or not array.flags.carray:
                buffer[tuple(slice(0, n) for n in array.shape)] = array
                taken[number] = buffer
        if plan.sizes != self._told:
            self._tell(plan.sizes)
        return taken, plan

    def _plan_for(self, sizes: Shape) -> _Plan:
        specs = self.artifact.manifest.outputs
        shapes = self._result_shapes(sizes)
        exact = self._sizes.exact_outputs
        results = [
            (numpy_dtype(spec.dtype), shape if number in exact else spec.shape)
            for number, (spec, shape) in enumerate(zip(specs, shapes, strict=True))
        ]
        cuts = {
            number: shape
            for number, ((_, written), shape) in enumerate(zip(results, shapes, strict=True))
            if written != shape
        }
        return _Plan(sizes, results, cuts)

    def _called(
        self, staged: list[np.ndarray], plan: _Plan, given: Sequence[object]
    ) -> tuple[np.ndarray, ...]:
        """The part of each output that is in use, an array of its own."""
        outputs = self._code.run_as_is(staged, plan.results, given)
        for number, shape in plan.cuts.items():
            output = outputs[number]
            part = output[tuple(slice(0, n) for n in shape)]
            keeps = part.flags.c_contiguous and 4 * part.nbytes >= output.nbytes
            outputs[number] = part if keeps else part.copy()
        return self._arranged(outputs)
