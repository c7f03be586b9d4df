"""`stepwell.inspection.reduce`: a small program that fails as a model does.

The program is StableHLO. Strategies (reductions.py) are applied to all of their targets, to halves,
quarters and so on to single ones, as delta debugging does (Zeller and Hildebrandt, "Simplifying and
Isolating Failure-Inducing Input", 2002), all of them again until none makes it smaller.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from stepwell import cache, targets
from stepwell.compiler import checked_shapes
from stepwell.errors import ModelError, UsageError
from stepwell.frontends import is_mlir
from stepwell.inspection.failures import KINDS, Failure, Kind, Trial
from stepwell.inspection.program import Program
from stepwell.inspection.reduction_worker import IMPORTS
from stepwell.inspection.reductions import STRATEGIES, Strategy, applied, count
from stepwell.options import CompileOptions, make_options
from stepwell.runtime.threads import default_threads
from stepwell.sources import Shapes, as_source
from stepwell.targets.nvidia import NvidiaTarget
from stepwell.worker import Request

RTOL = 1e-2
"""Default relative tolerance of results."""

TIMEOUT = 300.0
"""Seconds that compiling, or a test command, may take by default."""

Fails = Callable[[Path], bool]
"""Whether the program in a file fails as it should."""


@dataclass(frozen=True)
class Step:
    """What one strategy did when its turn was: `operations` that are left, `candidates` tried."""

    strategy: str
    operations: int
    candidates: int


@dataclass(frozen=True)
class Reduction:
    """A reduced program as StableHLO text, the failure that it has (a sentence about the test
    command where there is one), and how many operations it had and has, constants apart."""

    program: str
    kind: str
    message: str
    before: int
    after: int
    candidates: int
    steps: tuple[Step, ...]

    def to_dict(self) -> dict[str, object]:
        """As `--json` prints it, without the program."""
        return {name: value for name, value in asdict(self).items() if name != "program"}


def reduce(
    model: object,
    target: str = "cpu",
    threads: int | None = None,
    shapes: Shapes | None = None,
    options: CompileOptions | Mapping[str, object] | None = None,
    *,
    failure: Kind | None = None,
    test: str | None = None,
    timeout: float = TIMEOUT,
    rtol: float = RTOL,
    on_smaller: Callable[[str], None] = lambda text: None,
    on_step: Callable[[str, int, int], None] = lambda strategy, operations, candidates: None,
) -> Reduction:
    """Make of `model` a small StableHLO program that fails in the same way.

    `model` and the arguments up to `options` are as for `stepwell.compile`; it may be the folder of
    a CompilerCrash, too, which brings these arguments with it. `failure` says which one is looked
    for: "crash", "error", "mismatch" (results that are not those of -O0 within `rtol`) or "timeout"
    (after `timeout` seconds); by default the one that there is. `test` is a command: the program
    fails where that, called with a file's path as its last argument, ends with exit status 0.

    `on_smaller` is given each program that fails and is smaller than those before, so that one is
    at hand after an interrupt; `on_step` the strategy at work, the operations left and the
    candidates so far. Raises ModelError for a model that does not fail, UsageError for arguments
    that make no sense.
    """
    if failure is not None and failure not in KINDS:
        raise UsageError(f"there is no failure {failure}; there are: {', '.join(KINDS)}")
    if failure is not None and test is not None:
        raise UsageError("a test command says what a failure is; give no other")
    if timeout <= 0 or rtol < 0:
        raise UsageError("timeout must be more than 0, and rtol not negative")
    with cache.work_folder() as folder:
        case = _Case.make(model, folder, target, threads, shapes, make_options(options))
        if failure == "mismatch" and isinstance(targets.get(case.target), NvidiaTarget):
            raise UsageError("results of code for GPUs are not compared; give a test command")
        trial = Trial(folder, case.target, case.threads, case.options, timeout, rtol)
        if test is None:
            start = _failing(case, trial, failure)
        else:
            start = _interesting(case, trial, test, timeout)
        search = _Search(folder, start, on_smaller, on_step)
        before = start.program.size[0]
        search.run()
        return Reduction(
            search.text,
            start.kind,
            start.message,
            before,
            search.program.size[0],
            search.candidates,
            tuple(search.steps),
        )


@dataclass(frozen=True)
class _Case:
    """A model in a file, and what it is compiled for."""

    source: Path
    target: str
    threads: int
    shapes: dict[str, list[int]] | None
    options: CompileOptions

    @staticmethod
    def make(
        model: object,
        folder: Path,
        target: str,
        threads: int | None,
        shapes: Shapes | None,
        options: CompileOptions,
    ) -> _Case:
        request = _reproducer(model)
        if request is not None:
            if request.specialization:
                raise ModelError(
                    f"{model} is of a program for any size, which is not reduced; give its model "
                    "with --shape"
                )
            plain = {**request.options, "dump_phases_to": None}
            made = CompileOptions(**plain)  # pyright: ignore[reportArgumentType]
            return _Case(
                Path(request.source), request.target, request.threads, request.shapes, made
            )
        sizes = checked_shapes(shapes)
        source = as_source(model, folder, sizes)
        return _Case(source.path, target, threads or default_threads(), sizes, options)


def _reproducer(model: object) -> Request | None:
    """The request in the folder that a CompilerCrash names."""
    if not isinstance(model, (str, os.PathLike)) or not os.path.isdir(model):
        return None
    file = Path(model) / "request.json"
    if not file.exists():
        raise ModelError(f"{model} is a folder, but not one of a crash: it has no request.json")
    try:
        return Request.read(file)
    except (ValueError, TypeError) as error:
        raise ModelError(f"{file} is no request of a compilation: {error}") from None


@dataclass(frozen=True)
class _Start:
    """The program that is reduced, and what has to stay of it."""

    program: Program
    fails: Fails
    kind: str
    message: str


def _failing(case: _Case, trial: Trial, wanted: Kind | None) -> _Start:
    """Find out how the model fails, and a program that does, too."""
    on_cpu = not isinstance(targets.get(case.target), NvidiaTarget)
    run = wanted in (None, "mismatch") and on_cpu
    found = trial.failure(case.source, case.shapes, run=run)
    if found is None or wanted not in (None, found.kind):
        other = "" if found is None else f" (but there is another failure: {found.message})"
        raise ModelError(f"{case.source} does not fail{_with(wanted)}{other}; nothing to reduce")
    run = found.step == "run"
    for file, program in _programs(case, trial):
        own = trial.failure(file, run=run, passed=found.passed)
        if own is not None and (own.kind, own.step) == (found.kind, found.step):
            passed = own.passed

            def fails(candidate: Path, own: Failure = own, passed: int = passed) -> bool:
                again = trial.failure(candidate, run=run, passed=passed)
                return again is not None and own.is_like(again)

            return _Start(program, fails, found.kind, found.message)
    raise ModelError(
        f"{case.source} fails, but as StableHLO it does not, so that there is nothing to reduce: "
        f"{found.message}"
    )


def _with(wanted: Kind | None) -> str:
    return "" if wanted is None else f" with {'an' if wanted == 'error' else 'a'} {wanted}"


def _interesting(case: _Case, trial: Trial, test: str, timeout: float) -> _Start:
    """A program that the test command takes for interesting."""
    command = shlex.split(test)
    if not command:
        raise UsageError("the test command is empty")

    def fails(candidate: Path) -> bool:
        return _succeeds([*command, str(candidate)], timeout)

    message = f"the command {test} succeeds"
    for file, program in _programs(case, trial):
        if fails(file):
            return _Start(program, fails, "test", message)
    raise ModelError(
        f"the test command does not succeed with {case.source} as StableHLO; nothing to reduce"
    )


def _succeeds(command: list[str], timeout: float) -> bool:
    """Whether a command ends with status 0 in time; what it leaves behind is killed."""
    quiet = subprocess.DEVNULL
    try:
        process = subprocess.Popen(
            command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
        )
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"the test command {command[0]} cannot be run: {reason}") from None
    try:
        return process.wait(timeout) == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _programs(case: _Case, trial: Trial) -> Iterator[tuple[Path, Program]]:
    """The model as StableHLO, the easiest to reduce first: as frontends leave it, without the data
    of its constants and with it, and as it is written where it is StableHLO."""
    with case.source.open("rb") as file:
        is_text = not case.shapes and is_mlir(file.read(4096))
    try:
        for entry in IMPORTS:
            text = trial.imported(case.source, case.shapes, entry)
            yield _written(trial, text, case.source)
    except ModelError:
        if not is_text:
            raise
    if is_text:
        yield _written(trial, case.source.read_bytes(), case.source)


def _written(trial: Trial, data: bytes, source: Path) -> tuple[Path, Program]:
    program = Program.parse(data, str(source))
    file = trial.folder / "program.mlir"
    file.write_text(program.text())
    return file, program


@dataclass
class _Search:
    """The reduction: `program`, `text` is the smallest so far that fails."""

    folder: Path
    start: _Start
    on_smaller: Callable[[str], None]
    on_step: Callable[[str, int, int], None]
    candidates: int = 0
    steps: list[Step] = field(default_factory=list)
    tried: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._keep(self.start.program, self.start.program.text())

    def _keep(self, program: Program, text: str) -> None:
        self.program, self.text = program, text
        self.on_smaller(text)

    def run(self) -> None:
        """Reduce until nothing makes the program smaller."""
        before = None
        while before != self.text:
            before = self.text
            for name, strategy in STRATEGIES.items():
                tried = self.candidates
                self._reduce(name, strategy)
                if self.candidates > tried:
                    self.steps.append(Step(name, self.program.size[0], self.candidates - tried))

    def _reduce(self, name: str, strategy: Strategy) -> None:
        """Apply one strategy to all its targets, to halves of them, and so on to single ones."""
        targets = size = count(self.program, strategy)
        while size:
            position = 0
            while position < targets:
                self.on_step(name, self.program.size[0], self.candidates)
                if self._try(strategy, range(position, position + size)):
                    targets = count(self.program, strategy)
                else:
                    position += size
            size = min(size, targets) // 2 if targets else 0

    def _try(self, strategy: Strategy, chunk: range) -> bool:
        smaller = applied(self.program, strategy, chunk)
        if smaller is None:
            return False
        text = smaller.text()
        digest = cache.digest(text)
        if digest in self.tried:
            return False
        self.tried.add(digest)
        self.candidates += 1
        file = self.folder / "candidate.mlir"
        file.write_text(text)
        if not self.start.fails(file):
            return False
        self._keep(smaller, text)
        return True
