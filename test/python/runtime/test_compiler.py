"""The way from `compile` to an artifact: cache, worker process, errors, crashes, interrupts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from handmade import WEIGHT

import stepwell
from stepwell import cache, compiler, sources
from stepwell.artifact import Artifact
from stepwell.options import make_options


def build(behaviour: str, **arguments: object) -> Artifact:
    """Compile a model that makes fake_pipeline.py behave in some way."""
    return compiler.build(f"// {behaviour}\nmodule {{}}\n", **arguments)  # pyright: ignore[reportArgumentType]


def test_second_compilation_comes_from_the_cache(fake_compiler: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    for _ in range(2):
        exe = stepwell.Executable(build(f"count {log}"))
        x = np.ones((16, 8), np.float32)
        np.testing.assert_array_equal(exe(x)[0], np.maximum(x + WEIGHT, 0))
    assert log.read_text() == "compiled\n"
    build(f"count {log}", options={"opt_level": 1})
    build(f"count {log}", threads=7)
    build(f"count {log}", options={"use_cache": False})
    assert log.read_text() == "compiled\n" * 4


def test_damaged_cache_entry_is_compiled_again(fake_compiler: Path, tmp_path: Path) -> None:
    folder = fake_compiler
    log = tmp_path / "log"
    build(f"count {log}")
    (entry,) = (folder / "artifacts").iterdir()
    entry.write_bytes(entry.read_bytes()[:-1])
    build(f"count {log}")
    assert log.read_text() == "compiled\n" * 2
    assert not list((folder / "work").iterdir())


def test_errors_keep_their_class_and_sentence(fake_compiler: Path) -> None:
    folder = fake_compiler
    with pytest.raises(stepwell.LoweringError, match=r"^MatMul_3: too large$"):
        build("lowering-error MatMul_3: too large")
    with pytest.raises(stepwell.UnsupportedError, match="2 nodes are not supported") as caught:
        build("unsupported")
    assert caught.value.findings[0].operator == "Einsum"
    assert not list((folder / "work").iterdir())
    assert not (folder / "crashes").exists()


def crash_folder(error: stepwell.CompilerCrash, folder: Path) -> Path:
    (crash,) = (folder / "crashes").iterdir()
    assert f"{crash} reproduces it" in str(error)
    return crash


def test_segfault_becomes_a_crash_with_a_reproducer(fake_compiler: Path) -> None:
    folder = fake_compiler
    with pytest.raises(
        stepwell.CompilerCrash, match="was ended by SIGSEGV, in step second-step"
    ) as caught:
        build("segfault")
    crash = crash_folder(caught.value, folder)
    assert (crash / "model.mlir").read_text().startswith("// segfault")
    assert (crash / "phases" / "first-step.mlir").exists()
    assert "Segmentation fault" in (crash / "log.txt").read_text()
    command = (crash / "README.md").read_text().split("    ", 1)[1].splitlines()[0]
    again = subprocess.run(command.split(), capture_output=True, cwd=folder)
    assert again.returncode == -signal.SIGSEGV


@pytest.mark.usefixtures("fake_compiler")
def test_crash_with_children_ends_them() -> None:
    with pytest.raises(stepwell.CompilerCrash, match="was ended by SIGSEGV"):
        build("segfault 2")


def test_bug_becomes_a_crash(fake_compiler: Path) -> None:
    folder = fake_compiler
    with pytest.raises(stepwell.CompilerCrash, match="failed with TypeError: no such thing") as e:
        build("bug no such thing")
    assert "Traceback" in (crash_folder(e.value, folder) / "log.txt").read_text()


def test_memory_limit(fake_compiler: Path) -> None:
    with pytest.raises(stepwell.CompilerCrash, match=r"ran out of memory .its limit is 2000 MB"):
        build(f"allocate {4 << 30}", options={"memory_limit_mb": 2000})


LIMITED = """
import resource, sys
from stepwell import compiler
compiler.ENTRY = "fake_pipeline:compile_to_artifact"
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
compiler.build(sys.argv[1], options={"memory_limit_mb": 5000})
"""


def test_lower_memory_limit_of_the_process_stays(fake_compiler: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    model = f"// count {log}\nmodule {{}}\n"
    subprocess.run([sys.executable, "-c", LIMITED, model], check=True)
    assert log.read_text() == "compiled\n"


INTERRUPTED = """
import sys
from stepwell import compiler
compiler.ENTRY = "fake_pipeline:compile_to_artifact"
compiler.build(sys.argv[1])
"""


def test_interrupt_kills_the_worker(fake_compiler: Path, tmp_path: Path) -> None:
    folder = fake_compiler
    pid_file = tmp_path / "pid"
    os.mkfifo(pid_file)
    model = f"// wait {pid_file}\nmodule {{}}\n"
    parent = subprocess.Popen([sys.executable, "-c", INTERRUPTED, model], stderr=subprocess.PIPE)
    worker = int(pid_file.read_text())  # blocks until the worker is in its step
    parent.send_signal(signal.SIGINT)
    _, stderr = parent.communicate(timeout=30)
    assert b"KeyboardInterrupt" in stderr
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)
    assert not list((folder / "work").iterdir())


def test_options_say_what_is_wrong() -> None:
    with pytest.raises(stepwell.UsageError, match=r"there is no option .fast.; there are"):
        make_options({"fast": True})
    with pytest.raises(stepwell.UsageError, match="option opt_level is 'high'; it must be of type"):
        make_options({"opt_level": "high"})
    with pytest.raises(stepwell.UsageError, match="opt_level is 4"):
        make_options({"opt_level": 4})
    with pytest.raises(stepwell.UsageError, match="there is no target z80"):
        compiler.build("module {}", target="z80")
    with pytest.raises(stepwell.UsageError, match="sizes must not be negative"):
        compiler.build("module {}", shapes={"x": (-1, 3)})


def test_what_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(stepwell.ModelError, match="cannot be read: no such file"):
        compiler.build(tmp_path / "missing.onnx")
    with pytest.raises(stepwell.UsageError, match=r"a builtins.int is not a model; give a path"):
        compiler.build(3)


def test_digest_covers_external_data(tmp_path: Path) -> None:
    weight = onnx.numpy_helper.from_array(np.arange(999, dtype=np.float32), "w")
    graph = onnx.helper.make_graph([], "g", [], [], [weight])
    path = tmp_path / "m.onnx"
    onnx.save(onnx.helper.make_model(graph), path, save_as_external_data=True, location="w.bin")
    assert sources.external_files(path) == [tmp_path / "w.bin"]
    before = sources.as_source(path, tmp_path).digest
    data = bytearray((tmp_path / "w.bin").read_bytes())
    data[5] ^= 1
    (tmp_path / "w.bin").write_bytes(data)
    assert sources.as_source(path, tmp_path).digest != before


def test_content_is_known_again_until_the_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPWELL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_LARGE_BYTES", 4)
    cache.root.cache_clear()
    path = tmp_path / "model"
    reads = []

    def content() -> str:
        reads.append(path.read_text())
        return reads[-1]

    path.write_text("first")
    for _ in range(2):  # just written: it may change again within the same tick of the clock
        assert cache.of_content(path, "text", content) == "first"
    assert len(reads) == 2
    monkeypatch.setattr(cache, "_SETTLED_NANOSECONDS", -1)
    for _ in range(3):
        assert cache.of_content(path, "text", content) == "first"
    assert len(reads) == 3
    assert cache.of_content(path, "another text", lambda: "of its own") == "of its own"
    times = path.stat().st_mtime_ns
    path.write_text("other")  # of the same size
    os.utime(path, ns=(times, times))
    assert cache.of_content(path, "text", content) == "other"
    path.write_text("x")  # small files are read each time
    assert [cache.of_content(path, "text", content) for _ in range(2)] == ["x", "x"]
    assert len(reads) == 6
    cache.root.cache_clear()


def test_cache_evicts_what_was_used_longest_ago(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPWELL_CACHE_DIR", str(tmp_path))
    cache.root.cache_clear()
    for index, name in enumerate("abc"):
        path = cache.put("kernels", name, b"x" * 100)
        os.utime(path, (index, index))
    assert cache.lookup("kernels", "a") is not None  # now the one used last
    cache.evict("kernels", 200)
    assert sorted(path.name for path in cache.folder("kernels").iterdir()) == ["a", "c"]
    cache.root.cache_clear()
