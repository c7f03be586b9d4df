"""A loaded model that takes inputs of any size up to its capacities, compiled once."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stepwell.artifact import Artifact, KernelInfo, Manifest, TensorSpec
from stepwell.errors import InputError
from stepwell.extents import Extent
from stepwell.runtime.executable import Executable
from stepwell.runtime.inputs import input_array, named_inputs, numpy_dtype, wrong_count
from stepwell.runtime.trace import Trace
from stepwell.sizes import Fixed, OpenSizes
from stepwell.specialization import OpenSpec

_SYMBOL = re.compile(r"\bs(\d+)\b")

_MOST_PLANS = 4096
"""Shapes of inputs that are remembered."""


@dataclass(frozen=True)
class _Plan:
    """A call with these open sizes: the types and shapes of the arrays that the code writes its
    results into, and the shapes of those that are then cut."""

    sizes: tuple[int, ...]
    results: list[tuple[np.dtype, tuple[int, ...]]]
    cuts: dict[int, tuple[int, ...]]


class OpenSizeExecutable:
    """A compiled model with open sizes in memory; used as an `Executable` is.

    Its code works on buffers of the capacities, of which a call uses as much as its inputs have.
    Inputs are copied there and results cut, but for those that the code is known to access no
    further than they are in use. Calls from several threads take turns.
    """

    def __init__(self, source: Artifact, threads: int | None = None) -> None:
        manifest = source.manifest
        assert manifest.open_sizes is not None
        self._sizes: OpenSizes = manifest.open_sizes
        self._least = self._sizes.least or (1,) * len(self._sizes.names)
        self._code = Executable(source, threads)
        self.artifact, self.kernels = source, self._code.kernels
        self.threads = self._code.threads
        self.inputs, self.outputs = open_signature(manifest, self._sizes)
        self.result_names = [spec.name for spec in self.outputs]
        self._dtypes = [numpy_dtype(spec.dtype) for spec in self.inputs]
        self._buffers = [
            None
            if number in self._sizes.exact_inputs
            else np.zeros(spec.shape, numpy_dtype(spec.dtype))
            for number, spec in enumerate(manifest.inputs[: len(self.inputs)])
        ]
        self._plans: dict[tuple[tuple[int, ...], ...], _Plan] = {}
        self._told: tuple[int, ...] = ()
        self._scalars = np.zeros(len(self._sizes.scalars), np.int64)
        self._prefixes = [np.zeros(capacity, np.bool_) for _, capacity in self._sizes.prefixes]
        self._code.hold_inputs(len(self.inputs), [self._scalars, *self._prefixes])
        self._open_lock = threading.Lock()

    @property
    def place(self) -> str:
        """Where it runs: "2 threads"."""
        return self._code.place

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the artifact to `path`, which appears whole or not at all. Raises ArtifactError."""
        self._code.save(path)

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.inputs))
        outputs = ", ".join(map(str, self.outputs))
        return f"<stepwell.OpenSizeExecutable ({inputs}) -> ({outputs}) on {self.place}>"

    @property
    def capacities(self) -> dict[str, int]:
        """The largest of each open size."""
        return dict(zip(self._sizes.names, self._sizes.capacities, strict=True))

    def takes(self, shapes: Sequence[tuple[int, ...]]) -> bool:
        """Whether inputs of these shapes can be given to a call."""
        return self._plan(tuple(shapes)) is not None

    def below(self, shapes: Sequence[tuple[int, ...]]) -> frozenset[Fixed]:
        """Of inputs of these shapes, the dimensions that are smaller than they may be."""
        if [len(shape) for shape in shapes] != [len(shape) for shape in self._sizes.inputs]:
            return frozenset()
        return frozenset(
            Fixed(number, dimension, size)
            for symbol, number, dimension, factor, rest in self._sizes.open_dimensions()
            if (size := shapes[number][dimension]) < factor * self._least[symbol] + rest
        )

    def __call__(self, *arrays: object) -> tuple[np.ndarray, ...]:
        """Run on `arrays`, one for each of `inputs`. Returns one array for each of `outputs`.

        Raises InputError for a wrong number, dtype or rank, and for sizes that contradict each
        other or are above the capacities.
        """
        with self._open_lock:
            return self._called(*self._staged(arrays), arrays)

    def run(self, feed: Mapping[str, object]) -> dict[str, np.ndarray]:
        """Run on arrays by input name; returns arrays by output name. Raises InputError."""
        outputs = self(*named_inputs(self.inputs, feed))
        return dict(zip(self.result_names, outputs, strict=True))

    def profile(self, *arrays: object) -> list[tuple[KernelInfo, int]]:
        """Run once; the nanoseconds spent in each kernel, as `Executable.profile` has them."""
        return self._traced(arrays).totals(self.kernels)

    def trace(self, *arrays: object) -> Trace:
        """Run once; when each kernel ran, as `Executable.trace` has it."""
        return self._traced(arrays, with_shares=True)

    def _traced(self, arrays: Sequence[object], *, with_shares: bool = False) -> Trace:
        with self._open_lock:
            staged, plan = self._staged(arrays)
            with self._code.traced(with_shares=with_shares) as trace:
                self._called(staged, plan, arrays)
        return trace

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
        plan = self._plan(tuple(shapes))
        if plan is None:
            raise self._misfit(taken)
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

    def _tell(self, sizes: tuple[int, ...]) -> None:
        """Fill in what the code reads of the sizes."""
        for number, extent in enumerate(self._sizes.scalars):
            self._scalars[number] = extent.at(sizes)
        for vector, (extent, _) in zip(self._prefixes, self._sizes.prefixes, strict=True):
            used = extent.at(sizes)
            vector[:used] = True
            vector[used:] = False
        self._told = sizes

    def _plan(self, shapes: tuple[tuple[int, ...], ...]) -> _Plan | None:
        """What to do for inputs of `shapes`; None where they cannot be given to a call."""
        plan = self._plans.get(shapes)
        if plan is None and (sizes := self._solved(shapes)) is not None:
            if len(self._plans) == _MOST_PLANS:
                self._plans.clear()
            plan = self._plans[shapes] = self._plan_for(sizes)
        return plan

    def _plan_for(self, sizes: tuple[int, ...]) -> _Plan:
        specs = self.artifact.manifest.outputs
        shapes = [tuple(extent.at(sizes) for extent in shape) for shape in self._sizes.outputs]
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

    def _solved(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
        """The open sizes that inputs of `shapes` have; None where there are none."""
        if [len(shape) for shape in shapes] != [len(shape) for shape in self._sizes.inputs]:
            return None
        found: dict[int, int] = {}
        for symbol, number, dimension, factor, rest in self._sizes.open_dimensions():
            found.setdefault(symbol, (shapes[number][dimension] - rest) // factor)
        sizes = tuple(found[symbol] for symbol in range(len(self._sizes.names)))
        bounds = zip(sizes, self._least, self._sizes.capacities, strict=True)
        fits = all(least <= n <= most for n, least, most in bounds)
        same = all(
            extent.at(sizes) == size
            for extents, shape in zip(self._sizes.inputs, shapes, strict=True)
            for extent, size in zip(extents, shape, strict=True)
        )
        return sizes if fits and same else None

    def _misfit(self, taken: Sequence[np.ndarray]) -> InputError:
        shapes = ", ".join(
            f"{spec.name}: {list(array.shape)}"
            for spec, array in zip(self.inputs, taken, strict=True)
        )
        wanted = ", ".join(map(str, self.inputs))
        bounds = zip(self.capacities.items(), self._least, strict=True)
        most = ", ".join(
            f"{least} <= {name} <= {n}" if least > 1 else f"{name} <= {n}"
            for (name, n), least in bounds
        )
        return InputError(f"inputs have the shapes {shapes}; the model takes {wanted} with {most}")

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
        return tuple(outputs)


def open_signature(
    manifest: Manifest, sizes: OpenSizes
) -> tuple[tuple[OpenSpec, ...], tuple[OpenSpec, ...]]:
    """The inputs and outputs as a user gives and gets them, open sizes by name. Those of the
    manifest are the buffers of the compiled code."""

    def specs(
        buffers: Sequence[TensorSpec], shapes: Sequence[Sequence[Extent]]
    ) -> tuple[OpenSpec, ...]:
        # The sizes, which follow the model's inputs, have no shape here.
        return tuple(
            OpenSpec(spec.name, spec.dtype, tuple(_named(extent, sizes.names) for extent in shape))
            for spec, shape in zip(buffers, shapes, strict=False)
        )

    return specs(manifest.inputs, sizes.inputs), specs(manifest.outputs, sizes.outputs)


def _named(extent: Extent, names: Sequence[str]) -> int | str:
    """A size, the name of an open one, or a sum of products of these."""
    if extent.is_constant:
        return extent.at(())
    return _SYMBOL.sub(lambda symbol: names[int(symbol[1])], str(extent))
