"""A PyTorch program in one file, between the process that has PyTorch and the one that compiles.

It is a safetensors file. Its tensors are the weights, and its metadata holds `module`, the program
in the torch dialect as text, and `signature`, which says what each argument of `@main` is. A file
may hold the program for several shapes: `module_1`, `signature_1` and so on are for the others.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stepwell.errors import ModelError
from stepwell.runtime.inputs import numpy_dtype

_ALIGNMENT = 64
_SAFETENSORS = {
    "bool": "BOOL",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
    "complex128": "C128",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}
_NUMPY = {name: dtype for dtype, name in _SAFETENSORS.items()}


@dataclass(frozen=True)
class Value:
    """An input or output: its name, numpy's name of its dtype, its shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Program:
    """`arguments` has, for each argument of `@main`, the name of a weight or an input."""

    module: str
    arguments: tuple[str | Value, ...]
    outputs: tuple[Value, ...]
    weights: Mapping[str, np.ndarray]


def write(path: Path, *programs: Program) -> None:
    """Write a program, for one or several shapes; weights go from their own memory into the file,
    those that programs share once.

    Raises ModelError for a weight of a dtype that has no place in the format."""
    metadata: dict[str, str] = {}
    weights: dict[str, np.ndarray] = {}
    for number, program in enumerate(programs):
        names = {name: _entered(weights, name, array) for name, array in program.weights.items()}
        arguments = [
            names.get(a, a) if isinstance(a, str) else [a.name, a.dtype, a.shape]
            for a in program.arguments
        ]
        outputs = [[value.name, value.dtype, value.shape] for value in program.outputs]
        metadata[_key("module", number)] = program.module
        signature = {"arguments": arguments, "outputs": outputs}
        metadata[_key("signature", number)] = json.dumps(signature)
    header: dict[str, object] = {"__metadata__": metadata}
    # Wide elements first, so that each weight lies at a multiple of its element's size.
    ordered = sorted(weights.items(), key=lambda item: -item[1].dtype.itemsize)
    end = 0
    for name, array in ordered:
        dtype = _SAFETENSORS.get(array.dtype.name)
        if dtype is None:
            raise ModelError(f"the weight {name} is of dtype {array.dtype}, which is not supported")
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % _ALIGNMENT)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for _, array in ordered:
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _key(name: str, number: int) -> str:
    return f"{name}_{number}" if number else name


def _entered(weights: dict[str, np.ndarray], name: str, array: np.ndarray) -> str:
    """The name under which `array` stands in `weights`, entered now unless it is there."""
    fresh, count = name, 0
    while fresh in weights:
        known = weights[fresh]
        if known is array or (
            (known.shape, known.dtype) == (array.shape, array.dtype)
            and known.tobytes() == array.tobytes()
        ):
            return fresh
        count += 1
        fresh = f"{name}.{count}"
    weights[fresh] = array
    return fresh


def read(path: Path, shapes: Mapping[str, Sequence[int]] | None = None) -> Program:
    """The program for `shapes` (the first, where none are given) in a file that `write` wrote; its
    weights are views of the mapped file.

    Raises ModelError when the file is damaged, or has no program for these shapes."""
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        start = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:start])
        metadata = header.pop("__metadata__")
        weights = {
            name: _view(data, start + entry["data_offsets"][0], entry)
            for name, entry in header.items()
        }
        for number in range(len(metadata) // 2):
            signature = json.loads(metadata[_key("signature", number)])
            listed = (a if isinstance(a, str) else _value(a) for a in signature["arguments"])
            arguments, outputs = tuple(listed), tuple(map(_value, signature["outputs"]))
            if shapes is None or _has_shapes(arguments, shapes):
                module = metadata[_key("module", number)]
                return Program(module, arguments, outputs, weights)
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"{path} is no PyTorch program: {error}") from error
    raise ModelError(f"{path} has no program for inputs of the shapes {dict(shapes or {})}")


def _has_shapes(arguments: Sequence[str | Value], shapes: Mapping[str, Sequence[int]]) -> bool:
    return all(
        isinstance(a, str) or a.name not in shapes or a.shape == tuple(shapes[a.name])
        for a in arguments
    )


def _value(fields: list) -> Value:
    name, dtype, shape = fields
    return Value(name, dtype, tuple(shape))


def _view(data: mmap.mmap, start: int, entry: dict) -> np.ndarray:
    shape = tuple(entry["shape"])
    dtype = numpy_dtype(_NUMPY[entry["dtype"]])
    if 0 in shape:
        return np.empty(shape, dtype)
    return np.ndarray(shape, dtype, data, start)
