"""Processes that compile: forks of a server that has the compiler imported."""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from stepwell import compiler, worker_process

WAITING = """
import sys
from stepwell import compiler
compiler.ENTRY = "fake_pipeline:compile_to_artifact"
compiler.build(sys.argv[1])
"""


def build(behaviour: str) -> None:
    compiler.build(f"// {behaviour}\nmodule {{}}\n", options={"use_cache": False})


def server_process() -> subprocess.Popen:
    assert worker_process._server is not None
    return worker_process._server._process


@pytest.mark.usefixtures("fake_compiler")
def test_several_at_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    build(f"count {log}")
    first = server_process()
    threads = [threading.Thread(target=build, args=(f"count {log}",)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert log.read_text() == 7 * "compiled\n"
    assert server_process() is first


@pytest.mark.usefixtures("fake_compiler")
def test_a_server_that_ended_is_followed_by_another(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for _ in range(2):
        build(f"count {log}")
        server_process().kill()
        server_process().wait()
    build(f"count {log}")
    assert log.read_text() == 3 * "compiled\n"


@pytest.mark.usefixtures("fake_compiler")
def test_what_a_worker_has_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told, processors = tmp_path / "told", sorted(os.sched_getaffinity(0))
    for number, folder in enumerate((tmp_path, Path("/"))):
        monkeypatch.setenv("TOLD", f"number {number}")
        monkeypatch.chdir(folder)
        os.sched_setaffinity(0, processors[: 1 + number])
        try:
            build(f"tell {told}")
        finally:
            os.sched_setaffinity(0, processors)
        assert told.read_text() == f"{folder} number {number} {processors[: 1 + number]}"


@pytest.mark.usefixtures("fake_compiler")
def test_a_working_directory_that_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, removed = tmp_path / "log", tmp_path / "removed"
    removed.mkdir()
    monkeypatch.chdir(removed)
    removed.rmdir()
    build(f"count {log}")
    assert log.read_text() == "compiled\n"


class InterruptedStream(socket.socket):
    """One on which an interrupt comes before any answer."""

    def makefile(self, *arguments: object, **named: object) -> io.StringIO:
        class Lines(io.StringIO):
            def readline(self, size: int = -1, /) -> str:
                raise KeyboardInterrupt

        return Lines()


@pytest.mark.usefixtures("fake_compiler")
def test_an_interrupt_before_the_worker_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(f"count {tmp_path / 'log'}")  # so that the server is there
    pid_file = tmp_path / "pid"
    before = len(os.listdir("/proc/self/fd"))
    made = socket.socketpair

    def pair() -> tuple[socket.socket, socket.socket]:
        ours, theirs = made()
        return InterruptedStream(fileno=ours.detach()), theirs

    with monkeypatch.context() as patch:
        patch.setattr(worker_process.socket, "socketpair", pair)
        with pytest.raises(KeyboardInterrupt):
            build(f"wait {pid_file}")
    assert len(os.listdir("/proc/self/fd")) == before
    build(f"count {tmp_path / 'log'}")  # the server is not held up by what was interrupted


@pytest.mark.usefixtures("fake_compiler")
def test_worker_of_a_process_that_was_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    os.mkfifo(pid_file)
    model = f"// wait {pid_file}\nmodule {{}}\n"
    parent = subprocess.Popen([sys.executable, "-c", WAITING, model])
    worker = int(pid_file.read_text())  # blocks until the worker is in its step
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 30
    while Path(f"/proc/{worker}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
