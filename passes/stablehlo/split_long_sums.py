"""split-long-sums: small products with long sums are cut along them, so that they fill a machine.

    %z = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]
       : (tensor<64x16384xf16>, tensor<16384x64xf16>) -> tensor<64x64xf32>

becomes

    %0 = stablehlo.reshape %x : ... -> tensor<64x16x1024xf16>
    %1 = stablehlo.reshape %y : ... -> tensor<16x1024x64xf16>
    %2 = stablehlo.dot_general %0, %1, batching_dims = [1] x [0], contracting_dims = [2] x [1]
       : ... -> tensor<16x64x64xf32>
    %z = stablehlo.reduce(%2 init: 0) applies stablehlo.add across dimensions = [0]

A product has as many blocks as its outputs have tiles, and each adds up all of its sums: with fewer
blocks than multiprocessors, most of the GPU waits. The parts are added by the kernel of whatever
follows. Products on tensor cores and of f32, where the cost model finds it faster, also than blocks
that share the tiles of one product (kernels/gpu/step_shares.py), and single ones: a batch of them
may be attention, which becomes one kernel. On a CPU the parts are for its threads, where outputs
are too few to share: always the same parts, so that the number of threads changes no result. With
precision "strict" sums stay in one piece.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir, nested_operations
from stepwell.mlir import stablehlo as bindings
from stepwell.passes.base import Pass, State
from stepwell.passes.stablehlo._long_sums import MOST_ADDED, parts_of, sum_of_parts
from stepwell.passes.stablehlo._product_cycles import types_of
from stepwell.targets.nvidia import NvidiaTarget

_FEW_OUTPUTS, _SHORTEST_ON_CPUS = 1024, 1024
"""Outputs of a product that the threads of a CPU cannot share well, and the terms of a part."""

_ON_CPUS = ("f32", "f64")


@dataclass(frozen=True)
class SplitLongSums(Pass):
    """Look at every dot_general of the module."""

    name: ClassVar[str] = "split-long-sums"

    def run(self, op: ir.Operation, state: State) -> None:
        if state.precision == "strict":
            return
        found = [inner for inner in nested_operations(op) if inner.name == "stablehlo.dot_general"]
        for product in found:
            parts = _parts(product, state)
            if parts > 1:
                with ir.InsertionPoint(product), product.location:
                    total = _split(product, parts)
                product.results[0].replace_all_uses_with(total)
                product.erase()


def _dimensions(product: ir.Operation) -> tuple[list[list[int]], list[list[int]]]:
    """Contracting and batching dimensions of lhs and rhs."""
    numbers = bindings.DotDimensionNumbers(product.attributes["dot_dimension_numbers"])
    contracting = [
        list(numbers.lhs_contracting_dimensions),
        list(numbers.rhs_contracting_dimensions),
    ]
    batching = [list(numbers.lhs_batching_dimensions), list(numbers.rhs_batching_dimensions)]
    return contracting, batching


def _parts(product: ir.Operation, state: State) -> int:
    """Into how many parts the sums of `product` are best cut; 1 leaves it whole."""
    values = (*product.operands, product.results[0])
    if not all(hlo.tensor_type(v).has_static_shape for v in values):
        return 1
    contracting, batching = _dimensions(product)
    if len(contracting[0]) != 1 or batching[0]:
        return 1
    left, right = (hlo.shape(operand) for operand in product.operands)
    k = left[contracting[0][0]]
    m, n = (math.prod(shape) // max(1, k) for shape in (left, right))
    if isinstance(state.target, NvidiaTarget):
        return parts_of(product, m, n, k, 1, state.target, state)
    is_small = min(m, n) > 1 and m * n <= _FEW_OUTPUTS
    if not is_small or len(set(types_of(product))) > 1 or types_of(product)[0] not in _ON_CPUS:
        return 1
    fitting = [p for p in range(2, MOST_ADDED + 1) if k % p == 0 and k // p >= _SHORTEST_ON_CPUS]
    return max(fitting, default=1)


def _split(product: ir.Operation, parts: int) -> ir.Value:
    """The sum of the products of `parts` parts."""
    contracting = _dimensions(product)[0]
    operands = []
    for operand, (d,) in zip(product.operands, contracting, strict=True):
        shape = list(hlo.shape(operand))
        shape[d : d + 1] = [parts, shape[d] // parts]
        operands.append(hlo.reshape(operand, shape))
    (left, right), ((first,), (second,)) = operands, contracting
    kind = hlo.dtype(product.results[0])
    sums = hlo.dot_general(left, right, ([first + 1], [second + 1]), ([first], [second]), kind)
    return sum_of_parts(sums, 0)
