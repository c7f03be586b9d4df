"""What a pass is, and how passes are found by name.

A pass is a frozen dataclass in a file named after it: `fold-constants` is `FoldConstants` in
`passes/<level>/fold_constants.py`. Its fields are its options (`tile-m=6` sets `tile_m`).
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from stepwell.errors import UsageError
from stepwell.kernels.gpu.tensor_core import F32Products
from stepwell.kernels.problem import problem_digest
from stepwell.kernels.strategy import Choice, Decision, Strategy
from stepwell.mlir import ir
from stepwell.options import ROUNDED_TO_TF32
from stepwell.targets import Target, host
from stepwell.tuning_record import TuningRecord
from stepwell.weights import WeightTable

if typing.TYPE_CHECKING:
    from stepwell.passes.llvm._host_program import HostProgram


@dataclass
class State:
    """What passes share beside the module: weights by name, the target, what was decided."""

    weights: WeightTable = field(default_factory=WeightTable)
    target: Target = field(default_factory=host)
    threads: int = 1
    precision: str = "default"
    pack_parameters: bool = True
    host: HostProgram | None = None
    remarks: list[str] = field(default_factory=list)
    on_kernel: Callable[[ir.Operation], None] | None = None
    """Called with each kernel function as soon as it stands at level affine."""
    tuning: TuningRecord | None = None
    on_choice: Callable[[ir.Operation, Decision], None] | None = None
    """Called with each operation or kernel that a cost model chooses a way to run for, and with
    what was decided."""

    def decide(self, op: ir.Operation, choice: Choice[Strategy]) -> Strategy:
        """What the tuning record says of `choice`, which is about the operation or kernel `op`; the
        default where it says nothing.

        Raises UsageError for a strategy of the record that cannot be.
        """
        if self.tuning is None and self.on_choice is None:
            return choice.default
        key = problem_digest(op, choice.kind, *choice.context)
        entry = None if self.tuning is None else self.tuning.by_key.get(key)
        chosen = choice.default
        if self.tuning is not None and entry is not None:
            try:
                chosen = choice.read(entry.chosen)
            except ValueError as error:
                place = f"{self.tuning.name}: error: {entry.kind} of {entry.computes}"
                raise UsageError(f"{place}, key {key}: {error}") from None
        if self.on_choice is not None:
            self.on_choice(op, choice.decision(key, chosen, tuned=entry is not None))
        return chosen

    @property
    def multiplies_tf32(self) -> bool:
        """Whether GPUs may multiply f32 as tf32."""
        return self.precision in ROUNDED_TO_TF32

    @property
    def f32_products(self) -> F32Products:
        """How GPUs multiply f32."""
        if self.multiplies_tf32:
            return "tf32"
        return "exact" if self.precision == "strict" else "split"


@dataclass(frozen=True)
class Pass:
    """Base of all passes. `name` is what users type; `anchor` the operation that `run` is given."""

    name: ClassVar[str]
    anchor: ClassVar[str] = "builtin.module"

    def run(self, op: ir.Operation, state: State) -> None:
        """Transform `op` in place (a context and an unknown location are current).

        Raises LoweringError, naming the operation by its location, when a precondition is broken.
        """
        raise NotImplementedError(f"pass {self.name} does not define run")

    def apply(self, module: ir.Module, state: State) -> None:
        """Run on every `anchor` operation of `module`."""
        with module.context, ir.Location.unknown():
            if module.operation.name == self.anchor:
                self.run(module.operation, state)
                return
            for child in list(module.body.operations):
                if child.operation.name == self.anchor:
                    self.run(child.operation, state)


@functools.cache
def pass_files() -> dict[str, str]:
    """Module path by pass name, from the file names alone (nothing is imported)."""
    root = Path(__file__).parent
    return {
        path.stem.replace("_", "-"): f"stepwell.passes.{path.parent.name}.{path.stem}"
        for path in sorted(root.glob("*/*.py"))
        if not path.stem.startswith("_")
    }


def find_pass(name: str) -> type[Pass]:
    """The pass class called `name`; raises UsageError when there is none."""
    path = pass_files().get(name)
    if path is None:
        raise UsageError(f"there is no pass called {name}")
    module = importlib.import_module(path)
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Pass) and vars(value).get("name") == name:
            return value
    raise UsageError(f"{path} defines no pass called {name}")


def make_pass(name: str, options: dict[str, str] | None = None) -> Pass:
    """Build pass `name` from textual options; raises UsageError that names a bad option."""
    kind = find_pass(name)
    if not options:
        return kind()
    hints = typing.get_type_hints(kind)
    fields = {f.name: hints[f.name] for f in dataclasses.fields(kind)}
    values: dict[str, object] = {}
    for key, text in options.items():
        attribute = key.replace("-", "_")
        if attribute not in fields:
            known = ", ".join(sorted(f.replace("_", "-") for f in fields)) or "none"
            raise UsageError(f"pass {name} has no option {key} (it has: {known})")
        try:
            values[attribute] = _parse(text, fields[attribute])
        except ValueError:
            raise UsageError(f"pass {name}: option {key}={text} is not of its type") from None
    return kind(**values)  # pyright: ignore[reportCallIssue]


def _parse(text: str, kind: object) -> object:
    if isinstance(kind, types.UnionType):
        members = [m for m in typing.get_args(kind) if m is not type(None)]
        return None if text == "none" else _parse(text, members[0])
    if typing.get_origin(kind) is tuple:
        element = typing.get_args(kind)[0]
        return tuple(_parse(part, element) for part in text.replace(",", " ").split())
    if kind is bool:
        if text not in ("true", "false", "1", "0"):
            raise ValueError(text)
        return text in ("true", "1")
    if kind in (int, float, str):
        return kind(text)  # pyright: ignore[reportCallIssue]
    raise ValueError(text)
