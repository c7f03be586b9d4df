"""Artifacts on disk: written whole or not at all, and nothing damaged or foreign is run."""

from __future__ import annotations

import errno
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from handmade import WEIGHT, manifest

import stepwell
from stepwell import artifact
from stepwell.artifact import TensorSpec


def rewrite(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "a.stepwell"
    content = manifest(
        weights_bytes=10_000, features=(), options={"opt_level": 3}, code_format="objects"
    )
    weights = [
        (4096, np.arange(100, dtype=np.int64)),
        (0, np.float32(2.5).reshape(())),
        (64, np.arange(12, dtype=np.float32).reshape(3, 4).T),
    ]
    artifact.write(path, content, [b"one", b"second"], weights)
    back = artifact.read(path)
    assert back.code_parts() == [b"one", b"second"]
    assert back.manifest.code_sizes == (3, 6)
    assert back.manifest.kernels == content.kernels
    assert back.manifest.inputs == (TensorSpec("x", "float32", (16, 8)),)
    assert back.weights.ctypes.data % 4096 == 0
    assert len(back.weights) == 10_000
    assert not back.weights.flags.writeable
    np.testing.assert_array_equal(back.weights[4096:4896].view(np.int64), np.arange(100))
    np.testing.assert_array_equal(
        back.weights[64:112].view(np.float32), np.arange(12).reshape(3, 4).T.reshape(-1)
    )
    assert not back.weights[4:64].any()
    assert path.stat().st_size <= 10_000 + (3 << 12)
    assert list(tmp_path.iterdir()) == [path]


def test_weight_outside_its_section(tmp_path: Path) -> None:
    with pytest.raises(stepwell.ArtifactError, match="lies outside the weights section"):
        artifact.write(tmp_path / "a", manifest(weights_bytes=16), b"", [(0, WEIGHT)])
    assert not list(tmp_path.iterdir())


def test_not_an_artifact(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"\x08\x07" * 100)
    with pytest.raises(stepwell.ArtifactError, match="is not a Stepwell artifact"):
        stepwell.load(path)
    path.write_bytes(b"")
    with pytest.raises(stepwell.ArtifactError, match="it has 0 bytes"):
        stepwell.load(path)
    with pytest.raises(stepwell.ArtifactError, match="cannot be read: no such file"):
        stepwell.load(tmp_path / "missing")


def test_cut_short_anywhere(model: Path) -> None:
    whole = model.read_bytes()
    for length in (10, 40, 200, 5000, len(whole) - 1):
        model.write_bytes(whole[:length])
        with pytest.raises(stepwell.ArtifactError, match=r"cut short|it has 10 bytes"):
            stepwell.load(model)


@pytest.mark.parametrize("part", ["header", "code", "weights"])
def test_flipped_byte(model: Path, part: str) -> None:
    whole = model.read_bytes()
    offset = {"header": 60, "code": 4096 + 100, "weights": len(whole) - 1}[part]
    rewrite(model, offset, bytes([whole[offset] ^ 1]))
    with pytest.raises(stepwell.ArtifactError, match=f"damaged: the digest of its {part} is wrong"):
        stepwell.load(model)


def test_newer_format(model: Path) -> None:
    rewrite(model, 8, struct.pack("<I", artifact.FORMAT_VERSION + 1))
    with pytest.raises(stepwell.ArtifactError, match=r"newer than format \d+.*update Stepwell"):
        stepwell.load(model)


def test_other_architecture(tmp_path: Path) -> None:
    path = tmp_path / "a.stepwell"
    artifact.write(path, manifest(triple="riscv64-unknown-linux-gnu", weights_bytes=0), b"code")
    with pytest.raises(stepwell.ArtifactError, match=r"was compiled for riscv64.*--target host"):
        stepwell.load(path)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="names a feature of x86-64")
def test_other_cpu(tmp_path: Path) -> None:
    path = tmp_path / "a.stepwell"
    artifact.write(path, manifest(features=("sse2", "avx1024"), weights_bytes=0), b"code")
    with pytest.raises(stepwell.ArtifactError, match="this CPU lacks avx1024"):
        stepwell.load(path)


def test_what_was_compiled_for_another_machine_is_saved_but_not_run(tmp_path: Path) -> None:
    path, copy = tmp_path / "a.stepwell", tmp_path / "b.stepwell"
    artifact.write(path, manifest(triple="riscv64-unknown-linux-gnu", weights_bytes=0), b"code")
    exe = stepwell.Executable(artifact.read(path, check_host=False))
    exe.save(copy)
    assert copy.read_bytes() == path.read_bytes()
    with pytest.raises(stepwell.ArtifactError, match=r"the model was compiled for riscv64"):
        exe(np.ones((16, 8), np.float32))


def test_code_that_does_not_load(tmp_path: Path) -> None:
    path = tmp_path / "a.stepwell"
    artifact.write(path, manifest(weights_bytes=0), b"no ELF file")
    with pytest.raises(stepwell.ArtifactError, match="its code cannot be loaded"):
        stepwell.load(path)


def test_unwritable_paths(model: Path, tmp_path: Path) -> None:
    exe = stepwell.load(model)
    with pytest.raises(stepwell.ArtifactError, match="cannot be written: no such file"):
        exe.save(tmp_path / "missing" / "a.stepwell")
    (tmp_path / "folder").mkdir()
    with pytest.raises(stepwell.ArtifactError, match="cannot be written: is a directory"):
        exe.save(tmp_path / "folder")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "model.stepwell"]


FULL_DISK = """
import resource, signal, sys
import numpy as np
import stepwell
from stepwell import artifact
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
exe = artifact.read(sys.argv[1])
import dataclasses
content = dataclasses.replace(exe.manifest, weights_bytes=4 << 20)
try:
    artifact.write(sys.argv[2], content, b"code", [(0, np.ones(4 << 20, np.uint8))])
except stepwell.ArtifactError as error:
    print(error)
"""


def test_file_size_limit_leaves_nothing(model: Path, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(model), str(tmp_path / "big.stepwell")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "big.stepwell cannot be written: file too large" in run.stdout
    assert list(tmp_path.iterdir()) == [model]


def test_full_disk_keeps_the_old_file(model: Path, tmp_path: Path) -> None:
    old = model.read_bytes()

    def weights() -> Iterator[tuple[int, np.ndarray]]:
        yield 0, WEIGHT[:4]
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(stepwell.ArtifactError, match="cannot be written: no space left on device"):
        artifact.write(model, manifest(), b"code", weights())
    assert model.read_bytes() == old
    assert list(tmp_path.iterdir()) == [model]


def test_interrupt_keeps_the_old_file(model: Path, tmp_path: Path) -> None:
    old = model.read_bytes()

    def weights() -> Iterator[tuple[int, np.ndarray]]:
        yield 0, WEIGHT[:4]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        artifact.write(model, manifest(), b"code", weights())
    assert model.read_bytes() == old
    assert list(tmp_path.iterdir()) == [model]
