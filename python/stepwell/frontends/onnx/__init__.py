"""The ONNX frontend: files, bytes and `onnx.ModelProto` to StableHLO."""

from __future__ import annotations

from pathlib import Path

import onnx

from stepwell.frontends import Imported, Shapes
from stepwell.frontends.onnx import reader
from stepwell.frontends.onnx.importer import import_model
from stepwell.specialization import Specialization

__all__ = ["from_bytes", "from_file", "from_model", "is_model"]


def is_model(file: Path | bytes) -> bool:
    """Whether a file, or what is in one, can be read as a `ModelProto`."""
    return reader.find_model(file) is not None


def from_file(
    path: Path, shapes: Shapes | None = None, specialization: Specialization | None = None
) -> Imported:
    """Import an ONNX file; its weights stay in the file and are mapped, not read."""
    model = reader.read_file(path)
    return import_model(model, path.parent, str(path), shapes or {}, specialization)


def from_bytes(
    data: bytes,
    source: str,
    shapes: Shapes | None = None,
    specialization: Specialization | None = None,
) -> Imported:
    """Import a serialised `ModelProto`; external data is looked for in the working directory."""
    return import_model(reader.parse(data, source), Path(), source, shapes or {}, specialization)


def from_model(
    model: onnx.ModelProto,
    shapes: Shapes | None = None,
    specialization: Specialization | None = None,
) -> Imported:
    """Import a `ModelProto`; external data is looked for in the working directory."""
    return import_model(
        model, Path(), model.graph.name or "the ONNX model", shapes or {}, specialization
    )
