"""A product with a compressed matrix, as one structured operation.

    y[b, n, m] = sum of values[z] * x[b, places[z], m]     starts[n] <= z < starts[n + 1]

is a `linalg.generic` over b, n, m and as many terms as the fullest row has, that bears
`kernel.sparse`; a term behind the last one of a row adds nothing. A kernel reads those that there
are.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepwell.kernels.structured import Structured, shape_of
from stepwell.mlir import dialect, ir

arith = dialect("arith")
linalg = dialect("linalg")
tensor = dialect("tensor")

SPARSE = "kernel.sparse"
"""Marks the operation."""


@dataclass(frozen=True, eq=False)
class SparseProduct:
    """The tensors of such an operation."""

    op: Structured
    values: ir.Value
    places: ir.Value
    starts: ir.Value
    dense: ir.Value

    @staticmethod
    def of(op: Structured) -> SparseProduct | None:
        """`op` as such an operation; None where it is another."""
        if SPARSE not in op.op.attributes:
            return None
        body = [child.operation for child in op.body.operations]
        starts, _, places, values, dense = (
            inner.operands[0] for inner in body if inner.name == "tensor.extract"
        )
        return SparseProduct(op, values, places, starts, dense)

    @property
    def products(self) -> int:
        """How many numbers are multiplied."""
        batch, _, columns = shape_of(self.op.op.results[0])
        return batch * shape_of(self.values)[0] * columns


def sparse_product(
    values: ir.Value,
    places: ir.Value,
    starts: ir.Value,
    dense: ir.Value,
    most: int,
    result: ir.RankedTensorType,
) -> ir.Value:
    """The operation for float32[Z] `values` at integer[Z] `places` of rows that begin at int32[N+1]
    `starts`, `most` to a row, and float32[B, K, L] `dense`; `result` is float32[B, N, M], M to L.
    """
    f32 = ir.F32Type.get()
    terms, shape = shape_of(values)[0], list(result.shape)
    dims = [ir.AffineExpr.get_dim(d) for d in range(4)]
    maps = [ir.AffineMap.get(4, 0, [dims[3]]), ir.AffineMap.get(4, 0, dims[:3])]
    kinds = ["parallel"] * 3 + ["reduction"]
    zero = arith.ConstantOp(f32, 0.0).result
    filled = linalg.fill(zero, outs=[tensor.EmptyOp(shape, f32).result])
    generic = ir.Operation.create(
        "linalg.generic",
        results=[result],
        operands=[tensor.EmptyOp([most], f32).result, filled],
        attributes={
            "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
            "iterator_types": ir.ArrayAttr.get(
                [ir.Attribute.parse(f"#linalg.iterator_type<{kind}>") for kind in kinds]
            ),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1]),
            SPARSE: ir.UnitAttr.get(),
        },
        regions=1,
    )
    block = generic.regions[0].blocks.append(f32, f32)
    with ir.InsertionPoint(block):
        index = ir.IndexType.get()

        def read(source: ir.Value, *indices: ir.Value) -> ir.Value:
            return tensor.ExtractOp(source, list(indices)).result

        def number(value: ir.Value) -> ir.Value:
            return arith.IndexCastOp(index, value).result

        b, n, m, j = (linalg.IndexOp(d).result for d in range(4))
        begin = number(read(starts, n))
        end = number(read(starts, arith.AddIOp(n, arith.ConstantOp(index, 1).result).result))
        term = arith.AddIOp(begin, j).result
        there = arith.CmpIOp(arith.CmpIPredicate.slt, term, end).result
        last = arith.ConstantOp(index, terms - 1).result
        term = arith.MinSIOp(term, last).result
        place = number(read(places, term))
        product = arith.MulFOp(read(values, term), read(dense, b, place, m)).result
        added = arith.SelectOp(there, product, arith.ConstantOp(f32, 0.0).result).result
        linalg.YieldOp([arith.AddFOp(block.arguments[1], added).result])
    return generic.results[0]
