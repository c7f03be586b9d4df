"""Reading ONNX files and tensors without copying weights.

protobuf would read a file whole and copy every weight twice. Instead, the file is mapped and its
top levels are walked in protobuf's wire format: the data of each large initializer is left where
it is, and the tensor in the parsed model refers to it as external data of the model's own file.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import external_data_helper, numpy_helper

from stepwell import dtypes
from stepwell.errors import ModelError
from stepwell.sources import GIVEN

MAPPED_BYTES = 4096
"""Initializers of at least this size stay in the file."""

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_MODEL_GRAPH, _GRAPH_INITIALIZER, _TENSOR_RAW_DATA = 7, 5, 9


class _TruncatedError(Exception):
    """The wire format ends inside a field."""


def read_file(path: Path) -> onnx.ModelProto:
    """The model of `path`, its large initializers turned into external data of the same file."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            slim = b"".join(_slim_model(data, path.name))
        except _TruncatedError:
            raise ModelError(f"{path} is not an ONNX model, or it is cut short") from None
    return parse(slim, str(path))


def parse(data: bytes, source: str) -> onnx.ModelProto:
    """The `ModelProto` in `data`; raises ModelError when it is not one."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        raise ModelError(f"{source} is not an ONNX model, or it is cut short") from None
    if not model.HasField("graph") or not model.opset_import:
        raise ModelError(f"{source} is not an ONNX model: it has no graph or names no opset")
    return model


def find_model(model: object) -> onnx.ModelProto | None:
    """The ONNX model behind `model` (a path, bytes, a ModelProto); None when it is of another kind,
    or none. Large initializers of a file are left in it."""
    if isinstance(model, onnx.ModelProto):
        return model
    try:
        if isinstance(model, (bytes, bytearray, memoryview)):
            return parse(bytes(model), GIVEN)
        if isinstance(model, (str, os.PathLike)) and "\n" not in str(model):
            path = Path(os.fspath(model))
            return read_file(path) if path.is_file() else None
    except (ModelError, ValueError):
        return None
    return None


def load_weights(model: onnx.ModelProto, folder: Path) -> None:
    """Read the external data of `model` into it. Raises ModelError when some is missing."""
    try:
        external_data_helper.load_external_data_for_model(model, str(folder))
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise ModelError(f"the external data cannot be read: {error}") from error


def tensor_array(tensor: onnx.TensorProto, folder: Path) -> np.ndarray:
    """The data of `tensor`: a view of its bytes or of its mapped file where that is possible.

    `folder` is where the files of external data lie. Raises ModelError when data is missing.
    """
    if tensor.data_type == onnx.TensorProto.STRING:
        raise ModelError(f'the tensor "{tensor.name}" holds strings, which are not supported')
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
    shape = tuple(tensor.dims)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return _external(tensor, dtype, shape, folder)
    count = int(np.prod(shape, dtype=np.int64))
    if tensor.HasField("raw_data") and len(tensor.raw_data) == count * dtype.itemsize:
        return np.frombuffer(tensor.raw_data, dtype).reshape(shape)
    try:
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError):
        raise ModelError(
            f'the tensor "{tensor.name}" of shape {list(shape)} does not hold {count} elements'
        ) from None


def dense_array(tensor: onnx.SparseTensorProto, folder: Path) -> np.ndarray:
    """The data of a sparse tensor: `indices` has positions in row-major order, or coordinates."""
    values = tensor_array(tensor.values, folder)
    indices = tensor_array(tensor.indices, folder)
    shape = tuple(tensor.dims)
    array = np.zeros(shape, values.dtype)
    try:
        if indices.ndim == 1:
            array.reshape(-1)[indices] = values
        else:
            array[tuple(indices.T)] = values
    except (IndexError, ValueError):
        raise ModelError(
            f'the indices of the sparse tensor "{tensor.values.name}" lie outside of its shape '
            f"{list(shape)}, or are not as many as its values"
        ) from None
    return array


def _external(
    tensor: onnx.TensorProto, dtype: np.dtype, shape: tuple[int, ...], folder: Path
) -> np.ndarray:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    path = folder / entries.get("location", "")
    count = int(np.prod(shape, dtype=np.int64))
    size = -(-count * dtypes.bits(dtype) // 8)
    offset, length = (
        _external_number(tensor, key, entries.get(key, default))
        for key, default in (("offset", "0"), ("length", str(size)))
    )
    if length != size:
        raise ModelError(
            f'the data of "{tensor.name}" has {size} bytes, and its length is {length}'
        )
    inside = path.resolve().is_relative_to(folder.resolve())
    if not inside or not path.is_file():
        raise ModelError(
            f'the data of "{tensor.name}" should be in {path}, '
            + ("but there is no such file" if inside else "outside the model's folder")
        )
    if path.stat().st_size < offset + size:
        raise ModelError(
            f'the data of "{tensor.name}" ({size} bytes at offset {offset}) '
            f"reaches past the end of {path}"
        )
    if count == 0:
        return np.zeros(shape, dtype)
    if dtypes.bits(dtype) < 8:
        raw = np.memmap(path, np.uint8, "r", offset, size).tobytes()
        return numpy_helper.to_array(
            onnx.helper.make_tensor(tensor.name, tensor.data_type, shape, raw, raw=True)
        )
    return np.memmap(path, dtype, "r", offset, shape)


def _external_number(tensor: onnx.TensorProto, key: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ModelError(f'the data of "{tensor.name}" has the {key} "{text}", no number of bytes')
    return int(text)


# --- protobuf's wire format ----------------------------------------------------------------------


def _slim_model(data: mmap.mmap, location: str) -> Iterator[bytes]:
    for number, start, begin, end in _fields(data, 0, len(data)):
        if number == _MODEL_GRAPH:
            body = b"".join(_slim_graph(data, begin, end, location))
            yield _tag(number) + _encode(len(body)) + body
        else:
            yield data[start:end]


def _slim_graph(data: mmap.mmap, begin: int, end: int, location: str) -> Iterator[bytes]:
    for number, start, first, last in _fields(data, begin, end):
        if number == _GRAPH_INITIALIZER and last - first >= MAPPED_BYTES:
            body = _slim_tensor(data, first, last, location)
            yield _tag(number) + _encode(len(body)) + body
        else:
            yield data[start:last]


def _slim_tensor(data: mmap.mmap, begin: int, end: int, location: str) -> bytes:
    """The tensor without its raw data, which becomes external data at its place in the file."""
    parts: list[bytes] = []
    external = onnx.TensorProto()
    for number, start, first, last in _fields(data, begin, end):
        if number == _TENSOR_RAW_DATA:
            values = {"location": location, "offset": first, "length": last - first}
            external.data_location = onnx.TensorProto.EXTERNAL
            for key, value in values.items():
                external.external_data.add(key=key, value=str(value))
        else:
            parts.append(data[start:last])
    return b"".join(parts) + external.SerializeToString()


def _fields(data: mmap.mmap, position: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Each field as (number, start of its tag, start of its payload, end of its payload)."""
    while position < end:
        start = position
        tag, position = _varint(data, position, end)
        number, kind = tag >> 3, tag & 7
        if kind == _LENGTH:
            size, position = _varint(data, position, end)
        elif kind == _VARINT:
            size = _varint(data, position, end)[1] - position
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise _TruncatedError
        if number == 0 or position + size > end:
            raise _TruncatedError
        yield number, start, position, position + size
        position += size


def _varint(data: mmap.mmap, position: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while position < end and shift < 64:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position
    raise _TruncatedError


def _encode(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _tag(number: int) -> bytes:
    return _encode(number << 3 | _LENGTH)
