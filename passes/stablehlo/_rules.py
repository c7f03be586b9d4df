"""Rewrite rules: a function an idea, grouped by the op it matches, applied until none matches."""

from __future__ import annotations

import logging
from collections.abc import Callable

from stepwell.mlir import ir, nested_operations, rewrite
from stepwell.passes.stablehlo._values import full_name
from stepwell.weights import WeightTable

Rule = Callable[[ir.Operation, WeightTable], ir.Value | None]
"""Returns the value that takes the place of the op's one result, or None where it does not match.

A rule builds at the current insertion point, just before the op, with the op's location; it builds
nothing before it has decided. Ops that lose their last use are removed by the driver.
"""

_LOG = logging.getLogger("stepwell")

MAX_ROUNDS = 500
"""Sweeps over the module; new ops are first looked at in the next one."""


REWRITES_PER_OP = 50
"""Rewrites that the ops of a module may take on average; rules that undo each other stop there."""


def fused(op: ir.Operation, *others: ir.Operation) -> ir.Location:
    """The location of what takes the place of all of them."""
    return ir.Location.fused([op.location, *(other.location for other in others)])


class Rules:
    """A table of rules by op name, those of `base` first. `@rules.on("add", "subtract")` enters a
    rule."""

    def __init__(self, base: Rules | None = None) -> None:
        known = {} if base is None else base._table
        self._table: dict[str, list[Rule]] = {name: list(rules) for name, rules in known.items()}

    def on(self, *names: str) -> Callable[[Rule], Rule]:
        """Decorator: the rule matches each of `names`, of StableHLO unless they say so."""

        def enter(rule: Rule) -> Rule:
            for name in names:
                self._table.setdefault(full_name(name), []).append(rule)
            return rule

        return enter

    def apply(self, op: ir.Operation, weights: WeightTable) -> None:
        """Rewrite everything inside `op` until no rule matches, or rules that find no end have used
        up the module's budget, or the rounds: each rewrite keeps the meaning, so one may stop
        anywhere."""
        patterns = rewrite.RewritePatternSet()
        budget = [REWRITES_PER_OP * (len(nested_operations(op)) + 8)]
        # Held here: not everything in the bindings keeps the callables that it is given alive.
        drivers = [_driver(rules, weights, budget) for rules in self._table.values()]
        for name, driver in zip(self._table, drivers, strict=True):
            patterns.add(name, driver)
        config = rewrite.GreedyRewriteConfig()
        config.max_iterations = MAX_ROUNDS
        config.enable_folding = False
        config.enable_constant_cse = False
        config.region_simplification_level = rewrite.GreedySimplifyRegionLevel.DISABLED
        try:
            rewrite.apply_patterns_and_fold_greedily(op, patterns.freeze(), config)
        except RuntimeError as error:
            if "converge" not in str(error):
                raise
            budget[0] = 0
        if budget[0] <= 0:
            _LOG.info("rewrite rules found no end: some undo each other, or build and then decide")


def _driver(
    rules: list[Rule], weights: WeightTable, budget: list[int]
) -> Callable[[ir.OpView, rewrite.PatternRewriter], bool]:
    def match_and_rewrite(view: ir.OpView, rewriter: rewrite.PatternRewriter) -> bool:
        op = view.operation
        if len(op.results) != 1 or budget[0] <= 0:
            return True
        with rewriter.ip, op.location:
            for rule in rules:
                value = rule(op, weights)
                if value is not None:
                    budget[0] -= 1
                    rewriter.replace_op(op, [value])
                    return False
        return True

    return match_and_rewrite
