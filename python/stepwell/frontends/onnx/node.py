"""What an operator function sees: its node with typed attributes, and its inputs as tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeVar

import numpy as np
import onnx

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx import reader
from stepwell.mlir import ir
from stepwell.weights import WeightTable

Default = TypeVar("Default")


class NotSupportedError(Exception):
    """Raised by an operator function; becomes one line of the importer's UnsupportedError."""


@dataclass
class Scope:
    """Where a graph is built: the weight table, the block of constants, the source's folder."""

    weights: WeightTable
    entry: ir.Block
    folder: Path

    def constant(self, array: np.ndarray, name: str) -> Tensor:
        """A compile-time constant; it enters the IR when its `value` is first used."""
        return Tensor(self, name, array.dtype, array.shape, array)

    def tensor(self, value: ir.Value, name: str) -> Tensor:
        """A tensor computed at run time."""
        return Tensor(self, name, hlo.dtype(value), hlo.shape(value), None, value)


class Tensor:
    """A value of the ONNX graph. `array` holds its data when that is known at compile time."""

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


Inline = Callable[[onnx.GraphProto], list[Tensor]]
"""Imports a subgraph at the place of its node."""


class Node:
    """One node of the graph: attributes by type, with the defaults of the specification."""

    def __init__(
        self, proto: onnx.NodeProto, opset: int, scope: Scope, inline: Inline | None = None
    ) -> None:
        self.proto, self.opset, self.scope, self._inline = proto, opset, scope, inline
        self.operator = proto.op_type
        first = next((output for output in proto.output if output), "")
        self.name = proto.name or f"{proto.op_type}_{first}"
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
        return default if attribute is None else attribute.s.decode()

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

    def inline(self, name: str) -> list[Tensor]:
        """Import graph attribute `name` in place; returns its outputs."""
        assert self._inline is not None
        return self._inline(self._attributes[name].g)

    def used_outputs(self) -> int:
        """How many outputs the node names, trailing omitted ones not counted."""
        return max((i + 1 for i, name in enumerate(self.proto.output) if name), default=0)

    def axes(self, operand: Tensor | None, default: Sequence[int] | None) -> list[int] | None:
        """Axes from input `operand` (newer opsets) or from attribute `axes` (older ones)."""
        if operand is not None:
            return [int(v) for v in self.known(operand, "axes").reshape(-1)]
        return self.integers("axes", None if default is None else list(default))

    def known(self, operand: Tensor, role: str) -> np.ndarray:
        """The data of `operand`, which must be known at compile time."""
        if operand.array is None:
            self.unsupported(
                f'the input "{operand.name}" ({role}) is computed at run time; '
                "it has to be a constant, so that all shapes are static"
            )
        return operand.array

    def unsupported(self, reason: str) -> NoReturn:
        """Stop importing this node; `reason` is one sentence for the user."""
        raise NotSupportedError(reason)

    def constant(self, array: np.ndarray, role: str) -> ir.Value:
        """An IR constant of `array`, named after the node and its `role`."""
        return self.scope.constant(array, f"{self.name}.{role}").value
