"""The artifact `model.stepwell`: a compiled model in one file that describes and checks itself.

Layout: magic, format version, header length and header digest (32 bytes), the manifest as JSON,
then the code and weights sections, each starting at a multiple of 4096. Every section's offset,
length and xxh3-128 digest stand in the manifest. This module imports no MLIR: an artifact is read
where no compiler is installed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import mmap
import os
import platform
import struct
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import xxhash

from stepwell.errors import ArtifactError
from stepwell.extents import Extent
from stepwell.launch import LaunchProgram
from stepwell.packing import DerivedWeight, derived_from_dict, derived_to_dict
from stepwell.sizes import OpenSizes

MAGIC = b"STEPWELL"
FORMAT_VERSION = 13
_FIRST_OF_LAUNCHES = 8
"""The first version whose launch programs read as `stepwell.launch` says."""

SECTION_ALIGNMENT = 4096

_PREFIX = struct.Struct("<8sIIQ8x")
"""Magic, format version, length of the JSON header, its xxh3-64 digest; 32 bytes."""

_COPY_BYTES = 4 << 20
_DIGEST_PLACEHOLDER = "0" * 32


@dataclass(frozen=True)
class TensorSpec:
    """One input or output. `dtype` is a numpy (or ml_dtypes) dtype name, `shape` is static."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class KernelInfo:
    """One kernel: the source nodes in it, how it was emitted, its work in FLOP and bytes moved."""

    name: str
    sources: tuple[str, ...] = ()
    strategy: str = ""
    flops: int = 0
    bytes: int = 0

    def repeated(self, times: int) -> KernelInfo:
        """The kernel with the work of so many runs."""
        if times == 1:
            return self
        return dataclasses.replace(self, flops=self.flops * times, bytes=self.bytes * times)


Layout: TypeAlias = "int | tuple[Layout, ...] | None"
"""What a result of a call is made of: the output of that number, None, or a list of such."""


@dataclass(frozen=True)
class Cut:
    """Of `output`, only so many elements along `dimension` count as output `count` (int64, without
    dimensions) says: its shape depends on data, and its declared one is the largest."""

    output: int
    dimension: int
    count: int


@dataclass(frozen=True)
class Check:
    """After a call, output `actual` may differ from output `expected`, both among the last, by no
    less than `least` and no more than `most`: by so much as a number (`check.expect_eq`,
    `check.expect_almost_eq`), or by so many units in the last place (`check.expect_close`)."""

    name: str
    actual: int
    expected: int
    least: float
    most: float


