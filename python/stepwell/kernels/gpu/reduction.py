"""Reductions with a thread an output element: pooling, sums over outer dimensions, products.

Neighbouring threads take neighbouring outputs, so that what they read lies together where the
innermost dimension is not reduced; a thread walks the reduced dimensions by itself.
"""

from __future__ import annotations

import math

from stepwell.errors import LoweringError
from stepwell.kernels.builder import Lanes
from stepwell.kernels.gpu.elementwise import fill_halos
from stepwell.kernels.gpu.grid import GridBuilder
from stepwell.kernels.group import KernelGroup
from stepwell.kernels.index import Index, Variable, apply_map, delinearize
from stepwell.kernels.structured import Structured
from stepwell.mlir import ir

THREADS = 128
_ONE = Lanes.of(1)


def emit(group: KernelGroup, nest: GridBuilder) -> None:
    """Write a group whose anchor is one reduction over any of its dimensions."""
    op = group.anchor()
    order = _output_dims(op)
    sizes = op.loop_sizes()
    extents = [sizes[dim] for dim in order]
    count = math.prod(extents)
    blocks = max(1, -(-count // THREADS))
    workers = blocks * THREADS
    with nest.grid(blocks, THREADS) as (block, thread), group.evaluator.scope():
        worker = block * THREADS + thread
        fill_halos(group, nest, worker, workers)
        with nest.each("i", worker, count, workers) as i, group.evaluator.scope():
            dims = [Index()] * len(sizes)
            for axis, index in zip(order, delinearize(Index.of(i), extents), strict=True):
                dims[axis] = index
            _point(group, nest, op, dims)


def _output_dims(op: Structured) -> list[int]:
    """Loop dimensions in the order of the output's dimensions."""
    order = []
    for expression in op.output_map.results:
        if not isinstance(expression, ir.AffineDimExpr):
            raise LoweringError("a reduction writes at computed indices")
        order.append(expression.position)
    return order


def _point(group: KernelGroup, nest: GridBuilder, op: Structured, dims: list[Index]) -> None:
    evaluator = group.evaluator
    sizes = op.loop_sizes()
    reduced = [axis for axis, kind in enumerate(op.iterators) if kind == "reduction"]
    accumulator = op.body.arguments[len(op.inputs)]
    output_point = apply_map(op.output_map, dims)

    def walk(axes: list[int], at: list[Index], carried: ir.Value) -> ir.Value:
        if not axes:
            with evaluator.scope():
                arguments: dict = {accumulator: carried}
                for number, value in enumerate(op.inputs):
                    argument = op.body.arguments[number]
                    if any(True for _ in argument.uses):
                        point = apply_map(op.maps[number], at)
                        arguments[argument] = evaluator.at(value, point, _ONE)
                return evaluator.run_body(op, at, arguments, _ONE)

        def body(k: Variable, inner: list[ir.Value]) -> list[ir.Value]:
            here = list(at)
            here[axes[0]] = Index.of(k)
            return [walk(axes[1:], here, inner[0])]

        return nest.reduce_loop("k", 0, sizes[axes[0]], 1, [carried], body)[0]

    initial = evaluator.at(op.outputs[0], output_point, _ONE)
    total = walk(reduced, dims, initial)
    result = op.op.results[0]
    with evaluator.scope():
        evaluator.bind(result, output_point, total)
        for output in group.outputs:
            group.write(output, group.point_of(output, result, output_point), _ONE)
