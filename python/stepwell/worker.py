"""The process that compiles: `python -m stepwell.worker REQUEST_FILE [STATUS_DESCRIPTOR]`.

MLIR and LLVM can abort, run out of memory and hold the interpreter lock, so they work here, under a
memory limit. Each line on the status descriptor is a JSON object: `{"step": name, "seconds": s}`
(seconds null when the step begins), `{"error": class, "message": text}` or `{"done": true}`.
"""

from __future__ import annotations

import ctypes
import dataclasses
import faulthandler
import importlib
import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stepwell import errors
from stepwell.options import CompileOptions
from stepwell.specialization import OpenSpec, Specialization

ENTRY = "stepwell.pipeline:compile_to_artifact"

Progress = Callable[[str, float | None], None]
"""Called with a step's name and None when it begins, and with its seconds when it ends."""


@dataclass(frozen=True)
class Request:
    """One compilation. `entry` names the function that does it, `module:function`;
    `specialization` is one as JSON, or empty."""

    source: str
    artifact: str
    target: str
    threads: int
    shapes: dict[str, list[int]] | None
    options: dict[str, object]
    memory_limit_mb: int
    entry: str = ENTRY
    specialization: str = ""

    def write(self, path: Path) -> None:
        """Write as JSON."""
        path.write_text(json.dumps(dataclasses.asdict(self), indent=2) + "\n")

    @staticmethod
    def read(path: Path) -> Request:
        """Read what `write` wrote."""
        return Request(**json.loads(path.read_text()))


def compile_request(request: Request, progress: Progress) -> None:
    """Do what `request` says, in this process."""
    module, _, function = request.entry.partition(":")
    shapes = request.shapes and {name: tuple(shape) for name, shape in request.shapes.items()}
    more: dict[str, object] = {}
    if request.specialization:
        more["specialization"] = Specialization.from_json(request.specialization)
    getattr(importlib.import_module(module), function)(
        Path(request.source),
        Path(request.artifact),
        target=request.target,
        threads=request.threads,
        shapes=shapes,
        options=CompileOptions(**request.options),  # pyright: ignore[reportArgumentType]
        progress=progress,
        **more,
    )


def error_to_dict(error: BaseException) -> dict[str, object]:
    """What the parent needs to raise `error` again."""
    data: dict[str, object] = {"error": type(error).__name__, "message": str(error)}
    if isinstance(error, errors.UnsupportedError):
        data["findings"] = [dataclasses.asdict(finding) for finding in error.findings]
    if isinstance(error, errors.OpenModelError):
        for key in ("inputs", "outputs", "defaults"):
            data[key] = [dataclasses.astuple(spec) for spec in getattr(error, key)]
        data["values"], data["sizes"] = error.values, error.sizes
        data["limits"], data["dropped"] = error.limits, error.dropped
        data["loops"] = {name: dict(read) for name, read in error.loops.items()}
    return data


def error_from_dict(data: dict) -> errors.Error | None:
    """The error again; None when it is not one of Stepwell's own."""
    kind = getattr(errors, data["error"], None)
    if kind is errors.UnsupportedError:
        return kind([errors.Unsupported(**finding) for finding in data["findings"]])
    if kind is errors.OpenModelError:
        inputs, outputs, defaults = (
            tuple(map(OpenSpec.from_list, data[key])) for key in ("inputs", "outputs", "defaults")
        )
        values, sizes, dropped = (tuple(data[key]) for key in ("values", "sizes", "dropped"))
        signature = (inputs, outputs, values, sizes, defaults, data["limits"], dropped)
        return kind(data["message"], *signature, data["loops"])
    if isinstance(kind, type) and issubclass(kind, errors.Error):
        return kind(data["message"])
    return None


def main(arguments: list[str]) -> int:
    """Compile; exit status 0, or 1 after an error was reported."""
    faulthandler.enable()
    request = Request.read(Path(arguments[0]))
    status = open(int(arguments[1]), "w") if len(arguments) > 1 else sys.stdout  # noqa: SIM115

    def send(message: dict[str, object]) -> None:
        print(json.dumps(message), file=status, flush=True)

    if len(arguments) > 1:
        _die_with_parent()
    _limit_memory(request.memory_limit_mb << 20)
    try:
        compile_request(
            request, lambda step, seconds=None: send({"step": step, "seconds": seconds})
        )
    except errors.Error as error:
        send(error_to_dict(error))
        return 1
    except BaseException as error:
        traceback.print_exc()
        send(error_to_dict(error))
        return 1
    send({"done": True})
    return 0


def _limit_memory(limit: int) -> None:
    """No more than `limit` bytes of address space; a lower limit of the process stays."""
    _, allowed = resource.getrlimit(resource.RLIMIT_AS)
    limit = limit if allowed == resource.RLIM_INFINITY else min(limit, allowed)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _die_with_parent() -> None:
    """Linux only: a worker whose parent was killed has nobody to work for."""
    if sys.platform == "linux":
        parent_death_signal = 1  # PR_SET_PDEATHSIG
        ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGKILL)
        if os.getppid() == 1:
            sys.exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
