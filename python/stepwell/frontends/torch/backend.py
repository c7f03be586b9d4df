"""`torch.compile(module, backend="stepwell")`.

AOTAutograd makes functional graphs of what dynamo captures: one for inference, or a forward and a
backward one for training. Each is compiled when it is first called with new shapes. What cannot be
compiled runs in PyTorch itself, with a warning, and stands in `reports`.

In inference, parameters become constants of the compiled code. They are taken to be unchanged while
their memory, PyTorch's version counters and a sample of their bytes are; after a change they are
handed over at each call. Training graphs take them as arguments from the beginning.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.fx
from torch._dynamo.backends.common import aot_autograd
from torch._guards import TracingContext
from torch.fx.experimental.proxy_tensor import make_fx

from stepwell import cache
from stepwell.errors import Error, ModelError, UnsupportedError
from stepwell.frontends.torch import program_file
from stepwell.frontends.torch.decompositions import decompositions
from stepwell.frontends.torch.graph import Argument, to_array, to_program
from stepwell.options import CompileOptions
from stepwell.runtime.executable import Executable

KEPT = 64
"""So many specializations of a graph stay in memory; a graph called with more runs the later ones
in PyTorch."""

_SAMPLES = 64


@dataclass(frozen=True)
class Report:
    """What became of one graph for one set of shapes. `reason` says why it runs in PyTorch."""

    graph: str
    shapes: tuple[tuple[int, ...], ...]
    compiled: bool
    reason: str = ""
    operators: tuple[str, ...] = ()


reports: list[Report] = []
"""One report for each graph and set of shapes, in order of their first calls."""


def stepwell(
    module: torch.fx.GraphModule,
    example_inputs: Sequence[object],
    *,
    options: Mapping[str, object] | None = None,
    **_: object,
) -> Callable[..., object]:
    """The backend. `options` are those of `stepwell.compile`, `threads`, and `freeze`: whether the
    parameters of inference graphs become constants (default: yes)."""
    chosen = dict(options or {})
    threads = chosen.pop("threads", None)
    freeze = bool(chosen.pop("freeze", True))
    settings = _Settings(freeze, threads if isinstance(threads, int) else None, chosen)
    compiler = aot_autograd(
        fw_compiler=functools.partial(_compile, settings=settings, name="forward"),
        bw_compiler=functools.partial(_compile, settings=settings, name="backward"),
        inference_compiler=functools.partial(_compile, settings=settings, name="inference"),
        decompositions=decompositions(),
        keep_inference_input_mutations=False,
    )
    return compiler(module, example_inputs)


@dataclass(frozen=True)
class _Settings:
    freeze: bool
    threads: int | None
    options: Mapping[str, object]


def _compile(
    module: torch.fx.GraphModule,
    example_inputs: Sequence[object],
    *,
    settings: _Settings,
    name: str,
) -> Callable[..., object]:
    frozen: Sequence[int] = ()
    if name == "inference" and settings.freeze:
        context = TracingContext.try_get()
        metadata = context.fw_metadata if context is not None else None
        frozen = metadata.static_input_indices if metadata is not None else ()
    return _Graph(module, name, frozen, settings)


class _Graph:
    """One graph of ATen operators, and what was compiled of it by shapes."""

    def __init__(
        self, module: torch.fx.GraphModule, name: str, frozen: Sequence[int], settings: _Settings
    ) -> None:
        # Tells AOTAutograd that a call takes one list; of the object, as wrappers copy that alone.
        self._boxed_call = True
        self._module, self._name, self._settings = module, name, settings
        self._frozen = tuple(frozen)
        self._lock = threading.Lock()
        self._compiled: dict[object, _Compiled | None] = {}

    def __call__(self, arguments: list) -> Sequence[object]:
        values = list(arguments)
        arguments.clear()  # the caller counts on it, so that memory is freed early
        if any(isinstance(v, torch.Tensor) and v.device.type != "cpu" for v in values):
            return self._eager(values)
        key = tuple((v.shape, v.dtype) if isinstance(v, torch.Tensor) else v for v in values)
        compiled = self._compiled.get(key, self)
        if isinstance(compiled, _Compiled) and not compiled.holds(values):
            with self._lock:
                self._frozen = ()
                self._compiled.clear()
            compiled = self
        if compiled is self:
            with self._lock:
                if key not in self._compiled:
                    self._compiled[key] = self._specialize(values)
                compiled = self._compiled[key]
        return self._eager(values) if compiled is None else compiled(values)  # pyright: ignore[reportCallIssue]

    def _eager(self, values: list) -> Sequence[object]:
        return torch.fx.Interpreter(self._module).boxed_run(list(values))

    def _specialize(self, values: list) -> _Compiled | None:
        shapes = tuple(tuple(v.shape) for v in values if isinstance(v, torch.Tensor))
        if len(self._compiled) >= KEPT:
            reports.append(Report(self._name, shapes, False, f"more than {KEPT} sets of shapes"))
            return None
        try:
            compiled = _Compiled.of(self._module, values, self._frozen, self._settings)
        except Error as error:
            operators: tuple[str, ...] = ()
            if isinstance(error, UnsupportedError):
                operators = tuple(finding.operator for finding in error.findings)
            reason = str(error)
            reports.append(Report(self._name, shapes, False, reason, operators))
            warnings.warn(
                f"stepwell runs a {self._name} graph in PyTorch: {reason}",
                RuntimeWarning,
                stacklevel=2,
            )
            return None
        reports.append(Report(self._name, shapes, True))
        return compiled


class _Compiled:
    """A graph compiled for one set of shapes."""

    def __init__(
        self,
        executable: Executable | None,
        taken: Sequence[int],
        returned: Sequence[int | None],
        constants: Mapping[int, object],
        frozen: Mapping[int, _Frozen],
    ) -> None:
        self._executable, self._taken = executable, tuple(taken)
        self._returned, self._constants, self._frozen = tuple(returned), constants, frozen

    @staticmethod
    def of(
        module: torch.fx.GraphModule, values: list, frozen: Sequence[int], settings: _Settings
    ) -> _Compiled:
        from stepwell.compiler import build

        try:
            static = _at_values(module, values)
        except Exception as error:  # what operators raise for data that they do not have
            raise ModelError(f"the graph cannot be traced for its shapes: {error}") from error
        (output,) = (node for node in static.graph.nodes if node.op == "output")
        results = list(output.args[0])
        tensors = [
            i
            for i, node in enumerate(results)
            if isinstance(node, torch.fx.Node) and isinstance(node.meta["val"], torch.Tensor)
        ]
        constants = {i: value for i, value in enumerate(results) if i not in tensors}
        arguments: list[Argument] = [
            value if i in frozen and isinstance(value, torch.Tensor) else f"arg{i}"
            for i, value in enumerate(values)
        ]
        taken = [
            i
            for i, value in enumerate(values)
            if isinstance(value, torch.Tensor) and isinstance(arguments[i], str)
        ]
        program = to_program(static, arguments, [f"out{i}" for i in tensors])
        executable = None
        if tensors:
            with cache.work_folder() as folder:
                path = folder / "model.torch_program"
                program_file.write(path, program)
                options = CompileOptions(**{"progress": False, **settings.options})  # pyright: ignore[reportArgumentType]
                built = build(path, "cpu", settings.threads, None, options)
            executable = Executable(built, settings.threads)
        kept = {i: _Frozen(values[i]) for i in frozen if isinstance(values[i], torch.Tensor)}
        order = {i: position for position, i in enumerate(tensors)}
        returned = [order.get(i) for i in range(len(results))]
        return _Compiled(executable, taken, returned, constants, kept)

    def holds(self, values: list) -> bool:
        """Whether the parameters that became constants are as they were."""
        return all(kept.holds(values[i]) for i, kept in self._frozen.items())

    def __call__(self, values: list) -> list[object]:
        arrays: tuple[np.ndarray, ...] = ()
        if self._executable is not None:
            arrays = self._executable(*(to_array(values[i]) for i in self._taken))
        return [
            self._constants.get(number) if position is None else _tensor(arrays[position])
            for number, position in enumerate(self._returned)
        ]


def _at_values(module: torch.fx.GraphModule, values: list) -> torch.fx.GraphModule:
    """The graph traced again for the shapes of these tensors and for these numbers."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mode = torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True)
        fake = [mode.from_tensor(v) if isinstance(v, torch.Tensor) else v for v in values]
        with mode:
            flat = make_fx(
                lambda *inputs: torch.fx.Interpreter(module).run(*inputs),
                decomposition_table=decompositions(),  # pyright: ignore[reportArgumentType]
                tracing_mode="real",
                _allow_non_fake_inputs=True,
            )
            return flat(*fake)


class _Frozen:
    """What tells that a tensor's data is unchanged: where it lies, PyTorch's count of changes, and
    some of its elements, since the count misses changes by way of `.data`."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._address, self._version = tensor.data_ptr(), _version(tensor)
        flat = to_array(tensor).reshape(-1)
        self._elements = flat[:: max(1, flat.size // _SAMPLES)]
        self._sample = self._elements.tobytes()

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether `tensor` is that tensor, and as it was."""
        return (
            tensor.data_ptr() == self._address
            and _version(tensor) == self._version
            and self._elements.tobytes() == self._sample
        )


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _tensor(array: np.ndarray) -> torch.Tensor:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
