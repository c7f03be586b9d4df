"""Writing a model as a StableHLO portable artifact, which other compilers read."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from stepwell.dense import write_dense
from stepwell.errors import UsageError
from stepwell.frontends import Imported
from stepwell.mlir import ir, run_upstream
from stepwell.mlir import stablehlo as bindings


def export(imported: Imported, path: str | os.PathLike[str], version: str | None = None) -> None:
    """Write `imported` to `path` as a portable artifact of StableHLO `version` ("1.13.0").

    By default the version is one that all consumers of the last four weeks read. The file appears
    complete or not at all. Raises UsageError when `version` cannot be written.
    """
    write_atomically(Path(path), to_portable_artifact(imported, version))


def to_portable_artifact(imported: Imported, version: str | None = None) -> bytes:
    """The bytes of the portable artifact that `export` writes."""
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
    """A copy of the module in pure StableHLO: constants written out, CHLO legalized."""
    with imported.context, ir.Location.unknown():
        module = ir.Module.create()
        for operation in imported.module.body.operations:
            module.body.append(operation.operation.clone())
        for function in module.body.operations:
            _inline_constants(function.operation, imported)
        run_upstream(module.operation, "func.func(chlo-legalize-to-stablehlo)")
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
