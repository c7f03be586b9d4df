"""The results of single kernels as a table."""

from __future__ import annotations

from benchmarks.tables import Table


def kernels_table(data: dict) -> Table:
    """GFLOP/s (GB/s) of each kernel, its share of the measured peak, and ratios to the others.

    The peak of a kernel without multiply-adds is copying 2 MB over and over; a matrix-vector
    product has as its peak the bandwidth of memory. The work is that of the direct algorithm: a
    Winograd convolution does less and exceeds the peak.
    """
    peaks = data["machine"]
    columns = ("kernel", "us", "rate", "share of peak", "onnxruntime / stepwell")
    table = Table("Single kernels, one thread", (*columns, "torch / stepwell", "launches"))
    for row in data["kernels"]:
        if "error" in row:
            table.rows.append((row["name"], "failed", *["-"] * (len(table.columns) - 2)))
            continue
        seconds = row["seconds"]
        own = seconds["stepwell"]
        rate, unit, peak = row["flops"] / own / 1e9, "GFLOP/s", peaks["fp32_gflops"]
        if row["flops"] == 0:
            rate, unit, peak = row["bytes"] / own / 1e9, "GB/s", peaks["copy_2mb_gbps"]
        elif row["flops"] < 2 * row["bytes"]:
            rate, unit, peak = row["bytes"] / own / 1e9, "GB/s", peaks["read_gbps"]
        table.rows.append(
            (
                row["name"],
                f"{own * 1e6:.1f}",
                f"{rate:.1f} {unit}",
                f"{100 * rate / peak:.0f} %",
                f"{seconds['onnxruntime'] / own:.2f}",
                f"{seconds['torch'] / own:.2f}",
                str(len(row["kernels"])),
            )
        )
    return table
