"""How compiling and running a program fails, and whether another one fails in the same way."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from stepwell import errors
from stepwell.compiler import request_for
from stepwell.inspection import reduction_worker
from stepwell.inspection.compare import Difference, difference_of
from stepwell.inspection.reduction_worker import REFERENCE
from stepwell.options import CompileOptions
from stepwell.sources import Source
from stepwell.supervisor import Outcome, outcome_of
from stepwell.worker import error_from_dict

Kind = Literal["crash", "error", "mismatch", "timeout"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_CONDITION = 10.0
"""A difference says something about the compiler where it is so many times that which a change of
the inputs in their last digits makes."""

_QUOTED = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|`[^`\n]*`")
_BRACKETS = re.compile(r"<[^<>]*>|\[[^\[\]]*\]|\([^()]*\)")
_NAMES = re.compile(r"[%@#]?[\w./-]*\d[\w./-]*|[%@][\w./-]+")
_PLACE = re.compile(r"^\S+: (?=\S)")
_SIGNS = re.compile(r"LLVM ERROR.*|.*Assertion .*failed.*")
_FRAME = re.compile(r'File "[^"]*?([^/"]+)", line \d+,? in (\S+)')
_FAULT = "most recent call first"


@dataclass(frozen=True)
class Failure:
    """A way to fail: in which step, what a person is told, and the patterns of it (any of which
    another failure has to have, to be the same): sentences without names and numbers. `passed` is
    how many steps had ended."""

    kind: Kind
    step: str
    message: str
    patterns: frozenset[str] = frozenset()
    passed: int = 0

    def is_like(self, other: Failure) -> bool:
        """Whether the two are the same but for names and numbers."""
        same_step = self.step == other.step or self.kind == "error"
        same_words = self.patterns == other.patterns or bool(self.patterns & other.patterns)
        return self.kind == other.kind and same_step and same_words


class _PassedError(Exception):
    """The step in which a failure is looked for has ended."""


@dataclass(frozen=True)
class Trial:
    """Compiles programs in worker processes, each for at most `timeout` seconds."""

    folder: Path
    target: str
    threads: int
    options: CompileOptions
    timeout: float
    rtol: float

    def failure(
        self,
        source: Path,
        shapes: dict[str, list[int]] | None = None,
        *,
        run: bool,
        passed: int | None = None,
    ) -> Failure | None:
        """How the program in a file fails, with `run` its results too; None when it does not. Once
        more than `passed` steps have ended it is not waited for.

        Raises OpenModelError for a model of open shapes.
        """
        request = request_for(
            Source(source, ""), self.folder, self.target, self.threads, self.options, shapes
        )
        if run:
            request = dataclasses.replace(request, entry=_entry(reduction_worker.run_both))
        ended = 0

        def progress(step: str, seconds: float | None) -> None:
            nonlocal ended
            ended += seconds is not None
            if passed is not None and ended > passed:
                raise _PassedError

        try:
            outcome = outcome_of(request, self.folder, progress, self.timeout)
        except _PassedError:
            return None
        if outcome.step == REFERENCE:
            return None
        found = _of_outcome(outcome, self.timeout)
        if found is None and run:
            found = self._mismatch(Path(request.artifact))
        return None if found is None else dataclasses.replace(found, passed=ended)

    def imported(
        self, source: Path, shapes: dict[str, list[int]] | None, entry: Callable[..., None]
    ) -> bytes:
        """What `entry`, one of `reduction_worker.IMPORTS`, makes of a model. Raises ModelError."""
        request = dataclasses.replace(
            request_for(
                Source(source, ""), self.folder, self.target, self.threads, self.options, shapes
            ),
            artifact=str(self.folder / "imported.mlir"),
            entry=_entry(entry),
        )
        outcome = outcome_of(request, self.folder, lambda step, seconds: None, self.timeout)
        failed = _of_outcome(outcome, self.timeout)
        if failed is not None:
            raise errors.ModelError(f"{source} does not become StableHLO: {failed.message}")
        return Path(request.artifact).read_bytes()

    def _mismatch(self, results: Path) -> Failure | None:
        if not results.stat().st_size:  # not run: this is another machine
            return None
        with np.load(results) as arrays:
            count = sum(name.startswith("found") for name in arrays)
            for number in range(count):
                found, expected, moved = (
                    arrays[f"{kind}{number}"] for kind in ("found", "expected", "moved")
                )
                off = difference_of(found, expected, self.rtol)
                noise = difference_of(moved, expected, self.rtol)
                if off.out and off.relative > _CONDITION * noise.relative:
                    return Failure("mismatch", "run", _sentence(number, off))
        return None


def _entry(function: Callable[..., None]) -> str:
    return f"{function.__module__}:{function.__name__}"


def _sentence(number: int, off: Difference) -> str:
    return (
        f"{off.out} of {off.size} numbers of output {number} are not those of -O0, the largest "
        f"difference being {off.relative:.2g} of the largest number"
    )


def _of_outcome(outcome: Outcome, timeout: float) -> Failure | None:
    """The failure that the end of a worker is; None for one that did its work."""
    message = outcome.message
    if outcome.timed_out:
        return Failure("timeout", outcome.step, f"it takes longer than {timeout:g} seconds")
    if message is not None and "done" in message:
        return None
    error = None if message is None else error_from_dict(message)
    if isinstance(error, errors.OpenModelError):
        raise error
    if isinstance(error, errors.UnsupportedError):
        reasons = (pattern(f"{f.operator}: {f.reason}") for f in error.findings)
        return Failure("error", outcome.step, str(error), frozenset(reasons))
    if error is not None:
        words = frozenset([f"{type(error).__name__}: {pattern(str(error))}"])
        return Failure("error", outcome.step, str(error), words)
    words = f"{pattern(outcome.reason)} {_signs(outcome.log)}"
    where = f", in step {outcome.step}" if outcome.step else ""
    return Failure(
        "crash", outcome.step, f"the compiler {outcome.reason}{where}", frozenset([words])
    )


def pattern(message: str) -> str:
    """The sentence of a message without names, numbers, types and places. Of messages of MLIR, the
    line that is the error."""
    lines = [line for line in message.splitlines() if line.strip()] or [""]
    line = next((line for line in lines if "error:" in line), lines[0])
    line = line.rpartition("error: ")[2]
    line = _QUOTED.sub("'", _PLACE.sub("", line))
    before = ""
    while before != line:
        before, line = line, _BRACKETS.sub("", line)
    return " ".join(_NAMES.sub("#", line).split())


def _signs(log: str) -> str:
    """What the log of a crash says of its place: an assertion, and the function it was in."""
    signs = [pattern(sign) for sign in _SIGNS.findall(log)[:1]]
    _, fault, last = log.rpartition(_FAULT)
    frames = _FRAME.findall(last if fault else log)
    return " ".join([*signs, *(frames[0 if fault else -1] if frames else ())])
