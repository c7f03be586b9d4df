"""A model that is compiled when it is called: for the shapes, and the values that must be known."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stepwell.artifact import Artifact, KernelInfo
from stepwell.errors import Error, InputError, ModelError, OpenModelError, UsageError
from stepwell.open_shapes import Relation, generalized
from stepwell.runtime.device_arrays import host_copy, is_on_gpu
from stepwell.runtime.executable import Executable
from stepwell.runtime.inputs import input_array
from stepwell.runtime.load import Loaded, OpenLoaded, load_artifact
from stepwell.sizes import Fixed, OpenShapes
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
)

Shapes = Mapping[str, Sequence[int]]
Build = Callable[[Shapes | None, Specialization | None], Artifact]
"""Compiles the model for shapes and a specialization. Raises OpenModelError when more is needed."""

_log = logging.getLogger("stepwell")

KEPT_STEPS = 512
"""So many specializations stay in memory, the oldest leaving first; the cache has them all."""

_TRIES = [(exact, related) for related in Relation for exact in (False, True)]
"""How capacities are chosen, and what open sizes may have to do with others: the most free
first."""

_Key = tuple[object, ...]
_ROUNDS = 10_000
"""More stages than any model has; a model that asks for more asks for the same again."""

_MANY_STAGES = 32
"""So many are compiled without a word; a loop that shapes depend on can ask for thousands."""


_MANY_VALUES = (
    "%d parts of the model have been compiled, and it goes on: shapes depend on values that it"
    " computes, and each part is compiled for the values before it, once more when they change"
)


@dataclass(frozen=True)
class _Stage:
    """What has to be known before the model can be compiled: values and true shapes of tensors, of
    which `executable` computes those that are no inputs."""

    values: tuple[str, ...]
    sizes: tuple[str, ...]
    executable: Loaded | None


class SpecializingExecutable:
    """A model that leaves open what only a call can tell; used as an `Executable` is.

    It is compiled for the shapes of the first call. Once other shapes come, it is compiled for any
    size of the dimensions that differ (unless `any_size` is False), up to a capacity; larger sizes
    compile it again, and so do sizes of 0 and those for which the model is another: they stay as
    they are in code for any size of the others. A model for which that cannot be done is compiled
    for each shape, and for each value of inputs on which shapes depend. Every result is kept, here
    and in the cache on disk.
    Where a shape depends on a value computed on the way, the part of the model up to it is compiled
    first, and the rest for each such value, or shape. An input that is a sequence is given as a
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
    ) -> None:
        self.inputs: tuple[OpenSpec, ...] = open_model.inputs
        self.outputs: tuple[OpenSpec, ...] = open_model.outputs
        self._defaults = {spec.name: spec for spec in open_model.defaults}
        self._limits = open_model.limits
        self._build, self._threads = build, threads
        self._fixed = {name: tuple(int(n) for n in shape) for name, shape in shapes.items()}
        self._lock = threading.RLock()
        self._steps: dict[_Key, _Stage | Loaded] = {}
        self._latest: Loaded | None = None
        self._any_size, self._on_gpu = any_size, on_gpu
        self._histories: dict[frozenset[Fixed], list[dict[str, tuple[int, ...]]]] = {}
        self._closed: set[frozenset[Fixed]] = set()
        self._open: list[OpenLoaded] = []
        self._staged = False
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
        compiled = len({id(s) for s in self._steps.values() if isinstance(s, Loaded)})
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
        values = {name: host_copy(name, tensors[name]) for name in self._known}
        begin: _Key = (
            repr(structures),
            *((name, tuple(array.shape)) for name, array in tensors.items()),
        )
        for number in range(_ROUNDS):
            key: _Key = (
                begin,
                *((name, array.shape, array.tobytes()) for name, array in values.items()),
                *((name, array.shape) for name, array in given.items()),
            )
            with self._lock:
                step = self._steps.get(key)
                if step is None:
                    if number == _MANY_STAGES:
                        _log.warning(_MANY_VALUES, number)
                    step = self._compiled(tensors, structures, values, given)
                    if len(self._steps) >= KEPT_STEPS:
                        self._steps.pop(next(iter(self._steps)))
                    self._steps[key] = step
            if isinstance(step, Loaded):
                return step, [*tensors.values(), *given.values()]
            present = {**tensors, **given}
            found = {n: host_copy(n, present[n]) for n in step.values if n in present}
            if step.executable is not None:
                inputs = [*tensors.values(), *given.values()]
                staged = [n for n in (*step.values, *step.sizes) if n not in present]
                found |= dict(zip(staged, step.executable(*inputs), strict=True))
            values |= {name: found[name] for name in step.values}
            given |= {name: found[name] for name in step.sizes}
        raise ModelError("the model asks for values of its own without end")

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

    def _compiled(
        self,
        tensors: Mapping[str, np.ndarray],
        structures: Mapping[str, Structure],
        values: Mapping[str, np.ndarray],
        given: Mapping[str, np.ndarray],
    ) -> _Stage | Loaded:
        """The code for these inputs, or what has to be known before it can be compiled."""
        shapes = {name: tuple(array.shape) for name, array in tensors.items()}
        if not values and not given and all(spec.kind == TENSOR for spec in self.inputs):
            code = self._for_any_size(shapes)
            if code is not None:
                self._latest = code
                return code
        types = {name: (array.dtype.name, array.shape) for name, array in given.items()}
        small = {
            name: array
            for name, array in tensors.items()
            if isinstance(array, np.ndarray)
            and array.size <= OFFERED_ELEMENTS
            and name not in values
        }
        try:
            special = Specialization(structures, values, types, None, {})
            try:
                built = self._build(shapes, special)
            except OpenModelError as error:
                if not any(name in small for name in error.values):
                    raise
                # Inputs that have to be known lead to others: ask for all of them at once.
                offered = Specialization(structures, values, types, None, small)
                built = self._build(shapes, offered)
            self._staged = bool(values or given)
            self._latest = load_artifact(built, self._threads)
            return self._latest
        except OpenModelError as error:
            needed, sizes = error.values, error.sizes
            present = {*tensors, *given}
            computed = tuple(n for n in (*needed, *sizes) if n not in present)
            if not needed and not sizes:
                raise
            if not given:  # and so will other calls
                self._known += [n for n in needed if n in tensors and n not in self._known]
        if not computed:
            return _Stage(needed, sizes, None)
        special = Specialization(structures, values, types, computed, {})
        return _Stage(needed, sizes, load_artifact(self._build(shapes, special), self._threads))

    def _for_any_size(self, shapes: dict[str, tuple[int, ...]]) -> OpenLoaded | None:
        """Code that takes `shapes` and others, compiled now unless there is some; None for the
        first shapes, and where there can be no such code."""
        wanted = [shapes[spec.name] for spec in self.inputs]
        for code in self._open:
            if code.takes(wanted):
                return code
        places = (
            Fixed(number, dimension, size)
            for number, shape in enumerate(wanted)
            for dimension, size in enumerate(shape)
        )
        fixed = frozenset(place for place in places if place.size == 0)
        while self._any_size and fixed not in self._closed:
            below = (code.below(wanted) for code in self._open)
            more = next((found for found in below if found - fixed), None)
            if more is None:
                code = self._joint(fixed, shapes)
                if code is None or code.takes(wanted):
                    return code
                more = code.below(wanted)
                if more <= fixed:
                    return None
            fixed |= more
        return None

    def _joint(
        self, fixed: frozenset[Fixed], shapes: dict[str, tuple[int, ...]]
    ) -> OpenLoaded | None:
        """Code for the sizes that differ between `shapes` and earlier ones in which the same are
        `fixed`; None where there is none. It may take larger sizes alone."""
        history = self._histories.setdefault(fixed, [])
        history.append(shapes)
        if len(history) < 2:
            return None
        wanted = [shapes[spec.name] for spec in self.inputs]
        tried: list[OpenShapes] = []
        for exact, related in _TRIES:
            sizes = generalized(self.inputs, history, self._limits, exact=exact, related=related)
            if sizes is None or sizes in tried:
                continue
            tried.append(sizes)
            try:
                built = self._build(None, Specialization(sizes=sizes))
                code = load_artifact(built, self._threads)
                assert isinstance(code, OpenLoaded)
            except ModelError as error:  # perhaps it takes no such sizes
                _log.info("there is no code for any size up to %s: %s", sizes.capacities, error)
            except (Error, MemoryError, OSError) as error:
                _log.info("there is no code for any size: %s", error)
                break
            else:
                self._open.append(code)
                if not code.takes(wanted):
                    history.pop()
                return code
        self._closed.add(fixed)
        self._any_size = bool(fixed)
        return None


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
