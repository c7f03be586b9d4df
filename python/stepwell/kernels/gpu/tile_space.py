"""The iteration space of a contraction as blocks of threads see it: rows, columns, places of k.

Rows and k may each be several dimensions of the operation, walked as one; `TileSpace` turns them
back into points, reads operands there, and writes what the group makes of the sums.
"""

from __future__ import annotations

from stepwell.kernels.builder import Lanes, arith, vector
from stepwell.kernels.cpu.contraction_strategy import ContractionShape
from stepwell.kernels.evaluate import slice_offsets, slice_source
from stepwell.kernels.gpu.grid import GridBuilder
from stepwell.kernels.group import KernelGroup, accesses
from stepwell.kernels.index import (
    Index,
    Variable,
    apply_map,
    constant,
    delinearize,
    reshaped,
)
from stepwell.kernels.structured import (
    RESHAPES,
    Structured,
    defining_op,
    shape_of,
)
from stepwell.mlir import ir


class TileSpace:
    """The points of one contraction; `dims` of a point are those of its batch."""

    def __init__(
        self, group: KernelGroup, nest: GridBuilder, op: Structured, shape: ContractionShape
    ) -> None:
        self.group = group
        self.nest = nest
        self.evaluator = group.evaluator
        self.op = op
        self.shape = shape

    def batch_dims(self, number: Index) -> list[Index]:
        """The dimensions of a point, with those of batch `number` filled in."""
        dims = [Index()] * len(self.shape.sizes)
        for axis, index in zip(
            self.shape.batch, self._split(number, self.shape.batch), strict=True
        ):
            dims[axis] = index
        return dims

    def point(self, dims: list[Index], k: Index, place: Index, operand: int) -> list[Index]:
        """The point at `k` and a row (`operand` is the lhs) or a column (it is the rhs)."""
        shape, point = self.shape, list(dims)
        for axis, index in zip(shape.reduced, self._split(k, shape.reduced), strict=True):
            point[axis] = index
        if operand == shape.lhs:
            for axis, index in zip(shape.rows, self._split(place, shape.rows), strict=True):
                point[axis] = index
        else:
            point[shape.column] = place
        return point

    def indices(self, dims: list[Index], k: Index, place: Index, operand: int) -> list[Index]:
        """Where `operand` is read at `k` and a row or a column."""
        return apply_map(self.op.maps[operand], self.point(dims, k, place, operand))

    def view(self, operand: int, indices: list[Index]) -> tuple[ir.Value, list[Index]] | None:
        """The buffer's tensor and the element of it that `operand` has at `indices`, where nothing
        but views lies between."""
        value = self.op.inputs[operand]
        while value not in self.evaluator.buffers:
            op = defining_op(value)
            if op is None:
                return None
            if op.name in RESHAPES:
                indices = reshaped(indices, shape_of(value), shape_of(op.operands[0]))
                value = op.operands[0]
                continue
            if op.name == "tensor.extract_slice":
                indices = slice_source(op, indices, slice_offsets(op, self.evaluator.offset))
                value = op.operands[0]
                continue
            structured = Structured.of(op)
            slices = self.evaluator.slices(structured) if structured is not None else None
            if slices is not None:
                number = self.evaluator.slice_number(slices, indices[: slices.lead])
                value, indices = slices.source, [number, *indices[slices.lead :]]
                continue
            copied = structured.copied_input() if structured is not None else None
            if structured is None or copied is None or not structured.is_elementwise:
                return None
            indices = apply_map(structured.maps[copied], indices)
            value = structured.inputs[copied]
        return value, indices

    def takes_slices(self) -> bool:
        """Whether numbers in memory tell where the rhs lies."""
        sizes = self.shape.sizes
        dims = [Index.of(Variable(f"d{i}", 0, max(n, 1) - 1)) for i, n in enumerate(sizes)]
        found = self.view(self.shape.rhs, apply_map(self.op.maps[self.shape.rhs], dims))
        return found is not None and any(index.is_computed for index in found[1])

    def slice_numbers(self, operand: int, dims: list[Index]) -> list[Index]:
        """The numbers in memory that tell where `operand` lies for the batch of `dims`."""
        found = self.view(operand, self.indices(dims, Index(), Index(), operand))
        assert found is not None
        variables = [v for index in found[1] for v in index.variables() if v.computed]
        return [Index.of(variable) for variable in dict.fromkeys(variables)]

    def limit(self, operand: int) -> int:
        """How many rows (of the lhs) or columns (of the rhs) there are."""
        return self.shape.m if operand == self.shape.lhs else self.shape.n

    def _split(self, flat: Index, axes: tuple[int, ...]) -> list[Index]:
        return delinearize(flat, [self.shape.sizes[axis] for axis in axes])

    def finish(self, dims: list[Index], row: Index, column: Index, total: ir.Value) -> None:
        """Write the outputs of one row and of as many columns as `total` has lanes; those outside
        of the output are left out."""
        count, n = ir.VectorType(total.type).shape[0], self.shape.n
        if n % count == 0:
            lanes = Lanes.of(count)
            with self.nest.inside([(row, self.shape.m), (column, n)]) as branch, branch.then():
                self._write(dims, row, column, total, lanes)
            return
        for lane in range(count):
            bounds = [(row, self.shape.m), (column + lane, n)]
            with self.nest.inside(bounds) as branch, branch.then():
                value = vector.ExtractOp(total, [], [lane]).result
                self._write(dims, row, column + lane, value, Lanes.of(1))

    def result_at(self, dims: list[Index], row: Index, column: Index, lanes: Lanes) -> list[Index]:
        """The element of the contraction's result at a row and the columns from `column` on, all of
        them inside of it."""
        point = list(dims)
        for axis, index in zip(self.shape.rows, self._split(row, self.shape.rows), strict=True):
            point[axis] = index
        point[self.shape.column] = column + lanes.index
        return apply_map(self.op.output_map, point)

    def nearest(self, index: Index, size: int, count: int) -> Index:
        """`index`, a multiple of `count`, or the last one below `size` where it is none."""
        return self._below(index, size, count, clamps=True)

    def output(self, at: list[Index], total: ir.Value, lanes: Lanes) -> ir.Value:
        """What belongs in the group's one output where the sums at the result's element `at` are
        `total`."""
        (output,) = self.group.outputs
        with self.evaluator.scope():
            result = self._bind_sum(at, total, lanes)
            place = self.group.point_of(output, result, at)
            return self.evaluator.at(output.value, place, lanes)

    def read_ahead(self, at: list[Index], lanes: Lanes) -> None:
        """Load what the group's one output reads beside the sums at the result's element `at`: the
        evaluator has it for as long as its scope lasts."""
        (output,) = self.group.outputs
        place = self.group.point_of(output, self.op.op.results[0], at)
        inputs = set(self.group.inputs)
        read = [*accesses(output.value, place, inputs, self.evaluator)]
        read += accesses(self.op.outputs[0], at, inputs, self.evaluator)
        for value, indices in read:
            self.evaluator.at(value, indices, lanes)

    def _write(
        self, dims: list[Index], row: Index, column: Index, total: ir.Value, lanes: Lanes
    ) -> None:
        row = self._below(row, self.shape.m, 1)
        column = self._below(column, self.shape.n, lanes.count)
        with self.evaluator.scope():
            at = self.result_at(dims, row, column, lanes)
            result = self._bind_sum(at, total, lanes)
            for output in self.group.outputs:
                self.group.write(output, self.group.point_of(output, result, at), lanes)

    def _bind_sum(self, at: list[Index], total: ir.Value, lanes: Lanes) -> ir.Value:
        """Let the evaluator know the result, whose products at `at` add up to `total`."""
        result = self.op.op.results[0]
        initial = self.evaluator.at(self.op.outputs[0], at, lanes)
        self.evaluator.bind(result, at, self.nest.add(self.nest.as_vector(initial, lanes), total))
        return result

    def _below(self, index: Index, size: int, count: int, *, clamps: bool = False) -> Index:
        """`index`, a multiple of `count` that is below `size` here, or is made so, as one that says
        so: the places of outputs of other shapes are then those that the evaluator comes back
        to."""
        group, last = index.floordiv(count), (size - 1) // count
        if clamps and index.low >= size:
            return constant(last * count)
        if index.high < size or index.low >= size:
            return index
        value = self.nest.index_value(group, Lanes.of(1))
        if clamps:
            value = arith.MinSIOp(value, arith.ConstantOp(ir.IndexType.get(), last).result).result
        return Index.of(Variable("inside", group.low, last, value, group.is_computed)) * count
