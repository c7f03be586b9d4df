"""The C runtime by ctypes: thread pools, contexts, runs, traces (runtime/stepwell_runtime.h)."""

from __future__ import annotations

import ctypes
import functools
import threading
from pathlib import Path

from stepwell.errors import Error

_NAME = "libstepwell_runtime.so"


class _Event(ctypes.Structure):
    _fields_ = (("kernel", ctypes.c_int64), ("nanoseconds", ctypes.c_int64))


@functools.cache
def library() -> ctypes.CDLL:
    """The C runtime, loaded once. Raises Error when it was not installed."""
    import stepwell

    folders = [Path(__file__).parent, *(Path(p) / "runtime" for p in stepwell.__path__)]
    for folder in folders:
        if (folder / _NAME).exists():
            return _declare(ctypes.CDLL(str(folder / _NAME)))
    raise Error(
        f"{_NAME} is missing from the installed package; install Stepwell again "
        "(pip install -e . in a checkout)"
    )


def _declare(lib: ctypes.CDLL) -> ctypes.CDLL:
    pointer = ctypes.c_void_p
    lib.stepwell_pool_create.argtypes = [ctypes.c_uint32]
    lib.stepwell_pool_create.restype = pointer
    lib.stepwell_context_create.argtypes = [pointer, ctypes.c_uint64]
    lib.stepwell_context_create.restype = pointer
    lib.stepwell_context_destroy.argtypes = [pointer]
    lib.stepwell_context_destroy.restype = None
    lib.stepwell_context_flush_subnormals.argtypes = [pointer]
    lib.stepwell_context_flush_subnormals.restype = None
    lib.stepwell_run.argtypes = [pointer] * 6
    lib.stepwell_run.restype = None
    lib.stepwell_touch_code.argtypes = [pointer]
    lib.stepwell_touch_code.restype = None
    lib.stepwell_digests.argtypes = [pointer] * 4 + [ctypes.c_int64]
    lib.stepwell_digests.restype = None
    lib.stepwell_trace_start.argtypes = [pointer]
    lib.stepwell_trace_start.restype = None
    lib.stepwell_trace_start_shares.argtypes = [pointer, pointer, ctypes.c_uint64]
    lib.stepwell_trace_start_shares.restype = None
    lib.stepwell_trace_shares.argtypes = [pointer]
    lib.stepwell_trace_shares.restype = ctypes.c_uint64
    lib.stepwell_trace_stop.argtypes = [pointer, ctypes.POINTER(ctypes.POINTER(_Event))]
    lib.stepwell_trace_stop.restype = ctypes.c_uint64
    return lib


_pools: dict[int, int] = {}
_pools_lock = threading.Lock()


def pool(threads: int) -> int | None:
    """The process's pool of `threads` threads (None for one thread); it lives as long as the
    process, and executables with as many threads share it."""
    if threads == 1:
        return None
    with _pools_lock:
        if threads not in _pools:
            handle = library().stepwell_pool_create(threads)
            if not handle:
                raise Error(f"{threads} threads could not be started")
            _pools[threads] = handle
        return _pools[threads]


def read_events(context: int) -> list[tuple[int, int]]:
    """Stop the trace of `context`: (kernel, nanoseconds) of each event."""
    events = ctypes.POINTER(_Event)()
    count = library().stepwell_trace_stop(context, ctypes.byref(events))
    return [(events[i].kernel, events[i].nanoseconds) for i in range(count)]
