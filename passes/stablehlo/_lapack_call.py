"""Builds the library call that stands for one custom call of LAPACK.

In memory a matrix has the layout that the custom call gives it, and a complex number is its two
parts: operands are transposed and split accordingly, results put together again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from stepwell import dtypes
from stepwell.dialects import stablehlo as hlo
from stepwell.errors import LoweringError
from stepwell.kernels.library_call import ATTRIBUTE, TARGET, Buffer, LibraryCall
from stepwell.mlir import ir
from stepwell.passes.stablehlo._lapack_signatures import call_name

Argument = int | float | str | Buffer | None
"""An integer, a number of the matrices' type, "char U", a buffer, or no address."""

BLOCK = 64
"""Columns that LAPACK works on at a time, where there is room."""

BLOCK_REFLECTORS = 65 * 64
"""Elements of the triangular factor that newer versions put at the end of the working memory."""


def leading(size: int) -> int:
    """A leading dimension is 1 at least."""
    return max(size, 1)


def char(letter: str) -> str:
    """A letter as an argument."""
    return f"char {letter}"


class LapackCall:
    """A custom call on `batch` matrices of LAPACK's type `prefix` (s, d, c, z). Routines ask for
    its operands and results as buffers, then `run` it."""

    def __init__(self, op: ir.Operation, prefix: str, batch: int, column_major: bool) -> None:
        self.op = op
        self.prefix = prefix
        self.part = np.float32 if prefix in "sc" else np.float64
        self.is_complex = prefix in "cz"
        self.batch = batch
        self._column_major = column_major
        self._inputs: list[ir.Value] = []
        self._updated: list[tuple[int, ir.Value]] = []
        self._types: list[ir.RankedTensorType] = []
        self._numbers: dict[int, int] = {}
        self._work: list[ir.Type] = []
        self._results: list[ir.Value] = []

    # What the custom call says

    def shape(self, operand: int) -> tuple[int, ...]:
        """The shape of an operand."""
        return hlo.shape(self.op.operands[operand])

    def option(self, name: str) -> int:
        """The number that the call's configuration gives for `name`; a flag is 0 or 1."""
        for place in ("mhlo.backend_config", "backend_config"):
            if isinstance(self.op.attributes.get(place, None), ir.DictAttr):
                entries = ir.DictAttr(self.op.attributes[place])
                if name in entries:
                    return int(entries[name].value)  # pyright: ignore[reportAttributeAccessIssue]
        raise self.refusal(f"its configuration does not give {name}")

    def letter(self, name: str, known: str) -> str:
        """The letter, one of `known`, that the call's configuration gives for `name`."""
        letter = chr(self.option(name))
        if letter not in known:
            raise self.refusal(f"{name} is {letter}; known are {', '.join(known)}")
        return letter

    def refusal(self, reason: str) -> LoweringError:
        """The error that says why the call cannot be made."""
        return LoweringError(f"{call_name(self.op)}: {reason}")

    # Buffers of the library call

    def operand(self, number: int) -> Buffer:
        """An operand that is read."""
        return self.given(self._in_memory(number))

    def given(self, value: ir.Value) -> Buffer:
        """A value that is read as it lies in memory."""
        self._inputs.append(value)
        return Buffer("operand", len(self._inputs) - 1)

    def updated(self, number: int, result: int | None, value: ir.Value | None = None) -> Buffer:
        """An operand, or `value` in its place, that `result` overwrites (None: none shows it)."""
        return self.overwritten(self._in_memory(number, value), result)

    def overwritten(self, start: ir.Value, result: int | None = None) -> Buffer:
        """A value as it lies in memory, that `result` overwrites."""
        buffer = self._add_result(hlo.tensor_type(start), result)
        self._updated.append((buffer.number, start))
        return buffer

    def result(self, number: int) -> Buffer:
        """A result of the custom call."""
        kind = ir.RankedTensorType(self.op.results[number].type)
        shape = [kind.shape[d] for d in self._order("result", number)]
        element = kind.element_type
        if isinstance(element, ir.ComplexType):
            shape, element = [*shape, 2], ir.ComplexType(element).element_type
        return self._add_result(ir.RankedTensorType.get(shape, element), number)

    def real_result(self, shape: Sequence[int]) -> Buffer:
        """A result of real numbers that the custom call itself does not have."""
        return self._add_result(ir.RankedTensorType.get(shape, dtypes.to_mlir(self.part)), None)

    def integer_result(self, shape: Sequence[int]) -> Buffer:
        """A result of integers that the custom call itself does not have."""
        return self._add_result(ir.RankedTensorType.get(shape, dtypes.to_mlir(np.int32)), None)

    def _add_result(self, kind: ir.RankedTensorType, number: int | None) -> Buffer:
        self._types.append(kind)
        if number is not None:
            self._numbers[number] = len(self._types) - 1
        return Buffer("result", len(self._types) - 1)

    def work(self, elements: int) -> Buffer:
        """Working memory for numbers of the matrices' type."""
        return self._memory(elements * (2 if self.is_complex else 1), self.part)

    def real_work(self, elements: int) -> Buffer:
        """Working memory for real numbers."""
        return self._memory(elements, self.part)

    def integer_work(self, elements: int) -> Buffer:
        """Working memory for integers."""
        return self._memory(elements, np.int32)

    def _memory(self, elements: int, kind: type) -> Buffer:
        self._work.append(ir.RankedTensorType.get([max(elements, 1)], dtypes.to_mlir(kind)))
        return Buffer("work", len(self._work) - 1)

    # The call

    def run(self, library: str, name: str, *arguments: Argument) -> list[ir.Value]:
        """Call `library.<prefix><name>` for each matrix of the batch; returns the results of the
        custom call, zero where no buffer was asked for."""
        description = LibraryCall(
            f"{library}.{self.prefix}{name}",
            self.batch,
            tuple(self._text(argument) for argument in arguments),
            tuple(self._work),
            tuple(number for number, _ in self._updated),
        )
        call = ir.Operation.create(
            "stablehlo.custom_call",
            list(self._types),
            [*self._inputs, *(value for _, value in self._updated)],
            {
                "call_target_name": ir.StringAttr.get(TARGET),
                ATTRIBUTE: description.to_attribute(),
            },
        )
        self._results = list(call.results)
        return [
            self._from_memory(self._results[self._numbers[number]], number)
            if number in self._numbers
            else zeros(result)
            for number, result in enumerate(self.op.results)
        ]

    def _text(self, argument: Argument) -> str:
        if argument is None:
            return "null"
        if isinstance(argument, int):
            return f"i32 {argument}"
        if isinstance(argument, float):
            kind = dtypes.to_mlir(self.part)
            return f"{kind} {argument}" + (" 0.0" if self.is_complex else "")
        return str(argument)

    def raw(self, buffer: Buffer) -> ir.Value:
        """A result of the library call as it lies in memory."""
        return self._results[buffer.number]

    # Layouts

    def is_by_columns(self) -> bool:
        """Whether all operands lie as LAPACK wants them, so that it sees what the program does."""
        orders = [self._order("operand", number) for number in range(len(self.op.operands))]
        return all(
            order == [*range(len(order) - 2), len(order) - 1, len(order) - 2] for order in orders
        )

    def _order(self, kind: str, number: int) -> list[int]:
        """The dimensions of an operand or result from the slowest to the fastest in memory."""
        values = self.op.operands if kind == "operand" else self.op.results
        rank = len(hlo.shape(values[number]))
        layouts = f"{kind}_layouts"
        if layouts in self.op.attributes:
            layout = ir.DenseIntElementsAttr(ir.ArrayAttr(self.op.attributes[layouts])[number])
            return [int(d) for d in layout][::-1]
        if self._column_major and rank > 1:
            return [*range(rank - 2), rank - 1, rank - 2]
        return list(range(rank))

    def _in_memory(self, number: int, value: ir.Value | None = None) -> ir.Value:
        value = self.op.operands[number] if value is None else value
        return parts(_transposed(value, self._order("operand", number)))

    def _from_memory(self, value: ir.Value, number: int) -> ir.Value:
        order = self._order("result", number)
        inverse = [order.index(d) for d in range(len(order))]
        if isinstance(hlo.element_type(self.op.results[number]), ir.ComplexType):
            value = whole(value)
        return _transposed(value, inverse)


