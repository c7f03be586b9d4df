"""Weights that are arguments of a call: packed when their content is new, else used again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepwell.packing import DerivedWeight
from stepwell.runtime import library
from stepwell.runtime.buffers import address, allocate_arena


class DerivedWeights:
    """The weights section of a model some of whose arguments are packed.

    An argument's content is known again by a digest of all its bytes; an object that cannot change,
    a `jax.Array`, by being the same object.
    """

    def __init__(self, constants: np.ndarray, derived: Sequence[DerivedWeight]) -> None:
        self.section = allocate_arena(max(weight.offset + weight.bytes for weight in derived))
        self.section[: constants.size] = constants
        self._by_input: dict[int, list[DerivedWeight]] = {}
        for weight in derived:
            self._by_input.setdefault(weight.input, []).append(weight)
        self._digests: dict[int, int] = {}
        self._unchanging: dict[int, object] = {}

    def refresh(self, given: Sequence[object], arrays: Sequence[np.ndarray]) -> None:
        """Pack what is new among `arrays`, which are the arguments `given` as numpy sees them."""
        for number, weights in self._by_input.items():
            value, array = given[number], arrays[number]
            if self._unchanging.get(number) is value:
                continue
            self._unchanging.pop(number, None)
            digest = library.library().stepwell_digest(address(array), array.nbytes)
            if self._digests.get(number) != digest:
                self._digests.pop(number, None)  # until all of it is packed, it is neither content
                for weight in weights:
                    packed = weight.packing.apply(array)
                    end = weight.offset + weight.bytes
                    self.section[weight.offset : end] = packed.reshape(-1).view(np.uint8)
                self._digests[number] = digest
            if _is_immutable(value):
                self._unchanging[number] = value


def _is_immutable(value: object) -> bool:
    """Whether `value` is a `jax.Array`; other objects of JAX (references) may change."""
    kind = type(value)
    return kind.__name__ == "ArrayImpl" and kind.__module__.startswith("jax")
