"""The one table of known failures: test id (as `Case.name` or the test says it) to the reason.

A test named here must fail; when it passes, pytest says so and its entry goes.
"""

from __future__ import annotations

EXPECTED_FAILURES: dict[str, str] = {
    "i32": "the contraction emitter adds integers with arith.addf",
    "i64": "the contraction emitter adds integers with arith.addf",
}
