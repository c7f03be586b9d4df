"""`stepwell.tune`: measures other choices than the cost models' on this machine, and records those
that are faster."""

from __future__ import annotations

import dataclasses
import logging
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from stepwell import targets
from stepwell.compiler import compile
from stepwell.errors import CompilerCrash, LoweringError, UsageError
from stepwell.frontends import Shapes
from stepwell.inspection.explain import explain
from stepwell.inspection.kernel_report import KernelReport
from stepwell.kernels.strategy import Decision
from stepwell.options import CompileOptions, make_options
from stepwell.runtime.executable import Executable
from stepwell.runtime.inputs import input_array, named_inputs
from stepwell.runtime.threads import default_threads
from stepwell.targets.nvidia import NvidiaTarget
from stepwell.tuning_record import ALGORITHM, STRATEGY, TuningEntry, TuningRecord

_log = logging.getLogger("stepwell")

_Measured = TypeVar("_Measured")

_WARM_UP, _TURNS = 2, 15
"""Calls before, and pairs of calls that are timed, of two executables in turns."""

_LEAST_GAIN = 1.03
"""How many times as fast the median has to be; three quarters of the pairs have to be faster."""

_LEAST_SHARE = 0.005
"""Of a run: kernels that take less are left as they are."""

_TOLERANCE = 1e-4
"""How far results may be from those of the default, relative to the largest number."""


@dataclass(frozen=True)
class TuningResult:
    """A record, and what it gains: `ratio` is the time of a run by default over that with the
    record, the median of runs in turns, `quartiles` are around it. `tried` counts the choices that
    were measured, `found` those of them that are in the record."""

    record: TuningRecord
    ratio: float
    quartiles: tuple[float, float]
    tried: int
    found: int

    def save(self, path: str) -> None:
        """Write the record, whole or not at all. Raises ArtifactError."""
        self.record.save(path)

    def to_dict(self) -> dict[str, object]:
        """As `--json` prints it."""
        return dataclasses.asdict(self)


_Profile = list[tuple[tuple[str, ...], float]]
"""The source nodes of each kernel of a run, and the seconds in it."""


@dataclass(frozen=True, eq=False)
class _Subject:
    """A choice to look at, and the source nodes of the kernels that it is made for."""

    decision: Decision
    computes: str
    sources: tuple[tuple[str, ...], ...]

    @property
    def key(self) -> str:
        return self.decision.key

    def seconds(self, profile: _Profile) -> float:
        """In its kernels, of a run. Another algorithm also changes the kernels that prepare its
        image, which have its node as a source, too."""
        if self.decision.kind == STRATEGY:
            return sum(spent for sources, spent in profile if sources in self.sources)
        nodes = {node for sources in self.sources for node in sources}
        return sum(spent for sources, spent in profile if nodes & set(sources))


def tune(
    model: object,
    feed: Mapping[str, object],
    target: str = "cpu",
    threads: int | None = None,
    shapes: Shapes | None = None,
    options: CompileOptions | Mapping[str, object] | None = None,
    *,
    budget: float = 300.0,
    on_round: Callable[[str, int], None] | None = None,
) -> TuningResult:
    """Find choices for products, attention and convolutions of `model` that are faster on this
    machine than those of the cost models, running it on the arrays of `feed`, by input name.

    First the algorithm of each kind of convolution, one at a time, then the strategies of all
    kernels at the same time; a model is compiled for each round and run in turns with the default,
    kernel by kernel. The winners are kept together only where the whole run is faster. No round
    begins after `budget` seconds, or after a KeyboardInterrupt. A record in `options` is where to
    begin. `on_round` is told what is tried, and how many winners there are. Other arguments are as
    for `stepwell.compile`.

    Raises UsageError for targets that this machine does not run and models that are not compiled
    whole and ahead, LoweringError where results differ from those of the default, and what
    compiling and calling raise.
    """
    require_cpu(target)
    made = make_options(options)
    count = threads or default_threads()
    start = made.record or TuningRecord(targets.get(target).name, count, made.precision)
    end = time.perf_counter() + budget
    tuner = _Tuner(model, feed, target, count, shapes, made, start, end, on_round)
    try:
        if made.precision != "bf16":  # Winograd's algorithm does not round, so that results differ
            tuner.try_algorithms()
        tuner.try_strategies()
    except KeyboardInterrupt:
        _log.warning("interrupted: what is faster so far is looked at as a whole")
    return tuner.result()


def require_cpu(target: str) -> None:
    """Raise UsageError for targets that are not tuned for."""
    machine = targets.get(target)
    if isinstance(machine, NvidiaTarget):
        raise UsageError(f"tuning is for CPUs, and {machine.name} is none")


