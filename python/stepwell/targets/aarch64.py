"""64-bit Arm machines."""

from __future__ import annotations

from stepwell.targets import Target

TARGETS = (
    Target(
        "aarch64-neoverse-v2",
        "aarch64-unknown-linux-gnu",
        "neoverse-v2",
        ("neon", "fp-armv8"),
        vector_bits=128,
        vector_registers=32,
        l1_bytes=64 << 10,
        l2_bytes=2 << 20,
    ),
)
