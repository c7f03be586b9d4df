"""Code for any size beside code for one size, as a table."""

from __future__ import annotations

from benchmarks.tables import Table


def any_size_table(data: dict) -> Table:
    """Microseconds of a call of both, and their ratio."""
    columns = ("model", "up to", "size", "any size: us", "this size: us", "any / this")
    where = f"{data['gpu']}, {data['date']}, f16" if "gpu" in data else "one thread"
    table = Table(f"Compiled for any size up to the first, and for one; {where}", columns)
    for row in data["rows"]:
        spent = (1e6 * row[kind] for kind in ("any", "one"))
        times = (f"{time:.0f}" if time >= 100 else f"{time:.3g}" for time in spent)
        ratio = f"{row['any'] / row['one']:.2f}"
        table.rows.append((row["model"], row["up_to"], row["size"], *times, ratio))
    return table
