"""What is read of the machine at hand."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from stepwell import targets
from stepwell.targets.x86_64 import MICROARCHITECTURES


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


@pytest.mark.parametrize("name", MICROARCHITECTURES)
def test_rates_of_a_microarchitecture(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The host keeps its instructions and caches and gets the rates; others stay as they are."""
    monkeypatch.setattr(llvm, "get_host_cpu_name", lambda: "x86-64-v4")
    plain = targets.host.__wrapped__()
    monkeypatch.setattr(llvm, "get_host_cpu_name", lambda: name)
    tuned = targets.host.__wrapped__()
    assert tuned == dataclasses.replace(plain, **MICROARCHITECTURES[name])  # pyright: ignore[reportArgumentType]
    assert tuned != plain


def test_small_networks_stay_in_l3() -> None:
    target = dataclasses.replace(targets.get("x86_64-v4"), resident_bytes=1000)
    assert target.reading(1001, 1) == target.reading(0, 1) == target
    resident = target.reading(1000, 2)
    assert resident.memory_rate == resident.asked_rate == target.l3_rate


def test_cores_share_the_memory() -> None:
    target = dataclasses.replace(targets.get("x86_64-v4"), memory_rate=8.0, more_bytes=0.5)
    assert target.reading(1000, 2).memory_rate == 6.0
    assert target.reading(1000, 4).memory_rate == 5.0


def test_longer_numbers_fill_a_machine_sooner() -> None:
    target = targets.get("x86_64-v4")
    assert target.for_elements(16) == target.for_elements(32) == target
    doubles = target.for_elements(64)
    assert doubles.vector_lanes == 8
    assert doubles.vector_registers == target.vector_registers
    assert doubles.l1_bytes == target.l1_bytes // 2
    assert doubles.memory_rate == target.memory_rate / 2
