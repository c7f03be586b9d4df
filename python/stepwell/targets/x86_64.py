"""x86-64 machines by microarchitecture level (System V psABI, "Micro-architecture levels"), and
what they have beyond it by the name of the extension: `x86_64-v4+vnni`."""

from __future__ import annotations

from stepwell.targets import Target

_V3 = ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "avx", "avx2", "bmi", "bmi2", "f16c", "fma")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")

TRIPLE = "x86_64-unknown-linux-gnu"

TARGETS = (
    Target(
        "x86_64-v3",
        TRIPLE,
        "x86-64-v3",
        _V3,
        vector_bits=256,
        vector_registers=16,
        l2_bytes=512 << 10,
        in_flight=9,
        broadcast_time=1.3,
        l3_rate=10.0,
        memory_rate=2.0,
        asked_rate=3.0,
        pair_dot=True,
    ),
    Target(
        "x86_64-v4",
        TRIPLE,
        "x86-64-v4",
        _V4,
        vector_bits=512,
        vector_registers=32,
        pair_dot=True,
    ),
    Target(
        "x86_64-v4+vnni",
        TRIPLE,
        "x86-64-v4",
        (*_V4, "avx512vnni"),
        vector_bits=512,
        vector_registers=32,
        byte_dot=True,
    ),
    Target(
        "x86_64-v4+vnni+bf16",
        TRIPLE,
        "x86-64-v4",
        (*_V4, "avx512vnni", "avx512bf16"),
        vector_bits=512,
        vector_registers=32,
        byte_dot=True,
        bfloat_dot=True,
    ),
)
"""Narrowest first: `host()` takes the last one whose features the machine has. What `x86_64-v3`
says of times was measured on Zen 3 (2026): 90 GFLOP/s of a core, 80 GB/s from L2, 45 to 60 from L3,
15 from memory, beside other users of the machine."""

_GOLDEN_COVE = {
    "l3_bytes": 8 << 20,
    "in_flight": 8,
    "broadcast_time": 1.0,
    "l2_load": 4.0,
    "far_load": 6.0,
    "l3_rate": 4.2,
    "memory_rate": 2.5,
    "asked_rate": 2.4,
    "waiting": 0.7,
    "l2_kept": 0.6,
    "resident_bytes": 16 << 20,
    "bfloat_rate": 0.5,
}
"""Two 512-bit units: a core multiplies twice as fast as the targets above say, and loads, and what
comes from L2 and beyond, are as fast as ever. Measured on Emerald Rapids: 227 GFLOP/s of a core,
145 GB/s from L2, 30 from L3, 17.5 from memory; products with scratch of 0.7 of L2 and more are
slower. One of the units multiplies bf16, at half its rate by what Intel says (not measured)."""

_ZEN_5 = {
    "in_flight": 8,
    "broadcast_time": 1.0,
    "l2_load": 3.7,
    "far_load": 5.5,
    "l3_rate": 14.0,
    "memory_rate": 4.2,
    "asked_rate": 4.2,
    "resident_bytes": 16 << 20,
}
"""Two 512-bit units that each load and multiply every cycle, of bf16 too. Measured on a server of
the fifth generation: 275 GFLOP/s of a core, 155 GB/s from L2, 130 from L3, 36 from memory, of which
two cores together get 51."""

MICROARCHITECTURES: dict[str, dict[str, float]] = {
    **dict.fromkeys(("sapphirerapids", "emeraldrapids", "graniterapids"), _GOLDEN_COVE),
    "znver5": _ZEN_5,
}
"""By LLVM's names of processors, what `host()` knows better than its target."""
