"""What is read of the machine at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepwell import targets


def _cache(folder: Path, index: int, level: str, kind: str, size: str) -> None:
    entry = folder / f"index{index}"
    entry.mkdir()
    for name, text in (("level", level), ("type", kind), ("size", size)):
        (entry / name).write_text(f"{text}\n")


def test_cache_sizes(tmp_path: Path) -> None:
    """As Linux writes them; of L3 nothing is taken, which other machines may share."""
    _cache(tmp_path, 0, "1", "Data", "48K")
    _cache(tmp_path, 1, "1", "Instruction", "32K")
    _cache(tmp_path, 2, "2", "Unified", "2048K")
    _cache(tmp_path, 3, "3", "Unified", "32768K")
    assert targets.cache_sizes(tmp_path) == {"l1_bytes": 48 << 10, "l2_bytes": 2 << 20}


@pytest.mark.parametrize("size", ["", "0x10", "2M"])
def test_sizes_that_are_no_numbers_of_kilobytes(tmp_path: Path, size: str) -> None:
    _cache(tmp_path, 0, "2", "Unified", size)
    assert targets.cache_sizes(tmp_path) == {}


def test_no_sizes(tmp_path: Path) -> None:
    (tmp_path / "index0").mkdir()
    assert targets.cache_sizes(tmp_path / "none") == targets.cache_sizes(tmp_path) == {}
