"""The strategy of a contraction as a choice: what the cost model says, what else is worth
measuring, and what a tuning record may say."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass

from stepwell.kernels.cpu.contraction_strategy import (
    ContractionShape,
    ContractionStrategy,
    Tile,
    choose,
    most_chains,
    reads_whole_rows,
    register_tiles,
    row_tiles_apart,
    with_tile,
)
from stepwell.kernels.strategy import Candidate, Choice
from stepwell.kernels.structured import Structured
from stepwell.targets import Target
from stepwell.tuning_record import STRATEGY

_CANDIDATES, _VARIANT_TILES = 4, 5
"""Register tiles that reports show, and that tuning looks at."""


def choice(
    op: Structured, shape: ContractionShape, target: Target, packed: bool
) -> Choice[ContractionStrategy]:
    """The choice that `contraction_strategy.choose` makes."""
    space = _Space(op, shape, target, packed)
    default = choose(op, shape, target, packed)
    return Choice(
        STRATEGY, default, space.problem, space.candidates, space.variants, context=(packed,)
    )


@dataclass(frozen=True)
class _Space:
    """The strategies of a contraction; `packed` says that its rhs is weights in panels."""

    op: Structured
    shape: ContractionShape
    target: Target
    packed: bool

    def tiles(self) -> list[Tile]:
        """All register tiles, those with the least costs first."""
        tiles = register_tiles(self.op, self.shape, self.target)
        return sorted(tiles, key=lambda tile: tile[-1])

    def candidates(self, chosen: ContractionStrategy) -> list[Candidate]:
        """The register tile of `chosen`, then the best others."""
        tiles = sorted(self.tiles(), key=lambda tile: tile[:-1] != _tile_of(chosen))
        return [
            Candidate(f"{height * width} rows x {vectors} vectors", cost)
            for _, (height, width), vectors, cost in tiles[:_CANDIDATES]
        ]

    def variants(self, chosen: ContractionStrategy) -> Iterator[ContractionStrategy]:
        """Strategies beside `chosen` that are worth measuring: other blockings of its register
        tile, then the tiles of which the cost model thinks most. Some of them may not be."""
        for changes in (
            {"row_tiles": max(1, chosen.row_tiles // 2)},
            {"row_tiles": 2 * chosen.row_tiles},
            {"panels": max(1, chosen.panels // 2)},
            {"panels": 2 * chosen.panels},
            {"ask_panels": not chosen.ask_panels},
            {"ask_results": not chosen.ask_results},
            {"ask_rows": not chosen.ask_rows},
        ):
            yield dataclasses.replace(chosen, **changes)
        for tile in self.tiles()[:_VARIANT_TILES]:
            yield with_tile(tile, self.op, self.shape, self.target, self.packed)

    def problem(self, strategy: ContractionStrategy) -> str:
        """Why `strategy` cannot be; "" where it can."""
        shape, target = self.shape, self.target
        height, width = strategy.box
        if _tile_of(strategy) not in [tile[:-1] for tile in self.tiles()]:
            return (
                f"there is no register tile of {height}x{width} rows by {strategy.vectors} "
                f"vectors for it on {target.name}"
            )
        row_tiles = math.ceil(shape.m / (height * width))
        panels = math.ceil(shape.n / strategy.columns(target.vector_lanes))
        if strategy.row_tiles not in range(1, row_tiles + 1):
            return f"row_tiles is {strategy.row_tiles}, of {row_tiles}"
        if strategy.panels not in range(1, panels + 1):
            return f"panels is {strategy.panels}, of {panels}"
        if strategy.terms != shape.terms:
            return f"terms is {strategy.terms}, and instructions add {shape.terms}"
        if strategy.ask_panels and not self.packed:
            return "ask_panels is for weights, and its rhs is none"
        if strategy.ask_results and not (strategy.merge_rows and shape.terms == 1):
            return "ask_results needs rows that are walked as one, and one term an instruction"
        if strategy.ask_rows and not reads_whole_rows(strategy, shape):
            return "ask_rows needs rows that are walked as one, and the terms of a sum side by side"
        if strategy.chains != 1 and strategy.chains != most_chains(strategy, shape, target):
            return f"its sum is not taken in {strategy.chains} chains at a time"
        asks = (strategy.ask_panels and not shape.widened) or strategy.ask_rows
        if asks and strategy.chains > 1:
            return "ask_panels and ask_rows are for sums that are taken in one chain at a time"
        most = row_tiles_apart(strategy, shape, target)
        whole = self.packed and strategy.panels == strategy.chains == 1 and not shape.along
        if strategy.apart and not (whole and strategy.row_tiles <= most):
            return f"apart, a task has one panel of weights, one chain, {most} row tiles at most"
        return ""


def _tile_of(strategy: ContractionStrategy) -> tuple[bool, tuple[int, int], int]:
    return strategy.merge_rows, strategy.box, strategy.vectors
