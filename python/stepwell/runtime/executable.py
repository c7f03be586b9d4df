"""A loaded model that can be called."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager

import numpy as np

from stepwell.artifact import Artifact, KernelInfo, check_runs_here, why_not_here
from stepwell.errors import UsageError
from stepwell.runtime import library, library_functions
from stepwell.runtime.buffers import ResultBuffers, address, allocate_arena, on_huge_pages
from stepwell.runtime.derived import DerivedWeights
from stepwell.runtime.inputs import UnchangingInputs, as_input, wrong_count
from stepwell.runtime.loaded import LoadedModel
from stepwell.runtime.loading import LoadedCode, load_code
from stepwell.runtime.threads import default_threads
from stepwell.runtime.trace import Trace, recorded

_TRACE_EVENTS = 1 << 16
"""A trace has room for as many calls at least: kernels in loops run many times."""


class Executable(LoadedModel):
    """A compiled model in memory.

    Call it with arrays in the order of `inputs`, or use `run` with a dict. Calls from several
    threads take turns. Outputs are fresh numpy arrays at each call; nothing else is allocated.
    A result that is a sequence is a list, an empty optional is None; where a shape depends on data,
    `outputs` has the largest. A model that was compiled for another machine can be saved, and calls
    raise ArtifactError.
    """

    def __init__(self, source: Artifact, threads: int | None = None) -> None:
        if threads is not None and threads < 1:
            raise UsageError(f"threads is {threads}; it must be 1 or more")
        super().__init__(source)
        manifest = source.manifest
        self.threads = threads or manifest.threads or default_threads()
        self._lock = threading.Lock()
        runs_here = not why_not_here(manifest)
        self._code = LoadedCode(0, None)
        if runs_here:
            parts = source.code_parts()
            self._code = load_code(manifest.code_format, parts, manifest.entry, str(source.path))
        self._arena = allocate_arena(manifest.arena_bytes)
        self._context = library.library().stepwell_context_create(
            library.pool(self.threads), max(8 * (len(self.kernels) + 1), _TRACE_EVENTS)
        )
        weakref.finalize(self, library.library().stepwell_context_destroy, self._context)
        if manifest.options.get("flush_subnormals"):
            library.library().stepwell_context_flush_subnormals(self._context)

        self._buffers = ResultBuffers(len(self._results))
        self._input_count = len(self.inputs)
        functions = [library_functions.address(n, source.path) for n in manifest.functions]
        self._input_pointers = (ctypes.c_void_p * max(1, len(self.inputs) + len(functions)))()
        for index, function in enumerate(functions, len(self.inputs)):
            self._input_pointers[index] = function
        self._output_pointers = (ctypes.c_void_p * max(1, len(self._results)))()
        self._call = library.library().stepwell_run if runs_here else self._refuse
        self._unchanging = UnchangingInputs()
        self._derived = None
        if manifest.derived:
            derived = DerivedWeights(source, library.pool(self.threads))
            weights = derived.section
            self._derived = derived if derived.has_arguments else None
        else:
            weights = on_huge_pages(source.weights, source.mapping)
        self._weights = weights
        self._arguments = tuple(
            ctypes.c_void_p(value)
            for value in (
                self._context,
                self._code.entry,
                ctypes.addressof(self._input_pointers),
                ctypes.addressof(self._output_pointers),
                weights.ctypes.data if weights.size else 0,
                self._arena.ctypes.data,
            )
        )

    @property
    def place(self) -> str:
        """Where it runs: "2 threads"."""
        return "1 thread" if self.threads == 1 else f"{self.threads} threads"

    def __call__(self, *arrays: object) -> tuple[np.ndarray, ...]:
        """Run on `arrays`, one for each of `inputs`: numpy arrays, or anything with `__dlpack__`
        (taken without a copy). Returns one array for each of `outputs`.

        Raises InputError for a wrong number, dtype, rank or shape.
        """
        if len(arrays) != self._input_count:
            raise wrong_count(self.inputs, len(arrays))
        with self._lock:
            taken, pointers = [], self._input_pointers
            for index, (dtype, shape) in enumerate(self._expected):
                array = arrays[index]
                if (
                    type(array) is np.ndarray
                    and array.dtype is dtype
                    and array.shape == shape
                    and array.flags.carray
                ):
                    pointers[index] = address(array)
                else:
                    array = self._take(index, array, dtype)
                taken.append(array)
            if self._derived is not None:
                self._derived.refresh(arrays, taken)
            outputs = self._run(self._results)
        return self._arranged(outputs)

    def _take(self, index: int, value: object, dtype: np.dtype) -> object:
        """Set the address of input `index`; returns what has to live while that is read."""
        known = self._unchanging.address(index, value)
        if known is not None:
            self._input_pointers[index] = known
            return value
        array = as_input(value, self.inputs[index], dtype)
        self._input_pointers[index] = pointer = address(array)
        self._unchanging.keep(index, value, pointer)
        return array

    def hold_inputs(self, first: int, arrays: Sequence[np.ndarray]) -> None:
        """The inputs from number `first` on are `arrays`, which the caller keeps: `run_as_is` is
        given those before."""
        for number, array in enumerate(arrays, first):
            self._input_pointers[number] = address(array)

    def run_as_is(
        self,
        arrays: Sequence[np.ndarray],
        results: Sequence[tuple[np.dtype, tuple[int, ...]]],
        given: Sequence[object],
    ) -> list[np.ndarray]:
        """Run on arrays that are what the code takes, made of the objects `given`, into arrays of
        these types and shapes."""
        with self._lock:
            if self._derived is not None:
                self._derived.refresh(given, arrays)
            pointers = self._input_pointers
            for index, array in enumerate(arrays):
                pointers[index] = address(array)
            return self._run(results)

    def _run(self, results: Sequence[tuple[np.dtype, tuple[int, ...]]]) -> list[np.ndarray]:
        """Run on the inputs whose addresses are set."""
        outputs = []
        pointers = self._output_pointers
        for index, (dtype, shape) in enumerate(results):
            output = self._buffers.allocate(shape, dtype)
            pointers[index] = address(output)
            outputs.append(output)
        self._call(*self._arguments)
        return outputs

    def _refuse(self, *_: object) -> None:
        check_runs_here(self.artifact.manifest, "the model")

    def profile(self, *arrays: object) -> list[tuple[KernelInfo, int]]:
        """Run once and return the nanoseconds spent in each kernel, in the order of the first
        call of each; a kernel that runs several times counts once, with its times and work added.
        """
        with self.traced() as trace:
            self(*arrays)
        return trace.totals(self.kernels)

    def trace(self, *arrays: object) -> Trace:
        """Run once and return when each kernel ran, and each thread's part of it."""
        with self.traced(with_shares=True) as trace:
            self(*arrays)
        return trace

    def traced(self, *, with_shares: bool = False) -> AbstractContextManager[Trace]:
        """Gives a trace: at the end, what was recorded of the calls inside."""
        return recorded(self._context, with_shares=with_shares)
