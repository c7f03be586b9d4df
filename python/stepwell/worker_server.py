"""The process that compiling processes are forked from: `python -m stepwell.worker_server SOCKET`.

To import the compiler takes over a second, ten times as long as to compile a small model, so that
is done once. Each message on the socket brings three descriptors: of a stream to its sender, of a
status pipe and of a log file. The stream says in one line of JSON what the worker is to do, and is
told the worker's process number and, in the end, how it ended; when it is closed, the worker is
killed. The server ends with its socket, or when it had nothing to do for `IDLE_SECONDS`.
"""

from __future__ import annotations

import array
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import resource
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

IDLE_SECONDS = 60.0
_DESCRIPTORS = 3
_PACKAGES = ("stepwell.passes", "stepwell.kernels")


@dataclass
class _Server:
    source: socket.socket
    workers: dict[int, socket.socket] = field(default_factory=dict)
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    going: bool = True

    def run(self) -> None:
        """Work until there is nobody to work for."""
        woken, waking = os.pipe()
        os.set_blocking(woken, False)
        os.set_blocking(waking, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(waking)
        self.selector.register(self.source, selectors.EVENT_READ, self._begin)
        self.selector.register(woken, selectors.EVENT_READ, lambda: self._reap(woken))
        while self.going or self.workers:
            events = self.selector.select(None if self.workers else IDLE_SECONDS)
            self.going = self.going and (bool(events) or bool(self.workers))
            for key, _ in events:
                key.data()

    def _begin(self) -> None:
        """Start a worker. At the end of the socket, those there are may finish."""
        message, descriptors = _receive(self.source)
        if not message:
            self.selector.unregister(self.source)
            self.going = False
            return
        stream = socket.socket(fileno=descriptors[0])
        with stream.makefile("r") as lines:
            task = json.loads(lines.readline() or "null")
        if task is not None:
            _prepare(task["request"])
            pid = os.fork()
            if not pid:
                self._work(task, *descriptors[1:])
            self.workers[pid] = stream
            self.selector.register(stream, selectors.EVENT_READ, lambda: self._kill(pid))
            _tell(stream, pid)
        for descriptor in descriptors[1:]:
            os.close(descriptor)

    def _work(self, task: dict, status: int, log: int) -> None:
        """The worker's side; does not return."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            for stream in (self.source, *self.workers.values()):
                stream.close()
            os.dup2(log, sys.stdout.fileno())
            os.dup2(log, sys.stderr.fileno())
            if task["folder"] is not None:
                os.chdir(task["folder"])
            os.environ.clear()
            os.environ.update(task["environment"])
            resource.setrlimit(resource.RLIMIT_AS, tuple(task["memory"]))
            if hasattr(os, "sched_setaffinity"):
                os.sched_setaffinity(0, task["processors"])
            from stepwell import worker

            code = worker.main([task["request"], str(status)])
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _kill(self, pid: int) -> None:
        """End a worker, which may have ended since its sender asked for that."""
        if pid in self.workers:
            _end_group(pid)

    def _reap(self, woken: int) -> None:
        """Say of workers that have ended how."""
        with contextlib.suppress(BlockingIOError):
            os.read(woken, 4096)
        while self.workers:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                return
            # Until it is waited for, it is a zombie, and its number its own.
            _end_group(ended.si_pid)
            _, status = os.waitpid(ended.si_pid, 0)
            stream = self.workers.pop(ended.si_pid)
            self.selector.unregister(stream)
            _tell(stream, os.waitstatus_to_exitcode(status))
            stream.close()


def _receive(source: socket.socket) -> tuple[bytes, list[int]]:
    """A message, and the descriptors that came with it."""
    size = array.array("i").itemsize
    message, extra, _, _ = source.recvmsg(1, socket.CMSG_SPACE(_DESCRIPTORS * size))
    found = array.array("i")
    for _, _, data in extra:
        found.frombytes(data)
    return message, list(found)


def _tell(stream: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # it is closed: nobody wants to know
        stream.sendall(f"{number}\n".encode())


def _end_group(pid: int) -> None:
    """Kill what is left of the process group that `pid` leads, and `pid` before it leads one."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def _prepare(request: str) -> None:
    """Import what a worker for the file `request` needs, and set up the code generator. What fails
    here fails in the worker, too, which reports it."""
    with contextlib.suppress(Exception):
        with open(request) as file:
            source = json.load(file)["source"]
        importer_module = importlib.import_module("stepwell.frontends").importer_module
        count = len(sys.modules)
        for module in ("stepwell.assembly", importer_module(Path(source)), *_modules()):
            importlib.import_module(module)
        from stepwell import codegen, targets
        from stepwell.options import CompileOptions

        codegen.target_machine(targets.host(), CompileOptions().opt_level)
        if len(sys.modules) > count:
            gc.freeze()  # or a worker's first collection copies all pages of Python's objects


def _modules() -> Iterator[str]:
    for name in _PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            yield module.name


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as main:
        _Server(main).run()