def if_complex(call: LapackCall, buffer: Callable[[], Buffer]) -> list[Buffer]:
    """An argument that functions of complex matrices have alone."""
    return [buffer()] if call.is_complex else []


def _transposed(value: ir.Value, order: list[int]) -> ir.Value:
    return value if order == sorted(order) else hlo.transpose(value, order)


def parts(value: ir.Value) -> ir.Value:
    """Complex numbers as real and imaginary parts side by side; real numbers as they are."""
    if not isinstance(hlo.element_type(value), ir.ComplexType):
        return value
    shape = [*hlo.shape(value), 1]
    halves = [hlo.reshape(hlo.unary(name, value), shape) for name in ("real", "imag")]
    return hlo.concatenate(halves, len(shape) - 1)


def whole(value: ir.Value) -> ir.Value:
    """The inverse of `parts`."""
    *shape, _ = hlo.shape(value)
    start = [0] * len(shape)
    halves = [
        hlo.reshape(hlo.slice(value, [*start, part], [*shape, part + 1]), shape)
        for part in range(2)
    ]
    return hlo.binary("complex", *halves)


def zeros(like: ir.Value) -> ir.Value:
    """Zeros of the type of `like`, which may be complex."""
    kind = ir.RankedTensorType(like.type)
    if not isinstance(kind.element_type, ir.ComplexType):
        return hlo.full_like(like, 0)
    zero = hlo.full(0.0, list(kind.shape), dtypes.to_numpy(kind.element_type.element_type))
    return hlo.binary("complex", zero, zero)
