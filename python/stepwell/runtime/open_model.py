"""What models with open sizes in memory have in common: sizes told from shapes, calls by name."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from stepwell.artifact import Artifact, Manifest, TensorSpec
from stepwell.errors import InputError
from stepwell.extents import Extent
from stepwell.runtime.inputs import numpy_dtype
from stepwell.runtime.loaded import NamedModel, Shape
from stepwell.runtime.results import arranged
from stepwell.sizes import Fixed, OpenSizes
from stepwell.specialization import OpenSpec

_SYMBOL = re.compile(r"\bs(\d+)\b")

MOST_SHAPES = 4096
"""Shapes of inputs that are remembered."""


class OpenSizeModel(NamedModel[OpenSpec]):
    """A compiled model that takes inputs of any size up to its capacities.

    Its code works on buffers of the capacities, of which a call uses as much as its inputs have.
    Behind the model's inputs it takes those that tell the sizes.
    """

    def __init__(self, source: Artifact) -> None:
        manifest = source.manifest
        assert manifest.open_sizes is not None
        self._sizes: OpenSizes = manifest.open_sizes
        self._least = self._sizes.least or (1,) * len(self._sizes.names)
        super().__init__(source, *open_signature(manifest, self._sizes))
        self._cuts = manifest.cuts
        self._dtypes = [numpy_dtype(spec.dtype) for spec in self.inputs]
        self._solutions: dict[tuple[Shape, ...], Shape | None] = {}
        self._told: Shape = ()
        self._scalars = np.zeros(len(self._sizes.scalars), np.int64)
        self._prefixes = [np.zeros(capacity, np.bool_) for _, capacity in self._sizes.prefixes]

    @property
    def capacities(self) -> dict[str, int]:
        """The largest of each open size."""
        return dict(zip(self._sizes.names, self._sizes.capacities, strict=True))

    def takes(self, shapes: Sequence[Shape]) -> bool:
        """Whether inputs of these shapes can be given to a call."""
        return self._solved(tuple(shapes)) is not None

    def below(self, shapes: Sequence[Shape]) -> frozenset[Fixed]:
        """Of inputs of these shapes, the dimensions that are smaller than they may be."""
        if [len(shape) for shape in shapes] != [len(shape) for shape in self._sizes.inputs]:
            return frozenset()
        return frozenset(
            Fixed(number, dimension, size)
            for symbol, number, dimension, factor, rest in self._sizes.open_dimensions()
            if (size := shapes[number][dimension]) < factor * self._least[symbol] + rest
        )

    def _arranged(self, outputs: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        """The results of a call: outputs, cut to what the code counted."""
        return tuple(arranged(outputs, self._cuts, {}))

    def _tell(self, sizes: Shape) -> None:
        """Fill in what the code reads of the sizes."""
        for number, extent in enumerate(self._sizes.scalars):
            self._scalars[number] = extent.at(sizes)
        for vector, (extent, _) in zip(self._prefixes, self._sizes.prefixes, strict=True):
            used = extent.at(sizes)
            vector[:used] = True
            vector[used:] = False
        self._told = sizes

    def _result_shapes(self, sizes: Shape) -> list[Shape]:
        return [tuple(extent.at(sizes) for extent in shape) for shape in self._sizes.outputs]

    def _sizes_of(self, shapes: tuple[Shape, ...]) -> Shape:
        """The open sizes of inputs of `shapes`. Raises InputError where there are none."""
        sizes = self._solved(shapes)
        if sizes is None:
            raise self._misfit(shapes)
        return sizes

    def _solved(self, shapes: tuple[Shape, ...]) -> Shape | None:
        """The open sizes that inputs of `shapes` have; None where there are none."""
        if shapes not in self._solutions:
            if len(self._solutions) == MOST_SHAPES:
                self._solutions.clear()
            self._solutions[shapes] = self._solve(shapes)
        return self._solutions[shapes]

    def _solve(self, shapes: tuple[Shape, ...]) -> Shape | None:
        if [len(shape) for shape in shapes] != [len(shape) for shape in self._sizes.inputs]:
            return None
        found: dict[int, int] = {}
        for symbol, number, dimension, factor, rest in self._sizes.open_dimensions():
            found.setdefault(symbol, (shapes[number][dimension] - rest) // factor)
        sizes = tuple(found[symbol] for symbol in range(len(self._sizes.names)))
        bounds = zip(sizes, self._least, self._sizes.capacities, strict=True)
        fits = all(least <= n <= most for n, least, most in bounds)
        same = all(
            extent.at(sizes) == size
            for extents, shape in zip(self._sizes.inputs, shapes, strict=True)
            for extent, size in zip(extents, shape, strict=True)
        )
        return sizes if fits and same else None

    def _misfit(self, shapes: Sequence[Shape]) -> InputError:
        given = ", ".join(
            f"{spec.name}: {list(shape)}" for spec, shape in zip(self.inputs, shapes, strict=True)
        )
        wanted = ", ".join(map(str, self.inputs))
        bounds = zip(self.capacities.items(), self._least, strict=True)
        most = ", ".join(
            f"{least} <= {name} <= {n}" if least > 1 else f"{name} <= {n}"
            for (name, n), least in bounds
        )
        return InputError(f"inputs have the shapes {given}; the model takes {wanted} with {most}")


def open_signature(
    manifest: Manifest, sizes: OpenSizes
) -> tuple[tuple[OpenSpec, ...], tuple[OpenSpec, ...]]:
    """The inputs and outputs as a user gives and gets them, open sizes by name. Those of the
    manifest are the buffers of the compiled code."""

    def specs(
        buffers: Sequence[TensorSpec], shapes: Sequence[Sequence[Extent]]
    ) -> tuple[OpenSpec, ...]:
        # The sizes, which follow the model's inputs, have no shape here.
        return tuple(
            OpenSpec(spec.name, spec.dtype, tuple(_named(extent, sizes.names) for extent in shape))
            for spec, shape in zip(buffers, shapes, strict=False)
        )

    outputs = specs(manifest.visible_outputs, sizes.outputs)
    return specs(manifest.inputs, sizes.inputs), outputs


def _named(extent: Extent, names: Sequence[str]) -> int | str:
    """A size, the name of an open one, or a sum of products of these."""
    if extent.is_constant:
        return extent.at(())
    return _SYMBOL.sub(lambda symbol: names[int(symbol[1])], str(extent))
