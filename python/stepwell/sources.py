"""Models as users hand them over, made into one file that a compiler process can read."""

from __future__ import annotations

import json
import mmap
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, cast

from stepwell import cache, pytorch
from stepwell.errors import ModelError, UsageError
from stepwell.sizes import OpenShapes

Model = object
"""A path; an onnx.ModelProto; a jax.export.Exported, jax.stages.Traced or jax.stages.Lowered;
StableHLO text, bytecode or portable artifact; an MLIR module; a torch.export.ExportedProgram, or a
pair of a torch.nn.Module and example inputs.
"""

Shapes = Mapping[str, Sequence[int]]
"""Concrete shapes by input name."""

GIVEN = "the given model"
"""What messages call a model that is in no file."""

UNTOLD_SUFFIX = ".model"
"""Of a file of bytes that are not told by their beginning, as those of ONNX are not."""

_Declared = tuple[int | str, ...]

_MLIR_MAGIC = b"ML\xefR"
_JAX_EXPORT = _MLIR_MAGIC + b"\x0dStableHLO_v"
"""Inside a file of `Exported.serialize()`, the beginning of its portable artifact."""

_EXTERNAL_KEY = b"\x0a\x08location\x12"
"""How protobuf writes the entry `key: "location"` of a tensor's external data, before its value."""


@dataclass(frozen=True)
class Source:
    """A model in a file. `path` ends in `.onnx`, or `.mlir`/`.mlirbc` for StableHLO, unless the
    user's own file has another name. `digest` covers external data. `is_given` says that
    the file was written for a model that is in none."""

    path: Path
    digest: str
    is_given: bool = False

    @property
    def bytes(self) -> int:
        """Size of the file."""
        return self.path.stat().st_size


class _Shaped(Protocol):
    shape: tuple[object, ...]


class _Exported(Protocol):
    """What is used of a `jax.export.Exported`."""

    in_avals: Sequence[_Shaped]
    out_avals: Sequence[_Shaped]
    module_kept_var_idx: Sequence[int]
    platforms: Sequence[str]
    mlir_module_serialized: bytes

    def mlir_module(self) -> str: ...


PLATFORM_INDEX = "_platform_index"
"""What JAX calls the argument that is the number of the platform; "_platform_index=1" where the
module says it."""


class _Bytecode(Protocol):
    def write_bytecode(self, file: object) -> None: ...


def as_source(
    model: Model, folder: Path, shapes: Shapes | None = None, sizes: OpenShapes | None = None
) -> Source:
    """The file of `model`, written into `folder` unless it is one already. A program of PyTorch is
    written for its inputs' `shapes`, or for samples of `sizes`; it raises OpenModelError when
    these leave dimensions open.

    Raises ModelError when the file cannot be read and UsageError for a type that is no model.
    """
    if pytorch.is_model(model):
        path = folder / f"model{pytorch.SUFFIX}"
        pytorch.write(model, path, shapes, sizes)
        return _file_source(path)
    if isinstance(model, os.PathLike) or (isinstance(model, str) and not _is_text(model)):
        return _file_source(Path(model).absolute())
    data, suffix = _serialized(model)
    path = folder / f"model{suffix}"
    path.write_bytes(data)
    for other in external_files(path):  # relative to the working directory, in a model in memory
        if Path(other.name).exists():
            other.symlink_to(Path(other.name).absolute())
    return replace(_file_source(path), is_given=True)


def declared_shapes(model: Model) -> tuple[list[_Declared], list[_Declared]] | None:
    """Shapes of inputs and outputs with the names that the symbolic dimensions of a
    jax.export.Exported have there, which its module leaves out; None for other models."""
    if not hasattr(model, "mlir_module_serialized") or not hasattr(model, "in_avals"):
        return None
    exported = cast("_Exported", model)
    inputs = [exported.in_avals[i] for i in exported.module_kept_var_idx]
    return [_declared(aval) for aval in inputs], [_declared(aval) for aval in exported.out_avals]


def _declared(aval: _Shaped) -> _Declared:
    return tuple(size if isinstance(size, int) else str(size) for size in aval.shape)


def _is_text(text: str) -> bool:
    """Whether a string is StableHLO text rather than a path."""
    return "\n" in text or "{" in text


def _file_source(path: Path) -> Source:
    try:
        digests = [cache.file_digest(path)]
        for other in external_files(path):
            if other.exists():
                digests.append(cache.file_digest(other))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ModelError(f"{path}: error: the model cannot be read: {reason}") from error
    return Source(path, cache.digest(path.suffix, *digests))


