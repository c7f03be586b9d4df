"""Addresses of numpy arrays, quickly, and memory for the arena and for results."""

from __future__ import annotations

import contextlib
import ctypes
import mmap

import numpy as np

_ALIGNMENT = 64
_HUGE_PAGE = 2 << 20
_CHUNK = 8 << 20

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


def allocate_result(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array for a result, not initialized: the kernels write all of it."""
    return np.empty(shape, dtype)


def on_huge_pages(section: np.ndarray, mapping: mmap.mmap | None) -> np.ndarray:
    """A copy of the mapped weights `section` on huge pages, which spares kernels that stream them
    most misses of the address translation. The pages of `mapping` are given back as they are read.

    Sections that are small, or too large to have twice, come back as they are.
    """
    if not _HUGE_PAGE <= section.size <= MOST_COPIED or not hasattr(mmap, "MADV_HUGEPAGE"):
        return section
    copy = allocate_arena(section.size)
    for start in range(0, section.size, _CHUNK):
        copy[start : start + _CHUNK] = section[start : start + _CHUNK]
        if mapping is not None:
            mapping.madvise(mmap.MADV_DONTNEED)
    return copy
