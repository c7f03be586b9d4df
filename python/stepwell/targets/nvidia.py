"""NVIDIA GPUs by compute capability: `cuda:sm_90a`.

Sources: CUDA C++ Programming Guide, "Compute Capabilities" (limits of a multiprocessor); PTX ISA,
"Release Notes" (which PTX version knows which target, and which CUDA release which PTX version).

What LLVM is told is checked against these tables first: given a processor and a PTX version that do
not go together, LLVM ends the process.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass

from stepwell.errors import UsageError
from stepwell.targets import Target

PREFIX = "cuda:"
TRIPLE = "nvptx64-nvidia-cuda"
WARP = 32
MAX_BLOCK_THREADS = 1024
REGISTERS_PER_THREAD = 255
STATIC_SHARED_BYTES = 48 << 10
"""Shared memory that a kernel may declare by itself; more is asked for at its launch."""

FIRST_PTX = {
    "sm_80": 70,
    "sm_86": 71,
    "sm_89": 78,
    "sm_90a": 80,
    "sm_100a": 86,
    "sm_120": 87,
}
"""The first PTX version (major and minor digit) that has each target."""

TOOLKIT_OF_PTX = {
    70: (11, 0),
    71: (11, 1),
    72: (11, 2),
    73: (11, 3),
    74: (11, 4),
    75: (11, 5),
    76: (11, 6),
    77: (11, 7),
    78: (11, 8),
    80: (12, 0),
    81: (12, 1),
    82: (12, 2),
    83: (12, 3),
    84: (12, 4),
    85: (12, 5),
    86: (12, 7),
    87: (12, 8),
    88: (12, 9),
    90: (13, 0),
}
"""The first CUDA release, of ptxas and of drivers, that takes each PTX version; the last is the
newest that LLVM 22 writes."""


FLOAT8_PTX, _FLOAT8 = 84, ("e4m3", "e5m2")
"""The first PTX version whose `mma.sync` multiplies floats of 8 bits, and their names."""


@dataclass(frozen=True, kw_only=True)
class NvidiaTarget(Target):
    """A GPU architecture. Sizes are bytes; `block_shared_bytes` is what one block may ask for at
    its launch, `sm_*` what a multiprocessor has; `async_copies` and `matrix_instructions` are PTX
    names, the latter with the operand types they take; `ptx` is the PTX version written;
    `multiprocessors` are those of the largest GPU sold of the architecture; `widened_types` are
    operands that `mma.sync` multiplies after a conversion to f16, which takes registers;
    `f32_multiplies` are the multiply-adds of f32 that a multiprocessor does a cycle,
    `tf32_multiplies` those that its `mma.sync` does of tf32."""

    ptx: int
    multiprocessors: int
    sm_shared_bytes: int
    block_shared_bytes: int
    sm_threads: int
    sm_blocks: int
    async_copies: tuple[str, ...]
    matrix_instructions: tuple[tuple[str, tuple[str, ...]], ...]
    sm_registers: int = 64 << 10
    widened_types: tuple[str, ...] = ()
    f32_multiplies: int = 128
    tf32_multiplies: int = 512

    @property
    def compute_capability(self) -> tuple[int, int]:
        """Major and minor number: (9, 0) of sm_90a."""
        digits = re.sub(r"\D", "", self.cpu)
        return int(digits[:-1]), int(digits[-1])

    @property
    def cluster_blocks(self) -> int:
        """How many blocks may run together and see each other's shared memory, on every GPU of the
        architecture."""
        return 8 if self.compute_capability >= (9, 0) else 1

    @property
    def overlaps_kernels(self) -> bool:
        """Whether a kernel may begin while the one before it ends, for which it then waits
        (`griddepcontrol`)."""
        return self.compute_capability >= (9, 0)

    @property
    def splits_f32(self) -> bool:
        """Whether three products of tf32, of which one of f32 can be made, take less time than
        that."""
        return self.tf32_multiplies > 3 * self.f32_multiplies

    @property
    def multiplies_bytes(self) -> bool:
        return any("s8" in types for _, types in self.matrix_instructions)

    @property
    def runs_on_one_capability(self) -> bool:
        """Whether code for it runs on no later architecture (the names that end in a letter)."""
        return self.cpu[-1].isalpha()

    @property
    def toolkit(self) -> tuple[int, int]:
        """The oldest CUDA release whose ptxas or driver takes this target's PTX."""
        return TOOLKIT_OF_PTX[self.ptx]

    def with_ptx(self, version: int) -> NvidiaTarget:
        """The target with another PTX version; raises UsageError for one that cannot be."""
        if version not in TOOLKIT_OF_PTX:
            raise UsageError(
                f"PTX {_dotted(version)} cannot be written; there are "
                f"{', '.join(map(_dotted, TOOLKIT_OF_PTX))}"
            )
        first = FIRST_PTX[self.cpu]
        if version < first:
            raise UsageError(
                f"PTX {_dotted(version)} does not know {self.cpu}; {_dotted(first)} is the first "
                "version that does"
            )
        matrix = tuple(
            (name, tuple(t for t in types if name != "mma.sync" or t not in _FLOAT8))
            if version < FLOAT8_PTX
            else (name, types)
            for name, types in self.matrix_instructions
        )
        return dataclasses.replace(
            self,
            name=f"{PREFIX}{self.cpu}+ptx{version}",
            ptx=version,
            features=(f"ptx{version}",),
            matrix_instructions=matrix,
        )


