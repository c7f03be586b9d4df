"""Sequences and optional values. They exist at compile time alone: lists of tensors, whose lengths
and positions have to be known, while the tensors in them are computed at run time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Absent, Node, Tensor, TensorSequence, Value
from stepwell.frontends.onnx.registry import Result, operator
from stepwell.frontends.onnx.shaping import normalize_axis


@operator("SequenceConstruct", structures=True)
def sequence_construct(node: Node, *elements: Tensor) -> Result:
    return TensorSequence(elements)


@operator("SequenceEmpty", structures=True)
def sequence_empty(node: Node) -> Result:
    code = node.integer("dtype", onnx.TensorProto.FLOAT)
    return TensorSequence([], np.dtype(onnx.helper.tensor_dtype_to_np_dtype(code)))


@operator("SequenceLength", structures=True)
def sequence_length(node: Node, sequence: Value) -> Result:
    return np.array(len(_elements(node, sequence)), np.int64)


@operator("SequenceAt", structures=True)
def sequence_at(node: Node, sequence: Value, position: Tensor) -> Result:
    elements = _elements(node, sequence)
    return elements[_position(node, position, len(elements), len(elements) - 1)]


@operator("SequenceInsert", structures=True)
def sequence_insert(
    node: Node, sequence: Value, tensor: Tensor, position: Tensor | None = None
) -> Result:
    """The position is one in front of which the tensor goes; by default the end."""
    elements = _elements(node, sequence)
    place = len(elements)
    if position is not None:
        place = _position(node, position, len(elements), len(elements))
    return TensorSequence([*elements[:place], tensor, *elements[place:]])


@operator("SequenceErase", structures=True)
def sequence_erase(node: Node, sequence: Value, position: Tensor | None = None) -> Result:
    elements = _elements(node, sequence)
    place = len(elements) - 1
    if position is not None:
        place = _position(node, position, len(elements), place)
    return TensorSequence([*elements[:place], *elements[place + 1 :]], _dtype(sequence))


@operator("SplitToSequence", structures=True)
def split_to_sequence(node: Node, data: Tensor, split: Tensor | None = None) -> Result:
    """`split` is a size for all parts (the last may be less), or one for each; by default the parts
    have size 1, and lose the axis unless `keepdims`."""
    axis = normalize_axis(node.integer("axis", 0), data.rank)
    length = data.shape[axis]
    sizes = [1] * length
    if split is not None:
        wanted = node.known(split, "split")
        if wanted.ndim:
            sizes = [int(size) for size in wanted.reshape(-1)]
        else:
            step = int(wanted.item())
            if step < 1:
                node.unsupported(f"split is {step}; it must be positive")
            sizes = [min(step, length - begin) for begin in range(0, length, step)]
    if sum(sizes) != length:
        node.unsupported(f"the parts {sizes} do not add up to {length}")
    drop = split is None and not node.integer("keepdims", 1)
    parts: list[Value] = []
    begin = 0
    for size in sizes:
        parts.append(_slice(node, data, axis, begin, size, drop))
        begin += size
    return TensorSequence(parts, data.dtype)


def _slice(node: Node, data: Tensor, axis: int, begin: int, size: int, drop: bool) -> Tensor:
    shape = [n for d, n in enumerate(data.shape) if not (drop and d == axis)]
    if not drop:
        shape[axis] = size
    if data.array is not None:
        index = tuple(
            slice(begin, begin + size) if d == axis else slice(None) for d in range(axis + 1)
        )
        return node.constant_tensor(data.array[index].reshape(shape), f"part{begin}")
    start = [begin if d == axis else 0 for d in range(data.rank)]
    limit = [begin + size if d == axis else n for d, n in enumerate(data.shape)]
    return node.scope.tensor(hlo.reshape(hlo.slice(data.value, start, limit), shape), "")


@operator("ConcatFromSequence", structures=True)
def concat_from_sequence(node: Node, sequence: Value) -> Result:
    elements = [e for e in _elements(node, sequence) if isinstance(e, Tensor)]
    if not elements:
        node.unsupported("the sequence is empty")
    stack = bool(node.integer("new_axis", 0))
    axis = normalize_axis(node.integer("axis", 0), elements[0].rank + stack)
    shapes = [list(element.shape) for element in elements]
    if stack:
        shapes = [[*shape[:axis], 1, *shape[axis:]] for shape in shapes]
    if all(element.array is not None for element in elements):
        join = np.stack if stack else np.concatenate
        return join([e.array for e in elements], axis)  # pyright: ignore[reportCallIssue, reportArgumentType]
    values = [hlo.reshape(e.value, shape) for e, shape in zip(elements, shapes, strict=True)]
    return values[0] if len(values) == 1 else hlo.concatenate(values, axis)


@operator("SequenceMap", structures=True)
def sequence_map(node: Node, sequence: Value, *others: Value) -> Sequence[Result]:
    """The body on every element; of other inputs, sequences give their elements, tensors
    themselves."""
    columns = _elements(node, sequence)
    rows: list[list[Value]] = []
    for index, element in enumerate(columns):
        inputs = [
            _elements(node, other)[index] if isinstance(other, TensorSequence) else other
            for other in others
        ]
        rows.append(node.inline("body", [element, *inputs], str(index)))
    count = len(node.graph("body").output)
    return [TensorSequence([row[i] for row in rows]) for i in range(count)]


@operator("Optional", structures=True)
def optional(node: Node, value: Value | None = None) -> Result:
    return Absent() if value is None else value


@operator("OptionalHasElement", structures=True)
def optional_has_element(node: Node, value: Value | None = None) -> Result:
    return np.array(value is not None and not isinstance(value, Absent))


@operator("OptionalGetElement", structures=True)
def optional_get_element(node: Node, value: Value) -> Result:
    if isinstance(value, Absent):
        node.unsupported("the optional value has no element")
    return value


def _elements(node: Node, value: Value) -> tuple[Value, ...]:
    if not isinstance(value, TensorSequence):
        node.unsupported("its input is no sequence")
    return value.elements


def _dtype(value: Value) -> np.dtype | None:
    return value.dtype if isinstance(value, TensorSequence) else None


def _position(node: Node, position: Tensor, length: int, last: int) -> int:
    """A position counted from the front, which may be `last` at most."""
    index = int(node.known_number(position, "position"))
    place = index + length if index < 0 else index
    if not 0 <= place <= last:
        node.unsupported(f"position {index} is outside of the sequence of {length} elements")
    return place
