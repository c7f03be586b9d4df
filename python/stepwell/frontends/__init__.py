"""Frontends: ONNX, JAX, PyTorch and StableHLO files all end in StableHLO.

`load` takes any model and returns an `Imported`: one module with one public `func.func @main` of
static shapes, in StableHLO (and some of CHLO), its large constants in a side table by name.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, cast, get_args

import numpy as np

from stepwell import pytorch
from stepwell.artifact import Check, Cut, Layout
from stepwell.errors import ModelError, UsageError
from stepwell.mlir import ir
from stepwell.sizes import OpenShapes
from stepwell.sources import GIVEN, UNTOLD_SUFFIX, lowered_if_traced, not_a_model
from stepwell.specialization import Specialization
from stepwell.weights import WeightTable

Shapes = Mapping[str, tuple[int, ...]]
"""Concrete shapes by input name, for inputs whose dimensions the model leaves open."""


_MLIR_SUFFIXES = frozenset([".mlir", ".mlirbc", ".bc"])

Frontend = Literal["onnx", "jax", "torch", "stablehlo"]
"""Who reads a file whose name and content need not tell."""


@dataclass(frozen=True)
class TensorSpec:
    """One input or output of a model."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]


@dataclass
class Imported:
    """A model in StableHLO. `module` holds `@main` alone; `weights` the data of its resources.

    `results`, `cuts`, `checks` and `defaults` are as in `artifact.Manifest`; `open_shapes` says
    which sizes are open, of a program for any of them."""

    context: ir.Context
    module: ir.Module
    weights: WeightTable
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    source: str
    results: Mapping[str, Layout] = field(default_factory=dict)
    cuts: tuple[Cut, ...] = ()
    defaults: tuple[TensorSpec, ...] = ()
    open_shapes: OpenShapes | None = None
    checks: tuple[Check, ...] = ()


def load(
    model: object, shapes: Shapes | None = None, specialization: Specialization | None = None
) -> Imported:
    """Import `model` into StableHLO.

    `model` is a path (.onnx, .mlir, .mlirbc, .bc, or told by its content), an `onnx.ModelProto`,
    bytes of any of these files, StableHLO text, a `jax.export.Exported`, a `jax.stages.Traced` or
    `Lowered`, an `ir.Module`, a `torch.export.ExportedProgram` or its file (.pt2), or a pair of an
    `nn.Module` and its inputs.
    `shapes` gives concrete shapes, by input name, where the model leaves dimensions open, and
    `specialization` what else it leaves open.
    Raises ModelError (UnsupportedError among them) with one sentence on what is wrong, and
    UsageError for what is no model.
    """
    values = specialization.values if specialization else {}
    if pytorch.is_model(model):
        return pytorch.load(model, shapes)
    if isinstance(model, ir.Module):
        from stepwell.frontends import stablehlo

        return stablehlo.from_module(model, shapes=shapes)
    if isinstance(model, (str, os.PathLike)) and not _is_text(model):
        return _load_file(Path(os.fspath(model)), shapes, specialization)
    if isinstance(model, str):
        from stepwell.frontends import stablehlo

        return stablehlo.from_bytes(model.encode(), GIVEN, shapes, values)
    if isinstance(model, (bytes, bytearray, memoryview)):
        return _load_bytes(bytes(model), GIVEN, shapes, specialization)
    if hasattr(model, "mlir_module_serialized"):
        from stepwell.frontends import jax

        return jax.from_exported(cast(jax.Exported, model), shapes, values)
    model = lowered_if_traced(model)
    if hasattr(model, "compiler_ir"):
        from stepwell.frontends import jax

        return jax.from_lowered(cast(jax.Lowered, model), shapes, values)
    if hasattr(model, "graph") and hasattr(model, "opset_import"):
        from stepwell.frontends import onnx

        return onnx.from_model(model, shapes, specialization)  # pyright: ignore[reportArgumentType]
    raise not_a_model(model)


def with_vectors(imported: Imported, vectors: Shapes) -> Imported:
    """`imported` with more inputs behind the others, which are not read."""
    specs = [TensorSpec(name, np.dtype(np.bool_), shape) for name, shape in vectors.items()]
    main = imported.module.body.operations[0].operation
    with imported.context, ir.Location.unknown():
        block = main.regions[0].blocks[0]
        for spec in specs:
            kind = ir.RankedTensorType.get(spec.shape, ir.IntegerType.get_signless(1))
            block.add_argument(kind, ir.Location.name(spec.name))
        results = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value).results
        inputs = [argument.type for argument in block.arguments]
        main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, results))
    return replace(imported, inputs=(*imported.inputs, *specs))


