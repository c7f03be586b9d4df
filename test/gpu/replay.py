"""`python test/gpu/replay.py FOLDER`: run records of the emulator (recording.py) on a GPU.

Needs the runtime and numpy, no compiler. Workers run each record twice; one that does not answer is
ended, and started again behind an error of the driver, which is all that its context on the GPU
gives from then on. Exits with 1 where results differ from the recorded ones.
"""

from __future__ import annotations

import argparse
import json
import queue
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np

import stepwell
from stepwell.artifact import TensorSpec
from stepwell.errors import ArtifactError, Error

FAST_MATH, FAST_TOLERANCE = "fast_math", 2.0**-11
"""A part of the names of records of approximate functions, and how exact the least of them is."""

SECONDS = 10.0
"""How long a record may take."""

TOLERANCES = {
    "complex128": 1e-12,
    "float64": 1e-12,
    "complex64": 2e-5,
    "float32": 2e-5,
    "float16": 2e-3,
    "bfloat16": 1.6e-2,
}
"""Of results relative to the greatest of their array, by type: sums of the GPU are in another order
than those of the emulator, and its fast functions are not as exact."""


def compare(path: Path) -> dict[str, object]:
    """Run one record; the outcome, and how far results are from the recorded ones."""
    with zipfile.ZipFile(path) as record, tempfile.TemporaryDirectory() as folder:
        model = Path(record.extract("artifact", folder))
        try:
            exe = stepwell.load(model)
        except ArtifactError as error:
            return {"outcome": "not for this GPU", "message": str(error)}
        manifest = exe.artifact.manifest
        inputs = [array(record, f"input{i}", s) for i, s in enumerate(manifest.inputs)]
        wanted = [array(record, f"result{i}", s) for i, s in enumerate(manifest.outputs)]
    first, second = exe(*inputs), exe(*inputs)
    triples = list(zip(first, second, wanted, strict=True))
    apart = [distance(got, want) for got, _, want in triples]
    least = FAST_TOLERANCE if FAST_MATH in path.name else 0.0
    limits = [max(least, TOLERANCES.get(want.dtype.name, 0.0)) for _, _, want in triples]
    close = all(d <= limit for d, limit in zip(apart, limits, strict=True))
    return {
        "outcome": "same" if close else "differs",
        "distance": max(apart, default=0.0),
        "changes": any(got.tobytes() != again.tobytes() for got, again, _ in triples),
    }


def array(record: zipfile.ZipFile, name: str, spec: TensorSpec) -> np.ndarray:
    """An array of a record."""
    return np.frombuffer(record.read(name), stepwell_dtype(spec.dtype)).reshape(spec.shape)


def stepwell_dtype(name: str) -> np.dtype:
    """The dtype of that name, numpy's or of ml_dtypes."""
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name, name))


def distance(got: np.ndarray, want: np.ndarray) -> float:
    """How far arrays are apart, relative to the greatest number wanted; 1 where NaNs or infinities
    stand elsewhere."""
    if got.tobytes() == want.tobytes() or not got.size:
        return 0.0
    kind = np.complex128 if got.dtype.kind == "c" else np.float64
    got, want = got.astype(kind), want.astype(kind)
    finite = np.isfinite(want)
    if not np.array_equal(got[~finite], want[~finite], equal_nan=True):
        return 1.0
    if not finite.any():
        return 0.0
    scale = max(np.abs(want[finite]).max(), 1e-30)
    apart = np.abs(got[finite] - want[finite]).max() / scale
    return float(apart) if np.isfinite(apart) else 1.0


def work() -> None:
    """A worker: names of records come in, outcomes go out, each a line."""
    for line in sys.stdin:
        try:
            found = compare(Path(line.strip()))
        except Error as error:
            found = {"outcome": "error", "message": str(error)}
        except Exception as error:
            found = {"outcome": "failed", "message": repr(error)}
        print(json.dumps(found), flush=True)


class Worker:
    """A process that runs records, started again when it has to be."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """A new process, and a thread that reads its lines."""
        command = [sys.executable, __file__, "--work"]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, args=(self.process, self.lines), daemon=True).start()

    @staticmethod
    def _read(process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put("")

    def run(self, path: Path) -> dict[str, object]:
        """The outcome of a record."""
        assert self.process.stdin is not None
        print(path, file=self.process.stdin, flush=True)
        try:
            line = self.lines.get(timeout=SECONDS)
            found = json.loads(line) if line else {"outcome": "crashed"}
        except queue.Empty:
            found = {"outcome": "hangs"}
        if found["outcome"] in ("hangs", "crashed", "error"):
            self.process.kill()
            self.start()
        return found


def main() -> int:
    """Run all records of a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--only", default="", help="a part of names")
    parser.add_argument("--out", type=Path, help="JSON file with all outcomes")
    parser.add_argument("--seconds", type=float, default=1e9, help="after which no record begins")
    arguments = parser.parse_args()
    left: queue.Queue[Path] = queue.Queue()
    for path in sorted(arguments.folder.glob("*.zip")):
        if arguments.only in path.name:
            left.put(path)
    outcomes: dict[str, dict[str, object]] = {}
    end = time.monotonic() + arguments.seconds

    def serve() -> None:
        worker = Worker()
        while time.monotonic() < end:
            try:
                path = left.get_nowait()
            except queue.Empty:
                break
            outcomes[path.stem] = worker.run(path)
        worker.process.kill()

    threads = [threading.Thread(target=serve) for _ in range(arguments.workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(outcomes, indent=1, sort_keys=True))
    for name, found in sorted(outcomes.items()):
        if found["outcome"] not in ("same", "not for this GPU"):
            print(name, json.dumps(found))
    counts = Counter(str(found["outcome"]) for found in outcomes.values())
    print(dict(counts), "left:", left.qsize())
    return int(set(counts) - {"same", "not for this GPU"} != set())


if __name__ == "__main__":
    if sys.argv[1:] == ["--work"]:
        work()
    else:
        sys.exit(main())
