"""A model that is compiled when it is called: for the shapes, and the values that must be known."""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from stepwell import stepped_artifact
from stepwell.any_size import AnySize
from stepwell.artifact import Artifact
from stepwell.errors import LoweringError, OpenModelError, UsageError
from stepwell.runtime.executable import Executable
from stepwell.runtime.load_artifact import Loaded, OpenLoaded, load_artifact
from stepwell.runtime.steps import Call, RunsLoop, Step, SteppedModel, Ways, least
from stepwell.sizes import OpenShapes
from stepwell.specialization import (
    TENSOR,
    Key,
    OpenSpec,
    Signature,
    Specialization,
    told_inputs,
)
from stepwell.stepped_artifact import SavedStep

Shapes = Mapping[str, Sequence[int]]
Build = Callable[[Shapes | None, Specialization | None], Artifact]
"""Compiles the model for shapes and a specialization. Raises OpenModelError when more is needed."""

HostLoopOf = Callable[[str], RunsLoop]
"""The loop of the model whose first result has that name."""

_log = logging.getLogger("stepwell")

KEPT_STEPS = 512
"""So many specializations stay in memory, the oldest leaving first; the cache has them all."""

_MANY_STEPS = 32
"""So many are compiled without a word; a loop that shapes depend on can ask for thousands."""


_MANY_VALUES = (
    "%d parts of the model have been compiled, and it goes on: shapes depend on values that it"
    " computes, and each part is compiled for the values before it, once more when they change"
)


class SpecializingExecutable(SteppedModel):
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
        self._signature = Signature(
            open_model.inputs, open_model.outputs, open_model.defaults, open_model.limits, shapes
        )
        super().__init__(self._signature, on_gpu=on_gpu)
        self._build, self._threads = build, threads
        self._lock = threading.RLock()
        self._steps: dict[Key, Step] = {}
        self._ways: dict[Key, Ways] = {}
        self._parts: dict[Key, AnySize] = {}
        self._bounds: dict[str, int] = {}
        self._latest: Loaded | None = None
        self._any_size = any_size
        self._host_loop, self._loops = host_loop, dict[str, RunsLoop]()
        self._staged = False
        self.compiled_for_one = 0
        """How often code was made for shapes and values of one call."""
        names = {spec.name for spec in self.inputs}
        self._known = [name for name in open_model.values if name in names]

    @property
    def codes_for_any_size(self) -> list[OpenLoaded]:
        """What is compiled for any size, of all parts of the model."""
        return [code for part in self._parts.values() for _, code in part.steps]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an artifact of what is compiled to `path`: the code compiled last, which takes the
        sizes that it was compiled for; of a model that runs in steps, all steps of the calls so
        far, which take their sizes and values, and any that code for any size takes.

        Raises UsageError before the first call, and for a model with a loop that the host runs.
        """
        if self._latest is None:
            raise UsageError(
                f"{self._open_names()} not known yet, and an artifact holds code for known shapes; "
                "run the model once or give shapes= to compile"
            )
        if self._loops:
            raise UsageError(
                f"the model cannot be saved as an artifact: the loop {next(iter(self._loops))} "
                "runs on the host"
            )
        if self._staged:
            self._save_steps(path)
        else:
            self._latest.save(path)

    def _save_steps(self, path: str | os.PathLike[str]) -> None:
        codes: dict[int, int] = {}
        artifacts: list[Artifact] = []
        steps: list[SavedStep] = []

        def save(key: Key, step: Step, *, any_size: bool) -> None:
            code = None
            if step.executable is not None:
                code = codes.setdefault(id(step.executable), len(artifacts))
                if code == len(artifacts):
                    artifacts.append(step.executable.artifact)
            asked = (step.values, step.sizes, step.dropped, step.told)
            steps.append(SavedStep(key, any_size, code, *asked))

        with self._lock:
            for key, step in self._steps.items():
                if not self._is_taken(key, step):
                    save(key, step, any_size=False)
            for key, part in self._parts.items():
                for step, _ in part.steps:
                    save(key, step, any_size=True)
            signature = dataclasses.replace(self._signature, known=tuple(self._known))
        stepped_artifact.write(path, signature, steps, artifacts)

    def _is_taken(self, key: Key, step: Step) -> bool:
        """Whether code for any size does what a step that was found for `key` does."""
        for part, shapes in self._ways[key]:
            for other, code in self._parts[part].steps if part in self._parts else ():
                if code.takes(shapes):
                    return step is other or step.asks == other.asks
        return False

    def _open_names(self) -> str:
        names = [spec.name for spec in self.inputs if spec.is_open] or self._known
        text = ", ".join(names) or "shapes"
        return f"what the model needs of {text} is"

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.inputs))
        outputs = ", ".join(map(str, self.outputs))
        compiled = len({id(s) for s in self._steps.values() if s.is_last})
        return f"<stepwell.SpecializingExecutable ({inputs}) -> ({outputs}), {compiled} compiled>"

    def _step(self, call: Call, number: int) -> Step:
        key = call.key
        with self._lock:
            step = self._steps.get(key)
            if step is None:
                if number == _MANY_STEPS:
                    _log.warning(_MANY_VALUES, number)
                step = self._compiled(call)
                if len(self._steps) >= KEPT_STEPS:
                    oldest = next(iter(self._steps))
                    del self._steps[oldest], self._ways[oldest]
                self._steps[key] = step
                self._ways[key] = call.ways
            return step

    def _loop(self, name: str) -> RunsLoop:
        with self._lock:
            if name not in self._loops:
                assert self._host_loop is not None
                self._loops[name] = self._host_loop(name)
            return self._loops[name]

    def _compiled(self, call: Call) -> Step:
        """The code for a call, as far as it can be compiled: for any size where that is known to be
        wanted."""
        step = self._for_any_size(call)
        if step is None:
            self.compiled_for_one += 1
            shapes = {name: tuple(array.shape) for name, array in call.tensors.items()}
            special = Specialization(call.structures, call.values, call.types)
            step = self._built(special, list(call.present), shapes, call.offered)
        self._bounds |= step.bounds
        if step.is_last:
            self._staged = bool(call.values or call.given)
            self._latest = step.executable
        elif not call.given:  # and so will other calls
            self._known += [n for n in step.values if n in call.tensors and n not in self._known]
        return step

    def _for_any_size(self, call: Call) -> Step | None:
        """The code for a call and others of other sizes; None where there is none, or none yet."""
        if not self._any_size or any(spec.kind != TENSOR for spec in self.inputs):
            return None
        for told in call.ways_to_tell:
            part, special = self._part(call, told)
            if part.is_possible:
                build = functools.partial(self._sized, special, list(call.present))
                return part.step(call.shapes(told), build)
        return None

    def _part(self, call: Call, told: tuple[str, ...]) -> tuple[AnySize, Specialization]:
        """The rest of the model from a call on, for any values of the tensors `told`; what it is
        compiled for."""
        # Of shapes that depend on data, nothing is known but those of calls.
        given = [OpenSpec(name, array.dtype.name, None) for name, array in call.given.items()]
        types = {spec.name: (spec.dtype, ()) for spec in given}
        values = {n: least(a) if n in told else a for n, a in call.values.items()}
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
        return self._built(dataclasses.replace(special, sizes=sizes), present)

    def _built(
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
