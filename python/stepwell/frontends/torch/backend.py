"""`torch.compile(module, backend="stepwell")`.

AOTAutograd makes functional graphs of what dynamo captures: one for inference, or a forward and a
backward one for training. Each is compiled when it is first called with new shapes; one with
symbolic sizes, as dynamo makes it when shapes change, once for any of them where that can be done
(see `symbolic`). Nodes that cannot be compiled run in PyTorch itself, with a warning, between
compiled parts (see `partition`); `reports` says which and why.

In inference, parameters become constants of the compiled code. They are taken to be unchanged while
their memory, PyTorch's version counters and a sample of their bytes are; after a change they are
handed over at each call. Training graphs take them as arguments from the beginning.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import functools
import logging
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.fx
from torch._dynamo.backends.common import aot_autograd
from torch._guards import TracingContext

from stepwell.errors import Error, ModelError, Unsupported, UnsupportedError
from stepwell.frontends.torch import placement
from stepwell.frontends.torch.compiled import Compiled, CompiledForAnySize, Settings
from stepwell.frontends.torch.decompositions import decompositions
from stepwell.frontends.torch.decompositions.rules import own_rules
from stepwell.frontends.torch.graph import to_array
from stepwell.frontends.torch.partition import ALONE, partition
from stepwell.frontends.torch.symbolic import SymbolicGraph, fake_mode, trace_at
from stepwell.options import make_options

_log = logging.getLogger("stepwell")

torch._dynamo.config.allow_rnn = True  # else nn.LSTM, nn.GRU and nn.RNN are never captured

KEPT = 64
"""So many specializations of a graph stay in memory; a graph called with more runs the later ones
in PyTorch."""

_SAMPLES = 64

_NOWHERE = ""
"""The target of graphs that run in PyTorch: their results lie elsewhere than their operands."""


@dataclass(frozen=True)
class Report:
    """What became of one graph for one set of shapes. `compiled` is of the whole graph, `parts` how
    many pieces of compiled code it has, and `any_size` whether it takes other sizes, too. `nodes`
    are those that run in PyTorch beside compiled parts, each with the reason; `reason` and
    `operators` say the same in short, or why all of the graph runs in PyTorch."""

    graph: str
    shapes: tuple[tuple[int, ...], ...]
    compiled: bool
    reason: str = ""
    operators: tuple[str, ...] = ()
    parts: int = 0
    nodes: tuple[Unsupported, ...] = ()
    any_size: bool = False


reports: list[Report] = []
"""One report for each graph and set of shapes for which something was compiled, in this order."""


def stepwell(
    module: torch.fx.GraphModule,
    example_inputs: Sequence[object],
    *,
    options: Mapping[str, object] | None = None,
    **_: object,
) -> Callable[..., object]:
    """The backend. `options` are those of `stepwell.compile`, `threads`, and `freeze`: whether the
    parameters of inference graphs become constants (default: on CPUs; on GPUs, who changes one by
    way of its `.data` has to compile anew then).

    Graphs whose tensors lie on the first GPU are compiled for it, and leave their results there."""
    chosen = dict(options or {})
    threads = chosen.pop("threads", None)
    freeze = chosen.pop("freeze", None)
    freeze = None if freeze is None else bool(freeze)
    settings = Settings(freeze, threads if isinstance(threads, int) else None, chosen)
    compiler = aot_autograd(
        fw_compiler=functools.partial(_compile, settings=settings, name="forward"),
        bw_compiler=functools.partial(_compile, settings=settings, name="backward"),
        inference_compiler=functools.partial(_compile, settings=settings, name="inference"),
        decompositions=decompositions(),
        keep_inference_input_mutations=False,
    )
    with own_rules():
        return compiler(module, example_inputs)


def _compile(
    module: torch.fx.GraphModule,
    example_inputs: Sequence[object],
    *,
    settings: Settings,
    name: str,
) -> Callable[..., object]:
    frozen: Sequence[int] = ()
    if name == "inference" and settings.freeze is not False:
        context = TracingContext.try_get()
        metadata = context.fw_metadata if context is not None else None
        frozen = metadata.static_input_indices if metadata is not None else ()
    return _Graph(module, name, frozen, settings)


class _Graph:
    """One graph of ATen operators, and what was compiled of it by shapes."""

    def __init__(
        self, module: torch.fx.GraphModule, name: str, frozen: Sequence[int], settings: Settings
    ) -> None:
        # Tells AOTAutograd that a call takes one list; of the object, as wrappers copy that alone.
        self._boxed_call = True
        self._module, self._name, self._settings = module, name, settings
        self._frozen = tuple(frozen)
        self._lock = threading.Lock()
        self._compiled: dict[object, _Specialized | None] = {}
        any_size = make_options(settings.options).any_size
        self._symbolic = SymbolicGraph.of(module) if any_size else None
        self._open: list[_Specialized] = []
        self._target: str | None = None
        self._told = False

    def __call__(self, arguments: list) -> Sequence[object]:
        values = list(arguments)
        arguments.clear()  # the caller counts on it, so that memory is freed early
        target = placement.target_of(values)
        if self._target is None and target is not None:
            self._begin(target)
        if target is None or target != self._target:
            self._tell_places(values)
            return self._eager(values)
        key = tuple((v.shape, v.dtype) if isinstance(v, torch.Tensor) else v for v in values)
        compiled = self._compiled.get(key, self)
        if isinstance(compiled, _Specialized) and not compiled.holds(values):
            with self._lock:
                self._frozen = ()
                self._compiled.clear()
                self._open.clear()
            compiled = self
        if compiled is self:
            with self._lock:
                if key not in self._compiled:
                    self._compiled[key] = self._specialize(values)
                compiled = self._compiled[key]
        return self._eager(values) if compiled is None else compiled.run(*values)  # pyright: ignore[reportAttributeAccessIssue]

    def _begin(self, target: str) -> None:
        """The graph is for `target`, where its results are to lie, too: PyTorch makes another one
        where tensors lie elsewhere."""
        places = {placement.target_of([result]) for result in _results(self._module)}
        self._target = target if places <= {target} else _NOWHERE
        self._settings = replace(self._settings, target=target)
        if target != placement.CPU and not self._settings.freeze:
            self._frozen = ()

    def _tell_places(self, values: list) -> None:
        """Say once that the graph runs in PyTorch because of where its tensors lie."""
        if self._told:
            return
        self._told = True
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        places = {str(tensor.device) for tensor in (*tensors, *_results(self._module))}
        reason = f"its tensors lie on {' and '.join(sorted(places))}"
        shapes = tuple(tuple(tensor.shape) for tensor in tensors)
        reports.append(Report(self._name, shapes, False, reason))
        warnings.warn(
            f"stepwell runs a {self._name} graph in PyTorch: {reason}; graphs of the CPU's "
            "tensors, or of the first GPU's, are compiled",
            RuntimeWarning,
            stacklevel=2,
        )

    def _eager(self, values: list) -> Sequence[object]:
        return torch.fx.Interpreter(self._module).boxed_run(list(values))

    def _specialize(self, values: list) -> _Specialized | None:
        shapes = tuple(tuple(v.shape) for v in values if isinstance(v, torch.Tensor))
        known = next((code for code in self._open if code.takes(values)), None)
        if known is not None:
            return known
        if sum(code not in self._open for code in self._compiled.values()) >= KEPT:
            reports.append(Report(self._name, shapes, False, f"more than {KEPT} sets of shapes"))
            return None
        compiled = self._for_any_size(values)
        if compiled is not None:
            self._open.append(compiled)
            if compiled.takes(values):
                self._report(compiled, shapes)
                return compiled
        try:
            compiled = _Specialized.of(self._module, values, self._frozen, self._settings)
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
        self._report(compiled, shapes)
        return compiled

    def _for_any_size(self, values: list) -> _Specialized | None:
        """Code for these sizes and others; None where there is none."""
        if self._symbolic is None:
            return None
        constants = _constants(values, self._frozen)
        try:
            code = CompiledForAnySize.for_any_size(
                self._symbolic, values, constants, self._settings
            )
        except Exception as error:  # of the compiler, or of operators for sizes of samples
            _log.info("there is no code for any size of a %s graph: %s", self._name, error)
            self._symbolic = None
            return None
        return _Specialized(code, constants)

    def _report(self, compiled: _Specialized, shapes: tuple[tuple[int, ...], ...]) -> None:
        nodes = compiled.nodes
        if not nodes:
            any_size = compiled in self._open
            reports.append(
                Report(self._name, shapes, True, parts=compiled.parts, any_size=any_size)
            )
            return
        refused = {node.operator: node for node in nodes if node.reason != ALONE}
        reason = "\n".join(map(str, refused.values()))
        text = f"{len(nodes)} nodes of the {self._name} graph"
        if len(nodes) == 1:
            text = f"a node of the {self._name} graph"
        warnings.warn(
            f"stepwell runs {text} in PyTorch and compiles the rest in {compiled.parts} parts: "
            f"{reason}",
            RuntimeWarning,
            stacklevel=2,
        )
        operators = tuple(refused)
        reports.append(Report(self._name, shapes, False, reason, operators, compiled.parts, nodes))


class _Specialized:
    """A graph compiled for one set of shapes, as a whole or in parts. `run` takes a value for each
    placeholder."""

    def __init__(
        self,
        run: Callable[..., Sequence[object]],
        frozen: Mapping[int, torch.Tensor],
        parts: int = 1,
        nodes: tuple[Unsupported, ...] = (),
    ) -> None:
        self.run, self.parts, self.nodes = run, parts, nodes
        self._frozen = {i: _Frozen(value) for i, value in frozen.items()}

    @staticmethod
    def of(
        module: torch.fx.GraphModule, values: list, frozen: Sequence[int], settings: Settings
    ) -> _Specialized:
        try:
            static = _at_values(module, values)
        except Exception as error:  # what operators raise for data that they do not have
            raise ModelError(f"the graph cannot be traced for its shapes: {error}") from error
        constants = _constants(values, frozen)
        try:
            return _Specialized(Compiled.of(static, constants, settings), constants)
        except UnsupportedError as error:
            trace = functools.partial(_at_values, module, values)
            cut = partition(trace, constants, settings, error)
            if cut is None:
                raise
            return _Specialized(cut.run, constants, cut.parts, cut.nodes)

    def takes(self, values: list) -> bool:
        """Whether it is code for any size that takes these values."""
        return isinstance(self.run, CompiledForAnySize) and self.run.takes(values)

    def holds(self, values: list) -> bool:
        """Whether the parameters that became constants are as they were."""
        return all(kept.holds(values[i]) for i, kept in self._frozen.items())


def _results(module: torch.fx.GraphModule) -> list[torch.Tensor]:
    """The tensors that a graph returns, without their data."""
    (output,) = (node for node in module.graph.nodes if node.op == "output")
    nodes = (node for node in output.args[0] if isinstance(node, torch.fx.Node))
    values = (node.meta.get("val") for node in nodes)
    return [value for value in values if isinstance(value, torch.Tensor)]


def _constants(values: list, frozen: Sequence[int]) -> dict[int, torch.Tensor]:
    return {i: values[i] for i in frozen if isinstance(values[i], torch.Tensor)}


def _at_values(module: torch.fx.GraphModule, values: list) -> torch.fx.GraphModule:
    """The graph traced again for the shapes of these tensors and for these numbers."""
    mode = fake_mode()
    fake = [mode.from_tensor(v) if isinstance(v, torch.Tensor) else v for v in values]
    return trace_at(module, mode, fake)


class _Frozen:
    """What tells that a tensor's data is unchanged: where it lies, PyTorch's count of changes, and
    of one on the CPU some elements, since the count misses changes by way of `.data`."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._address, self._version = tensor.data_ptr(), _version(tensor)
        self._elements = np.empty(0)
        if tensor.device.type == placement.CPU:
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
