"""Writes the table of cases that fail, grouped by reason: `python -m onnx_suite --table`."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

FILE = Path(__file__).parents[1] / "expected_failures_of_onnx.py"

_HEAD = '''"""Cases of the onnx suite that fail, by reason. A case that passes must leave.

Written by `python -m onnx_suite --table` (in test/conformance) from a run of all cases.
"""

from __future__ import annotations

_CASES_BY_REASON: dict[str, list[str]] = {
'''

_TAIL = """}

EXPECTED_FAILURES = {
    name: reason for reason, names in _CASES_BY_REASON.items() for name in names
}
"""

_REASONS = (
    (
        r"(\S+): the operator( of domain \S+)? is not supported",
        r"the operator \1\2 is not supported",
    ),
    (r"element type (\S+), which", r"tensors of element type \1 are not supported"),
    (r"undefined symbol: (\S+)", r"generated code calls \1 of a compiler's run-time library"),
    (r"takes more than", "compilation takes too long"),
    (r"process ended with", "the compiler's process ends"),
    (r"error: ([^:\"]+): (.*)", r"\1: \2"),
)
"""A pattern of the verdict, and the reason it stands for."""


_DIFFERENCES = (
    (r"bernoulli", "the expected numbers come from another generator of random numbers"),
    (r"resize_.*_align_corners", "the expected values are for an output of 2.4 pixels, not 2"),
    (r"_bf16", "sums of bf16 are expected to be rounded at each addition"),
)
"""A pattern of the name of a case whose result differs, and why it does."""


def reason(name: str, verdict: str) -> str:
    """The reason of a verdict, in words that cases share."""
    if verdict.startswith("wrong: "):
        found = (text for pattern, text in _DIFFERENCES if re.search(pattern, name))
        return next(found, "the result differs")
    for pattern, template in _REASONS:
        found = re.search(pattern, verdict)
        if found:
            text = found.expand(template)
            break
    else:
        text = verdict
    text = re.sub(r"/\S+", "a file", text)
    return " ".join(re.sub(r'"[^"]*"', "a tensor", text).split())[:90].replace("\\", "/")


def write(verdicts: Mapping[str, str]) -> None:
    """Write the table of the failures among `verdicts`, which are those of all cases."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name, verdict in verdicts.items():
        if verdict != "ok":
            groups[reason(name, verdict)].append(name)
    lines = [_HEAD]
    for text in sorted(groups):
        lines.append(f"    {json.dumps(text)}: [\n")
        lines += [f"        {json.dumps(name)},\n" for name in sorted(groups[text])]
        lines.append("    ],\n")
    FILE.write_text("".join([*lines, _TAIL]))
