"""Cases of the conformance suite that fail, each with the reason. A case that passes must leave."""

from __future__ import annotations

EXPECTED_FAILURES: dict[str, str] = {}
