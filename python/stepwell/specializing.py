"""A model that is compiled when it is called: for the shapes, and the values that must be known."""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from stepwell.any_size import AnySize, Step
from stepwell.artifact import Artifact, KernelInfo
from stepwell.errors import InputError, LoweringError, ModelError, OpenModelError, UsageError
from stepwell.runtime.device_arrays import host_copy, is_on_gpu
from stepwell.runtime.executable import Executable
from stepwell.runtime.inputs import input_array
from stepwell.runtime.load import Loaded, OpenLoaded, load_artifact
from stepwell.sizes import OpenShapes
from stepwell.specialization import (
    OFFERED_ELEMENTS,
    TENSOR,
    OpenSpec,
    Specialization,
    Structure,
    check_limits,
    check_names,
    check_shape,
    flatten,
    told_inputs,
)

Shapes = Mapping[str, Sequence[int]]
Build = Callable[[Shapes | None, Specialization | None], Artifact]
"""Compiles the model for shapes and a specialization. Raises OpenModelError when more is needed."""


class RunsLoop(Protocol):
    """A loop that runs on the host (`frontends.onnx.host_loop`)."""

    def run(self, values: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]: ...


HostLoopOf = Callable[[str], RunsLoop]
"""The loop of the model whose first result has that name."""

_log = logging.getLogger("stepwell")

KEPT_STEPS = 512
"""So many specializations stay in memory, the oldest leaving first; the cache has them all."""

_Key = tuple[object, ...]
_ROUNDS = 10_000
"""More stages than any model has; a model that asks for more asks for the same again."""

_MOST_NUMBERS, _MOST_SIZE = 8, 1 << 16
"""Of a tensor of sizes, and of what it holds."""

_MANY_STAGES = 32
"""So many are compiled without a word; a loop that shapes depend on can ask for thousands."""


_MANY_VALUES = (
    "%d parts of the model have been compiled, and it goes on: shapes depend on values that it"
    " computes, and each part is compiled for the values before it, once more when they change"
)


