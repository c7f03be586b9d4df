"""Addresses of numpy arrays, quickly, and memory for the arena and for results."""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import sys

import numpy as np

_ALIGNMENT = 64
_HUGE_PAGE = 2 << 20
_CHUNK = 8 << 20
_LEAST_KEPT, _MOST_KEPT = 64 << 10, 64 << 20
"""Results of fewer bytes come from the heap anyway; of more, two calls' would be much to keep."""

MOST_COPIED = 1 << 30
"""Weights up to this many bytes are copied to huge pages; larger ones are read where they lie."""

_from_buffer = ctypes.c_char.from_buffer
_addressof = ctypes.addressof


def address(array: np.ndarray) -> int:
    """The address of the data of a writable C-contiguous `array`.

    Four times as fast as `array.ctypes.data`, which is the way for arrays that give no writable
    buffer: empty ones, read-only ones, and those of ml_dtypes.
    """
    try:
        return _addressof(_from_buffer(array))  # pyright: ignore[reportArgumentType]
    except (ValueError, TypeError, BufferError):
        return array.ctypes.data


def allocate_arena(size: int) -> np.ndarray:
    """`size` bytes (at least one) of zeroed memory, 64-byte aligned; on huge pages when large."""
    length = max(size, 1)
    if length < _HUGE_PAGE:
        raw = np.zeros(length + _ALIGNMENT, np.uint8)
        skip = -raw.ctypes.data % _ALIGNMENT
        return raw[skip : skip + length]
    memory = mmap.mmap(-1, length + _HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages: ordinary ones do
            memory.madvise(mmap.MADV_HUGEPAGE)
    raw = np.frombuffer(memory, np.uint8)
    skip = -raw.ctypes.data % _HUGE_PAGE
    return raw[skip : skip + length]


def _references(bases: list[np.ndarray], number: int) -> int:
    return sys.getrefcount(bases[number])


_UNHELD = _references([np.empty(1)], 0)


class ResultBuffers:
    """Memory for results, which is used again once nobody holds an array on it: fresh memory costs
    a page fault for every 4 KiB, more than a light kernel takes to fill them.

    `results` is how many results a call has; not for several threads at once.
    """

    def __init__(self, results: int) -> None:
        self._bases: list[np.ndarray] = []
        self._most = 2 * results  # a caller may still hold those of the last call

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """An array for a result, not initialized: the kernels write all of it."""
        size = math.prod(shape) * dtype.itemsize
        if not _LEAST_KEPT <= size <= _MOST_KEPT:
            return np.empty(shape, dtype)
        for number in range(len(self._bases)):
            room = self._bases[number].size - _ALIGNMENT
            if size <= room <= 4 * size and _references(self._bases, number) == _UNHELD:
                return _aligned(self._bases[number], shape, dtype)
        if len(self._bases) == self._most:
            del self._bases[0]
        self._bases.append(np.empty(size + _ALIGNMENT, np.uint8))
        return _aligned(self._bases[-1], shape, dtype)


def _aligned(base: np.ndarray, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    return np.ndarray(shape, dtype, base, -address(base) % _ALIGNMENT)


def on_huge_pages(section: np.ndarray, mapping: mmap.mmap | None) -> np.ndarray:
    """A copy of the mapped weights `section` on huge pages, which spares kernels that stream them
    most misses of the address translation. The pages of `mapping` are given back as they are read.

    Sections that are small, or too large to have twice, come back as they are.
    """
    if not _HUGE_PAGE <= section.size <= MOST_COPIED or not hasattr(mmap, "MADV_HUGEPAGE"):
        return section
    copy = allocate_arena(section.size)
    copy_mapped(section, mapping, copy)
    return copy


def copy_mapped(section: np.ndarray, mapping: mmap.mmap | None, target: np.ndarray) -> None:
    """Copy the mapped `section` to the beginning of `target`; the pages of `mapping` are given back
    as they are read."""
    for start in range(0, section.size, _CHUNK):
        end = min(start + _CHUNK, section.size)
        target[start:end] = section[start:end]
        give_back(mapping)


def give_back(mapping: mmap.mmap | None) -> None:
    """Let the system have the pages of `mapping` that were read."""
    if mapping is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapping.madvise(mmap.MADV_DONTNEED)
