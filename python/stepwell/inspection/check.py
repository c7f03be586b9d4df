"""`stepwell.check`: every unsupported operator of a model at once."""

from __future__ import annotations

from dataclasses import dataclass

from stepwell import frontends
from stepwell.errors import Unsupported, UnsupportedError
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

    `model` and `shapes` are as for `stepwell.compile`. Raises ModelError when it is no model.
    """
    try:
        frontends.load(model, shapes)
    except UnsupportedError as error:
        return Report(tuple(error.findings))
    return Report(())
