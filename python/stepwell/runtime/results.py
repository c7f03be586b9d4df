"""Results of a call out of the outputs of compiled code: cut to size, gathered into lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from stepwell.artifact import Cut, Layout


def arranged(
    outputs: Sequence[np.ndarray], cuts: Sequence[Cut], layouts: Mapping[str, Layout]
) -> list[np.ndarray]:
    """One result for each of `layouts`, or without them for each output that is no count."""
    arrays = list(outputs)
    for cut in cuts:
        index = [slice(None)] * arrays[cut.output].ndim
        index[cut.dimension] = slice(int(outputs[cut.count]))
        arrays[cut.output] = np.ascontiguousarray(arrays[cut.output][tuple(index)])
    if not layouts:
        return arrays[: len(arrays) - len(cuts)]
    return [_gather(layout, arrays) for layout in layouts.values()]  # pyright: ignore[reportReturnType]


def _gather(layout: Layout, arrays: Sequence[np.ndarray]) -> object:
    if layout is None:
        return None
    if isinstance(layout, int):
        return arrays[layout]
    return [_gather(part, arrays) for part in layout]
