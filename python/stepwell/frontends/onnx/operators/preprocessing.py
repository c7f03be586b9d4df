"""Preparing features, of ai.onnx.ml: Scaler, Imputer, Normalizer, encoders of categories, ..."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import operator
from stepwell.frontends.onnx.shaping import reduce
from stepwell.mlir import ir

_DOMAIN = "ai.onnx.ml"


def _column_numbers(
    node: Node, name: str, values: Sequence[float] | Sequence[int], x: Tensor, kind: np.dtype
) -> ir.Value:
    """One number for all of x, or one for each index of its last dimension."""
    row = np.array(values, kind)
    last = x.shape[-1] if x.rank else 1
    if row.size not in (1, last):
        node.unsupported(f"{name} has {row.size} numbers, and x has {last} columns")
    if row.size == 1:
        return hlo.full(row.item(), x.shape, kind)
    return hlo.broadcast_in_dim(node.constant(row, name), x.shape, [x.rank - 1])


@operator("Scaler", domain=_DOMAIN)
def scaler(node: Node, x: Tensor) -> ir.Value:
    """`(x - offset) * scale`, float32."""
    value, kind = hlo.convert(x.value, np.float32), np.dtype(np.float32)
    offset = _column_numbers(node, "offset", node.numbers("offset", [0.0]), x, kind)
    scale = _column_numbers(node, "scale", node.numbers("scale", [1.0]), x, kind)
    return hlo.multiply(hlo.subtract(value, offset), scale)


@operator("Imputer", domain=_DOMAIN)
def imputer(node: Node, x: Tensor) -> ir.Value:
    """One value, possibly NaN, is replaced by another in each column."""
    floats = x.dtype.kind == "f"
    suffix = "floats" if floats else "int64s"
    values = node.numbers("imputed_value_floats", [])
    replaced: float = node.number("replaced_value_float", 0.0)
    if not floats:
        values = node.integers("imputed_value_int64s", [])
        replaced = node.integer("replaced_value_int64", 0)
    if not values:
        node.unsupported(f"imputed_value_{suffix} is not given, and x is {x.dtype}")
    if np.isnan(replaced):
        hit = hlo.compare(x.value, x.value, "NE")
    else:
        hit = hlo.compare(x.value, hlo.full_like(x.value, replaced), "EQ")
    imputed = _column_numbers(node, f"imputed_value_{suffix}", values, x, x.dtype)
    return hlo.select(hit, imputed, x.value)


@operator("Normalizer", domain=_DOMAIN)
def normalizer(node: Node, x: Tensor) -> ir.Value:
    """Each row divided by its greatest number, the sum of its magnitudes (L1), or its length (L2);
    float32. Rows of zeros stay."""
    norm = node.text("norm", "MAX")
    value, last = hlo.convert(x.value, np.float32), x.rank - 1
    if norm == "MAX":
        size = reduce(value, [last], "maximum")
    elif norm == "L1":
        size = reduce(hlo.abs(value), [last], "add")
    elif norm == "L2":
        size = hlo.sqrt(reduce(hlo.multiply(value, value), [last], "add"))
    else:
        node.unsupported(f'the norm "{norm}" is not known')
    divisor = hlo.select(
        hlo.compare(size, hlo.full_like(size, 0), "EQ"), hlo.full_like(size, 1), size
    )
    return hlo.divide(value, hlo.broadcast_in_dim(divisor, x.shape, range(x.rank)))


@operator("Binarizer", domain=_DOMAIN)
def binarizer(node: Node, x: Tensor) -> ir.Value:
    """1 above `threshold`, else 0, in the type of x."""
    limit = hlo.full(node.number("threshold", 0.0), x.shape, np.float32)
    above = hlo.compare(hlo.convert(x.value, np.float32), limit, "GT")
    return hlo.convert(above, x.dtype)


@operator("ArrayFeatureExtractor", domain=_DOMAIN)
def array_feature_extractor(node: Node, x: Tensor, indices: Tensor) -> ir.Value:
    """The elements at `indices` of the last dimension; a vector gives one row."""
    value = x.value if x.rank > 1 else hlo.reshape(x.value, [1, *x.shape])
    *outer, _ = hlo.shape(value)
    index = hlo.reshape(hlo.convert(indices.value, np.int64), [indices.size, 1])
    rank = len(outer)
    dimensions = hlo.GatherDimensions(range(rank), (rank,), (rank,), 1)
    return hlo.gather(value, index, dimensions, [*outer, 1])


@operator("OneHotEncoder", domain=_DOMAIN)
def one_hot_encoder(node: Node, x: Tensor) -> ir.Value:
    """A new last dimension with 1 at the index of the category, float32; unknown ones have none."""
    categories = node.integers("cats_int64s", [])
    if not categories:
        node.unsupported("its categories are strings; only integers are supported")
    if not node.integer("zeros", 1):
        node.unsupported("zeros=0 makes an unknown category an error; only zeros=1 is supported")
    shape = [*x.shape, len(categories)]
    table = node.constant(np.array(categories, np.int64), "categories")
    value = hlo.convert(x.value, np.int64)
    hit = hlo.compare(
        hlo.broadcast_in_dim(value, shape, range(x.rank)),
        hlo.broadcast_in_dim(table, shape, [x.rank]),
        "EQ",
    )
    return hlo.convert(hit, np.float32)


@operator("LabelEncoder", since=2, domain=_DOMAIN)
def label_encoder(node: Node, x: Tensor) -> ir.Value:
    """Keys to values of the same index, anything else to the default. NaN is a key
    like others since version 4."""
    keys = _label_attribute(node, "keys")
    values = _label_attribute(node, "values")
    default = node.array("default_tensor")
    if default is None:
        given = (
            node.number("default_float", 0.0)
            if values.dtype.kind == "f"
            else node.integer("default_int64", -1)
        )
        default = np.array(given, values.dtype)
    if keys.size != values.size:
        node.unsupported(f"there are {keys.size} keys and {values.size} values")
    shape = [*x.shape, keys.size]
    operand = hlo.broadcast_in_dim(hlo.convert(x.value, keys.dtype), shape, range(x.rank))
    table = hlo.broadcast_in_dim(node.constant(keys, "keys"), shape, [x.rank])
    hit = hlo.compare(operand, table, "EQ")
    if keys.dtype.kind == "f" and node.opset >= 4:
        both = hlo.and_(hlo.compare(operand, operand, "NE"), hlo.compare(table, table, "NE"))
        hit = hlo.or_(hit, both)
    # The position of the last hit, as in a dictionary; position 0 holds the default.
    position = hlo.add(hlo.iota(shape, x.rank, np.int32), hlo.full(1, shape, np.int32))
    found = hlo.select(hit, position, hlo.full(0, shape, np.int32))
    index = reduce(found, [x.rank], "maximum", keep=False)
    choices = node.constant(np.concatenate([default.reshape(1), values]), "values")
    dimensions = hlo.GatherDimensions((), (0,), (0,), x.rank)
    return hlo.gather(choices, hlo.reshape(index, [*x.shape, 1]), dimensions, [1])


def _label_attribute(node: Node, role: str) -> np.ndarray:
    array = node.array(f"{role}_tensor")
    if array is not None:
        return array.reshape(-1)
    if f"{role}_int64s" in node:
        return np.array(node.integers(f"{role}_int64s", []), np.int64)
    if f"{role}_floats" in node:
        return np.array(node.numbers(f"{role}_floats", []), np.float32)
    node.unsupported(f"its {role} are strings; only numbers are supported")


@operator("FeatureVectorizer", domain=_DOMAIN)
def feature_vectorizer(node: Node, *operands: Tensor) -> ir.Value:
    """The columns of all inputs side by side, each cut or filled with zeros to its
    `inputdimensions`; float32."""
    parts: list[ir.Value] = []
    for operand, width in zip(operands, node.integers("inputdimensions", []), strict=True):
        value = hlo.convert(operand.value, np.float32)
        if operand.rank == 1:
            value = hlo.reshape(value, [operand.size, 1])
        zero = hlo.full(0, [], np.float32)
        parts.append(hlo.pad(value, zero, [0, 0], [0, width - hlo.shape(value)[1]]))
    return hlo.concatenate(parts, 1)
