"""What an operator function sees: its node with typed attributes, and its inputs as tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn, Protocol, TypeAlias, TypeVar

import numpy as np
import onnx

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx import reader
from stepwell.mlir import ir
from stepwell.weights import WeightTable

Default = TypeVar("Default")
Built = TypeVar("Built")


class NotSupportedError(Exception):
    """Raised by an operator function; becomes one line of the importer's UnsupportedError."""


class NeededError(Exception):
    """Raised where a tensor computed at run time has to be known: its data, or its true shape."""

    def __init__(self, tensor: Tensor, sort: str, reason: str) -> None:
        self.tensor, self.sort = tensor, sort
        super().__init__(reason)


class StuckError(Exception):
    """Raised where a subgraph cannot become a region of the IR: something computed inside of it has
    to be known. Each of `reasons` is a sentence."""

    def __init__(self, reasons: list[str]) -> None:
        self.reasons = reasons
        super().__init__(reasons[0])


class PendingError(Exception):
    """Raised where a subgraph could not be imported for a reason that is already recorded."""


@dataclass
class Scope:
    """Where a graph is built: the weight table, the block of constants, the source's folder.

    `named` holds the run-time tensors outside of regions by their unique names. Of the inputs,
    `offered` are values that may be taken as known; `taken` are those that were.
    """

    weights: WeightTable
    entry: ir.Block
    folder: Path
    named: dict[str, Tensor] = field(default_factory=dict)
    offered: Mapping[str, np.ndarray] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def constant(self, array: np.ndarray, name: str) -> Tensor:
        """A compile-time constant; it enters the IR when its `value` is first used."""
        return Tensor(self, name, array.dtype, array.shape, array)

    def tensor(self, value: ir.Value, name: str) -> Tensor:
        """A tensor computed at run time."""
        return Tensor(self, name, hlo.dtype(value), hlo.shape(value), None, value)


class Tensor:
    """A value of the ONNX graph. `array` holds its data when that is known at compile time.

    Where the shape depends on data, `shape` is the largest, and `sizes` has the true size (a scalar
    of int64) by dimension. No operator gets such a tensor as an input.
    """

    def __init__(
        self,
        scope: Scope,
        name: str,
        dtype: np.dtype,
        shape: tuple[int, ...],
        array: np.ndarray | None,
        value: ir.Value | None = None,
    ) -> None:
        self.scope, self.name, self.array, self._value = scope, name, array, value
        self.dtype, self.shape = np.dtype(dtype), tuple(int(n) for n in shape)
        self.sizes: dict[int, ir.Value] = {}
        self.is_filled = False
        """Whether `array` is one number throughout, as many as a shape says."""
        self.blocks: np.ndarray | None = None
        """The data of a tensor that is computed at run time although it is known."""

    @property
    def known(self) -> np.ndarray | None:
        """Its data, where that is known at compile time."""
        return self.blocks if self.array is None else self.array

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def value(self) -> ir.Value:
        """The IR value; a constant is placed at the head of the function on its first use."""
        if self._value is None:
            assert self.array is not None
            with (
                ir.InsertionPoint.at_block_begin(self.scope.entry),
                ir.Location.name(self.name),
            ):
                self._value = hlo.constant(self.array, self.scope.weights, self.name)
        return self._value


class TensorSequence:
    """A sequence: its length is known at compile time. `dtype` is that of its tensors."""

    def __init__(self, elements: Sequence[Value], dtype: np.dtype | None = None) -> None:
        self.elements = tuple(elements)
        first = self.elements[0] if self.elements else None
        self.dtype: np.dtype | None = getattr(first, "dtype", dtype)


class Absent:
    """An optional value without an element; one with an element is that element."""

    dtype = None


Value: TypeAlias = "Tensor | TensorSequence | Absent"


class HostLoopError(Exception):
    """Raised where a loop has to be run by the caller, iteration by iteration, for the `reason`;
    `read` has the tensors behind the names that it reads."""

    def __init__(self, reason: str, read: dict[str, str]) -> None:
        self.read = read
        super().__init__(reason)


class Subgraphs(Protocol):
    """How a node imports the graphs among its attributes. `label` tells uses of one graph apart."""

    def inline(self, graph: onnx.GraphProto, inputs: Sequence[Value], label: str) -> list[Value]:
        """Import `graph` at the place of its node; returns its outputs. Raises PendingError."""
        ...

    def region(self, graph: onnx.GraphProto, inputs: Sequence[Value], label: str) -> list[Tensor]:
        """Import `graph` into a region. Raises StuckError besides."""
        ...

    def named(self, value: ir.Value, label: str) -> Tensor:
        """`value` with a name of its own, so that it can be made known."""
        ...

    def or_on_host(self, build: Callable[[], Built], proto: onnx.NodeProto, reason: str) -> Built:
        """What `build` makes of the loop `proto`. Raises HostLoopError instead where that takes
        values from inside of it, or its number of iterations, and these are not known, or not the
        same in all calls."""
        ...


def node_name(proto: onnx.NodeProto) -> str:
    """What a node is called: by its own name, or after its first output."""
    first = next((output for output in proto.output if output), "")
    return proto.name or f"{proto.op_type}_{first}"


