"""Graphs of PyTorch, of ATen operators and static shapes, as compiled code that takes tensors."""

# pyright: reportMissingImports=false
from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.fx

from stepwell import cache
from stepwell.artifact import Artifact
from stepwell.errors import ModelError
from stepwell.frontends.torch import placement, program_file, result_views
from stepwell.frontends.torch.graph import Argument, to_program
from stepwell.frontends.torch.result_views import View, is_tensor
from stepwell.frontends.torch.symbolic import SymbolicGraph, capacity
from stepwell.options import CompileOptions
from stepwell.runtime.load_artifact import Loaded, OpenLoaded, load_artifact
from stepwell.specialization import Specialization


@dataclass(frozen=True)
class Settings:
    """How graphs are compiled: see `backend.stepwell`. `target` is that of where the tensors are;
    with `freeze` None, parameters become constants on CPUs."""

    freeze: bool | None
    threads: int | None
    options: Mapping[str, object]
    target: str = placement.CPU


@dataclass(frozen=True)
class _Described:
    """A graph as a program. `taken` are the placeholders that a call hands over, `returned` are its
    results by number, `others` those that are no tensors."""

    program: program_file.Program
    taken: tuple[int, ...]
    returned: Mapping[int, View]
    others: Mapping[int, object]

    @staticmethod
    def of(
        module: torch.fx.GraphModule,
        constants: Mapping[int, torch.Tensor],
        returned: Callable[[torch.fx.Graph], Mapping[int, View]],
    ) -> _Described:
        """Changes `module`. `constants` are values of placeholders, by their numbers, `returned`
        says how results lie in what the program returns. Raises UnsupportedError with the nodes
        that cannot be imported."""
        (output,) = (node for node in module.graph.nodes if node.op == "output")
        others = {i: value for i, value in enumerate(output.args[0]) if not is_tensor(value)}
        results = returned(module.graph)
        placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
        arguments: list[Argument] = [
            constants.get(i, _argument_name(i)) for i, _ in enumerate(placeholders)
        ]
        taken = tuple(
            i
            for i, node in enumerate(placeholders)
            if is_tensor(node) and isinstance(arguments[i], str)
        )
        count = len(output.args[0])
        program = to_program(module, arguments, [f"out{i}" for i in range(count)])
        return _Described(program, taken, results, others)


_LEAST = 2
"""The smallest size that PyTorch makes a symbol of."""


class Compiled:
    """A compiled graph; called with a value for each of its placeholders, it returns its results:
    tensors, and the numbers and Nones that the graph returns."""

    def __init__(
        self,
        executable: Loaded | None,
        described: _Described,
    ) -> None:
        self._executable = executable
        self._taken, self._returned = described.taken, described.returned
        self._others = described.others
        self._count = len(described.returned) + len(described.others)

    @staticmethod
    def of(
        module: torch.fx.GraphModule,
        constants: Mapping[int, torch.Tensor],
        settings: Settings,
    ) -> Compiled:
        """Compile `module`, which is changed. `constants` are values of placeholders, by their
        numbers; a call may have anything in their places.

        Raises UnsupportedError with the nodes that cannot be imported, and other errors of
        `stepwell.compile`.
        """
        described = _Described.of(module, constants, result_views.views)
        executable = None
        if described.program.outputs:
            built = _build(settings, None, described.program)
            executable = load_artifact(built, settings.threads)
        return Compiled(executable, described)

    def __call__(self, *values: object) -> list[object]:
        tensors: list[torch.Tensor] = []
        if self._executable is not None:
            given = (values[i] for i in self._taken)
            given = [value for value in given if isinstance(value, torch.Tensor)]
            tensors = placement.run(self._executable, given)
        results = {**self._numbers(values)}
        results |= {number: view.of(tensors) for number, view in self._returned.items()}
        return [results.get(number) for number in range(self._count)]

    def _numbers(self, values: Sequence[object]) -> Mapping[int, object]:
        """The results that are no tensors, by number."""
        return self._others


class CompiledForAnySize(Compiled):
    """A graph with symbolic sizes, compiled once for any up to its capacities."""

    def __init__(self, executable: OpenLoaded, described: _Described, graph: SymbolicGraph) -> None:
        super().__init__(executable, described)
        self._code, self._graph = executable, graph

    @staticmethod
    def for_any_size(
        graph: SymbolicGraph,
        values: Sequence[object],
        constants: Mapping[int, torch.Tensor],
        settings: Settings,
    ) -> CompiledForAnySize:
        """Compile `graph` for sizes like those of a call with `values`. Arguments and errors as
        for `Compiled.of`; ModelError when there is no such code."""
        sizes = graph.sizes(values)
        capacities = {symbol: capacity(size) for symbol, size in sizes.items()}
        names = {
            i: _argument_name(i)
            for i, value in enumerate(values)
            if isinstance(value, torch.Tensor) and i not in constants
        }
        shapes = graph.shapes(names, capacities)
        whole = result_views.whole_results  # strides depend on sizes

        def described(point: Sequence[int]) -> _Described:
            traced = graph.traced(dict(zip(capacities, point, strict=True)))
            return _Described.of(traced, constants, whole)

        samples = list(map(described, (*shapes.samples(), shapes.small_samples()[0])))
        with contextlib.suppress(Exception):  # of operators for such sizes
            samples.append(described([_LEAST] * len(capacities)))
        with contextlib.suppress(Exception):
            samples += [sample for _, sample in shapes.rounding_sampled(described)]
        if not samples[0].program.outputs:
            raise ModelError("the graph returns no tensor")
        special = Specialization(sizes=shapes)
        built = _build(settings, special, *(sample.program for sample in samples))
        code = load_artifact(built, settings.threads)
        assert isinstance(code, OpenLoaded)
        return CompiledForAnySize(code, samples[0], graph)

    def takes(self, values: Sequence[object]) -> bool:
        """Whether a call may have these values."""
        tensors = (values[i] for i in self._taken)
        return self._code.takes([tuple(t.shape) for t in tensors if isinstance(t, torch.Tensor)])

    def _numbers(self, values: Sequence[object]) -> Mapping[int, object]:
        return self._graph.numbers(self._graph.sizes(values))


def _argument_name(number: int) -> str:
    """What a placeholder is called in the program."""
    return f"arg{number}"


def _build(
    settings: Settings, specialization: Specialization | None, *programs: program_file.Program
) -> Artifact:
    from stepwell.compiler import build

    with cache.work_folder() as folder:
        path = folder / "model.torch_program"
        program_file.write(path, *programs)
        options = CompileOptions(**{"progress": False, **settings.options})  # pyright: ignore[reportArgumentType]
        return build(path, settings.target, settings.threads, None, options, specialization)
