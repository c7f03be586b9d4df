"""`stepwell-bench`: the same as `stepwell bench`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from stepwell.tools.stepwell import load_command, run_command


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool; returns the exit code."""
    return run_command(load_command("bench"), argv)


if __name__ == "__main__":
    sys.exit(main())
