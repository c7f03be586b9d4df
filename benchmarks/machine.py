"""What the machine is and what one of its cores can do."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def describe(cpu: int) -> dict[str, object]:
    """The machine as JSON data, with the measured peaks of core `cpu`."""
    return {
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "caches": caches(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(),
        "load": os.getloadavg()[0],
        **measured_peaks(cpu),
    }


def cpu_model() -> str:
    """The CPU's name as the system gives it."""
    text = Path("/proc/cpuinfo").read_text()
    found = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    family = re.search(r"^cpu family\s*: (.+)$", text, re.MULTILINE)
    number = re.search(r"^model\s*: (.+)$", text, re.MULTILINE)
    if found is None:
        return platform.machine()
    if family is None or number is None:
        return found.group(1)
    return f"{found.group(1)} (family {family.group(1)}, model {number.group(1)})"


def caches() -> dict[str, str]:
    """Sizes of the caches that core 0 sees: {"L1 Data": "32K", ...}."""
    sizes = {}
    for entry in sorted(_CACHES.glob("index*")):
        level, kind, size = ((entry / f).read_text().strip() for f in ("level", "type", "size"))
        sizes[f"L{level} {kind}"] = size
    return sizes


def measured_peaks(cpu: int) -> dict[str, float]:
    """fp32_gflops, read_gbps and copy_2mb_gbps of one core, by the program peak.c."""
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder) / "peak")
        source = str(Path(__file__).with_name("peak.c"))
        compiler = os.environ.get("CC", "cc")
        subprocess.run([compiler, "-O3", "-march=native", "-o", program, source], check=True)
        done = subprocess.run(
            [program],
            check=True,
            capture_output=True,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, {cpu}),
        )
    return json.loads(done.stdout)


def slug() -> str:
    """A file name for the machine: "amd-epyc-family-25-model-1-2-cores"."""
    words = re.sub(r"[^A-Za-z0-9 -]", " ", cpu_model()).lower().split()
    return "-".join([*words, str(len(os.sched_getaffinity(0))), "cores"])


def versions(packages: Iterable[str], python: str = sys.executable) -> dict[str, str]:
    """Installed versions of `packages` in the environment of interpreter `python`."""
    names = list(packages)
    if python != sys.executable:
        code = "import sys; sys.path.insert(0, sys.argv[1]); from benchmarks import machine; "
        code += "import json; print(json.dumps(machine.versions(sys.argv[2:])))"
        root = str(Path(__file__).resolve().parent.parent)
        done = subprocess.run(
            [python, "-c", code, root, *names], check=True, capture_output=True, text=True
        )
        return json.loads(done.stdout)
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
