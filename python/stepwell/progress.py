"""Progress on a terminal: one line a step with its time."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from stepwell.worker import Progress


@contextlib.contextmanager
def progress_lines(wanted: bool = True) -> Iterator[Progress]:
    """A callback for steps: lines on stderr when it is a terminal and `wanted`, else nothing."""
    if not (wanted and sys.stderr.isatty()):
        yield lambda step, seconds: None
        return
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    with console.status("starting the compiler") as status:

        def show(step: str, seconds: float | None) -> None:
            if seconds is None:
                status.update(step)
            else:
                console.print(f"  {step:<40} [dim]{seconds:8.3f} s[/dim]")

        yield show
