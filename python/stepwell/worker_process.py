"""Starts the processes that compile, as forks of one that has the compiler imported."""

from __future__ import annotations

import array
import atexit
import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import BinaryIO

_AT_START = ("PYTHON", "LD_")
"""Beginnings of the names of variables that a process reads when it starts."""


class WorkerProcess:
    """A process that works on a request file and writes to the descriptor `status`; what it prints
    goes to `log`. `returncode` is that of `subprocess`, once it has finished.

    It has this process's folder, environment, processors and memory limit, and is killed when this
    process ends.
    """

    returncode = 1

    def __init__(self, request: Path, status: int, log: BinaryIO) -> None:
        task = {
            "request": str(request),
            "folder": _folder(),
            "environment": dict(os.environ),
            "memory": resource.getrlimit(resource.RLIMIT_AS),
            "processors": sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else [],
        }
        line = f"{json.dumps(task)}\n".encode()
        for _ in range(2):  # the server may end, having been idle, just when it is asked
            ours, theirs = socket.socketpair()
            with theirs, contextlib.suppress(OSError):
                _send((theirs.fileno(), status, log.fileno()), log)
                ours.sendall(line)
            self._stream = ours
            self._lines = ours.makefile("r")
            try:
                if self._lines.readline():
                    return
            except OSError:
                pass
            except BaseException:  # an interrupt: what was asked for is not to go on
                self._close()
                raise
            self._close()

    def kill(self) -> None:
        """End the process now."""
        with contextlib.suppress(OSError):
            self._stream.sendall(b"k")

    def finish(self) -> None:
        """Wait until the process, and what it started, has ended."""
        line = ""
        with contextlib.suppress(OSError, ValueError):
            line = self._lines.readline()
        if line:
            self.returncode = int(line)
        self._close()

    def _close(self) -> None:
        self._lines.close()
        self._stream.close()


class _Server:
    """The process that forks, and the socket to it."""

    def __init__(self, log: BinaryIO) -> None:
        self.started_with = _variables()
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "stepwell.worker_server", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # an interrupt at the terminal reaches this process alone
            )

    def end(self) -> None:
        """Let it end when the workers that it has are done."""
        self.socket.close()
        _ended.append(self._process)


_server: _Server | None = None
_ended: list[subprocess.Popen] = []
_lock = threading.Lock()


def _send(descriptors: tuple[int, ...], log: BinaryIO) -> None:
    """Send them to the server; one that has ended, or would not start in the same way again, is
    followed by a new one. Raises OSError."""
    global _server
    data = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
    with _lock:
        if _server is not None and _server.started_with == _variables():
            with contextlib.suppress(OSError):
                _server.socket.sendmsg([b"w"], data)
                return
        _leave_server()
        _ended[:] = [process for process in _ended if process.poll() is None]
        _server = _Server(log)
        _server.socket.sendmsg([b"w"], data)


def _folder() -> str | None:
    """The working directory; None where it was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


def _variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(_AT_START)}


def _leave_server() -> None:
    global _server
    if _server is not None:
        _server.end()
        _server = None


@atexit.register
def end_server() -> None:
    """End the server once its workers are done, and wait for it a second at most. The next worker
    has a new one."""
    if not _lock.acquire(timeout=1):  # a fork of a process that had it keeps it for ever
        return
    try:
        _leave_server()
    finally:
        _lock.release()
    for process in _ended:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)
