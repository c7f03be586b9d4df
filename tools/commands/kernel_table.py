"""Cells of tables of kernels and their times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stepwell.inspection.kernel_times import KernelTime, highest

if TYPE_CHECKING:
    from rich.table import Table

_WORK_COLUMNS = ("GFLOP/s", "MB", "GB/s", "of peak", "bound")


def kernel_table(title: str, place: str, entries: Sequence[KernelTime], *more: str) -> Table:
    """A table with the columns of `kernel_cells`, those called `more` between time and work; the
    title tells the peak of `place`, where the work is known."""
    from rich.table import Table

    peak = highest(entries)
    if peak is not None:
        title += (
            f"; this machine: {peak.flops / 1e9:.0f} GFLOP/s on {place}, "
            f"{peak.bandwidth / 1e9:.0f} GB/s from memory"
        )
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("kernel", no_wrap=True)
    for name in ("strategy", "sources"):
        table.add_column(name, overflow="fold")
    for name in ("us", "%", *more, *(_WORK_COLUMNS if peak is not None else ())):
        table.add_column(name, justify="left" if name == "bound" else "right")
    return table


def kernel_cells(entry: KernelTime, total: float, *more: str) -> list[str]:
    """The row of a kernel; `total` is the time of all kernels in seconds."""
    return [
        entry.kernel.name,
        entry.kernel.strategy,
        ", ".join(entry.kernel.sources),
        f"{entry.seconds * 1e6:.1f}",
        f"{100 * entry.seconds / max(total, 1e-12):.1f}",
        *more,
        *_work(entry),
    ]


def _work(entry: KernelTime) -> tuple[str, ...]:
    """The cells of `_WORK_COLUMNS`."""
    kernel, seconds, roofline = entry.kernel, entry.seconds, entry.roofline
    if roofline is None:
        return ()
    return (
        f"{kernel.flops / max(seconds, 1e-9) / 1e9:.1f}",
        f"{kernel.bytes / 1e6:.2f}",
        f"{kernel.bytes / max(seconds, 1e-9) / 1e9:.1f}",
        f"{100 * roofline.share(kernel, seconds):.0f} %",
        roofline.bound(kernel),
    )
