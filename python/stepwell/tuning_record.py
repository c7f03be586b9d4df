"""Tuning records: choices that were measured on a machine, which compilation then follows.

A record is a JSON file. Its entries are found by what is computed, not by names, so that an entry
serves equal layers of other models too:

    {"format": "stepwell.tuning", "version": 1, "compiler": "0.1.0",
     "target": "x86_64-v4", "threads": 2, "precision": "default",
     "entries": [{"kind": "algorithm", "key": "5f6c..", "computes": "convolution 3x3, m 196, ..",
                  "chosen": {"tile": 2}, "seconds": 0.00021, "default_seconds": 0.00025}]}
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from stepwell import artifact, cache
from stepwell.errors import UsageError
from stepwell.plain_data import from_plain

FORMAT, VERSION = "stepwell.tuning", 1

ALGORITHM, STRATEGY = "algorithm", "strategy"
"""Kinds of choices: how a convolution is computed, and how a kernel is tiled and blocked."""


@dataclass(frozen=True)
class TuningEntry:
    """One choice. `key` digests what is computed and `computes` says it to people; `chosen` are the
    fields of the strategy. `seconds` and `default_seconds`, of the kernels concerned in a run, were
    measured in turns."""

    kind: str
    key: str
    computes: str
    chosen: Mapping[str, object]
    seconds: float
    default_seconds: float


@dataclass(frozen=True)
class TuningRecord:
    """What was tuned for a target and a number of threads; `path` is the file that it was read
    from, for messages."""

    target: str
    threads: int
    precision: str = "default"
    entries: tuple[TuningEntry, ...] = ()
    compiler: str = ""
    path: str = ""

    @cached_property
    def by_key(self) -> Mapping[str, TuningEntry]:
        """The entries by their keys."""
        return {entry.key: entry for entry in self.entries}

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.path or "the tuning record"

    @property
    def digest(self) -> str:
        """Of what it chooses, and for which machine; times do not count."""
        chosen = sorted((entry.key, json.dumps(entry.chosen)) for entry in self.entries)
        return cache.digest(json.dumps([self.target, self.threads, self.precision, chosen]))

    def require(self, target: str, threads: int, precision: str) -> None:
        """Raise UsageError unless the record was made for these."""
        for what, own, wanted in (
            ("target", self.target, target),
            ("threads", self.threads, threads),
            ("precision", self.precision, precision),
        ):
            if own != wanted:
                raise UsageError(
                    f"{self.name}: error: the record was made for {what} {own}, and this is for "
                    f"{wanted}; tune for it, or compile without the record"
                )

    def with_entries(self, entries: Iterable[TuningEntry]) -> TuningRecord:
        """The record with more entries, which replace those of the same keys."""
        merged = {**self.by_key, **{entry.key: entry for entry in entries}}
        return dataclasses.replace(self, entries=tuple(merged.values()))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file, whole or not at all. Raises ArtifactError."""
        with artifact.replaced_file(path) as file:
            file.write(json.dumps(self.to_dict(), indent=1).encode() + b"\n")

    def to_dict(self) -> dict[str, object]:
        """What the file has."""
        data = {"format": FORMAT, "version": VERSION, **dataclasses.asdict(self)}
        del data["path"]
        return data

    @staticmethod
    def read(path: str | os.PathLike[str]) -> TuningRecord:
        """The record in a file. Raises UsageError where there is none, or it is damaged or of
        another version."""
        try:
            data = json.loads(Path(path).read_bytes())
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise UsageError(f"{path}: error: the tuning record cannot be read: {reason}") from None
        except ValueError:
            raise UsageError(f"{path}: error: this is no tuning record: it is no JSON") from None
        if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
            raise UsageError(f"{path}: error: this is no tuning record of stepwell tune")
        version = data.pop("version", None)
        if version != VERSION:
            raise UsageError(
                f"{path}: error: the tuning record is of version {version}, and this compiler "
                f"reads version {VERSION}; tune again"
            )
        return TuningRecord.from_dict({**data, "path": str(path)})

    @staticmethod
    def from_dict(data: Mapping[str, object]) -> TuningRecord:
        """What `dataclasses.asdict` made plain data of. Raises UsageError for other data."""
        try:
            return from_plain(TuningRecord, data)
        except ValueError as error:
            name = data.get("path") or "the tuning record"
            raise UsageError(f"{name}: error: the tuning record is damaged: {error}") from None
