"""`stepwell.check`: everything of a model that cannot be compiled, at once."""

from __future__ import annotations

from dataclasses import dataclass

from stepwell import frontends
from stepwell.errors import ModelError, OpenModelError, Unsupported, UnsupportedError
from stepwell.frontends import Shapes


@dataclass(frozen=True)
class Report:
    """What `check` found; nothing when the model can be compiled."""

    findings: tuple[Unsupported, ...]

    @property
    def supported(self) -> bool:
        """Whether every node is supported."""
        return not self.findings

    def __str__(self) -> str:
        if self.supported:
            return "every operator is supported"
        return "\n".join(map(str, self.findings))


def check(model: object, shapes: Shapes | None = None) -> Report:
    """Import `model` and report all that is not supported; nothing is compiled.

    `model` and `shapes` are as for `stepwell.compile`; shapes may be left open. Raises ModelError
    when it is no model, or when its inputs and weights make no sense.
    """
    found: tuple[Unsupported, ...] = ()
    problem: ModelError | None = None
    try:
        frontends.load(model, shapes)
    except UnsupportedError as error:
        found = tuple(error.findings)
    except ModelError as error:
        problem = error
    from stepwell.frontends.onnx.reader import find_model

    proto = find_model(model)
    if proto is None:
        if problem is not None:
            raise problem
        return Report(found)
    from stepwell.frontends.onnx.survey import survey

    findings = survey(proto, found)
    if problem is not None and not findings and not _is_open(problem):
        raise problem
    return Report(tuple(findings))


def _is_open(problem: ModelError) -> bool:
    """Whether all that is missing are shapes and values, which a call tells."""
    return isinstance(problem, OpenModelError)
