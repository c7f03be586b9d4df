"""Constants and what is known at compile time: Constant, ConstantOfShape, Shape, Range, ..."""

from __future__ import annotations

import numpy as np
import onnx

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor, Value
from stepwell.frontends.onnx.registry import Result, operator
from stepwell.frontends.onnx.shaping import normalize_axis


@operator("Constant", folds=True)
def constant(node: Node) -> np.ndarray:
    array = node.array("value")
    if array is not None:
        return array
    for name, kind, get in (
        ("value_float", np.float32, node.number),
        ("value_int", np.int64, node.integer),
        ("value_floats", np.float32, node.numbers),
        ("value_ints", np.int64, node.integers),
    ):
        if name in node:
            return np.array(get(name, 0), kind)
    node.unsupported("a constant of strings or a sparse constant is not supported")


@operator("ConstantOfShape", folds=True)
def constant_of_shape(node: Node, shape: Tensor) -> np.ndarray:
    fill = node.array("value")
    fill = np.zeros(1, np.float32) if fill is None else fill
    return np.broadcast_to(fill.reshape(()), tuple(node.known(shape, "shape").tolist()))


@operator("Shape", folds=True)
def shape(node: Node, data: Tensor) -> np.ndarray:
    start, end = node.integer("start", 0), node.integer("end", data.rank)
    return np.array(data.shape[start:end], np.int64)


@operator("Size", folds=True)
def size(node: Node, data: Tensor) -> np.ndarray:
    return np.array(data.size, np.int64)


@operator("Range", folds=True)
def range_(node: Node, start: Tensor, limit: Tensor, delta: Tensor) -> np.ndarray:
    first = node.known_number(start, "start")
    step = node.known_number(delta, "delta")
    if not step:
        node.unsupported("its delta is 0")
    count = max(int(np.ceil((node.known_number(limit, "limit") - first) / step)), 0)
    return (first + np.arange(count) * step).astype(start.dtype)


@operator("EyeLike", folds=True)
def eye_like(node: Node, data: Tensor) -> np.ndarray:
    code = node.integer("dtype", None)
    kind = data.dtype if code is None else onnx.helper.tensor_dtype_to_np_dtype(code)
    return np.eye(*data.shape, k=node.integer("k", 0), dtype=kind)


@operator("Identity", folds=True, structures=True)
def identity(node: Node, data: Value) -> Value:
    return data


@operator("OneHot")
def one_hot(node: Node, indices: Tensor, depth: Tensor, values: Tensor) -> Result:
    count = int(node.known_number(depth, "depth"))
    axis = normalize_axis(node.integer("axis", -1), indices.rank + 1)
    shape = [*indices.shape[:axis], count, *indices.shape[axis:]]
    kept = [d for d in range(len(shape)) if d != axis]
    index = hlo.convert(indices.value, np.int64)
    wrapped = hlo.select(
        hlo.compare(index, hlo.full_like(index, 0), "LT"),
        hlo.add(index, hlo.full_like(index, count)),
        index,
    )
    position = hlo.iota(shape, axis, np.int64)
    hit = hlo.compare(hlo.broadcast_in_dim(wrapped, shape, kept), position, "EQ")
    off, on = (hlo.reshape(hlo.slice(values.value, [i], [i + 1]), []) for i in range(2))
    return hlo.select(
        hit, hlo.broadcast_in_dim(on, shape, []), hlo.broadcast_in_dim(off, shape, [])
    )
