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
        in_flight=10,
        broadcast_time=1.0,
        l3_rate=5.0,
        memory_rate=2.0,
        asked_rate=3.0,
    ),
    Target("x86_64-v4", TRIPLE, "x86-64-v4", _V4, vector_bits=512, vector_registers=32),
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
"""Narrowest first: `host()` takes the last one whose features the machine has."""
