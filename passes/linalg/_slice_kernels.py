"""Outlined kernels that read and write slices of larger tensors, made from those that do not."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from stepwell.kernels.structured import defining_op, shape_of
from stepwell.mlir import dialect, ir, nested_operations

func = dialect("func")
tensor = dialect("tensor")

SliceOf = tuple[ir.RankedTensorType, tuple[int, ...]]
"""The type of a tensor, and where in it a slice begins."""


class Form(Enum):
    """What the kernel of a concatenation gives: the whole, the whole padded, or both."""

    PLAIN = "plain"
    PADDED = "padded"
    BOTH = "both"


@dataclass(frozen=True)
class Part:
    """A part of a concatenation: `value` in the host, None where the kernel computes it."""

    value: ir.Value | None
    shape: tuple[int, ...]
    offset: int


@dataclass(frozen=True, eq=False)
class Concatenation:
    """A call of a kernel that is one `tensor.concat`; `results` says of each result whether it is
    padded."""

    call: ir.Operation
    kernel: ir.Operation
    axis: int
    parts: tuple[Part, ...]
    results: tuple[bool, ...]

    @property
    def form(self) -> Form:
        if len(self.results) == 2:
            return Form.BOTH
        return Form.PADDED if self.results[0] else Form.PLAIN

    def stored(self) -> tuple[ir.RankedTensorType, tuple[int, ...]]:
        """The type of the tensor that is made of the parts, and where the first one begins."""
        returned = _returned(self.kernel)
        if self.form is not Form.PADDED:
            kind = ir.RankedTensorType(returned[self.results.index(False)].type)
            return kind, (0,) * kind.rank
        pad = defining_op(returned[0])
        assert pad is not None
        return ir.RankedTensorType(returned[0].type), tuple(pad.attributes["static_low"])


class SliceKernels:
    """The kernels of a module, and what becomes of them."""

    def __init__(self, module: ir.Block) -> None:
        self.module = module
        self.by_name = {name_of(function): function for function in self.functions()}
        self.made: dict[tuple[object, ...], tuple[str, list[int]]] = {}
        self.replaced: set[str] = set()
        """Kernels of which some call is now one of another kernel."""

    def functions(self) -> list[ir.Operation]:
        return [c.operation for c in self.module.operations if c.operation.name == "func.func"]

    def kernel(self, call: ir.Operation) -> ir.Operation | None:
        """The outlined kernel that an operation calls."""
        if call.name != "func.call":
            return None
        kernel = self.by_name[ir.FlatSymbolRefAttr(call.attributes["callee"]).value]
        outlined = "kernel.kind" in kernel.attributes and len(kernel.regions[0].blocks) == 1
        return kernel if outlined else None

    def concatenation(self, call: ir.Operation) -> Concatenation | None:
        """What `call` concatenates into tensors of its own, if that is all it does."""
        kernel = self.kernel(call)
        if kernel is None or _kind(kernel) != "concatenate" or not _fills_empty(call):
            return None
        wholes = [_whole(value) for value in _returned(kernel)]
        concat = defining_op(wholes[0])
        if concat is None or concat.name != "tensor.concat" or set(wholes) != {wholes[0]}:
            return None
        results = tuple(value != wholes[0] for value in _returned(kernel))
        axis = ir.IntegerAttr(concat.attributes["dim"]).value
        arguments = list(_entry(kernel).arguments)
        parts, offset = [], 0
        for value in concat.operands:
            given = call.operands[arguments.index(value)] if value in arguments else None
            parts.append(Part(given, shape_of(value), offset))
            offset += shape_of(value)[axis]
        if sorted(results) not in ([False], [True], [False, True]):
            return None
        return Concatenation(call, kernel, axis, tuple(parts), results)

    def writes(self, value: ir.Value, kinds: Collection[str]) -> bool:
        """Whether a kernel of one of the kinds makes `value` as it is, in a tensor of its own."""
        call = defining_op(value)
        kernel = self.kernel(call) if call is not None else None
        if call is None or kernel is None or _kind(kernel) not in kinds or not _fills_empty(call):
            return False
        made = defining_op(_returned(kernel)[list(call.results).index(value)])
        return made is not None and made.name.startswith("linalg.")

    def reads(self, call: ir.Operation, number: int, kinds: Collection[str]) -> bool:
        """Whether operand `number` is an input of a kernel of one of the kinds."""
        kernel = self.kernel(call)
        if kernel is None or _kind(kernel) not in kinds:
            return False
        entry = _entry(kernel)
        inside = all(use.owner.operation.block == entry for use in entry.arguments[number].uses)
        return inside and number < len(call.operands) - len(call.results)

    def variant(
        self, call: ir.Operation, reads: Mapping[int, SliceOf], writes: Mapping[int, SliceOf]
    ) -> tuple[str, list[ir.Type]]:
        """The kernel of `call`, with slices for the inputs and results of these numbers; its name
        and the types of its results."""
        kernel = self.kernel(call)
        assert kernel is not None
        key = (name_of(kernel), tuple(reads.items()), tuple(writes.items()))
        if key not in self.made:
            made = self._clone(kernel)
            _read_slices(made, reads)
            _write_slices(made, writes)
            _state_type(made)
            self.made[key] = name_of(made), []
        symbol = self.made[key][0]
        return symbol, [value.type for value in _returned(self.by_name[symbol])]

    def rest(
        self,
        concatenation: Concatenation,
        reads: Mapping[int, SliceOf],
        copied: Collection[int],
        whole: ir.RankedTensorType,
        offsets: tuple[int, ...],
    ) -> tuple[str, list[int]]:
        """A kernel that writes the parts `copied` into a tensor of type `whole`, in which the
        concatenation begins at `offsets`, and the halo around it. Its name, and the numbers of the
        arguments that are left before the tensor."""
        key = (name_of(concatenation.kernel), tuple(reads.items()), tuple(copied), whole, offsets)
        if key not in self.made:
            made = self._clone(concatenation.kernel)
            _read_slices(made, reads)
            entry = _entry(made)
            destination = list(entry.arguments)[-1]
            concat = next(
                c.operation for c in entry.operations if c.operation.name == "tensor.concat"
            )
            _detach(destination)
            destination.set_type(whole)
            with ir.InsertionPoint(concat), concat.location:
                kind = ir.RankedTensorType(concat.results[0].type)
                value = _extract(kind, destination, offsets)
                for number in copied:
                    place = [0] * kind.rank
                    place[concatenation.axis] = concatenation.parts[number].offset
                    value = _insert(concat.operands[number], value, place)
                if concatenation.form is not Form.PADDED:
                    value = _insert(value, destination, offsets)
            concat.results[0].replace_all_uses_with(value)
            concat.erase()
            _erase_unused(entry)
            self.made[key] = name_of(made), _drop_unread(made)
            _state_type(made)
        return self.made[key]

    def padding(self, concatenation: Concatenation) -> str:
        """The name of a kernel that pads the concatenated tensor, which is there."""
        key = (name_of(concatenation.kernel), "padding")
        if key not in self.made:
            made = self._clone(concatenation.kernel)
            entry = _entry(made)
            concat = next(
                c.operation for c in entry.operations if c.operation.name == "tensor.concat"
            )
            terminator = list(entry.operations)[-1].operation
            plain = concatenation.results.index(False)
            source = entry.arguments[0]
            source.set_type(concat.results[0].type)
            concat.results[0].replace_all_uses_with(source)
            padded = terminator.operands[1 - plain]
            with ir.InsertionPoint(terminator):
                func.ReturnOp([padded])
            terminator.erase()
            concat.erase()
            number = len(entry.arguments) - 2 + plain
            _detach(entry.arguments[number])
            entry.erase_argument(number)
            for number in reversed(range(1, len(entry.arguments) - 1)):
                entry.erase_argument(number)
            made.attributes["kernel.kind"] = ir.StringAttr.get("pad")
            _state_type(made)
            self.made[key] = name_of(made), []
        return self.made[key][0]

    def erase_uncalled(self) -> None:
        """Erase the kernels that other ones have replaced."""
        called = {name for function in self.functions() for name in _called(function)}
        for name in self.replaced - called:
            self.by_name.pop(name).erase()

    def _clone(self, kernel: ir.Operation) -> ir.Operation:
        number = len(self.by_name)
        while f"kernel_{number}" in self.by_name:
            number += 1
        with ir.InsertionPoint(self.module):
            made = kernel.clone()
        made.attributes["sym_name"] = ir.StringAttr.get(f"kernel_{number}")
        self.by_name[f"kernel_{number}"] = made
        return made


def name_of(function: ir.Operation) -> str:
    """The symbol of a function."""
    return ir.StringAttr(function.attributes["sym_name"]).value


def _kind(kernel: ir.Operation) -> str:
    return ir.StringAttr(kernel.attributes["kernel.kind"]).value


def _entry(kernel: ir.Operation) -> ir.Block:
    return kernel.regions[0].blocks[0]


def _returned(kernel: ir.Operation) -> list[ir.Value]:
    return list(list(_entry(kernel).operations)[-1].operation.operands)


def _whole(value: ir.Value) -> ir.Value:
    """What `value` pads, or itself."""
    op = defining_op(value)
    return op.operands[0] if op is not None and op.name == "tensor.pad" else value


def _fills_empty(call: ir.Operation) -> bool:
    """Whether all results of a call are written to tensors of their own."""
    destinations = list(call.operands)[len(call.operands) - len(call.results) :]
    makers = [defining_op(value) for value in destinations]
    return all(op is not None and op.name == "tensor.empty" for op in makers)


def _called(function: ir.Operation) -> list[str]:
    return [
        ir.FlatSymbolRefAttr(op.attributes["callee"]).value
        for op in nested_operations(function)
        if op.name == "func.call"
    ]


def _read_slices(kernel: ir.Operation, reads: Mapping[int, SliceOf]) -> None:
    """Give the inputs of these numbers larger types, and read a slice of each."""
    entry = _entry(kernel)
    for number, (whole, offsets) in reads.items():
        argument = entry.arguments[number]
        kind = ir.RankedTensorType(argument.type)
        argument.set_type(whole)
        with ir.InsertionPoint.at_block_begin(entry):
            inside = _extract(kind, argument, offsets)
        argument.replace_all_uses_except(inside, defining_op(inside))


def _write_slices(kernel: ir.Operation, writes: Mapping[int, SliceOf]) -> None:
    """Give the results of these numbers larger types, and write a slice of each destination."""
    entry = _entry(kernel)
    terminator = list(entry.operations)[-1].operation
    first = len(entry.arguments) - len(terminator.operands)
    for number, (whole, offsets) in writes.items():
        destination = entry.arguments[first + number]
        _detach(destination)
        destination.set_type(whole)
        with ir.InsertionPoint(terminator), terminator.location:
            terminator.operands[number] = _insert(terminator.operands[number], destination, offsets)


def _detach(destination: ir.Value) -> None:
    """Let what is computed in `destination` be a tensor of its own."""
    if any(True for _ in destination.uses):
        kind = ir.RankedTensorType(destination.type)
        with ir.InsertionPoint.at_block_begin(destination.owner):
            empty = tensor.EmptyOp(list(kind.shape), kind.element_type).result
        destination.replace_all_uses_with(empty)


def _extract(kind: ir.RankedTensorType, source: ir.Value, offsets: Sequence[int]) -> ir.Value:
    shape = list(kind.shape)
    return tensor.ExtractSliceOp(
        kind, source, [], [], [], list(offsets), shape, [1] * len(shape)
    ).result


def _insert(part: ir.Value, whole: ir.Value, offsets: Sequence[int]) -> ir.Value:
    shape = list(shape_of(part))
    return tensor.InsertSliceOp(
        part, whole, [], [], [], list(offsets), shape, [1] * len(shape)
    ).result


def _erase_unused(block: ir.Block) -> None:
    """Erase what nothing needs any more, but for the terminator."""
    *operations, _ = (child.operation for child in block.operations)
    for op in reversed(operations):
        if not any(True for result in op.results for _ in result.uses):
            op.erase()


def _drop_unread(kernel: ir.Operation) -> list[int]:
    """Drop the inputs that nothing reads, before the one destination; the numbers of the others."""
    entry = _entry(kernel)
    kept = []
    for number in reversed(range(len(entry.arguments) - 1)):
        if any(True for _ in entry.arguments[number].uses):
            kept.append(number)
        else:
            entry.erase_argument(number)
    return kept[::-1]


def _state_type(kernel: ir.Operation) -> None:
    """Let the type of a function say what its arguments and results are."""
    inputs = [argument.type for argument in _entry(kernel).arguments]
    results = [value.type for value in _returned(kernel)]
    kernel.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, results))
