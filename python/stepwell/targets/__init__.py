"""Targets: machines as data. `get("x86_64-v4")`, `get("cuda:sm_90a")`, `host()`."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from pathlib import Path

from stepwell.errors import UsageError


@dataclass(frozen=True)
class Target:
    """A machine that code is generated for.

    `features` are LLVM feature names that code may use; `vector_bits` the register width,
    `vector_registers` their count; cache sizes are bytes per core. Times are in units of one vector
    multiply-add, of which `in_flight` hide the latency of each other: `broadcast_time` is that of
    loading a scalar to all lanes, `l2_load` that of a vector from L2, `far_load` from beyond it;
    `l3_rate` and `memory_rate` are the bytes that come from there meanwhile, `asked_rate` those
    that come from memory where they are asked for long before; each further core that reads adds
    `more_bytes` of that. `waiting` is the part of the shorter of multiply-adds and weights' reading
    that the longer does not hide. `l2_kept` is the part of L2 that scratch may fill and be found
    there again. A network whose weights take no more than `resident_bytes` finds them in L3 at each
    call.
    `pair_dot` says that one instruction adds up two products of 16-bit integers in 32 bits, and one
    those of bytes in 16 (vpmaddwd, vpmaddubsw); `byte_dot`, that one adds four products, of
    unsigned bytes by signed ones, to each 32-bit integer of a vector (vpdpbusd); `bfloat_dot`, that
    one adds two products of bf16 to each f32 (vdpbf16ps), and `bfloat_rate`, how many of these take
    the time of a multiply-add.
    """

    name: str
    triple: str
    cpu: str
    features: tuple[str, ...]
    vector_bits: int
    vector_registers: int
    l1_bytes: int = 32 << 10
    l2_bytes: int = 1 << 20
    l3_bytes: int = 16 << 20
    in_flight: int = 4
    broadcast_time: float = 0.5
    l2_load: float = 2.0
    far_load: float = 2.0
    l3_rate: float = 16.0
    memory_rate: float = 7.0
    asked_rate: float = 6.2
    more_bytes: float = 0.4
    waiting: float = 0.3
    l2_kept: float = 1.0
    resident_bytes: int = 0
    pair_dot: bool = False
    byte_dot: bool = False
    bfloat_dot: bool = False
    bfloat_rate: float = 1.0

    def reading(self, weights: int, threads: int) -> Target:
        """A core of this machine as a network with so many bytes of weights knows it, of which so
        many threads each read a part at the same time."""
        if 0 < weights <= self.resident_bytes:
            return dataclasses.replace(self, memory_rate=self.l3_rate, asked_rate=self.l3_rate)
        share = (1 + self.more_bytes * (threads - 1)) / threads
        return dataclasses.replace(
            self, memory_rate=share * self.memory_rate, asked_rate=share * self.asked_rate
        )

    def for_elements(self, bits: int) -> Target:
        """This machine as the cost models of products, which count numbers of 32 bits, know it for
        numbers of so many: where these are longer, its registers and caches hold fewer of them, and
        fewer come from there meanwhile."""
        times = max(1, bits // 32)
        return dataclasses.replace(
            self,
            vector_bits=self.vector_bits // times,
            l1_bytes=self.l1_bytes // times,
            l2_bytes=self.l2_bytes // times,
            l3_bytes=self.l3_bytes // times,
            l3_rate=self.l3_rate / times,
            memory_rate=self.memory_rate / times,
            asked_rate=self.asked_rate / times,
        )

    @property
    def vector_lanes(self) -> int:
        """f32 lanes of one vector register."""
        return self.vector_bits // 32

    @property
    def multiplies_bytes(self) -> bool:
        """Whether products of numbers of 8 bits, summed in 32, have instructions of their own that
        kernels use."""
        return self.byte_dot or self.pair_dot

    def feature_string(self) -> str:
        """The features as LLVM's target machine takes them: `+avx2,+fma`."""
        return ",".join(f"+{name}" for name in self.features)


def available() -> dict[str, Target]:
    """All named targets but `host`."""
    from stepwell.targets import aarch64, nvidia, x86_64

    machines = (*x86_64.TARGETS, *aarch64.TARGETS, *nvidia.TARGETS)
    return {target.name: target for target in machines}


@functools.cache
def get(name: str) -> Target:
    """The target called `name`; "cpu" and "host" are this machine, "cuda" is its GPU. Raises
    UsageError."""
    if name in ("cpu", "host"):
        return host()
    if name.partition(":")[0] == "cuda":
        from stepwell.targets import nvidia

        return nvidia.get(name)
    known = available()
    if name not in known:
        raise UsageError(f"there is no target {name}; there are: host, {', '.join(sorted(known))}")
    return known[name]


@functools.cache
def host() -> Target:
    """This machine: the widest named target whose features it has, with the caches of its first
    core and the rates of its microarchitecture, where they are known."""
    import platform

    import llvmlite.binding as llvm

    from stepwell.targets import aarch64, x86_64

    machine = platform.machine()
    if machine in ("aarch64", "arm64"):
        return dataclasses.replace(aarch64.TARGETS[0], **cache_sizes())
    have = {name for name, on in llvm.get_host_cpu_features().items() if on}
    for target in reversed(x86_64.TARGETS):
        if set(target.features) <= have:
            tuned = x86_64.MICROARCHITECTURES.get(llvm.get_host_cpu_name(), {})
            return dataclasses.replace(target, **tuned, **cache_sizes())
    raise UsageError(f"this machine ({machine}) is older than x86_64-v3, the oldest target")


def cache_sizes(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> dict[str, int]:
    """`l1_bytes` and `l2_bytes` where the system tells them."""
    names = {("1", "Data"): "l1_bytes", ("2", "Unified"): "l2_bytes"}
    sizes = {}
    for entry in folder.glob("index*"):
        try:
            level, kind, size = ((entry / f).read_text().strip() for f in ("level", "type", "size"))
        except OSError:
            continue
        if (level, kind) in names and size.endswith("K") and size[:-1].isdigit():
            sizes[names[level, kind]] = int(size[:-1]) << 10
    return sizes