def external_files(path: Path) -> list[Path]:
    """Files that an ONNX model keeps its weights in, found without parsing it; for any other file
    an empty list."""
    if path.suffix not in (".onnx", UNTOLD_SUFFIX) or not path.stat().st_size:
        return []
    names = json.loads(cache.of_content(path, "external", lambda: json.dumps(_locations(path))))
    return [path.parent / name for name in names]


def _locations(path: Path) -> list[str]:
    names: set[str] = set()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        position = data.find(_EXTERNAL_KEY)
        while position >= 0:
            start = position + len(_EXTERNAL_KEY)
            length = data[start]
            if length < 128:
                names.add(data[start + 1 : start + 1 + length].decode(errors="replace"))
            else:
                length = (length & 127) | data[start + 1] << 7
                names.add(data[start + 2 : start + 2 + length].decode(errors="replace"))
            position = data.find(_EXTERNAL_KEY, start)
    return sorted(names)


def _serialized(model: Model) -> tuple[bytes, str]:
    if isinstance(model, str):
        return model.encode(), ".mlir"
    if isinstance(model, (bytes, bytearray, memoryview)):
        model = bytes(model)
        if model.startswith(_MLIR_MAGIC):
            return model, ".mlirbc"
        if re.match(rb"\s*(module|func|#|//)", model):
            return model, ".mlir"
        return model, ".jax_export" if _JAX_EXPORT in model else UNTOLD_SUFFIX
    if hasattr(model, "mlir_module_serialized"):
        return _exported_bytes(cast("_Exported", model))
    if hasattr(model, "SerializeToString"):
        return _onnx_bytes(model), ".onnx"
    model = lowered_if_traced(model)
    if hasattr(model, "compiler_ir"):
        # As text: the bytecode of JAX's own build of MLIR has dialects that the wheel lacks.
        text = getattr(model, "as_text")("stablehlo", debug_info=True)  # noqa: B009
        return text.encode(), ".mlir"
    if hasattr(model, "operation"):
        return _bytecode(getattr(model, "operation")), ".mlirbc"  # noqa: B009
    raise not_a_model(model)


def _exported_bytes(exported: _Exported) -> tuple[bytes, str]:
    """The module of an exported function of JAX, which says by itself whose code is compiled."""
    if len(exported.platforms) < 2:
        return exported.mlir_module_serialized, ".mlirbc"
    number = f'"{PLATFORM_INDEX}={platform_number(exported.platforms)}"'
    return exported.mlir_module().replace(f'"{PLATFORM_INDEX}"', number).encode(), ".mlir"


def platform_number(platforms: Sequence[str]) -> int | None:
    """Which of the platforms of an exported function is compiled, for whatever target: CPUs, whose
    routines of linear algebra the compiler knows. None where there is no choice."""
    if len(platforms) < 2:
        return None
    return platforms.index("cpu") if "cpu" in platforms else 0


def lowered_if_traced(model: Model) -> Model:
    """A jax.stages.Traced as the Lowered that it becomes, any other model as it is."""
    if hasattr(model, "jaxpr") and hasattr(model, "lower"):
        return getattr(model, "lower")()  # noqa: B009
    return model


def not_a_model(model: object) -> UsageError:
    """What to raise for an object that is none of the kinds of models."""
    function = ""
    if callable(model):
        function = (
            "; functions of JAX are compiled by stepwell.jit(function), or lowered for their "
            "arguments: jax.jit(function).lower(x)"
        )
    return UsageError(
        f"a {type(model).__module__}.{type(model).__qualname__} is not a model; give a path, an "
        "onnx.ModelProto, a jax.export.Exported, a jax.stages.Lowered, a "
        "torch.export.ExportedProgram, a torch.nn.Module with example_inputs=, StableHLO text or "
        f"bytes, or an MLIR module{function}"
    )


def _onnx_bytes(model: object) -> bytes:
    try:
        return getattr(model, "SerializeToString")()  # noqa: B009
    except Exception as error:  # protobuf raises its own kinds above 2 GB
        raise ModelError(
            f"the ModelProto cannot be serialized ({error}); above 2 GB, save it with external "
            "data and compile the file"
        ) from error


def _bytecode(operation: _Bytecode) -> bytes:
    import io

    file = io.BytesIO()
    operation.write_bytecode(file)
    return file.getvalue()
