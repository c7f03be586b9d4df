"""Puts guards around the memory that compiled models write, in every test of this process, and
long files in front; spares the garbage collector what stays.

A kernel that writes outside of a result or of the arena damages the heap, and some later test
crashes for it. So arrays made for them have a zone on either side that each call checks.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from stepwell.runtime import executable

LONG_FILES = (
    "conformance/test_onnx.py",
    "conformance/test_stablehlo.py",
    "python/frontends/test_onnx_standard.py",
    "gpu/test_kernels.py",
    "gpu/test_lint.py",
    "gpu/test_attention.py",
    "python/models/test_onnx_models.py",
    "python/frontends/test_torch_operators.py",
    "python/frontends/test_torch_compile.py",
    "gpu/test_warpgroup.py",
    "gpu/test_grouped_products.py",
    "python/frontends/test_torch_transformers.py",
    "python/kernels/test_random_programs.py",
    "python/frontends/test_jax_open_sizes.py",
    "gpu/test_stream_k.py",
)
"""Files that take most of a minute of CPU time or more, the longest first. They begin first, so
that of several processes none is left with a long one at the end."""

gc.disable()  # until all is imported

# Threads of torch that wait leave the processor to the other processes of a run.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

_ZONE = 4096
"""Bytes of a guard zone."""
_UNTOUCHED = 0xA5
_ALIGNMENT = 64


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {Path(__file__).parent / name: place for place, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: places.get(item.path, len(places)))

    # Imported modules have some million objects, none of which is ever garbage: to look
    # through them again and again takes a tenth of all time.
    gc.freeze()
    gc.enable()


class _Guards:
    """The results that were allocated on each thread since it last looked."""

    def __init__(self) -> None:
        self._local = threading.local()

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        size = int(np.prod(shape)) * dtype.itemsize
        inside = allocate_guarded(size)
        self._results().append((f"the result of shape {shape}", inside))
        return inside[:size].view(dtype).reshape(shape)

    def _results(self) -> list[tuple[str, np.ndarray]]:
        if not hasattr(self._local, "results"):
            self._local.results = []
        return self._local.results

    def check(self, arena: np.ndarray) -> None:
        results = self._results()
        damaged = [name for name, a in [*results, ("the arena", arena)] if not _is_untouched(a)]
        results.clear()
        assert not damaged, f"a kernel wrote outside of {', '.join(damaged)}"


def allocate_guarded(size: int) -> np.ndarray:
    """`size` bytes (at least one) of zeroed memory with a zone on either side, 64-byte aligned."""
    size = max(size, 1)
    memory = np.zeros(size + 2 * _ZONE + _ALIGNMENT, np.uint8)
    begin = _ZONE + -memory.ctypes.data % _ALIGNMENT
    memory[:begin] = memory[begin + size :] = _UNTOUCHED
    return memory[begin : begin + size]


def _is_untouched(inside: np.ndarray) -> bool:
    memory = inside.base
    assert memory is not None
    begin = inside.ctypes.data - memory.ctypes.data
    zones = memory[:begin], memory[begin + inside.size :]
    return all(bool((zone == _UNTOUCHED).all()) for zone in zones)


@pytest.fixture(scope="session", autouse=True)
def guarded_memory() -> Iterator[None]:
    """Guards around all results and arenas of the session."""
    guards = _Guards()
    unguarded = executable.Executable._run

    def run(
        self: executable.Executable, results: Sequence[tuple[np.dtype, tuple[int, ...]]]
    ) -> list[np.ndarray]:
        outputs = unguarded(self, results)
        guards.check(self._arena)
        return outputs

    patch = pytest.MonkeyPatch()
    patch.setattr(executable, "ResultBuffers", lambda results: guards)
    patch.setattr(executable, "allocate_arena", allocate_guarded)
    patch.setattr(executable.Executable, "_run", run)
    yield
    patch.undo()


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    """PyTorch's begin anew, so that a test has the same ones whatever ran before it."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