@dataclass(frozen=True)
class Manifest:
    """What an artifact says about itself.

    `code_format` is "shared-object" (one), "objects" (`code_sizes` splits the section) or "cuda",
    PTX and cubins for a GPU, with `cuda` the launch program that runs them (stepwell.launch);
    `entry` is the symbol of the C entry point; `features` are the LLVM features the code uses.
    `threads` is the number of threads the model was compiled for (0: any). `results` says by name
    what a call returns, where that is not just the outputs; `cuts` shorten outputs, `checks`
    compare some. `defaults` are inputs of the model that have a value of its own, which is compiled
    in. `derived` are packed forms of inputs and of weights of the file, which the runtime makes.
    `functions` are those of other libraries that kernels call, `lapack.dgetrf`; their addresses
    follow the inputs'.
    With `open_sizes`, shapes are those of the capacities, and the last inputs tell the sizes.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    entry: str
    arena_bytes: int
    weights_bytes: int
    target: str
    triple: str
    features: tuple[str, ...] = ()
    code_format: str = "shared-object"
    code_sizes: tuple[int, ...] = ()
    kernels: tuple[KernelInfo, ...] = ()
    threads: int = 0
    compiler_version: str = ""
    source_digest: str = ""
    options: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)
    results: Mapping[str, Layout] = field(default_factory=dict)
    cuts: tuple[Cut, ...] = ()
    checks: tuple[Check, ...] = ()
    defaults: tuple[TensorSpec, ...] = ()
    derived: tuple[DerivedWeight, ...] = ()
    functions: tuple[str, ...] = ()
    cuda: LaunchProgram | None = None
    open_sizes: OpenSizes | None = None

    @property
    def plain_bytes(self) -> int:
        """How much of the weights kernels read as it is; the rest is what packed forms are of."""
        sources = [w.constant for w in self.derived if w.constant is not None]
        return min(sources, default=self.weights_bytes)

    @property
    def visible_outputs(self) -> tuple[TensorSpec, ...]:
        """The outputs that a call gives, without those that tell sizes and those of checks."""
        return self.outputs[: len(self.outputs) - len(self.cuts) - 2 * len(self.checks)]


@dataclass(frozen=True)
class Artifact:
    """A read and checked artifact; `code` and `weights` are views of the mapped file."""

    path: Path
    manifest: Manifest
    code: memoryview
    weights: np.ndarray
    """uint8, page aligned, read-only; empty when the model has no weights."""
    file: memoryview
    """All of it, as it was when it was read."""

    @property
    def mapping(self) -> mmap.mmap | None:
        """The mapped file, None when the artifact is in memory."""
        return self.file.obj if isinstance(self.file.obj, mmap.mmap) else None

    def code_parts(self) -> list[bytes]:
        """The shared object, or the object files one by one."""
        parts, start = [], 0
        for size in self.manifest.code_sizes:
            parts.append(bytes(self.code[start : start + size]))
            start += size
        return parts


def hidden_inputs(
    scalars: Sequence[Extent], prefixes: Sequence[tuple[Extent, int]]
) -> tuple[TensorSpec, ...]:
    """What a program with open sizes takes behind the inputs of its model (`OpenSizes`)."""
    vectors = (
        TensorSpec(f"in use {number}", "bool", (capacity,))
        for number, (_, capacity) in enumerate(prefixes)
    )
    return (TensorSpec("sizes", "int64", (len(scalars),)), *vectors)


def write(
    path: str | os.PathLike[str],
    manifest: Manifest,
    code: bytes | list[bytes],
    weights: Iterable[tuple[int, np.ndarray]] = (),
) -> None:
    """Write an artifact; `path` appears whole or not at all.

    `weights` gives (offset, array) pairs in any order, taken one at a time; gaps are zero.
    `manifest.code_sizes` is filled in from `code`. Raises ArtifactError when the file cannot be
    written (no permission, disk full) and when an array lies outside `manifest.weights_bytes`.
    """
    parts = [code] if isinstance(code, bytes) else list(code)
    manifest = dataclasses.replace(manifest, code_sizes=tuple(len(part) for part in parts))
    with replaced_file(path) as file:
        header = _header(manifest, _DIGEST_PLACEHOLDER, _DIGEST_PLACEHOLDER)
        offsets = _section_offsets(len(header), sum(manifest.code_sizes))
        file.seek(offsets[0])
        for part in parts:
            file.write(part)
        for offset, array in weights:
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            if offset < 0 or offset + data.size > manifest.weights_bytes:
                raise ArtifactError(
                    f"{path}: a weight of {data.size} bytes at offset {offset} lies outside the "
                    f"weights section of {manifest.weights_bytes} bytes"
                )
            file.seek(offsets[1] + offset)
            file.write(data.data)
        file.truncate(offsets[1] + manifest.weights_bytes)
        file.flush()
        header = _header(
            manifest,
            _digest_of_range(file, offsets[0], sum(manifest.code_sizes)),
            _digest_of_range(file, offsets[1], manifest.weights_bytes),
        )
        file.seek(0)
        file.write(prefixed(header))


@contextlib.contextmanager
def replaced_file(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A temporary file in the folder of `path` that takes its place when the block succeeds.

    Nothing is left behind otherwise, an interrupt included. OSError becomes ArtifactError.
    """
    path = Path(path)
    name = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        with os.fdopen(handle, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
        name = None
    except OSError as error:
        raise ArtifactError(f"{path} cannot be written: {_reason(error)}") from error
    finally:
        if name is not None:
            with contextlib.suppress(OSError):
                os.unlink(name)


def read(path: str | os.PathLike[str], *, check_host: bool = True) -> Artifact:
    """Map and check an artifact.

    Raises ArtifactError when it cannot be opened, is no artifact, was cut short, has a wrong
    digest, is of a newer format or (with `check_host`) needs another CPU.
    """
    path = Path(path)
    return parsed(path, mapped(path), check_host=check_host)


def mapped(path: Path) -> memoryview:
    """The file at `path`. Raises ArtifactError when it cannot be opened, or is too short."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < _PREFIX.size:
                raise ArtifactError(f"{path} is not a Stepwell artifact: it has {size} bytes")
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {_reason(error)}") from error


def parsed(path: Path, view: memoryview, *, check_host: bool = True) -> Artifact:
    """The artifact that is all of `view`, of the file at `path`. Raises as `read` does."""
    version, content = read_header(path, view)
    if "manifest" not in content:
        raise ArtifactError(f"{path} holds a model that runs in steps, and one piece is asked for")
    manifest, sections = _manifest_from_dict(content["manifest"]), content["sections"]
    if manifest.cuda is not None and version < _FIRST_OF_LAUNCHES:
        raise ArtifactError(
            f"{path} has artifact format {version}, whose launches of kernels this version of "
            "Stepwell does not read; compile the model again"
        )
    if check_host:
        check_runs_here(manifest, str(path))
    code, weights = (
        _read_section(path, view, name, sections[name]) for name in ("code", "weights")
    )
    if sum(manifest.code_sizes) != len(code):
        raise ArtifactError(f"{path} is damaged: its code section has another length than it says")
    return Artifact(path, manifest, code, np.frombuffer(weights, np.uint8), view)


def is_artifact(path: str | os.PathLike[str]) -> bool:
    """Whether the file at `path` starts like an artifact (false when it cannot be read)."""
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def check_runs_here(manifest: Manifest, name: str) -> None:
    """Raise ArtifactError unless this machine has the architecture and the features needed; what
    GPU it has is seen when the artifact is loaded."""
    reason = why_not_here(manifest)
    if reason:
        raise ArtifactError(
            f"{name} was compiled for {reason}; compile the model again with --target host"
        )


def why_not_here(manifest: Manifest) -> str:
    """What it was compiled for that this machine is not; "" if it can run here."""
    if manifest.cuda is not None:
        return ""
    machine = {"arm64": "aarch64", "amd64": "x86_64"}.get(
        platform.machine().lower(), platform.machine()
    )
    architecture = manifest.triple.split("-")[0]
    if architecture != machine:
        return f"{architecture} ({manifest.target}) and this machine is {machine}"
    if not manifest.features or machine != "x86_64":
        return ""
    import llvmlite.binding

    have = llvmlite.binding.get_host_cpu_features()
    missing = sorted(feature for feature in manifest.features if not have.get(feature, False))
    return f"{manifest.target} and this CPU lacks {', '.join(missing)}" if missing else ""


def manifest_to_dict(manifest: Manifest) -> dict[str, object]:
    """The manifest as plain JSON data."""
    derived = [derived_to_dict(weight) for weight in manifest.derived]
    sizes = None if manifest.open_sizes is None else manifest.open_sizes.to_dict()
    return {**dataclasses.asdict(manifest), "derived": derived, "open_sizes": sizes}


def _header(manifest: Manifest, code_digest: str, weights_digest: str) -> bytes:
    """The JSON header; its length does not depend on the digests."""

    def encode(offsets: tuple[int, int]) -> bytes:
        sections = {
            "code": {
                "offset": offsets[0],
                "length": sum(manifest.code_sizes),
                "xxh3_128": code_digest,
            },
            "weights": {
                "offset": offsets[1],
                "length": manifest.weights_bytes,
                "xxh3_128": weights_digest,
            },
        }
        content = {"manifest": manifest_to_dict(manifest), "sections": sections}
        return json.dumps(content, separators=(",", ":")).encode()

    # The offsets depend on the header's length and the other way around: pad to a multiple of 256.
    longest = len(encode((1 << 62, 1 << 62)))
    length = -(-longest // 256) * 256
    return encode(_section_offsets(length, sum(manifest.code_sizes))).ljust(length)


def _section_offsets(header_bytes: int, code_bytes: int) -> tuple[int, int]:
    code = aligned(_PREFIX.size + header_bytes)
    return code, aligned(code + code_bytes)


def aligned(offset: int) -> int:
    """The first place from `offset` on where a section may begin."""
    return -(-offset // SECTION_ALIGNMENT) * SECTION_ALIGNMENT


def _digest_of_range(file: IO[bytes], start: int, length: int) -> str:
    """xxh3-128 of a part of `file`, read in pieces so that it never counts as memory in use."""
    digest = xxhash.xxh3_128()
    buffer = memoryview(bytearray(min(_COPY_BYTES, max(length, 1))))
    file.seek(start)
    while length:
        got = file.readinto(buffer[: min(len(buffer), length)])  # pyright: ignore[reportAttributeAccessIssue]
        if not got:
            raise OSError("the file ended early while its digest was computed")
        digest.update(buffer[:got])
        length -= got
    return digest.hexdigest()


def prefixed(header: bytes) -> bytes:
    """The beginning of a file with this header."""
    digest = xxhash.xxh3_64_intdigest(header)
    return _PREFIX.pack(MAGIC, FORMAT_VERSION, len(header), digest) + header


def header_end(view: memoryview) -> int:
    """Where the header of a file ends."""
    _, _, length, _ = _PREFIX.unpack(view[: _PREFIX.size])
    return _PREFIX.size + length


def read_header(path: Path, view: memoryview) -> tuple[int, dict[str, Any]]:
    """The format version and the header of a file. Raises ArtifactError when it is no artifact, was
    cut short, has a wrong digest or is of a newer format."""
    magic, version, length, digest = _PREFIX.unpack(view[: _PREFIX.size])
    if magic != MAGIC:
        raise ArtifactError(f"{path} is not a Stepwell artifact")
    if version > FORMAT_VERSION:
        raise ArtifactError(
            f"{path} has artifact format {version}, newer than format {FORMAT_VERSION}, the newest "
            "that this version of Stepwell reads; update Stepwell or compile the model again"
        )
    header = view[_PREFIX.size : _PREFIX.size + length]
    if len(header) < length:
        raise ArtifactError(f"{path} was cut short: it ends inside its header")
    if xxhash.xxh3_64_intdigest(header) != digest:
        raise ArtifactError(f"{path} is damaged: the digest of its header is wrong")
    return version, json.loads(bytes(header))


def _read_section(
    path: Path, view: memoryview, name: str, section: dict[str, object]
) -> memoryview:
    offset, length = int(str(section["offset"])), int(str(section["length"]))
    data = view[offset : offset + length]
    if len(data) < length:
        raise ArtifactError(
            f"{path} was cut short: it has {len(view)} bytes and its {name} ends at "
            f"{offset + length}"
        )
    if xxhash.xxh3_128_hexdigest(data) != section["xxh3_128"]:
        raise ArtifactError(f"{path} is damaged: the digest of its {name} is wrong")
    return data


def _manifest_from_dict(data: dict) -> Manifest:
    """Fields that this version does not know are left out: they may not change the meaning."""

    def specs(items: list[dict]) -> tuple[TensorSpec, ...]:
        return tuple(TensorSpec(i["name"], i["dtype"], tuple(i["shape"])) for i in items)

    known = {f.name for f in dataclasses.fields(Manifest)}
    values = {key: value for key, value in data.items() if key in known}
    values["inputs"] = specs(data["inputs"])
    values["outputs"] = specs(data["outputs"])
    values["features"] = tuple(data["features"])
    values["code_sizes"] = tuple(data["code_sizes"])
    values["kernels"] = tuple(
        KernelInfo(k["name"], tuple(k["sources"]), k["strategy"], k["flops"], k["bytes"])
        for k in data["kernels"]
    )
    values["defaults"] = specs(data.get("defaults", []))
    results = data.get("results", {})
    values["results"] = {name: _layout_from_json(layout) for name, layout in results.items()}
    values["cuts"] = tuple(Cut(**cut) for cut in data.get("cuts", ()))
    values["checks"] = tuple(Check(**check) for check in data.get("checks", ()))
    if data.get("cuda") is not None:
        values["cuda"] = LaunchProgram.from_dict(data["cuda"])
    if data.get("open_sizes") is not None:
        values["open_sizes"] = OpenSizes.from_dict(data["open_sizes"])
    values["functions"] = tuple(data.get("functions", ()))
    values["derived"] = tuple(derived_from_dict(item) for item in data.get("derived", ()))
    return Manifest(**values)


def _layout_from_json(layout: int | list | None) -> Layout:
    return tuple(map(_layout_from_json, layout)) if isinstance(layout, list) else layout


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
