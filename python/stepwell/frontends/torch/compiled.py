"""Graphs of PyTorch, of ATen operators and static shapes, as compiled code that takes tensors."""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.fx

from stepwell import cache
from stepwell.frontends.torch import program_file
from stepwell.frontends.torch.graph import Argument, to_array, to_program
from stepwell.options import CompileOptions
from stepwell.runtime.executable import Executable


@dataclass(frozen=True)
class Settings:
    """How graphs are compiled: see `backend.stepwell`."""

    freeze: bool
    threads: int | None
    options: Mapping[str, object]


class Compiled:
    """A compiled graph; called with a value for each of its placeholders, it returns its results:
    tensors, and the numbers and Nones that the graph returns."""

    def __init__(
        self,
        executable: Executable | None,
        taken: Sequence[int],
        returned: Sequence[int | None],
        constants: Mapping[int, object],
    ) -> None:
        self._executable, self._taken = executable, tuple(taken)
        self._returned, self._constants = tuple(returned), constants

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
        from stepwell.compiler import build

        (output,) = (node for node in module.graph.nodes if node.op == "output")
        results = list(output.args[0])
        tensors = [i for i, node in enumerate(results) if _is_tensor(node)]
        others = {i: value for i, value in enumerate(results) if i not in tensors}
        placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
        arguments: list[Argument] = [
            constants.get(i, f"arg{i}") for i, _ in enumerate(placeholders)
        ]
        taken = [
            i
            for i, node in enumerate(placeholders)
            if _is_tensor(node) and isinstance(arguments[i], str)
        ]
        program = to_program(module, arguments, [f"out{i}" for i in tensors])
        executable = None
        if tensors:
            with cache.work_folder() as folder:
                path = folder / "model.torch_program"
                program_file.write(path, program)
                options = CompileOptions(**{"progress": False, **settings.options})  # pyright: ignore[reportArgumentType]
                built = build(path, "cpu", settings.threads, None, options)
            executable = Executable(built, settings.threads)
        order = {i: position for position, i in enumerate(tensors)}
        return Compiled(executable, taken, [order.get(i) for i in range(len(results))], others)

    def __call__(self, *values: object) -> list[object]:
        arrays: tuple[np.ndarray, ...] = ()
        if self._executable is not None:
            tensors = (values[i] for i in self._taken)
            arrays = self._executable(
                *(to_array(t) for t in tensors if isinstance(t, torch.Tensor))
            )
        return [
            self._constants.get(number) if position is None else _tensor(arrays[position])
            for number, position in enumerate(self._returned)
        ]


def _is_tensor(node: object) -> bool:
    return isinstance(node, torch.fx.Node) and isinstance(node.meta.get("val"), torch.Tensor)


def _tensor(array: np.ndarray) -> torch.Tensor:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
