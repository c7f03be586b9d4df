"""The results of `benchmarks.gpu.measure` as a table."""

from __future__ import annotations

from benchmarks.gpu.cases import MODELS
from benchmarks.tables import Table

_PEERS = ("torch", "torch.compile", "xla")


def gpu_table(data: dict) -> Table:
    """Times, rates and the peers' times over ours. The share is of the measured copy bandwidth,
    counting what has to be read and written, for what memory bounds. torch is its libraries' kernel
    (cuBLAS, cuDNN, flash attention), or a model eager; a latency is the time from a call of a model
    to its result."""
    title = f"{data['gpu']}, {data['date']}"
    columns = ("case", "us", "rate", "share of copy", "latency, us")
    table = Table(title, (*columns, *(f"{peer} / stepwell" for peer in _PEERS)))
    for row in data["cases"]:
        if "error" in row:
            table.rows.append((row["name"], "failed", *["-"] * (len(table.columns) - 2)))
            continue
        table.rows.append(_cells(row, data["copy_bytes_per_second"]))
    return table


def _cells(row: dict, copied: float | None) -> tuple[str, ...]:
    found = row["contenders"]
    own = found["stepwell"]["median"]
    rate, share = f"{row['flops'] / own / 1e12:.0f} TFLOP/s", "-"
    if not row["flops"]:
        moved = row["bytes"] / own
        rate = f"{moved / 1e12:.2f} TB/s"
        share = f"{100 * moved / copied:.0f} %" if copied else "-"
    latency = found["stepwell"].get("latency")
    eager = "eager" if row["name"].split("-")[0] in MODELS else "torch"
    peers = (found.get(eager if peer == "torch" else peer) for peer in _PEERS)
    return (
        row["name"],
        f"{own * 1e6:.1f}",
        rate,
        share,
        f"{latency * 1e6:.0f}" if latency else "-",
        *(f"{peer['median'] / own:.2f}" if peer else "-" for peer in peers),
    )
