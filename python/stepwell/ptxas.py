"""NVIDIA's assembler and disassembler, where they are at hand: PTX into cubins, reports and SASS.

They come with the packages of the extra `cuda` (`pip install stepwell[cuda]`) or with a CUDA
toolkit on PATH or at $CUDA_HOME. An artifact without cubins holds PTX, which the driver assembles.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from stepwell.errors import LoweringError, UsageError
from stepwell.targets.nvidia import NvidiaTarget

HOW_TO_GET = "pip install stepwell[cuda] brings it"


@dataclass(frozen=True)
class Usage:
    """What ptxas says of one kernel: registers a thread, and bytes of spills, stack (for each
    thread) and static shared memory (for each block)."""

    registers: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    stack: int = 0
    shared: int = 0


@dataclass(frozen=True)
class Assembled:
    """One assembled module: the cubin, and what ptxas wrote on its way."""

    cubin: bytes
    log: str

    def usage(self) -> dict[str, Usage]:
        """Resources by kernel."""
        return read_usage(self.log)


@functools.cache
def find(tool: str) -> Path | None:
    """The path of "ptxas" or "nvdisasm"; None when it is not at hand."""
    spec = importlib.util.find_spec("nvidia")
    places = (spec.submodule_search_locations if spec is not None else None) or ()
    folders = [Path(place) for place in places]
    candidates = [path for folder in folders for path in sorted(folder.glob(f"cu*/bin/{tool}"))]
    candidates.reverse()
    on_path = shutil.which(tool)
    candidates += [Path(on_path)] if on_path else []
    for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
        candidates += [Path(home) / "bin" / tool] if home else []
    return next((path for path in candidates if os.access(path, os.X_OK)), None)


@functools.cache
def release() -> tuple[int, int] | None:
    """The CUDA release of the ptxas at hand; None when there is none."""
    path = find("ptxas")
    if path is None:
        return None
    text = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"release (\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def can_assemble(target: NvidiaTarget) -> bool:
    """Whether a ptxas is at hand that takes the target's PTX."""
    have = release()
    return have is not None and have >= target.toolkit


def assemble(ptx: str, target: NvidiaTarget) -> Assembled:
    """The cubin of PTX text. Raises UsageError without a ptxas that is new enough, LoweringError
    when it rejects the text."""
    path, have = find("ptxas"), release()
    if path is None or have is None:
        raise UsageError(f"there is no ptxas here to assemble {target.name} with; {HOW_TO_GET}")
    if have < target.toolkit:
        wanted, got = (".".join(map(str, version)) for version in (target.toolkit, have))
        raise UsageError(f"{target.name} needs ptxas {wanted} or newer, and {path} is {got}")
    with tempfile.TemporaryDirectory(prefix="stepwell-ptxas-") as folder:
        source, output = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(ptx)
        done = subprocess.run(
            [path, "-v", f"-arch={target.cpu}", "-o", output, source],
            capture_output=True,
            text=True,
            check=False,
        )
        log = (done.stdout + done.stderr).replace(str(source), "kernel.ptx")
        if done.returncode:
            raise LoweringError(f"ptxas does not take the generated PTX: {log.strip()[:500]}")
        return Assembled(output.read_bytes(), log)


def sass(cubin: bytes) -> str:
    """The machine code of a cubin as text. Raises UsageError without nvdisasm."""
    path = find("nvdisasm")
    if path is None:
        raise UsageError(f"there is no nvdisasm here to show SASS with; {HOW_TO_GET}")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([path, "-c", file.name], capture_output=True, text=True, check=False)
    if done.returncode:
        raise LoweringError(f"nvdisasm does not take the cubin: {done.stderr.strip()[:500]}")
    return done.stdout


_ENTRY = re.compile(r"Function properties for (\w+)|Compiling entry function '(\w+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")


def read_usage(log: str) -> dict[str, Usage]:
    """Resources by kernel, from what `ptxas -v` writes."""
    found: dict[str, dict[str, int]] = {}
    current: dict[str, int] = {}
    for line in log.splitlines():
        if (match := _ENTRY.search(line)) is not None:
            current = found.setdefault(match[1] or match[2], {})
        if (match := _STACK.search(line)) is not None:
            numbers = map(int, match.groups())
            current.update(zip(("stack", "spill_stores", "spill_loads"), numbers, strict=True))
        if (match := _USED.search(line)) is not None:
            current.update(registers=int(match[1]), shared=int(match[2] or 0))
    return {name: Usage(**values) for name, values in found.items()}
