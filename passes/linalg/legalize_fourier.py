"""`legalize-fourier`: discrete Fourier transforms as loops over vectors of independent transforms.

    %y = stablehlo.custom_call @stepwell.fourier(%x) {inverse = false}
        : (tensor<OxNxIx2xf32>) -> tensor<OxNxIx2xf32>

transforms x[O, N, I] of complex numbers, by parts, along N. With one part instead of two on one
side, that is real, of even length N, and the other is the first half of a spectrum, N / 2 + 1
numbers; I is 1. The even elements as real parts and the odd ones as imaginary parts are transformed
together then (`_half_spectra.py`): what lies side by side in memory is such a complex number.

Each lane of a vector is a transform of its own: neighbours along I, or along O where I is 1. They
are made in passes for factors of N (`_fourier_passes.py`). A longer transform becomes many short
ones, N = N1 N2: those of the columns of an N1 x N2 matrix, times roots of unity, and then those of
its rows (D. H. Bailey, "FFTs in external or hierarchical memory", 1990). So it stays in the first
level of the cache, or, where N is large, each of the short ones in the second. An inverse transform
is one with real and imaginary parts exchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from stepwell.dialects import stablehlo as hlo
from stepwell.dialects.fourier import CALL
from stepwell.mlir import ir
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg import _half_spectra as half_spectra
from stepwell.passes.linalg import _loops as loops
from stepwell.passes.linalg import _vectors as vectors
from stepwell.passes.linalg._butterflies import Complex
from stepwell.passes.linalg._fourier_call import FourierCall, blocks, twice
from stepwell.passes.linalg._fourier_passes import reader, scratch
from stepwell.passes.linalg._fourier_split import SplitTransform
from stepwell.passes.linalg._loops import Values


@dataclass(frozen=True)
class LegalizeFourier(Pass):
    """Rewrite every call of a transform inside a function."""

    name: ClassVar[str] = "legalize-fourier"
    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation, state: State) -> None:
        def build(call: ir.Operation) -> Values | None:
            if ir.StringAttr(call.attributes["call_target_name"]).value != CALL:
                return None
            return _build(FourierCall(call, op, state))

        loops.rewrite_operations(op, {"stablehlo.custom_call": build})


def _build(call: FourierCall) -> Values:
    """The loops; returns the transform."""
    if call.first > 1:
        result = SplitTransform(call).build()
    elif call.inner > 1:
        result = _columns(call)
    else:
        result = _rows(call)
    return [hlo.reshape(result, call.shape)]


def _columns(call: FourierCall) -> ir.Value:
    """Lanes along I."""
    shape = [call.outer, call.length, 2 * call.inner]
    source, passes = hlo.reshape(call.source, shape), call.passes(call.length)

    def block(point: Values, values: Values) -> Values:
        outer, start = point[0], twice(call.start(point[1], call.inner))

        def load(row: ir.Value) -> Complex:
            return call.apart(vectors.read(source, [outer, row, start], 2 * call.lanes))

        def store(value: Complex, result: Values, row: ir.Value) -> Values:
            return [vectors.write(call.together(value), result[0], [outer, row, start])]

        return passes.between(load, store, values[:1], values[1:])

    sizes = [call.outer, blocks(call.inner, call.lanes)]
    return loops.nest(sizes, [loops.empty(shape, call.element), *passes.buffers()], block)[0]


def _rows(call: FourierCall) -> ir.Value:
    """Lanes along O: squares of lanes times lanes elements are transposed on both ways."""
    source = hlo.reshape(call.source, [call.outer, 2 * call.given])
    passes = call.passes(call.length)

    def block(point: Values, values: Values) -> Sequence[ir.Value]:
        first, pairs = call.start(point[0], call.outer), [values[1:3], values[3:5]]

        def load(row: ir.Value, start: ir.Value) -> Complex:
            position = [loops.add(first, row), twice(start)]
            return call.apart(vectors.read(source, position, 2 * call.lanes))

        pairs[0], at = call.load_squares(load, call.given, pairs[0]), 0
        if call.to_real:
            pairs[0], pairs[1] = half_spectra.packed_rows(
                pairs[0], pairs[1], call.turns, call.length, call.lanes
            )
            at = 1
        pairs[at], pairs[1 - at] = passes.in_scratch(pairs[at], pairs[1 - at])
        at ^= passes.ends_in
        if call.from_real:
            pairs[at], pairs[1 - at] = half_spectra.spectrum_of_rows(
                pairs[at], pairs[1 - at], call.turns, call.length, call.lanes
            )
            at ^= 1
        written = _store_squares(call, pairs[at], values[0], first)
        return [written, *pairs[0], *pairs[1]]

    rows = max(call.given, call.made)
    pairs = [part for _ in range(2) for part in scratch(rows, call.lanes, call.element)]
    result = loops.empty([call.outer, 2 * call.made], call.element)
    return loops.nest([blocks(call.outer, call.lanes)], [result, *pairs], block)[0]


def _store_squares(call: FourierCall, pair: Values, result: ir.Value, first: ir.Value) -> ir.Value:
    """The lanes of scratch to rows of the result from the `first` on."""
    read = reader(pair, call.lanes)

    def square(number: Values, values: Values) -> Values:
        start = call.start(number[0], call.made)
        columns = [read(loops.add(start, loops.index(j))) for j in range(call.lanes)]
        rows = [vectors.transposed([c[part] for c in columns]) for part in range(2)]
        written = values[0]
        for lane, parts in enumerate(zip(*rows, strict=True)):
            position = [loops.add(first, loops.index(lane)), twice(start)]
            written = vectors.write(call.together(Complex(*parts)), written, position)
        return [written]

    return loops.nest([blocks(call.made, call.lanes)], [result], square)[0]
