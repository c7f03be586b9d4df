"""The JAX frontend: `jax.export.Exported` and `jax.stages.Lowered` to StableHLO. JAX itself is not
imported."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence
from typing import Protocol

from stepwell.errors import ModelError
from stepwell.frontends import Imported, Shapes, stablehlo
from stepwell.sources import platform_number

_ARTIFACT = b"ML\xefR\x0dStableHLO_v"


class Exported(Protocol):
    """What is used of `jax.export.Exported`."""

    fun_name: str
    platforms: Sequence[str]
    mlir_module_serialized: bytes


class Lowered(Protocol):
    """What is used of `jax.stages.Lowered`."""

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str: ...


def from_exported(
    exported: Exported, shapes: Shapes | None = None, values: stablehlo.Values | None = None
) -> Imported:
    """Import an exported JAX function; inputs are its flattened arguments, arg0, arg1, ..."""
    source = f"the JAX function {exported.fun_name}"
    number = platform_number(exported.platforms)
    return stablehlo.from_bytes(exported.mlir_module_serialized, source, shapes, values, number)


def from_lowered(
    lowered: Lowered, shapes: Shapes | None = None, values: stablehlo.Values | None = None
) -> Imported:
    """Import what `jax.jit(f).lower(..)` gives; inputs are the arguments that `f` uses."""
    text = lowered.as_text("stablehlo", debug_info=True)
    return stablehlo.from_bytes(text.encode(), "the lowered JAX function", shapes, values)


def is_serialized(data: bytes | mmap.mmap) -> bool:
    """Whether `data` is a file of `Exported.serialize()`: it holds a portable artifact."""
    return data.find(_ARTIFACT) > 0


def from_serialized(
    data: bytes,
    source: str,
    shapes: Shapes | None = None,
    values: stablehlo.Values | None = None,
) -> Imported:
    """Import what `Exported.serialize()` wrote: a flatbuffer around a portable artifact.

    The artifact is a flatbuffer vector of bytes, which stand behind their 32-bit length.
    """
    start, length = _main_artifact(data)
    if start + length > len(data):
        raise ModelError(f"{source} is an exported JAX function that is cut short")
    number = platform_number(_platforms(data))
    return stablehlo.from_bytes(data[start : start + length], source, shapes, values, number)


def _main_artifact(data: bytes) -> tuple[int, int]:
    """Where the artifact of the function itself stands, and its length: others are of its
    gradients. It is the one that the file's root table points to; tables begin with the distance
    of a list that has the place of each field (flatbuffers, "Internals")."""
    try:
        (root,) = struct.unpack_from("<I", data, 0)
        fields = root - struct.unpack_from("<i", data, root)[0]
        (size,) = struct.unpack_from("<H", data, fields)
        for field in range(fields + 4, fields + size, 2):
            place = root + struct.unpack_from("<H", data, field)[0]
            vector = place + struct.unpack_from("<I", data, place)[0]
            if data.startswith(_ARTIFACT, vector + 4):
                return vector + 4, struct.unpack_from("<I", data, vector)[0]
    except struct.error:  # cut short
        pass
    start = data.find(_ARTIFACT)
    return start, struct.unpack_from("<I", data, start - 4)[0]


_PLATFORMS_FIELD = 22
"""Where the list of a file's root table has the place of the platforms' names."""


def _platforms(data: bytes) -> list[str]:
    """The names of the platforms that a function was exported for; none where the file's table is
    damaged."""

    def word(place: int) -> int:
        return struct.unpack_from("<I", data, place)[0]

    try:
        root = word(0)
        fields = root - struct.unpack_from("<i", data, root)[0]
        size = struct.unpack_from("<H", data, fields)[0]
        if size <= _PLATFORMS_FIELD:
            return []
        offset = struct.unpack_from("<H", data, fields + _PLATFORMS_FIELD)[0]
        if not offset:
            return []
        names = root + offset + word(root + offset)
        places = [names + 4 * (1 + i) for i in range(word(names))]
        texts = [place + word(place) for place in places]
        return [data[text + 4 : text + 4 + word(text)].decode() for text in texts]
    except (struct.error, UnicodeDecodeError):
        return []