@dataclass
class _Tuner:
    """A search for faster choices, which ends at `end` of the performance counter."""

    model: object
    feed: Mapping[str, object]
    target: str
    threads: int
    shapes: Shapes | None
    options: CompileOptions
    start: TuningRecord
    end: float
    on_round: Callable[[str, int], None] | None
    won: dict[str, TuningEntry] = field(default_factory=dict)
    tried: int = 0

    def __post_init__(self) -> None:
        self._default = self._base = self._compiled(self.start)
        values = named_inputs(self._default.inputs, self.feed)
        self._arrays = [
            input_array(spec.name, value, spec.dtype)
            for spec, value in zip(self._default.inputs, values, strict=True)
        ]

    def try_algorithms(self) -> None:
        """One convolution after the other: another algorithm needs another padding, which the
        kernel before it may write."""
        for subject in self._subjects(ALGORITHM):
            for variant in subject.decision.variants:
                self._round(f"{subject.computes}: algorithm", {subject: variant})

    def try_strategies(self) -> None:
        """Of all kernels at the same time, since each has its own time; beside what the algorithms
        that won have by default."""
        self._base = self._compiled(self._record())
        subjects = self._subjects(STRATEGY)
        rounds = max((len(s.decision.variants) for s in subjects), default=0)
        for number in range(rounds):
            chosen = {
                subject: subject.decision.variants[number]
                for subject in subjects
                if number < len(subject.decision.variants)
            }
            self._round(f"strategies, {number + 1} of {rounds}", chosen)

    def result(self) -> TuningResult:
        """The winners with which three quarters of the runs are faster, fewer and fewer of them if
        need be, those that gain most."""
        won = sorted(self.won.values(), key=lambda e: e.default_seconds - e.seconds)
        while won:
            record = self.start.with_entries(won)
            tuned = self._compiled(record)
            self._compare_results(tuned)
            low, ratio, high = statistics.quantiles(self._ratios_of_runs(tuned), n=4)
            if low > 1:
                return TuningResult(record, ratio, (low, high), self.tried, len(won))
            won = won[len(won) // 2 + len(won) % 2 :]
        return TuningResult(self.start, 1.0, (1.0, 1.0), self.tried, 0)

    def _record(self) -> TuningRecord:
        """What is known so far."""
        return self.start.with_entries(self.won.values())

    def _subjects(self, kind: str) -> list[_Subject]:
        """The choices of that kind whose kernels take time, the longest first."""
        options = dataclasses.replace(self.options, tuning=self._record())
        explained = explain(self.model, self.target, self.threads, self.shapes, options)
        found: dict[str, list[tuple[KernelReport, Decision]]] = {}
        for kernel in explained.kernels:
            for decision in kernel.decisions:
                if decision.kind == kind and decision.variants:
                    found.setdefault(decision.key, []).append((kernel, decision))
        subjects = []
        for entries in found.values():
            kernel, decision = entries[0]
            sources = tuple(kernel.sources for kernel, _ in entries)
            subjects.append(_Subject(decision, kernel.computes, sources))
        profile = _profile(self._base, self._arrays)
        whole = sum(spent for _, spent in profile)
        subjects = [s for s in subjects if s.seconds(profile) > _LEAST_SHARE * whole]
        return sorted(subjects, key=lambda s: -s.seconds(profile))

    def _round(self, what: str, chosen: Mapping[_Subject, Mapping[str, object]]) -> None:
        """Measure variants of some choices in turns with what is compiled now, and keep those that
        are faster, and faster than those that won before."""
        if time.perf_counter() > self.end:
            return
        if self.on_round is not None:
            self.on_round(what, len(self.won))
        tried = [
            TuningEntry(s.decision.kind, s.key, s.computes, fields, 0.0, 0.0)
            for s, fields in chosen.items()
        ]
        try:
            other = self._compiled(self._record().with_entries(tried))
        except CompilerCrash as crash:
            _log.warning("%s is left out: %s", what, crash)
            return
        self.tried += len(tried)
        pairs = list(self._in_turns(self._base, other, lambda exe: _profile(exe, self._arrays)))
        for subject, entry in zip(chosen, tried, strict=True):
            times = [(subject.seconds(a), subject.seconds(b)) for a, b in pairs]
            quarter, ratio, _ = statistics.quantiles([a / b for a, b in times], n=4)
            before = self.won.get(subject.key)
            best = before.default_seconds / before.seconds if before is not None else _LEAST_GAIN
            if ratio > best and quarter > 1:
                default = statistics.median(a for a, _ in times)
                self.won[subject.key] = dataclasses.replace(
                    entry, seconds=default / ratio, default_seconds=default
                )

    def _compiled(self, record: TuningRecord) -> Executable:
        """The model with the choices of a record. Most records are tried once: the cache keeps the
        kernels, not the artifact."""
        options = dataclasses.replace(self.options, tuning=record)
        exe = compile(self.model, self.target, self.threads, self.shapes, options)
        if not isinstance(exe, Executable):
            raise UsageError(
                "what is tuned is compiled whole, ahead and for known shapes, and this model is "
                f"not: {exe}"
            )
        if record != self.start:
            exe.artifact.path.unlink(missing_ok=True)
        return exe

    def _in_turns(
        self, one: Executable, other: Executable, measure: Callable[[Executable], _Measured]
    ) -> Iterator[tuple[_Measured, _Measured]]:
        for executable in (one, other):
            for _ in range(_WARM_UP):
                executable(*self._arrays)
        for _ in range(_TURNS):
            yield measure(one), measure(other)

    def _ratios_of_runs(self, tuned: Executable) -> list[float]:
        def run(exe: Executable) -> float:
            begin = time.perf_counter()
            exe(*self._arrays)
            return time.perf_counter() - begin

        return [default / own for default, own in self._in_turns(self._default, tuned, run)]

    def _compare_results(self, tuned: Executable) -> None:
        outputs = zip(self._default(*self._arrays), tuned(*self._arrays), strict=True)
        for spec, (expected, found) in zip(self._default.outputs, outputs, strict=True):
            wanted = np.asarray(expected, np.float64)
            largest = np.max(np.abs(wanted), initial=0.0, where=np.isfinite(wanted))
            if not np.allclose(
                np.asarray(found, np.float64), wanted, 0, _TOLERANCE * largest, equal_nan=True
            ):
                raise LoweringError(
                    f"{spec.name}: error: the results of tuned kernels differ by more than "
                    f"{_TOLERANCE} of the largest number from those of the default"
                )


def _profile(exe: Executable, arrays: Sequence[np.ndarray]) -> _Profile:
    return [(kernel.sources, spent / 1e9) for kernel, spent in exe.profile(*arrays)]
