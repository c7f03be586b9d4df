"""Code for any size beside code for one size, as a table."""

from __future__ import annotations

from benchmarks.tables import Table


def any_size_table(data: dict) -> Table:
    """Microseconds of a call of both, and their ratio."""
    columns = ("model", "n", "any n: us", "this n: us", "any / this")
    title = f"Compiled for any n up to {data['capacity']}, and for one n; one thread"
    table = Table(title, columns)
    for row in data["rows"]:
        times = (f"{1e6 * row[kind]:.0f}" for kind in ("any", "one"))
        ratio = f"{row['any'] / row['one']:.2f}"
        table.rows.append((row["model"], str(row["n"]), *times, ratio))
    return table
