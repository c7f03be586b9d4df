"""Constant data in and out of MLIR attributes, also where the bindings cannot read or write it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from stepwell import dtypes
from stepwell.errors import LoweringError
from stepwell.mlir import ir

if TYPE_CHECKING:
    from stepwell.weights import WeightTable

_ALIGNMENT_BYTES = 4
"""A resource's blob in text begins with its alignment, a little-endian 32-bit integer."""

_RESOURCE = re.compile(rb'^\s*"?([^\s":]+)"?: "0x([0-9A-Fa-f]*)"', re.MULTILINE)
_NUMBER = re.compile(r"0x[0-9A-Fa-f]+|[-+]?[0-9][0-9.]*(?:[eE][-+]?[0-9]+)?")
_RESOURCE_NAME = re.compile(r'dense_resource<"?([^">]+)"?>')
_HEX = 'dense<"0x'


def read_resources(text: bytes) -> dict[str, bytes]:
    """The blobs of the `{-# dialect_resources ... #-}` section at the end of MLIR text, by name."""
    start = text.rfind(b"{-#")
    if start < 0:
        return {}
    return {
        match.group(1).decode(): bytes.fromhex(match.group(2).decode())[_ALIGNMENT_BYTES:]
        for match in _RESOURCE.finditer(text, start)
    }


def has_buffer(dtype: np.dtype) -> bool:
    """Whether the bindings give dense data of `dtype` as an array."""
    return dtype != np.float16 and dtype != dtypes.BFLOAT16 and not dtypes.is_small(dtype)


def read_dense(attribute: ir.DenseElementsAttr) -> np.ndarray:
    """The data of a `dense<...>` attribute that is no splat.

    The bindings have no buffer of 16-bit and smaller floats, nor of integers smaller than a byte;
    those are read from the attribute's text.
    """
    kind = ir.RankedTensorType(attribute.type)
    dtype, shape = dtypes.to_numpy(kind.element_type), tuple(kind.shape)
    if has_buffer(dtype):
        return np.array(attribute).astype(dtype, copy=False).reshape(shape)
    text = str(attribute)
    if text.startswith(_HEX):
        data = bytes.fromhex(text[len(_HEX) : text.index('"', len(_HEX))])
        return np.frombuffer(data, dtype).reshape(shape)
    bits = np.dtype(f"u{dtype.itemsize}")
    tokens = _NUMBER.findall(text[: text.rindex(":")])
    values = [
        np.array(int(token, 16), bits).view(dtype)
        if token.startswith("0x")
        else np.array(float(token), np.float32).astype(dtype)
        for token in tokens
    ]
    if len(values) != int(np.prod(shape)):
        raise LoweringError(f"a constant of type {kind} cannot be read")
    return np.array(values, dtype).reshape(shape)


def is_complex(constant: ir.Operation) -> bool:
    """Whether a constant is of complex numbers, which the bindings cannot read."""
    kind = ir.RankedTensorType(constant.results[0].type)
    return isinstance(kind.element_type, ir.ComplexType)


def read_complex(op: ir.Operation, weights: WeightTable) -> np.ndarray:
    """The data of a constant of complex numbers, of rank 0 where it is a splat.

    The bindings cannot touch such an attribute; its op's text holds it.
    """
    kind = ir.RankedTensorType(op.results[0].type)
    dtype, shape = dtypes.to_numpy(kind.element_type), tuple(kind.shape)
    part = np.dtype(f"f{dtype.itemsize // 2}")
    text = op.get_asm()
    if (resource := _RESOURCE_NAME.search(text[:400])) is not None:
        return weights[resource.group(1)].view(dtype).reshape(shape)
    start = text.index("dense<") + len("dense<")
    if text.startswith('"0x', start):
        data = bytes.fromhex(text[start + 3 : text.index('"', start + 1)])
        values = np.frombuffer(data, dtype)
    else:
        tokens = _NUMBER.findall(text[start : text.rindex(": tensor")])
        bits = np.dtype(f"u{part.itemsize}")
        parts = [
            np.array(int(t, 16), bits).view(part)
            if t.startswith("0x")
            else np.array(float(t), part)
            for t in tokens
        ]
        values = np.array(parts, part).view(dtype)
    if values.size == 1:
        return values.reshape(())
    if values.size != int(np.prod(shape)):
        raise LoweringError(f"a constant of type {kind} cannot be read")
    return values.reshape(shape)


def write_dense(array: np.ndarray) -> ir.Attribute:
    """A `dense<...>` attribute of `array`, with a copy of its data."""
    element = dtypes.to_mlir(array.dtype)
    data = np.ascontiguousarray(array)
    if array.dtype == np.bool_:
        values: list[ir.Attribute] = [ir.BoolAttr.get(bool(v)) for v in data.reshape(-1)]
        with ir.Location.unknown():
            return ir.DenseElementsAttr.get(
                values, ir.RankedTensorType.get(list(array.shape), element)
            )
    if not has_buffer(array.dtype):
        data = data.view(f"u{array.dtype.itemsize}")
    return ir.DenseElementsAttr.get(data, type=element, shape=list(array.shape))
