"""Code for any size of the dimensions that differ between calls of a model, or of a part of one."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence

from stepwell.errors import Error, ModelError
from stepwell.open_shapes import Relation, generalized
from stepwell.runtime.load_artifact import OpenLoaded
from stepwell.runtime.steps import Step
from stepwell.sizes import Fixed, OpenShapes
from stepwell.specialization import OpenSpec

_log = logging.getLogger("stepwell")

_TRIES = [(exact, related) for related in Relation for exact in (False, True)]
"""How capacities are chosen, and what open sizes may have to do with others: the most free
first."""

_MOST_SEEN = 3
"""So many calls, the last ones, are among the sizes that are compared where that is asked for."""

Shapes = Mapping[str, tuple[int, ...]]


Build = Callable[[OpenShapes], Step]
"""Compiles a step for these sizes. AnySize keeps none, which would keep its owner alive."""


class AnySize:
    """The steps that a model, or the rest of one, takes from `inputs` of any size.

    Once a second call has other shapes, `build` compiles it for any size of the dimensions that
    differ, up to a capacity; larger sizes compile it again, and so do sizes of 0 and those for
    which the model is another: they stay as they are in code for any size of the others. `limits`
    and `bounds` are as for `generalized`. `build` raises ModelError for sizes that the model does
    not take so, and Error when there is no such code; after that no more is tried. With
    `checks_seen`, it is compared for the sizes of calls as well.
    """

    def __init__(
        self,
        inputs: Sequence[OpenSpec],
        limits: Mapping[str, int],
        bounds: Mapping[str, int],
        *,
        checks_seen: bool = False,
    ) -> None:
        self._inputs, self._checks_seen = inputs, checks_seen
        self._limits, self._bounds = limits, bounds
        self._histories: dict[frozenset[Fixed], list[Shapes]] = {}
        self._closed: set[frozenset[Fixed]] = set()
        self.steps: list[tuple[Step, OpenLoaded]] = []
        """What is compiled, each for sizes that those before it do not take."""
        self.is_possible = True
        """Whether there may be such code for sizes that were not asked for yet."""

    def step(self, shapes: Shapes, build: Build) -> Step | None:
        """What takes `shapes` and others, compiled now unless there is some; None for the first
        shapes, and where there can be no such code."""
        wanted = [shapes[spec.name] for spec in self._inputs]
        for step, code in self.steps:
            if code.takes(wanted):
                return step
        places = (
            Fixed(number, dimension, size)
            for number, shape in enumerate(wanted)
            for dimension, size in enumerate(shape)
        )
        fixed = frozenset(place for place in places if place.size == 0)
        while self.is_possible and fixed not in self._closed:
            below = (code.below(wanted) for _, code in self.steps)
            more = next((found for found in below if found - fixed), None)
            if more is None:
                found = self._joint(fixed, shapes, build)
                if found is None:
                    return None
                step, code = found
                if code.takes(wanted):
                    return step
                more = code.below(wanted)
                if more <= fixed:
                    return None
            fixed |= more
        return None

    def _joint(
        self, fixed: frozenset[Fixed], shapes: Shapes, build: Build
    ) -> tuple[Step, OpenLoaded] | None:
        """Code for the sizes that differ between `shapes` and earlier ones in which the same are
        `fixed`; None where there is none. It may take larger sizes alone."""
        history = self._histories.setdefault(fixed, [])
        history.append(shapes)
        if len(history) < 2:
            return None
        wanted = [shapes[spec.name] for spec in self._inputs]
        tried: list[OpenShapes] = []
        for exact, related in _TRIES:
            sizes = generalized(
                self._inputs,
                history,
                self._limits,
                exact=exact,
                related=related,
                bounds=self._bounds,
            )
            if sizes is not None and self._checks_seen:
                found = [sizes.sizes_in(call) for call in history[-_MOST_SEEN:]]
                seen = dict.fromkeys(point for point in found if point is not None)
                sizes = dataclasses.replace(sizes, seen=tuple(seen)) if all(found) else None
            if sizes is None or sizes in tried:
                continue
            tried.append(sizes)
            try:
                step = build(sizes)
            except ModelError as error:  # perhaps it takes no such sizes
                _log.info("there is no code for any size up to %s: %s", sizes.capacities, error)
            except (Error, MemoryError, OSError) as error:
                _log.info("there is no code for any size: %s", error)
                break
            else:
                code = step.executable
                assert isinstance(code, OpenLoaded)
                self.steps.append((step, code))
                if not code.takes(wanted):
                    history.pop()
                return step, code
        self._closed.add(fixed)
        self.is_possible = bool(fixed)
        return None