def load_as(frontend: Frontend, file: Path | bytes, shapes: Shapes | None = None) -> Imported:
    """Import a file, or what is in one, as `frontend` reads it, whatever it is called: of ONNX, of
    `jax.export.Exported.serialize()`, of `torch.export.save`, or of StableHLO.

    Raises ModelError where the file is none of these, and UsageError for another frontend.
    """
    if frontend not in get_args(Frontend):
        known = ", ".join(get_args(Frontend))
        raise UsageError(f"there is no frontend {frontend}; there are {known}")
    if isinstance(file, Path):
        check_file(file)
    source = str(file) if isinstance(file, Path) else GIVEN
    if frontend == "onnx":
        from stepwell.frontends import onnx

        if isinstance(file, Path):
            return onnx.from_file(file, shapes)
        return onnx.from_bytes(file, source, shapes)
    data = file.read_bytes() if isinstance(file, Path) else file
    if frontend == "torch":
        return pytorch.load_saved(data, source, shapes)
    from stepwell.frontends import jax, stablehlo

    if frontend == "stablehlo":
        return stablehlo.from_bytes(data, source, shapes)
    if not jax.is_serialized(data):
        raise ModelError(f"{source} is no exported JAX function, as Exported.serialize() writes it")
    return jax.from_serialized(data, source, shapes)


def _is_text(model: str | os.PathLike[str]) -> bool:
    """Whether a string is StableHLO text rather than a path: paths have one line and no braces."""
    return isinstance(model, str) and ("\n" in model or "{" in model)


def _load_file(
    path: Path, shapes: Shapes | None, specialization: Specialization | None
) -> Imported:
    check_file(path)
    if path.stat().st_size == 0:
        raise ModelError(f"{path} is empty")
    if path.suffix in (pytorch.SUFFIX, pytorch.EXPORTED_SUFFIX):
        return pytorch.load(path, shapes)
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error
    if path.suffix == ".onnx" or not (
        path.suffix in _MLIR_SUFFIXES or is_mlir(head) or _is_exported(path)
    ):
        from stepwell.frontends import onnx

        try:
            return onnx.from_file(path, shapes, specialization)
        except ModelError:
            if path.suffix == ".onnx" or onnx.is_model(path):
                raise
            raise _unknown(str(path)) from None
    return _load_bytes(path.read_bytes(), str(path), shapes, specialization)


def check_file(path: Path) -> None:
    """Raise ModelError where `path` is no file."""
    if path.is_dir():
        raise ModelError(f"{path} is a folder, not the file of a model")
    if not path.is_file():
        raise ModelError(f"there is no model file {path}")


def _unknown(source: str) -> ModelError:
    return ModelError(
        f"{source} is neither MLIR (StableHLO) nor an ONNX model nor an exported JAX function, or "
        "it is cut short"
    )


def _is_exported(path: Path) -> bool:
    from stepwell.frontends import jax

    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return jax.is_serialized(data)


def importer_module(path: Path) -> str:
    """The module that takes in files that are named like `path`."""
    if path.suffix in (pytorch.SUFFIX, pytorch.EXPORTED_SUFFIX):
        return "stepwell.frontends.torch.importer"
    return (
        f"stepwell.frontends.{'onnx' if path.suffix in ('.onnx', UNTOLD_SUFFIX) else 'stablehlo'}"
    )


def _load_bytes(
    data: bytes, source: str, shapes: Shapes | None, specialization: Specialization | None
) -> Imported:
    from stepwell.frontends import jax, stablehlo

    values = specialization.values if specialization else {}
    if not data:
        raise ModelError(f"{source} is empty")
    if is_mlir(data[:4096]):
        return stablehlo.from_bytes(data, source, shapes, values)
    if jax.is_serialized(data):
        return jax.from_serialized(data, source, shapes, values)
    if Path(source).suffix in _MLIR_SUFFIXES:
        return stablehlo.from_bytes(data, source, shapes, values)
    from stepwell.frontends import onnx

    try:
        return onnx.from_bytes(data, source, shapes, specialization)
    except ModelError:
        if onnx.is_model(data):
            raise
        raise _unknown(source) from None


def is_mlir(head: bytes) -> bool:
    """Whether a file that begins with `head` is MLIR bytecode or text (ONNX is a protobuf)."""
    if head.startswith(b"ML\xefR"):
        return True
    marks = (b"module", b"func.func", b"#loc", b"//", b"stablehlo.")
    printable = all(byte >= 32 or byte in b"\t\n\r" for byte in head)
    return printable and any(mark in head for mark in marks)
