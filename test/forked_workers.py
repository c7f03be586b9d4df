"""Compiling processes that are forked from one in which the compiler is imported.

To import the compiler takes ten times as long as to compile one operation, and the suite compiles
some thousand. A worker stays a process of its own, with its memory limit, its log and its end.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import sys
from multiprocessing.context import ForkServerContext
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import BinaryIO

import stepwell
import stepwell.kernels
import stepwell.passes
from stepwell import supervisor, worker

_PACKAGES = (stepwell.passes, stepwell.kernels)
_MODULES = (
    "__main__",
    "stepwell.assembly",
    "stepwell.frontends.onnx.importer",
    "stepwell.frontends.stablehlo",
    "stepwell.frontends.torch.importer",
)


class ForkedWorker:
    """What `supervisor.WorkerProcess` is, for requests to the compiler itself."""

    def __init__(self, request: Path, status: int, log: BinaryIO) -> None:
        self.returncode = 0
        self._process = _server().Process(
            target=_work, args=(request, DupFd(status), log.name, dict(os.environ))
        )
        self._process.start()

    def kill(self) -> None:
        self._process.kill()

    def finish(self) -> None:
        self._process.join()
        assert self._process.pid is not None
        assert self._process.exitcode is not None
        supervisor.end_group(self._process.pid)
        self.returncode = self._process.exitcode


@functools.cache
def _server() -> ForkServerContext:
    """The context of the process that forks; it begins with the first worker."""
    context = multiprocessing.get_context("forkserver")
    roots = [Path(str(package.__file__)).parent for package in _PACKAGES]
    modules = [
        ".".join((package.__name__, *path.relative_to(root).with_suffix("").parts))
        for package, root in zip(_PACKAGES, roots, strict=True)
        for path in sorted(root.rglob("*.py"))
        if path.name != "__init__.py"
    ]
    context.set_forkserver_preload([*_MODULES, *modules])
    return context


def _work(request: Path, status: DupFd, log: str, environment: dict[str, str]) -> None:
    """The worker's side."""
    os.setsid()
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(descriptor, sys.stdout.fileno())
    os.dup2(descriptor, sys.stderr.fileno())
    os.environ.clear()
    os.environ.update(environment)
    sys.exit(worker.main([str(request), str(status.detach())]))
