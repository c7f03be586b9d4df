"""Where the benchmarks keep their files."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The repository."""

RESULTS = ROOT / "benchmarks" / "results"


def bench_folder() -> Path:
    """The folder of models and peers' caches: STEPWELL_BENCH_DIR, or one in the user's cache."""
    named = os.environ.get("STEPWELL_BENCH_DIR")
    if named:
        folder = Path(named).absolute()
    else:
        import platformdirs

        folder = platformdirs.user_cache_path("stepwell") / "benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
