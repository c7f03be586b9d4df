"""What is made of a value."""

from __future__ import annotations

from collections.abc import Callable

from stepwell.mlir import ir


def reached(start: ir.Operation, follows: Callable[[ir.Operation], bool]) -> set[ir.Operation]:
    """The operations that read the results of `start`, and in turn those of the ones to follow."""
    seen: set[ir.Operation] = set()
    waiting = [start]
    while waiting:
        for result in waiting.pop().results:
            for use in result.uses:
                user = use.owner.operation
                if user not in seen:
                    seen.add(user)
                    waiting += [user] if follows(user) else []
    return seen
