"""Models whose code is made of steps: each runs up to where the next has to know what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np

from stepwell.artifact import KernelInfo
from stepwell.errors import InputError, ModelError
from stepwell.runtime.device_arrays import host_copy, is_on_gpu
from stepwell.runtime.executable import Executable
from stepwell.runtime.inputs import input_array
from stepwell.runtime.load_artifact import Loaded
from stepwell.runtime.open_sizes import OpenSizeExecutable
from stepwell.runtime.trace import Trace, joined
from stepwell.specialization import (
    OFFERED_ELEMENTS,
    TENSOR,
    Key,
    Signature,
    Structure,
    check_limits,
    check_names,
    check_shape,
    flatten,
    told_inputs,
)

_ROUNDS = 10_000
"""More steps than any model has; a model that asks for more asks for the same again."""

_MOST_NUMBERS, _MOST_SIZE = 8, 1 << 16
"""Of a tensor of sizes, and of what it holds."""


Ways: TypeAlias = list[tuple[Key, list[tuple[int, ...]]]]


class RunsLoop(Protocol):
    """A loop that runs on the host (`frontends.onnx.host_loop`)."""

    def run(self, values: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]: ...


@dataclass(frozen=True)
class Step:
    """Code of a model up to where `values` and true shapes of tensors, its `sizes`, have to be
    known; up to its end when there are none. `executable` computes those that are no inputs. Of
    those that were known before, `dropped` are not read any more. `bounds` are the most that sizes
    of what it computes can be, as `generalized` takes them. Of the values called `told`, it takes
    any (`Specialization.told`). `loops` are run before the next step: by their first result, the
    tensors behind the names that they read."""

    executable: Loaded | None
    values: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    bounds: Mapping[str, int] = field(default_factory=dict)
    told: tuple[str, ...] = ()
    loops: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def is_last(self) -> bool:
        return not self.values and not self.sizes and not self.loops

    @property
    def asks(self) -> tuple[object, ...]:
        """What the next step depends on."""
        return self.values, self.sizes, self.dropped, self.loops


class SteppedModel:
    """A model that runs in steps; used as an `Executable` is.

    An input that is a sequence is given as a list, an optional one may be None.
    """

    def __init__(self, signature: Signature, *, on_gpu: bool = False) -> None:
        self.inputs, self.outputs = signature.inputs, signature.outputs
        self._defaults = {spec.name: spec for spec in signature.defaults}
        self._limits = signature.limits
        self._fixed = {name: tuple(map(int, shape)) for name, shape in signature.fixed.items()}
        self._known = list(signature.known)
        self._on_gpu = on_gpu

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
        executable, inputs = self._to_the_last(arrays, {})
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
        executable, inputs = self._to_the_last([feed.get(name) for name in names], overridden)
        outputs = executable(*inputs)
        return dict(zip(executable.result_names, outputs, strict=True))

    def specialized(self, *arrays: object) -> Loaded:
        """What runs last on values like `arrays`: compiled now unless it already is."""
        return self._to_the_last(arrays, {})[0]

    def codes(self, *arrays: object) -> list[Loaded]:
        """The code of the steps that a call with `arrays` runs, each once."""
        return list(dict.fromkeys(code for code, _ in self._ran(arrays)))

    def profile(self, *arrays: object) -> list[tuple[KernelInfo, int]]:
        """Run each step once; the nanoseconds spent in each kernel, that of each step by itself."""
        return [timed for code, inputs in self._ran(arrays) for timed in code.profile(*inputs)]

    def trace(self, *arrays: object) -> Trace:
        """Run once on a CPU; when each kernel ran, as `Executable.trace` has it. Kernels are
        numbered through all `codes`."""
        codes = self.codes(*arrays)
        with ExitStack() as stack:
            traces = [
                stack.enter_context(code.traced(with_shares=True))
                for code in codes
                if isinstance(code, Executable | OpenSizeExecutable)
            ]
            self(*arrays)
        return joined(traces, [len(code.kernels) for code in codes])

    def _ran(self, arrays: Sequence[object]) -> list[tuple[Loaded, list[np.ndarray]]]:
        """The code that a call with `arrays` runs, step by step, and its inputs."""
        ran: list[tuple[Loaded, list[np.ndarray]]] = []
        last = self._to_the_last(arrays, {}, ran)
        return [*ran, last]

    def _step(self, call: Call, number: int) -> Step:
        """What runs next in a call that has run `number` steps."""
        raise NotImplementedError

    def _loop(self, name: str) -> RunsLoop:
        """What runs the loop whose first result is `name`."""
        raise NotImplementedError

    def _to_the_last(
        self,
        arrays: Sequence[object],
        given: dict[str, np.ndarray],
        ran: list[tuple[Loaded, list[np.ndarray]]] | None = None,
    ) -> tuple[Loaded, list[np.ndarray]]:
        """The code of the last step, and its inputs: the tensors of `arrays` and, beside those
        `given`, what earlier steps found. These are added to `ran`."""
        structures: dict[str, Structure] = {}
        tensors: dict[str, np.ndarray] = {}
        for spec, value in zip(self.inputs, arrays, strict=True):
            structure, parts = flatten(spec, value)
            if spec.kind != TENSOR:
                structures[spec.name] = structure
            tensors |= {n: self._taken(n, part, spec.dtype) for n, part in parts.items()}
        self._check_shapes(tensors)
        call = Call(structures, tensors, given)
        call.values |= {name: host_copy(name, tensors[name]) for name in self._known}
        for number in range(_ROUNDS):
            step = self._step(call, number)
            inputs = call.inputs(step.told)
            if step.is_last:
                assert step.executable is not None
                return step.executable, inputs
            present = call.present
            found = {n: host_copy(n, present[n]) for n in step.values if n in present}
            if step.executable is not None:
                staged = [n for n in (*step.values, *step.sizes) if n not in present]
                found |= dict(zip(staged, step.executable(*inputs), strict=True))
                if ran is not None:
                    ran.append((step.executable, inputs))
            call.values |= {name: found[name] for name in step.values}
            call.given |= {name: found[name] for name in step.sizes}
            for name, read in step.loops.items():
                call.given |= self._loop(name).run(call.read_by(read))
            for name in step.dropped:
                call.values.pop(name, None)
                call.given.pop(name, None)
        raise ModelError("the model asks for values of its own without end")

    def _taken(self, name: str, value: object, dtype: str) -> np.ndarray:
        """`value` as an array; as it is where it lies on the GPU that runs the model."""
        if self._on_gpu and is_on_gpu(value) and hasattr(value, "shape"):
            return value  # pyright: ignore[reportReturnType]  # shapes are asked of it alone
        return input_array(name, value, dtype)

    def _check_shapes(self, tensors: Mapping[str, np.ndarray]) -> None:
        for spec in self.inputs:
            if spec.kind != TENSOR:
                continue
            wanted = self._fixed.get(spec.name, spec.shape)
            if wanted is not None:
                check_shape(spec.name, tensors[spec.name].shape, wanted)
            if spec.shape is not None:
                check_limits(spec.name, tensors[spec.name].shape, spec.shape, self._limits)


class Call:
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

    @property
    def ways_to_tell(self) -> list[tuple[str, ...]]:
        """The values that code may be for any number in: all that may be sizes, or none."""
        return [*dict.fromkeys((tuple(self.numbers), ()))]

    @property
    def ways(self) -> Ways:
        """Which code for any size may take it: the part that it is of, and the shapes of inputs."""
        return [(self.part(told), [*self.shapes(told).values()]) for told in self.ways_to_tell]

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

    def part(self, told: Sequence[str]) -> Key:
        """What its code depends on besides shapes, and the numbers in the tensors `told`."""
        values = (
            (name, array.shape, (least(array) if name in told else array).tobytes())
            for name, array in sorted(self.values.items())
        )
        given = ((name, array.ndim) for name, array in self.given.items())
        return (repr(self.structures), tuple(told), *values, *given)

    @property
    def key(self) -> Key:
        """All that its code depends on."""
        return (self.part(()), tuple(self.shapes(()).items()))


def least(array: np.ndarray) -> np.ndarray:
    """`array` with 0 for numbers that are not negative."""
    return np.minimum(array, 0)
