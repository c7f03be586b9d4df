"""`stepwell.export`: any model as StableHLO."""

from __future__ import annotations

import os
from pathlib import Path

from stepwell import frontends
from stepwell.errors import UsageError
from stepwell.frontends import Frontend, Shapes
from stepwell.frontends import export as portable


def export(
    model: object,
    path: str | os.PathLike[str],
    version: str | None = None,
    shapes: Shapes | None = None,
    format: portable.Format | None = None,
    frontend: Frontend | None = None,
) -> None:
    """Write `model` to `path` as a portable artifact of StableHLO `version` ("1.13.0"; default:
    one that consumers of the last four weeks read), or as text if `path` ends in `.mlir`.
    `format`, "portable", "text" or "bytecode", says it for any path.

    `model` and `shapes` are as for `stepwell.compile`. With `frontend`, "onnx", "jax", "torch" or
    "stablehlo", `model` is a path, or the bytes of a file, that this frontend reads, whatever the
    file is called. Raises ModelError and UsageError.
    """
    if frontend is None:
        imported = frontends.load(model, shapes)
    elif isinstance(model, bytes):
        imported = frontends.load_as(frontend, model, shapes)
    elif isinstance(model, (str, os.PathLike)):
        imported = frontends.load_as(frontend, Path(os.fspath(model)), shapes)
    else:
        raise UsageError(
            f"frontend= is for files and their bytes; this is a {type(model).__name__}"
        )
    portable.export(imported, path, version, format)
