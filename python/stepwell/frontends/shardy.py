"""Makes modules readable that JAX has annotated with Shardy, a dialect that is not in the wheel.

On one device there is no sharding, and nothing asks what an annotation says. In text, a mesh is
left out and a constraint written in MLIR's generic form. In bytecode, attributes in the dialect's
own encoding cannot be skipped by the reader: each is overwritten by a string of as many bytes.

Format: https://mlir.llvm.org/docs/BytecodeFormat/ (sections, varints, attribute offsets).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from stepwell.mlir import ir, nested_operations

_MESH = re.compile(r"sdy\.mesh @\w+ = <.*$", re.MULTILINE)
_CONSTRAINT = re.compile(
    r"sdy\.sharding_constraint (%[\w#]+) <.*?> : (tensor<[^ ]*>)(?= loc|$)", re.MULTILINE
)
_DIALECT = b"sdy"
_STRINGS, _DIALECTS, _ATTRIBUTES, _OFFSETS = range(4)


def without_shardy_syntax(text: str) -> str:
    """`text` without meshes, and with constraints in generic form."""
    return _CONSTRAINT.sub(r'"sdy.sharding_constraint"(\1) : (\2) -> \2', _MESH.sub("", text))


def is_for_several_devices(data: bytes) -> bool:
    """Whether text or bytecode has a computation that each device does on its own shard."""
    names = (b"sdy.manual_computation", b"\0manual_computation\0")
    return _DIALECT in data and any(name in data for name in names)


def erase_shardy(module: ir.Module) -> None:
    """Erase meshes, and constraints, which are their operands."""
    found = [
        op
        for op in nested_operations(module.operation)
        if op.name in ("sdy.mesh", "sdy.sharding_constraint")
    ]
    for op in found:
        for result, value in zip(op.results, op.operands, strict=True):
            result.replace_all_uses_with(value)
        op.erase()


@dataclass
class _Reader:
    data: bytes | bytearray
    place: int

    def varint(self) -> int:
        """The trailing zeros of the first byte say how many bytes follow."""
        first = self.data[self.place]
        extra = (first & -first).bit_length() - 1 if first else 8
        value = int.from_bytes(self.data[self.place : self.place + extra + 1], "little")
        self.place += extra + 1
        return value >> (extra + 1) if extra < 8 else value >> 8

    def section(self) -> tuple[int, int, int]:
        """Number, start and length of the section here, which is skipped."""
        number = self.data[self.place]
        self.place += 1
        length = self.varint()
        if number & 0x80:
            alignment = self.varint()
            self.place += -self.place % alignment
        start = self.place
        self.place += length
        return number & 0x7F, start, length


def without_shardy(data: bytes) -> bytes:
    """`data`, bytecode, with its attributes of Shardy replaced; as it is where it is damaged, which
    MLIR's reader says better."""
    try:
        return _without_shardy(data)
    except (IndexError, KeyError, ValueError):
        return data


def _without_shardy(data: bytes) -> bytes:
    result = bytearray(data)
    reader = _Reader(result, 4)
    reader.varint()  # version
    reader.place = result.index(0, reader.place) + 1  # producer
    sections: dict[int, tuple[int, int]] = {}
    while reader.place < len(result):
        number, start, length = reader.section()
        sections.setdefault(number, (start, length))
    dialect = _dialect_number(result, sections)
    if dialect is not None:
        _overwrite(result, sections, dialect)
    return bytes(result)


def _dialect_number(data: bytearray, sections: dict[int, tuple[int, int]]) -> int | None:
    strings = _Reader(data, sections[_STRINGS][0])
    sizes = [strings.varint() for _ in range(strings.varint())][::-1]
    names = []
    for size in sizes:
        names.append(bytes(data[strings.place : strings.place + size - 1]))
        strings.place += size
    reader = _Reader(data, sections[_DIALECTS][0])
    for number in range(reader.varint()):
        entry = reader.varint()
        if entry & 1:
            reader.section()
        if names[entry >> 1] == _DIALECT:
            return number
    return None


def _overwrite(data: bytearray, sections: dict[int, tuple[int, int]], dialect: int) -> None:
    """Write a string over each attribute of `dialect`, and say that it is in textual form."""
    place, (start, length) = sections[_ATTRIBUTES][0], sections[_OFFSETS]
    reader = _Reader(data, start)
    reader.varint()  # number of attributes
    reader.varint()  # number of types
    while reader.place < start + length:
        owner, count = reader.varint(), reader.varint()
        for _ in range(count):
            here = reader.place
            entry = reader.varint()
            size = entry >> 1
            if owner == dialect and entry & 1 and size >= 3:
                data[place : place + size] = b'"' + b"-" * (size - 3) + b'"\0'
                width = reader.place - here
                low = 1 << width  # the bit above the varint's marker is the lowest of its value
                value = int.from_bytes(data[here : reader.place], "little") & ~low
                data[here : reader.place] = value.to_bytes(width, "little")
            place += size
