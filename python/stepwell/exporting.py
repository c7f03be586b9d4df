"""`stepwell.export`: any model as StableHLO."""

from __future__ import annotations

import os

from stepwell import frontends
from stepwell.frontends import Shapes
from stepwell.frontends import export as portable


def export(
    model: object,
    path: str | os.PathLike[str],
    version: str | None = None,
    shapes: Shapes | None = None,
    format: portable.Format | None = None,
) -> None:
    """Write `model` to `path` as a portable artifact of StableHLO `version` ("1.13.0"; default:
    one that consumers of the last four weeks read), or as text if `path` ends in `.mlir`.
    `format`, "portable", "text" or "bytecode", says it for any path.

    `model` and `shapes` are as for `stepwell.compile`. Raises ModelError and UsageError.
    """
    portable.export(frontends.load(model, shapes), path, version, format)
