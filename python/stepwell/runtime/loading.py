"""Compiled code into this process: a shared object through dlopen, objects through LLJIT."""

from __future__ import annotations

import _ctypes
import ctypes
import functools
import itertools
import os
import tempfile
import weakref
from typing import TYPE_CHECKING

from stepwell.errors import ArtifactError
from stepwell.runtime.library import library as c_runtime

if TYPE_CHECKING:
    import llvmlite.binding as llvm

_serial = itertools.count()


class LoadedCode:
    """Code of one artifact in memory; `entry` is the address of its entry point.

    The code stays for as long as this object does.
    """

    def __init__(self, entry: int, owner: object) -> None:
        self.entry = entry
        self._owner = owner


def load_code(code_format: str, parts: list[bytes], symbol: str, name: str) -> LoadedCode:
    """Load `parts` ("shared-object": one; "objects": any number) and look `symbol` up.

    `name` is the artifact's, for messages. Raises ArtifactError.
    """
    loaders = {"shared-object": _load_shared_object, "objects": _load_objects}
    if code_format not in loaders:
        raise ArtifactError(f"{name} holds code of the unknown format {code_format}")
    try:
        return loaders[code_format](parts, symbol)
    except (OSError, AttributeError, RuntimeError, ValueError) as error:
        raise ArtifactError(f"{name}: its code cannot be loaded: {error}") from error


def _load_shared_object(parts: list[bytes], symbol: str) -> LoadedCode:
    (data,) = parts
    # dlopen knows libraries by path: the file stays open, so that its path is not used again.
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("stepwell-code", os.MFD_CLOEXEC)
        path = f"/proc/self/fd/{handle}"
    else:
        handle, path = tempfile.mkstemp(prefix="stepwell-code-", suffix=".so")
    try:
        with os.fdopen(os.dup(handle), "wb") as file:
            file.write(data)
        library = ctypes.CDLL(path)
    except BaseException:
        os.close(handle)
        raise
    finally:
        if not path.startswith("/proc/"):
            os.unlink(path)
    weakref.finalize(library, _unload, library._handle, handle).atexit = False
    address = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
    c_runtime().stepwell_touch_code(address)
    return LoadedCode(address or 0, library)


def _unload(library: int, descriptor: int) -> None:
    _ctypes.dlclose(library)
    os.close(descriptor)


def _load_objects(parts: list[bytes], symbol: str) -> LoadedCode:
    import llvmlite.binding as llvm

    builder = llvm.JITLibraryBuilder().add_current_process().export_symbol(symbol)
    for part in parts:
        builder.add_object_img(part)
    tracker = builder.link(_jit(), f"stepwell_{next(_serial)}")
    return LoadedCode(tracker[symbol], tracker)


@functools.cache
def _jit() -> llvm.LLJIT:
    """One for the process: it has to outlive every library linked into it."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.create_lljit_compiler()
