"""Runs a compilation in a process of its own and turns whatever happens there into an error."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

from stepwell import cache
from stepwell.errors import CompilerCrash
from stepwell.worker import Progress, Request, error_from_dict
from stepwell.worker_process import WorkerProcess

_LOG_TAIL = 4000
_COPIED_MODEL_BYTES = 64 << 20
_MEMORY_SIGNS = ("MemoryError", "out of memory", "bad_alloc", "Cannot allocate memory")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a worker ended: its last message (None when it said nothing), the step it was in, and
    whether it was killed since it took too long."""

    returncode: int
    message: dict | None
    step: str
    log: str
    timed_out: bool = False

    @property
    def reason(self) -> str:
        """What went wrong, as `the compiler` does it."""
        if self.message is not None:
            return f"failed with {self.message['error']}: {self.message['message']}"
        if self.returncode < 0:
            return f"was ended by {signal.Signals(-self.returncode).name}"
        return f"ended with status {self.returncode}"


def run_worker(request: Request, folder: Path, progress: Progress) -> None:
    """Compile `request` in a worker; `folder` takes its files.

    Raises the worker's own error, or CompilerCrash, which names a folder that reproduces it.
    An interrupt kills the worker.
    """
    outcome = outcome_of(request, folder, progress)
    if outcome.message is not None and "done" in outcome.message:
        return
    if outcome.message is not None:
        error = error_from_dict(outcome.message)
        if error is not None:
            raise error
    out_of_memory = any(sign in outcome.log for sign in _MEMORY_SIGNS)
    crash = _reproducer(request, folder, outcome, dump=not out_of_memory)
    where = f"in step {outcome.step}" if outcome.step else "before its first step"
    reason = outcome.reason
    if out_of_memory:
        reason = (
            f"ran out of memory (its limit is {request.memory_limit_mb} MB; "
            f"option memory_limit_mb raises it): {reason}"
        )
    raise CompilerCrash(
        f"the compiler {reason}, {where}; {crash} reproduces it (stepwell-reduce makes a small "
        "program of that)"
    )


def outcome_of(
    request: Request, folder: Path, progress: Progress, timeout: float | None = None
) -> Outcome:
    """Run a worker, at most `timeout` seconds, and say how it ended. What `progress` raises, and
    an interrupt, kill it."""
    request.write(folder / "request.json")
    reading, writing = os.pipe()
    log = folder / "log.txt"
    with open(reading) as status:
        try:
            with log.open("wb") as log_file:
                worker = WorkerProcess(folder / "request.json", writing, log_file)
        finally:
            os.close(writing)
        group = threading.Thread(target=worker.finish, daemon=True)
        group.start()
        message, step = None, ""
        late = threading.Event()
        timer = threading.Timer(timeout or 0, lambda: (late.set(), worker.kill()))
        try:
            if timeout is not None:
                timer.start()
            for line in status:
                message = json.loads(line)
                if "step" in message:
                    step = message["step"] if message["seconds"] is None else ""
                    progress(message["step"], message["seconds"])
                    message = None
        except BaseException:
            worker.kill()
            raise
        finally:
            group.join()
            timer.cancel()
    text = log.read_text(errors="replace")
    return Outcome(worker.returncode, message, step, text, late.is_set() and message is None)


def _reproducer(request: Request, folder: Path, outcome: Outcome, *, dump: bool) -> Path:
    """A folder with all that is needed to see the crash again, the IR of each step included."""
    name = time.strftime("%Y%m%d-%H%M%S-") + cache.digest(request.source, str(os.getpid()))[:8]
    crash = cache.folder("crashes") / name
    crash.mkdir(exist_ok=True)
    source = Path(request.source)
    temporary = source.is_relative_to(folder)
    if source.exists() and (temporary or source.stat().st_size <= _COPIED_MODEL_BYTES):
        copy = crash / source.name
        shutil.copyfile(source, copy)
        source = copy
    again = dataclasses.replace(
        request,
        source=str(source),
        artifact=str(crash / "model.stepwell"),
        options={**request.options, "dump_phases_to": str(crash / "phases")},
    )
    again.write(crash / "request.json")
    (crash / "log.txt").write_text(outcome.log)
    (crash / "README.md").write_text(
        f"# A crash of the compiler\n\nIt {outcome.reason}.\n\n"
        f"The last step that had begun: {outcome.step or 'none'}. `phases/` has the IR after each "
        "step before it, `log.txt` what the process wrote.\n\nTo see it again:\n\n"
        f"    {sys.executable} -m stepwell.worker {crash / 'request.json'}\n\n"
        f"The end of the log:\n\n```\n{outcome.log[-_LOG_TAIL:]}\n```\n"
    )
    if dump:
        outcome_of(again, crash, lambda step, seconds: None)
    return crash