class SpecializingExecutable:
    """A model that leaves open what only a call can tell; used as an `Executable` is.

    It is compiled for the shapes of the first call. Once other shapes come, it is compiled for any
    size of the dimensions that differ (unless `any_size` is False), up to a capacity; larger sizes
    compile it again, and so do sizes of 0 and those for which the model is another: they stay as
    they are in code for any size of the others. A model for which that cannot be done is compiled
    for each shape, and for each value of inputs on which shapes depend. Every result is kept, here
    and in the cache on disk.
    Where a shape depends on a value computed on the way, the part of the model up to it is compiled
    first, and the rest for each such value; for the shapes of what was computed on the way as for
    those of inputs. An input that is a sequence is given as a
    list, an optional one may be None.
    """

    def __init__(
        self,
        build: Build,
        open_model: OpenModelError,
        threads: int | None,
        shapes: Shapes,
        *,
        any_size: bool = True,
        on_gpu: bool = False,
        host_loop: HostLoopOf | None = None,
    ) -> None:
        self.inputs: tuple[OpenSpec, ...] = open_model.inputs
        self.outputs: tuple[OpenSpec, ...] = open_model.outputs
        self._defaults = {spec.name: spec for spec in open_model.defaults}
        self._limits = open_model.limits
        self._build, self._threads = build, threads
        self._fixed = {name: tuple(int(n) for n in shape) for name, shape in shapes.items()}
        self._lock = threading.RLock()
        self._steps: dict[_Key, Step] = {}
        self._parts: dict[_Key, AnySize] = {}
        self._bounds: dict[str, int] = {}
        self._latest: Loaded | None = None
        self._any_size, self._on_gpu = any_size, on_gpu
        self._host_loop, self._loops = host_loop, dict[str, RunsLoop]()
        self._staged = False
        self.compiled_for_one = 0
        """How often code was made for shapes and values of one call."""
        names = {spec.name for spec in self.inputs}
        self._known = [name for name in open_model.values if name in names]

    def __call__(self, *arrays: object) -> tuple[np.ndarray, ...]:
        """Run on one value for each of `inputs`. Returns one for each of `outputs`.

        Raises InputError for values that do not fit, and what `stepwell.compile` raises.
        """
        if len(arrays) != len(self.inputs):
            listed = ", ".join(map(str, self.inputs)) or "none"
            noun = "input" if len(self.inputs) == 1 else "inputs"
            raise InputError(
                f"the model takes {len(self.inputs)} {noun} ({listed}) and was given {len(arrays)}"
            )
        executable, inputs = self._specialize(arrays, {})
        return executable(*inputs)

    def run(self, feed: Mapping[str, object]) -> dict[str, np.ndarray]:
        """Run on values by input name; returns results by output name. Raises as a call does.

        An input that has a value in the model may be given another, of any shape."""
        check_names(self.inputs, feed, self._defaults)
        names = [spec.name for spec in self.inputs]
        overridden = {
            name: input_array(name, feed[name], spec.dtype)
            for name, spec in self._defaults.items()
            if name in feed
        }
        executable, inputs = self._specialize([feed.get(name) for name in names], overridden)
        outputs = executable(*inputs)
        return dict(zip(executable.result_names, outputs, strict=True))

    def specialized(self, *arrays: object) -> Loaded:
        """What runs on values like `arrays`: compiled now unless it already is."""
        return self._specialize(arrays, {})[0]

    @property
    def codes_for_any_size(self) -> list[OpenLoaded]:
        """What is compiled for any size, of all parts of the model."""
        return [code for part in self._parts.values() for code in part.codes]

    def profile(self, *arrays: object) -> list[tuple[KernelInfo, int]]:
        """Run once; the nanoseconds spent in each kernel, those of earlier stages left out."""
        executable, inputs = self._specialize(arrays, {})
        return executable.profile(*inputs)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the artifact compiled last to `path`; it takes inputs of these shapes alone.

        Raises UsageError before the first call, and for a model whose code depends on values.
        """
        if self._latest is None:
            raise UsageError(
                f"{self._open_names()} not known yet, and an artifact holds code for known shapes; "
                "run the model once or give shapes= to compile"
            )
        if self._staged:
            raise UsageError(
                "the compiled code depends on values of inputs, not on their shapes alone, so that "
                "it cannot be saved as an artifact of the model"
            )
        self._latest.save(path)

    def _open_names(self) -> str:
        names = [spec.name for spec in self.inputs if spec.is_open] or self._known
        text = ", ".join(names) or "shapes"
        return f"what the model needs of {text} is"

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.inputs))
        outputs = ", ".join(map(str, self.outputs))
        compiled = len({id(s) for s in self._steps.values() if s.is_last})
        return f"<stepwell.SpecializingExecutable ({inputs}) -> ({outputs}), {compiled} compiled>"

    def _specialize(
        self, arrays: Sequence[object], given: dict[str, np.ndarray]
    ) -> tuple[Loaded, list[np.ndarray]]:
        """The code for `arrays`, and its inputs: the tensors of `arrays` and, beside those `given`,
        staged ones."""
        structures: dict[str, Structure] = {}
        tensors: dict[str, np.ndarray] = {}
        for spec, value in zip(self.inputs, arrays, strict=True):
            structure, parts = flatten(spec, value)
            if spec.kind != "tensor":
                structures[spec.name] = structure
            tensors |= {n: self._taken(n, part, spec.dtype) for n, part in parts.items()}
        self._check_shapes(tensors)
        call = _Call(structures, tensors, given)
        call.values |= {name: host_copy(name, tensors[name]) for name in self._known}
        for number in range(_ROUNDS):
            key = call.key
            with self._lock:
                step = self._steps.get(key)
                if step is None:
                    if number == _MANY_STAGES:
                        _log.warning(_MANY_VALUES, number)
                    step = self._compiled(call)
                    if len(self._steps) >= KEPT_STEPS:
                        self._steps.pop(next(iter(self._steps)))
                    self._steps[key] = step
            inputs = call.inputs(step.told)
            if step.is_last:
                assert step.executable is not None
                return step.executable, inputs
            present = call.present
            found = {n: host_copy(n, present[n]) for n in step.values if n in present}
            if step.executable is not None:
                staged = [n for n in (*step.values, *step.sizes) if n not in present]
                found |= dict(zip(staged, step.executable(*inputs), strict=True))
            call.values |= {name: found[name] for name in step.values}
            call.given |= {name: found[name] for name in step.sizes}
            for name, read in step.loops.items():
                call.given |= self._loop(name).run(call.read_by(read))
            for name in step.dropped:
                call.values.pop(name, None)
                call.given.pop(name, None)
        raise ModelError("the model asks for values of its own without end")

    def _loop(self, name: str) -> RunsLoop:
        """What runs the loop whose first result is `name`."""
        with self._lock:
            if name not in self._loops:
                assert self._host_loop is not None
                self._loops[name] = self._host_loop(name)
            return self._loops[name]

    def _taken(self, name: str, value: object, dtype: str) -> np.ndarray:
        """`value` as an array; as it is where it lies on the GPU that runs the model."""
        if self._on_gpu and is_on_gpu(value) and hasattr(value, "shape"):
            return value  # pyright: ignore[reportReturnType]  # shapes are asked of it alone
        return input_array(name, value, dtype)

    def _check_shapes(self, tensors: Mapping[str, np.ndarray]) -> None:
        for spec in self.inputs:
            if spec.kind != "tensor":
                continue
            wanted = self._fixed.get(spec.name, spec.shape)
            if wanted is not None:
                check_shape(spec.name, tensors[spec.name].shape, wanted)
            if spec.shape is not None:
                check_limits(spec.name, tensors[spec.name].shape, spec.shape, self._limits)

    def _compiled(self, call: _Call) -> Step:
        """The code for a call, as far as it can be compiled: for any size where that is known to be
        wanted."""
        step = self._for_any_size(call)
        if step is None:
            self.compiled_for_one += 1
            shapes = {name: tuple(array.shape) for name, array in call.tensors.items()}
            special = Specialization(call.structures, call.values, call.types)
            step = self._step(special, list(call.present), shapes, call.offered)
        self._bounds |= step.bounds
        if step.is_last:
            self._staged = bool(call.values or call.given)
            self._latest = step.executable
        elif not call.given:  # and so will other calls
            self._known += [n for n in step.values if n in call.tensors and n not in self._known]
        return step

    def _for_any_size(self, call: _Call) -> Step | None:
        """The code for a call and others of other sizes; None where there is none, or none yet."""
        if not self._any_size or any(spec.kind != TENSOR for spec in self.inputs):
            return None
        for told in dict.fromkeys((tuple(call.numbers), ())):
            part, special = self._part(call, told)
            if part.is_possible:
                build = functools.partial(self._sized, special, list(call.present))
                return part.step(call.shapes(told), build)
        return None

    def _part(self, call: _Call, told: tuple[str, ...]) -> tuple[AnySize, Specialization]:
        """The rest of the model from a call on, for any values of the tensors `told`; what it is
        compiled for."""
        # Of shapes that depend on data, nothing is known but those of calls.
        given = [OpenSpec(name, array.dtype.name, None) for name, array in call.given.items()]
        types = {spec.name: (spec.dtype, ()) for spec in given}
        values = {n: _least(a) if n in told else a for n, a in call.values.items()}
        special = Specialization({}, values, types, told=told)
        key = call.part(told)
        if key in self._parts:
            return self._parts[key], special
        vectors = [
            OpenSpec(number, "bool", None)
            for name in told
            for number in told_inputs(name, values[name])
        ]
        if len(self._parts) >= KEPT_STEPS:
            self._parts.pop(next(iter(self._parts)))
        # Numbers may be of any kind: the ends of a slice, of which only some are in order.
        part = AnySize(
            [*self.inputs, *given, *vectors], self._limits, self._bounds, checks_seen=bool(told)
        )
        self._parts[key] = part
        return part, special

    def _sized(self, special: Specialization, present: Sequence[str], sizes: OpenShapes) -> Step:
        """The code for any of `sizes`."""
        return self._step(dataclasses.replace(special, sizes=sizes), present)

    def _step(
        self,
        special: Specialization,
        present: Sequence[str],
        shapes: Shapes | None = None,
        offered: Mapping[str, np.ndarray] | None = None,
    ) -> Step:
        """The code for a specialization, or what has to be known before it can be compiled: where
        inputs have to be known that are `offered`, all of them at once. `present` tensors are its
        inputs."""

        def built(special: Specialization) -> Loaded:
            return load_artifact(self._build(shapes, special), self._threads)

        try:
            try:
                return Step(built(special), told=special.told)
            except OpenModelError as error:
                if not any(name in (offered or ()) for name in error.values):
                    raise
                # Inputs that have to be known lead to others.
                return Step(built(dataclasses.replace(special, offered=offered)))
        except OpenModelError as error:
            sizes = tuple(name for name in error.sizes if name not in present)
            step = Step(None, error.values, sizes, error.dropped, loops=error.loops)
            if step.is_last:
                raise
        computed = tuple(n for n in (*step.values, *sizes) if n not in present)
        if computed:
            code = built(dataclasses.replace(special, results=computed))
            bounds = _bounds(code, computed) if special.sizes or not special.given else {}
            return dataclasses.replace(step, executable=code, bounds=bounds, told=special.told)
        if special.sizes:
            raise LoweringError("values of inputs have to be known")
        return step


def _bounds(code: Loaded, names: Sequence[str]) -> dict[str, int]:
    """The most that dimensions can be which depend on data, of results called `names`."""
    manifest = code.artifact.manifest
    depend = {(cut.output, cut.dimension) for cut in manifest.cuts}
    if manifest.open_sizes is not None:
        depend |= {
            (number, dimension)
            for number, shape in enumerate(manifest.open_sizes.outputs)
            for dimension, extent in enumerate(shape)
            if not extent.is_constant
        }
    return {
        f"{names[number]}.{dimension}": manifest.outputs[number].shape[dimension]
        for number, dimension in depend
        if number < len(names)
    }


def _least(array: np.ndarray) -> np.ndarray:
    """`array` with 0 for numbers that are not negative."""
    return np.minimum(array, 0)


class _Call:
    """The inputs of a model in one call, and what is known of it beside: `structures` of inputs,
    `values` of tensors, and tensors that are `given` in the place of nodes."""

    def __init__(
        self,
        structures: Mapping[str, Structure],
        tensors: Mapping[str, np.ndarray],
        given: dict[str, np.ndarray],
    ) -> None:
        self.structures, self.tensors, self.given = structures, tensors, given
        self.values: dict[str, np.ndarray] = {}

    @property
    def present(self) -> dict[str, np.ndarray]:
        """The inputs of the code by name."""
        return {**self.tensors, **self.given}

    @property
    def numbers(self) -> list[str]:
        """The values that may be sizes: a few numbers that are not too large for that. Negative
        ones mean something else."""
        return [
            name
            for name, array in sorted(self.values.items())
            if array.dtype.kind in "iu"
            and 0 < array.size <= _MOST_NUMBERS
            and 0 <= array.max() <= _MOST_SIZE
        ]

    def read_by(self, loop: Mapping[str, str]) -> dict[str, np.ndarray]:
        """What a loop reads, by its names for them."""
        known = {**self.present, **self.values}
        return {name: host_copy(name, known[tensor]) for name, tensor in loop.items()}

    def inputs(self, told: Sequence[str]) -> list[np.ndarray]:
        """The inputs of code that takes any numbers in the tensors `told`."""
        numbers = [int(n) for name in told for n in self.values[name].flat]
        vectors = [np.zeros(n, np.bool_) for n in numbers if n >= 0]
        return [*self.tensors.values(), *self.given.values(), *vectors]

    def shapes(self, told: Sequence[str]) -> dict[str, tuple[int, ...]]:
        """The shapes of these inputs by name."""
        found = {name: tuple(array.shape) for name, array in self.present.items()}
        for name in told:
            array = self.values[name]
            sizes = [(int(n),) for n in array.flat if n >= 0]
            found |= dict(zip(told_inputs(name, array), sizes, strict=True))
        return found

    @property
    def types(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        return {name: (array.dtype.name, array.shape) for name, array in self.given.items()}

    @property
    def offered(self) -> dict[str, np.ndarray]:
        """Small inputs that may be taken as known."""
        return {
            name: array
            for name, array in self.tensors.items()
            if isinstance(array, np.ndarray)
            and array.size <= OFFERED_ELEMENTS
            and name not in self.values
        }

    def part(self, told: Sequence[str]) -> _Key:
        """What its code depends on besides shapes, and the numbers in the tensors `told`."""
        values = (
            (name, array.shape, (_least(array) if name in told else array).tobytes())
            for name, array in sorted(self.values.items())
        )
        given = ((name, array.ndim) for name, array in self.given.items())
        return (repr(self.structures), tuple(told), *values, *given)

    @property
    def key(self) -> _Key:
        return (self.part(()), tuple(self.shapes(()).items()))


class OverridableExecutable(Executable):
    """A model compiled ahead. `run` takes other values for inputs that have one in the model, too:
    for those it compiles again."""

    def __init__(self, source: Artifact, threads: int | None, build: Build) -> None:
        super().__init__(source, threads)
        specs = [
            tuple(OpenSpec(spec.name, spec.dtype, spec.shape) for spec in group)
            for group in (self.inputs, self.outputs, source.manifest.defaults)
        ]
        signature = OpenModelError("", specs[0], specs[1], defaults=specs[2])
        self._again = SpecializingExecutable(build, signature, threads, {})
        self._defaults = {spec.name for spec in specs[2]}

    def run(self, feed: Mapping[str, object]) -> dict[str, np.ndarray]:
        """Run on values by input name; returns results by output name. Raises InputError."""
        if self._defaults.isdisjoint(feed):
            return super().run(feed)
        return self._again.run(feed)
