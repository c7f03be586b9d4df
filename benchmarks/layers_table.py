"""The convolutions of networks as a table."""

from __future__ import annotations

from benchmarks.tables import Table


def layers_table(data: dict) -> Table:
    """GFLOP/s of each convolution shape and its share of the measured peak. The work is that of
    the direct algorithm: a Winograd convolution does less and exceeds the peak."""
    peak = data["machine"]["fp32_gflops"]
    columns = ("network", "convolution", "layers", "us", "GFLOP/s", "share of peak")
    table = Table("Convolutions inside their networks, one thread", columns)
    for row in data["layers"]:
        rate = row["flops"] / row["seconds"] / 1e9
        table.rows.append(
            (
                row["model"],
                row["shape"],
                str(row["layers"]),
                f"{row['seconds'] * 1e6:.1f}",
                f"{rate:.1f}",
                f"{100 * rate / peak:.0f} %",
            )
        )
    return table
