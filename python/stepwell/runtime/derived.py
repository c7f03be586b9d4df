"""Weights that the runtime packs: constants when a model is loaded, arguments of a call when their
content is new."""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Sequence

import numpy as np

from stepwell.artifact import Artifact
from stepwell.packing import DerivedWeight, WinogradPacking
from stepwell.runtime import library
from stepwell.runtime.buffers import address, allocate_arena, copy_mapped, give_back
from stepwell.runtime.inputs import is_immutable


class DerivedWeights:
    """The weights section of a model with packed forms that the file does not have.

    An argument's content is known again by a digest of all its bytes; an object that cannot change,
    a `jax.Array`, by being the same object.
    """

    def __init__(self, source: Artifact, pool: int | None) -> None:
        derived = source.manifest.derived
        self.section = allocate_arena(max(weight.offset + weight.bytes for weight in derived))
        plain = source.weights[: source.manifest.plain_bytes]
        copy_mapped(plain, source.mapping, self.section)
        self._by_input: dict[int, list[DerivedWeight]] = {}
        for weight in derived:
            if weight.input is not None:
                self._by_input.setdefault(weight.input, []).append(weight)
            elif weight.constant is not None:
                shape = weight.packing.source
                stored = source.weights[weight.constant :][: 4 * math.prod(shape)]
                self._pack(weight, stored.view(np.float32).reshape(shape))
                give_back(source.mapping)
        self._pool = pool
        self._digests: dict[int, int] = {}
        self._unchanging: dict[int, weakref.ref] = {}

    def refresh(self, given: Sequence[object], taken: Sequence[object]) -> None:
        """Pack what is new among the arguments `given`, of which `taken` are what the code reads:
        arrays of numpy or JAX."""
        arrays = {
            number: np.asarray(taken[number])
            for number in self._by_input
            if not self._is_known(number, given[number])
        }
        digests = self._digest([*arrays.values()])
        for (number, array), digest in zip(arrays.items(), digests, strict=True):
            self._unchanging.pop(number, None)
            if self._digests.get(number) != digest:
                self._digests.pop(number, None)  # until all of it is packed, it is neither content
                for weight in self._by_input[number]:
                    self._pack(weight, array)
                self._digests[number] = digest
            if is_immutable(given[number]):
                self._unchanging[number] = weakref.ref(given[number])

    @property
    def has_arguments(self) -> bool:
        """Whether `refresh` has something to do."""
        return bool(self._by_input)

    def _pack(self, weight: DerivedWeight, array: np.ndarray) -> None:
        place = self.section[weight.offset :][: weight.bytes]
        if isinstance(weight.packing, WinogradPacking):
            weight.packing.fill(array, place.view(np.float32).reshape(weight.packing.shape))
        else:
            place[:] = weight.packing.apply(array).reshape(-1).view(np.uint8)

    def _is_known(self, number: int, value: object) -> bool:
        """Whether input `number` was the same object the last time, which cannot have changed."""
        reference = self._unchanging.get(number)
        return reference is not None and reference() is value

    def _digest(self, arrays: Sequence[np.ndarray]) -> list[int]:
        count = len(arrays)
        data = (ctypes.c_void_p * count)(*map(address, arrays))
        sizes = (ctypes.c_uint64 * count)(*(array.nbytes for array in arrays))
        digests = (ctypes.c_uint64 * count)()
        if count:
            library.library().stepwell_digests(self._pool, data, sizes, digests, count)
        return list(digests)
