"""The one table of known failures: name of a test case to the reason why it fails.

A case named here must fail; when it passes, pytest says so and its entry goes.
"""

from __future__ import annotations

EXPECTED_FAILURES: dict[str, str] = {}