def _dotted(version: int) -> str:
    return f"{version // 10}.{version % 10}"


_MMA_80 = ("f16", "bf16", "tf32", "f64", "s8", "u8", "s4", "u4", "b1")
_MMA_89 = (*_MMA_80, "e4m3", "e5m2")
_WGMMA = ("f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8")
_TCGEN05 = ("f16", "bf16", "tf32", "e4m3", "e5m2", "e2m3", "e3m2", "e2m1", "s8", "u8")
_BULK = ("cp.async", "cp.async.bulk", "cp.async.bulk.tensor")


def _target(
    cpu: str,
    ptx: int,
    *,
    sms: int,
    sm_shared: int,
    threads: int,
    blocks: int,
    copies: tuple[str, ...],
    matrix: tuple[tuple[str, tuple[str, ...]], ...],
    widened: tuple[str, ...] = (),
    f32_multiplies: int = 128,
    tf32_multiplies: int = 512,
) -> NvidiaTarget:
    reserved = 1 << 10
    """Of a block's shared memory, 1 KB is the system's."""
    return NvidiaTarget(
        name=PREFIX + cpu,
        triple=TRIPLE,
        cpu=cpu,
        features=(f"ptx{ptx}",),
        vector_bits=128,
        vector_registers=REGISTERS_PER_THREAD,
        ptx=ptx,
        multiprocessors=sms,
        sm_shared_bytes=sm_shared,
        block_shared_bytes=sm_shared - reserved,
        sm_threads=threads,
        sm_blocks=blocks,
        async_copies=copies,
        matrix_instructions=matrix,
        widened_types=widened,
        f32_multiplies=f32_multiplies,
        tf32_multiplies=tf32_multiplies,
    )


TARGETS = (
    _target("sm_80", 80, sms=108, sm_shared=164 << 10, threads=2048, blocks=32,
            copies=("cp.async",), matrix=(("mma.sync", _MMA_80),), f32_multiplies=64),
    _target("sm_86", 80, sms=84, sm_shared=100 << 10, threads=1536, blocks=16,
            copies=("cp.async",), matrix=(("mma.sync", _MMA_80),), tf32_multiplies=128),
    _target("sm_89", 84, sms=142, sm_shared=100 << 10, threads=1536, blocks=24,
            copies=("cp.async",), matrix=(("mma.sync", _MMA_89),), tf32_multiplies=128),
    _target("sm_90a", 84, sms=132, sm_shared=228 << 10, threads=2048, blocks=32,
            copies=_BULK, matrix=(("mma.sync", _MMA_89), ("wgmma", _WGMMA))),
    _target("sm_100a", 86, sms=148, sm_shared=228 << 10, threads=2048, blocks=32,
            copies=_BULK, matrix=(("mma.sync", _MMA_89), ("tcgen05.mma", _TCGEN05)),
            widened=_FLOAT8),
    _target("sm_120", 87, sms=188, sm_shared=100 << 10, threads=1536, blocks=24,
            copies=_BULK, matrix=(("mma.sync", _MMA_89),), tf32_multiplies=128),
)  # fmt: skip


def for_capability(capability: tuple[int, int]) -> NvidiaTarget:
    """The target whose code runs best on a GPU of this compute capability. Raises UsageError for
    one older than all targets."""
    fitting = [
        target
        for target in TARGETS
        if target.compute_capability == capability
        or (target.compute_capability < capability and not target.runs_on_one_capability)
    ]
    if not fitting:
        have, oldest = (".".join(map(str, c)) for c in (capability, TARGETS[0].compute_capability))
        raise UsageError(f"the GPU has compute capability {have}, and {oldest} is the oldest known")
    return fitting[-1]


def get(name: str) -> NvidiaTarget:
    """The target called `cuda:ARCHITECTURE` or `cuda:ARCHITECTURE+ptxVERSION`; "cuda" is the GPU of
    this machine. Raises UsageError for what there is not, Error without a driver."""
    if name == "cuda":
        from stepwell.runtime.cuda import device

        return for_capability(device().capability)
    cpu, plus, version = name.removeprefix(PREFIX).partition("+")
    known = {target.cpu: target for target in TARGETS}
    if cpu not in known:
        near = f" ({cpu}a is there)" if f"{cpu}a" in known else ""
        raise UsageError(
            f"there is no target {PREFIX}{cpu}{near}; of NVIDIA's architectures there are: "
            f"{', '.join(known)}"
        )
    if not plus:
        return known[cpu]
    match = re.fullmatch(r"ptx(\d\d)", version)
    if match is None:
        raise UsageError(f"+{version} is no PTX version; write it as in {PREFIX}{cpu}+ptx86")
    return known[cpu].with_ptx(int(match[1]))
