"""`halve-products`: mark the products by weights that Strassen's algorithm sums.

A product of a matrix of f32 by a weight is marked `kernel.strassen` where the target's cost model
says that seven products of halves, and their sums, take less time than the product
(`kernels/cpu/strassen.py`).

    %0 = linalg.generic (128x768 by 768x3072) ins(%x, %w)  ->  {kernel.strassen} ins(%x, %w)

`pack-operands` takes the mark away where the weight cannot be packed, or its kernel leaves rows
out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stepwell.kernels.cpu import strassen_strategy
from stepwell.kernels.cpu.contraction_strategy import ContractionShape
from stepwell.kernels.structured import Structured, contraction_operands, is_multiply_add
from stepwell.mlir import ir, nested_operations
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg._fusion_graph import is_host_block
from stepwell.passes.linalg.hoist_constants import (
    bytes_of_weights,
    weight_argument,
    weight_name,
)
from stepwell.targets import Target


@dataclass(frozen=True)
class HalveProducts(Pass):
    """`products` is 7 to mark whatever can be, 8 for nothing, 0 for what the cost model says.

    Nothing is marked when the compilation asks for strict precision, nor are products by weights
    that are not finite.
    """

    name: ClassVar[str] = "halve-products"
    anchor: ClassVar[str] = "func.func"
    products: int = 0

    def run(self, op: ir.Operation, state: State) -> None:
        if state.precision == "strict" or not len(op.regions[0].blocks):
            return
        target = state.target.reading(bytes_of_weights(op), state.threads)
        for inner in nested_operations(op):
            product = Structured.of(inner)
            if product is None or not is_multiply_add(product) or not is_host_block(inner.block):
                continue
            operands = contraction_operands(product)
            number = None if operands is None else weight_argument(product.inputs[operands[1]], op)
            if operands is None or number is None:
                continue
            shape = ContractionShape.of(product, operands)
            if not strassen_strategy.applies(product, shape, target, state.threads):
                continue
            chosen = self._algorithm(product, shape, target, state)
            if chosen.is_halved and _is_finite(number, op, state):
                inner.attributes[strassen_strategy.ATTRIBUTE] = ir.UnitAttr.get()

    def _algorithm(
        self, product: Structured, shape: ContractionShape, target: Target, state: State
    ) -> strassen_strategy.Algorithm:
        if self.products:
            return strassen_strategy.Algorithm(self.products)
        choice = strassen_strategy.algorithm(product, shape, target, state.threads)
        return state.decide(product.op, choice)


def _is_finite(number: int, function: ir.Operation, state: State) -> bool:
    """Whether the weight that is an argument of a function is finite, as far as is known."""
    name = weight_name(function, number)
    return name is None or name not in state.weights or bool(np.isfinite(state.weights[name]).all())
