"""The exceptions a user meets. Each message is a sentence that names the place and the remedy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepwell.specialization import OpenSpec


TAKE_CALLBACKS_OUT = (
    "take jax.pure_callback, io_callback or jax.debug.print out of it (where they are checks of "
    "Equinox, as Diffrax and Lineax make them, set EQX_ON_ERROR=nan)"
)
"""What to do about callbacks of JAX."""


class Error(Exception):
    """Base of all errors that Stepwell raises."""


class ModelError(Error):
    """The model cannot be read: damaged, incomplete, or not a model at all."""


@dataclass(frozen=True)
class Unsupported:
    """One node that cannot be compiled: where it is, what it is, and why.

    `stepwell.check` adds the operator's domain and version in the model, the types of its inputs as
    far as they are known, and `nearest`, a supported form that is near.
    """

    node: str
    operator: str
    reason: str
    domain: str = ""
    version: int = 0
    inputs: tuple[str, ...] = ()
    nearest: str = ""

    def __str__(self) -> str:
        operator = f"{self.domain}.{self.operator}" if self.domain else self.operator
        version = f" (version {self.version})" if self.version else ""
        lines = [f"{self.node}: error: {operator}{version}: {self.reason}"]
        if self.inputs:
            lines.append(f"  inputs: {', '.join(self.inputs)}")
        if self.nearest:
            lines.append(f"  nearest: {self.nearest}")
        return "\n".join(lines)


class UnsupportedError(ModelError):
    """The model uses operators, attributes or types that are not supported; lists all of them."""

    def __init__(self, findings: list[Unsupported]) -> None:
        self.findings = findings
        lines = "\n".join(f"  {finding}" for finding in findings)
        noun = "node is" if len(findings) == 1 else "nodes are"
        super().__init__(f"{len(findings)} {noun} not supported:\n{lines}")


class OpenModelError(ModelError):
    """The model leaves open what only a call can tell. `inputs` and `outputs` are its signature,
    `defaults` the inputs that have a value of their own;
    `values` names the tensors whose data has to be known, `sizes` those whose shape has to be, and
    either is empty while the shapes of the inputs are not known. `loops` have to be run by the
    caller, iteration by iteration: by their first result, the tensors behind the names that they
    read. Of those that were known before, `dropped` are not read once all that is. `limits` has the
    largest that open dimensions may be, by name, where the model says so."""

    def __init__(
        self,
        message: str,
        inputs: tuple[OpenSpec, ...] = (),
        outputs: tuple[OpenSpec, ...] = (),
        values: tuple[str, ...] = (),
        sizes: tuple[str, ...] = (),
        defaults: tuple[OpenSpec, ...] = (),
        limits: Mapping[str, int] = MappingProxyType({}),
        dropped: tuple[str, ...] = (),
        loops: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    ) -> None:
        self.dropped, self.loops = dropped, loops
        self.inputs, self.outputs, self.defaults = inputs, outputs, defaults
        self.values, self.sizes, self.limits = values, sizes, dict(limits)
        super().__init__(message)


class LoweringError(Error):
    """A pass cannot lower an operation; names the pass and the source operation."""


class CompilerCrash(Error):
    """The compiler's worker process died; names the folder that reproduces it."""


class ArtifactError(Error):
    """An artifact cannot be loaded: damaged, cut short, from a newer format, or for another CPU."""


class InputError(Error, ValueError):
    """A run-time input has a wrong name, dtype, shape or rank."""


class CheckError(Error):
    """A check that the program has in it (`check.expect_eq`) fails in a call."""


class UsageError(Error):
    """An option or argument makes no sense."""
