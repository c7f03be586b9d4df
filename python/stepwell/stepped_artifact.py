"""The artifact of a model that runs in steps: the artifacts of its steps in one file, and what each
is for.

Layout: as an artifact begins, but with the signature and the steps in its header; then the files of
the artifacts, each starting at a multiple of 4096. Each checks itself. Imports no MLIR.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepwell import artifact
from stepwell.artifact import Artifact
from stepwell.errors import ArtifactError
from stepwell.specialization import Key, OpenSpec, Signature


@dataclass(frozen=True)
class SavedStep:
    """A step (`stepwell.runtime.steps.Step`), its code being `artifacts[code]`, and what it is for:
    with `any_size`, calls of sizes that the code takes."""

    key: Key
    any_size: bool
    code: int | None
    values: tuple[str, ...]
    sizes: tuple[str, ...]
    dropped: tuple[str, ...]
    told: tuple[str, ...]


@dataclass(frozen=True)
class SteppedArtifact:
    """A read and checked file of steps."""

    path: Path
    signature: Signature
    steps: tuple[SavedStep, ...]
    artifacts: tuple[Artifact, ...]
    file: memoryview
    """All of it, as it was when it was read."""


def write(
    path: str | os.PathLike[str],
    signature: Signature,
    steps: Sequence[SavedStep],
    artifacts: Sequence[Artifact],
) -> None:
    """Write a file of steps; `path` appears whole or not at all. Raises ArtifactError when it
    cannot be written."""
    places: list[tuple[int, int]] = []
    for part in artifacts:
        start = artifact.aligned(sum(places[-1])) if places else 0
        places.append((start, len(part.file)))
    content = {
        "signature": _signature_to_dict(signature),
        "steps": [_step_to_dict(step) for step in steps],
        "artifacts": places,
    }
    head = artifact.prefixed(json.dumps(content, separators=(",", ":")).encode())
    with artifact.replaced_file(path) as file:
        file.write(head)
        for (start, _), part in zip(places, artifacts, strict=True):
            file.seek(artifact.aligned(len(head)) + start)
            file.write(part.file)


def read(path: str | os.PathLike[str], *, check_host: bool = True) -> Artifact | SteppedArtifact:
    """Map and check an artifact of either kind. Raises ArtifactError as `artifact.read` does."""
    path = Path(path)
    view = artifact.mapped(path)
    _, content = artifact.read_header(path, view)
    if "steps" not in content:
        return artifact.parsed(path, view, check_host=check_host)
    begin = artifact.aligned(artifact.header_end(view))
    parts: list[Artifact] = []
    for start, length in content["artifacts"]:
        part = view[begin + start : begin + start + length]
        if len(part) < length:
            raise ArtifactError(
                f"{path} was cut short: it has {len(view)} bytes and one of its steps ends at "
                f"{begin + start + length}"
            )
        parts.append(artifact.parsed(path, part, check_host=check_host))
    steps = tuple(map(_step_from_dict, content["steps"]))
    signature = _signature_from_dict(content["signature"])
    return SteppedArtifact(path, signature, steps, tuple(parts), view)


def to_dict(read: SteppedArtifact) -> dict[str, object]:
    """The signature, the steps, and the manifests of their code, as plain JSON data."""
    return {
        "signature": _signature_to_dict(read.signature),
        "steps": [_step_to_dict(step) for step in read.steps],
        "artifacts": [artifact.manifest_to_dict(part.manifest) for part in read.artifacts],
    }


def _step_to_dict(step: SavedStep) -> dict[str, object]:
    return {**dataclasses.asdict(step), "key": _key_to_json(step.key)}


def _step_from_dict(data: dict[str, Any]) -> SavedStep:
    names = {name: tuple(data[name]) for name in ("values", "sizes", "dropped", "told")}
    return SavedStep(_key_from_json(data["key"]), data["any_size"], data["code"], **names)  # pyright: ignore[reportArgumentType]


def _key_to_json(key: Key | str | int | bytes) -> object:
    if isinstance(key, bytes):
        return {"base64": base64.b64encode(key).decode()}
    return [_key_to_json(part) for part in key] if isinstance(key, tuple) else key


def _key_from_json(data: Any) -> Any:
    if isinstance(data, dict):
        return base64.b64decode(data["base64"])
    return tuple(map(_key_from_json, data)) if isinstance(data, list) else data


def _signature_to_dict(signature: Signature) -> dict[str, object]:
    specs = {
        name: [dataclasses.astuple(spec) for spec in getattr(signature, name)]
        for name in ("inputs", "outputs", "defaults")
    }
    fixed = {name: list(shape) for name, shape in signature.fixed.items()}
    return {**specs, "limits": dict(signature.limits), "fixed": fixed, "known": signature.known}


def _signature_from_dict(data: dict[str, Any]) -> Signature:
    inputs, outputs, defaults = (
        tuple(map(OpenSpec.from_list, data[name])) for name in ("inputs", "outputs", "defaults")
    )
    return Signature(inputs, outputs, defaults, data["limits"], data["fixed"], tuple(data["known"]))
