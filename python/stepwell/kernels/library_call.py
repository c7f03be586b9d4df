"""Calls of functions of other libraries, described as data: which function, on what, how often.

A function of LAPACK takes pointers only. An argument is a number or a character, whose address is
passed, or a place in a buffer, as text:

    "i32 4"           the integer 4; "f32 1.0 0.0" the complex number 1
    "char U"          the character U
    "operand 0"       the first operand of the call; "result 1", "work 0" likewise
    "result 0 + 1"    one element behind its beginning
    "null"            no address

A call on a batch repeats it, each time on the next equal part of every buffer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from stepwell.attributes import strings
from stepwell.mlir import ir

TARGET = "stepwell.library_call"
"""The target of the `stablehlo.custom_call` that stands for such a call."""

ATTRIBUTE = "kernel.library_call"
"""The attribute that describes the call, of the custom call and of the kernel."""

FUNCTION = "stepwell.function"
"""Argument attribute of the host: the function whose address is passed, `lapack.dgetrf`."""

KIND = "library-call"
"""The kind of a kernel that calls a library."""

MOST_TASKS = 16
"""A batch is split into so many tasks at most: each has working memory of its own."""

_BUFFER = re.compile(r"(operand|result|work) (\d+)(?: \+ (\d+))?")


@dataclass(frozen=True)
class Buffer:
    """A place in operand, result or working memory `number`, `offset` elements from its start."""

    kind: str
    number: int
    offset: int = 0

    def __str__(self) -> str:
        return f"{self.kind} {self.number}" + (f" + {self.offset}" if self.offset else "")


@dataclass(frozen=True)
class LibraryCall:
    """`function` is "library.name"; `arguments` are texts as above; `work` are tensor types of the
    memory that one call needs. The last operands of the custom call are those that the results
    numbered `updated` have to begin with; "operand" counts the others."""

    function: str
    batch: int
    arguments: tuple[str, ...]
    work: tuple[ir.Type, ...] = ()
    updated: tuple[int, ...] = ()

    @property
    def tasks(self) -> int:
        """Parts of the batch that may run at the same time."""
        return min(self.batch, MOST_TASKS)

    def to_attribute(self) -> ir.Attribute:
        """The description as a dictionary."""
        i64 = ir.IntegerType.get_signless(64)
        return ir.DictAttr.get(
            {
                "function": ir.StringAttr.get(self.function),
                "batch": ir.IntegerAttr.get(i64, self.batch),
                "arguments": strings(self.arguments),
                "work": ir.ArrayAttr.get([ir.TypeAttr.get(kind) for kind in self.work]),
                "updated": ir.DenseI64ArrayAttr.get(list(self.updated)),
            }
        )

    @staticmethod
    def from_attribute(attribute: ir.Attribute) -> LibraryCall:
        """The inverse of `to_attribute`."""
        entries = ir.DictAttr(attribute)
        return LibraryCall(
            ir.StringAttr(entries["function"]).value,
            ir.IntegerAttr(entries["batch"]).value,
            tuple(ir.StringAttr(text).value for text in ir.ArrayAttr(entries["arguments"])),
            tuple(ir.TypeAttr(kind).value for kind in ir.ArrayAttr(entries["work"])),
            tuple(ir.DenseI64ArrayAttr(entries["updated"])),
        )


def buffer_of(argument: str) -> Buffer | None:
    """The buffer that an argument names, if it names one."""
    match = _BUFFER.fullmatch(argument)
    return Buffer(match[1], int(match[2]), int(match[3] or 0)) if match else None


def is_library_call(op: ir.Operation) -> bool:
    """Whether `op` is a custom call that stands for a call of a library."""
    return op.name == "stablehlo.custom_call" and ATTRIBUTE in op.attributes