class Node:
    """One node of the graph: attributes by type, with the defaults of the specification."""

    def __init__(
        self, proto: onnx.NodeProto, opset: int, scope: Scope, subgraphs: Subgraphs | None = None
    ) -> None:
        self.proto, self.opset, self.scope, self._subgraphs = proto, opset, scope, subgraphs
        self.operator = proto.op_type
        self.name = node_name(proto)
        self._attributes = {attribute.name: attribute for attribute in proto.attribute}

    def __contains__(self, attribute: str) -> bool:
        return attribute in self._attributes

    def integer(self, name: str, default: Default) -> int | Default:
        """Integer attribute `name`."""
        attribute = self._attributes.get(name)
        return default if attribute is None else attribute.i

    def number(self, name: str, default: float) -> float:
        """Float attribute `name`."""
        attribute = self._attributes.get(name)
        return default if attribute is None else attribute.f

    def text(self, name: str, default: str) -> str:
        """String attribute `name`."""
        attribute = self._attributes.get(name)
        return default if attribute is None else attribute.s.decode(errors="replace")

    def integers(self, name: str, default: Default) -> list[int] | Default:
        """List of integers `name`."""
        attribute = self._attributes.get(name)
        return default if attribute is None else list(attribute.ints)

    def numbers(self, name: str, default: Default) -> list[float] | Default:
        """List of floats `name`."""
        attribute = self._attributes.get(name)
        return default if attribute is None else list(attribute.floats)

    def array(self, name: str) -> np.ndarray | None:
        """Tensor attribute `name`, None when it is absent."""
        attribute = self._attributes.get(name)
        return None if attribute is None else reader.tensor_array(attribute.t, self.scope.folder)

    def graph(self, name: str) -> onnx.GraphProto:
        """Graph attribute `name`."""
        if name not in self._attributes:
            self.unsupported(f'it has no attribute "{name}"')
        return self._attributes[name].g

    def inline(
        self, name: str, inputs: Sequence[Value] = (), label: str | None = None
    ) -> list[Value]:
        """Import graph attribute `name` in place with `inputs`; returns its outputs. `label` tells
        several uses of one graph apart."""
        assert self._subgraphs is not None
        return self._subgraphs.inline(self.graph(name), inputs, name if label is None else label)

    def region(self, name: str, inputs: Sequence[Value] = ()) -> list[Tensor]:
        """Import graph attribute `name` at the insertion point inside a region.

        Raises StuckError when that is not possible: something computed inside has to be known.
        """
        assert self._subgraphs is not None
        return self._subgraphs.region(self.graph(name), inputs, name)

    def named(self, value: ir.Value, label: str) -> Tensor:
        """`value`, computed on the way to the outputs, with a name of its own, so that `known` can
        ask for it; it is known when it was asked for before."""
        assert self._subgraphs is not None
        return self._subgraphs.named(value, label)

    def or_on_host(self, build: Callable[[], Built], reason: str) -> Built:
        """What `build` makes of this loop. Where that takes values from inside of it, or its number
        of iterations, and these differ between calls, the import ends with an OpenModelError that
        names the loop, which the caller runs for the `reason`."""
        assert self._subgraphs is not None
        return self._subgraphs.or_on_host(build, self.proto, reason)

    def used_outputs(self) -> int:
        """How many outputs the node names, trailing omitted ones not counted."""
        return max((i + 1 for i, name in enumerate(self.proto.output) if name), default=0)

    def axes(self, operand: Tensor | None, default: Sequence[int] | None) -> list[int] | None:
        """Axes from input `operand` (newer opsets) or from attribute `axes` (older ones)."""
        if operand is not None:
            return [int(v) for v in self.known(operand, "axes").reshape(-1)]
        return self.integers("axes", None if default is None else list(default))

    def known(self, operand: Tensor, role: str) -> np.ndarray:
        """The data of `operand`, which must be known at compile time: otherwise the import ends
        with an OpenModelError that names it, and the model is compiled again for its value."""
        if operand.known is not None:
            return operand.known
        scope = self.scope
        if operand.name in scope.offered and scope.named.get(operand.name) is operand:
            scope.taken.add(operand.name)
            return scope.offered[operand.name]
        raise NeededError(
            operand,
            "values",
            f'the input "{operand.name}" ({role}) is computed at run time, and has to be known '
            "when the model is compiled",
        )

    def known_number(self, operand: Tensor, role: str) -> float:
        """The one number in `operand`, which must be known at compile time as in `known`."""
        self.require_number(operand, role)
        return self.known(operand, role).item()

    def require_number(self, operand: Tensor, role: str) -> None:
        """Refuse the node unless `operand` is one number."""
        if operand.size != 1:
            self.unsupported(
                f'the input "{operand.name}" ({role}) of shape {list(operand.shape)} should be '
                "one number"
            )

    def bounded(self, value: ir.Value, sizes: Mapping[int, ir.Value]) -> Tensor:
        """A result whose shape depends on data: `value` is as large as it can get, and along each
        dimension in `sizes` only so many of its first elements count (scalars of int64)."""
        tensor = self.scope.tensor(value, "")
        tensor.sizes = dict(sizes)
        return tensor

    def unsupported(self, reason: str) -> NoReturn:
        """Stop importing this node; `reason` is one sentence for the user."""
        raise NotSupportedError(reason)

    def constant(self, array: np.ndarray, role: str) -> ir.Value:
        """An IR constant of `array`, named after the node and its `role`."""
        return self.constant_tensor(array, role).value

    def constant_tensor(self, array: np.ndarray, role: str) -> Tensor:
        """A tensor known at compile time, named after the node and its `role`."""
        return self.scope.constant(array, f"{self.name}.{role}")
