"""Writing a model as StableHLO, which other compilers read: portable artifacts, text, bytecode."""

from __future__ import annotations

import io
import os
import tempfile
from pathlib import Path
from typing import Literal, get_args

from stepwell.dense import write_dense
from stepwell.dialects.composites import composites, decompose
from stepwell.errors import ModelError, UsageError
from stepwell.frontends import Imported
from stepwell.kernels import suppression
from stepwell.mlir import ir, run_upstream
from stepwell.mlir import stablehlo as bindings

Format = Literal["portable", "text", "bytecode"]
"""A portable artifact, or a module of MLIR for readers with the same StableHLO."""

_TEXT_SUFFIX = ".mlir"


def export(
    imported: Imported,
    path: str | os.PathLike[str],
    version: str | None = None,
    format: Format | None = None,
) -> None:
    """Write `imported` to `path`: as text if it ends in `.mlir`, else as a portable artifact,
    unless `format` says what to write. `version` is as for `to_bytes`.

    The file appears complete or not at all. Raises UsageError when `version` cannot be written,
    and ModelError for a program with checks, which are made by the run time.
    """
    if imported.checks:
        raise ModelError(f"{imported.source} has checks in it, which a file of StableHLO has not")
    file = Path(path)
    chosen = format or ("text" if file.suffix == _TEXT_SUFFIX else "portable")
    write_atomically(file, to_bytes(imported, chosen, version))


def to_bytes(imported: Imported, format: Format, version: str | None = None) -> bytes:
    """The model in a format. `version` is that of a portable artifact ("1.13.0"), by default one
    that all consumers of the last four weeks read."""
    if format not in get_args(Format):
        listed = ", ".join(get_args(Format))
        raise UsageError(f"StableHLO is not written as {format}; there are {listed}")
    if format == "portable":
        return _portable_artifact(imported, version)
    if version is not None:
        raise UsageError(
            f"StableHLO is written as {format} in its current version alone, "
            f"{bindings.get_current_version()}; version= is for portable artifacts"
        )
    module = with_inline_constants(imported)
    if format == "text":
        return str(module).encode()
    file = io.BytesIO()
    module.operation.write_bytecode(file)
    return file.getvalue()


def _portable_artifact(imported: Imported, version: str | None) -> bytes:
    version = version or bindings.get_version_from_compatibility_requirement(
        bindings.StablehloCompatibilityRequirement.WEEK_4
    )
    module = with_inline_constants(imported)
    try:
        return bindings.serialize_portable_artifact(module, version)
    except (ir.MLIRError, ValueError):
        raise UsageError(
            f"the model cannot be written as StableHLO {version}; versions from "
            f"{bindings.get_minimum_version()} to {bindings.get_current_version()} exist"
        ) from None


def with_inline_constants(imported: Imported) -> ir.Module:
    """A copy of the module in pure StableHLO: constants written out, CHLO legalized, and composites
    of Stepwell's own as what they mean, which all versions have."""
    with imported.context, ir.Location.unknown():
        module = ir.Module.create()
        for operation in imported.module.body.operations:
            module.body.append(operation.operation.clone())
        for function in module.body.operations:
            _inline_constants(function.operation, imported)
        run_upstream(module.operation, "func.func(chlo-legalize-to-stablehlo)")
        if composites(module.operation, suppression.COMPOSITE):
            decompose(module.operation)
    return module


def _inline_constants(parent: ir.Operation, imported: Imported) -> None:
    for region in parent.regions:
        for block in region.blocks:
            for op in block.operations:
                _inline_constants(op.operation, imported)
                if op.operation.name == "stablehlo.constant" and not isinstance(
                    op.attributes["value"], ir.DenseElementsAttr
                ):
                    array = imported.weights.array(op.attributes["value"])
                    op.attributes["value"] = write_dense(array)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file that is seen complete or not at all, even after a power failure."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
