"""The user's cache: files by content digest, safe for concurrent use, bounded in size.

A file enters by a rename and is never changed after it, so a reader needs no lock. The folder is
STEPWELL_CACHE_DIR or the platform's user cache directory; a subfolder carries the cache's version.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import xxhash

VERSION = "v1"
DEFAULT_LIMIT_BYTES = 8 << 30
_STALE_SECONDS = 24 * 3600
_READ_BYTES = 4 << 20
_LARGE_BYTES = 16 << 20
_SETTLED_NANOSECONDS = 60 * 10**9
"""How long ago a file was changed whose content is known again: Linux writes pages to disk after
35 seconds at most."""
_evicted: set[str] = set()


@functools.cache
def root() -> Path:
    """The cache's folder; a temporary one when the user's cannot be written."""
    named = os.environ.get("STEPWELL_CACHE_DIR")
    if named:
        folder = Path(named)
    else:
        import platformdirs

        folder = platformdirs.user_cache_path("stepwell")
    folder = folder / VERSION
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return Path(tempfile.mkdtemp(prefix="stepwell-cache-"))


def folder(kind: str) -> Path:
    """The folder of one kind of entry ("artifacts", "kernels", "crashes"), made when missing."""
    path = root() / kind
    path.mkdir(exist_ok=True)
    return path


def lookup(kind: str, name: str) -> Path | None:
    """The cached file, marked as just used, or None."""
    path = folder(kind) / name
    try:
        os.utime(path)
    except OSError:
        return None
    return path


def enter(kind: str, name: str, file: Path) -> Path:
    """Move `file` (from the same file system, `work_folder` for instance) into the cache."""
    path = folder(kind) / name
    os.replace(file, path)
    if kind not in _evicted:  # once a process is often enough
        _evicted.add(kind)
        evict(kind)
    return path


def put(kind: str, name: str, data: bytes) -> Path:
    """Store `data` under `name`."""
    with work_folder() as work:
        (work / "data").write_bytes(data)
        return enter(kind, name, work / "data")


@contextlib.contextmanager
def work_folder() -> Iterator[Path]:
    """A folder of one's own on the cache's file system, removed at the end."""
    path = Path(tempfile.mkdtemp(dir=folder("work")))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def evict(kind: str, limit: int = DEFAULT_LIMIT_BYTES) -> None:
    """Remove the entries used longest ago until `limit` bytes are left, and abandoned work."""
    entries: list[tuple[float, int, Path]] = []
    for path in folder(kind).iterdir():
        with contextlib.suppress(OSError):
            status = path.stat()
            entries.append((status.st_mtime, status.st_size, path))
    excess = sum(size for _, size, _ in entries) - limit
    for _, size, path in sorted(entries):
        if excess <= 0:
            break
        with contextlib.suppress(OSError):
            path.unlink()
            excess -= size
    for path in folder("work").iterdir():
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < time.time() - _STALE_SECONDS:
                shutil.rmtree(path, ignore_errors=True)


def digest(*parts: str | bytes) -> str:
    """xxh3-128 of the parts, each with its length, as hex."""
    state = xxhash.xxh3_128()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()


def of_content(path: Path, what: str, compute: Callable[[], str]) -> str:
    """`compute()`, a text that the content of the file `path` decides. Of a large file it is
    remembered, under the name `what`, as long as the system says that nobody changed it.

    A file that was changed a moment ago is not: the system's clock ticks in milliseconds, and
    writes into a mapping of the file change its times once until the page is on disk. Raises
    OSError where there is no such file.
    """
    status = path.stat()
    if status.st_size < _LARGE_BYTES:
        return compute()
    name = digest(what, str(path.resolve()))
    identity = _identity(status)
    with contextlib.suppress(OSError):
        known, _, text = (folder("files") / name).read_text().partition("\n")
        if known == identity:
            return text
    begin = time.time_ns()
    text = compute()
    changed = max(status.st_mtime_ns, status.st_ctime_ns)
    if begin - changed > _SETTLED_NANOSECONDS and _identity(path.stat()) == identity:
        with contextlib.suppress(OSError):
            put("files", name, f"{identity}\n{text}".encode())
    return text


def _identity(status: os.stat_result) -> str:
    times = f"{status.st_mtime_ns} {status.st_ctime_ns}"
    return f"{status.st_dev} {status.st_ino} {status.st_size} {times}"


def file_digest(path: Path) -> str:
    """xxh3-128 of a file's content. Raises OSError."""
    return of_content(path, "digest", lambda: _read_digest(path))


def _read_digest(path: Path) -> str:
    state = xxhash.xxh3_128()
    buffer = memoryview(bytearray(_READ_BYTES))
    with path.open("rb", buffering=0) as file:
        while got := file.readinto(buffer):
            state.update(buffer[:got])
    return state.hexdigest()


@functools.cache
def compiler_digest() -> str:
    """Digest of the version and of all of the package's sources."""
    import stepwell
    import stepwell.dialects
    import stepwell.passes

    parts: list[str | bytes] = [stepwell.__version__]
    packages = (Path(stepwell.__file__), *map(_init_file, (stepwell.dialects, stepwell.passes)))
    for package in packages:
        for source in sorted(package.parent.rglob("*.py")):
            parts += [str(source.relative_to(package.parent)), source.read_bytes()]
    return digest(*parts)


def _init_file(package: object) -> Path:
    return Path(str(getattr(package, "__file__", "")))
