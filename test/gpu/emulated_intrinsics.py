"""Intrinsics that return or take several registers, as functions in LLVM IR that call the emulator.

`define_wrappers` gives each that occurs in a kernel a body: registers go to memory, and back.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_COPY = re.compile(r"llvm\.nvvm\.cp\.async\.c[ag]\.shared\.global\.16(\.s)?$")
_MATRICES = re.compile(r"llvm\.nvvm\.ldmatrix\.sync\.aligned\.m8n8\.x([124])(\.trans)?\.b16\.p3$")
_MULTIPLY = re.compile(
    r"llvm\.nvvm\.mma\.m16n8k(?:8|16|32)\.row\.col\.(f32\.f32|bf16|tf32|satfinite\.s8)$"
)
_KINDS = ("f32.f32", "bf16", "tf32", "satfinite.s8")

SYMBOLS = {
    "emulator_copy_async": "void (ptr addrspace(3), ptr addrspace(1), i32)",
    "emulator_commit_copies": "void ()",
    "emulator_wait_copies": "void (i32)",
    "emulator_load_matrices": "void (ptr, ptr addrspace(3), i32, i32)",
    "emulator_multiply": "void (ptr, ptr, ptr, ptr, i32)",
}
"""Functions of the emulator that wrappers call, and their types."""


def define_wrappers(text: str) -> tuple[str, bool]:
    """`text` with bodies for what this file knows; whether threads wait for each other there."""
    waits = False
    definitions: list[str] = []
    for name in sorted(set(re.findall(r"@(llvm\.nvvm\.[\w.]+)\(", text))):
        made = next((make(m) for pattern, make in _WRAPPERS if (m := pattern.match(name))), None)
        if made is None:
            continue
        waits = True
        text = re.sub(rf"^declare .*@{re.escape(name)}\(.*\n", "", text, flags=re.M)
        local = f"wrapped_{name.replace('.', '_')}"
        text = text.replace(f"@{name}(", f"@{local}(")
        definitions.append(made.replace("NAME", local))
    used = [symbol for symbol in SYMBOLS if any(f"@{symbol}(" in d for d in definitions)]
    declared = []
    for symbol in used:
        result, arguments = SYMBOLS[symbol].split(" ", 1)
        declared.append(f"declare {result} @{symbol}{arguments}")
    return "\n".join([text, *declared, *definitions]), waits


def _copy(match: re.Match[str]) -> str:
    count, argument = ("%count", ", i32 %count") if match[1] else ("16", "")
    return (
        f"define internal void @NAME(ptr addrspace(3) %to, ptr addrspace(1) %from{argument}) {{\n"
        "  call void @emulator_copy_async(ptr addrspace(3) %to, ptr addrspace(1) %from, "
        f"i32 {count})\n  ret void\n}}"
    )


def _call(symbol: str, argument: str = "") -> Callable[[re.Match[str]], str]:
    text = f"define internal void @NAME({argument}) {{\n  call void @{symbol}({argument})\n"
    return lambda match: f"{text}  ret void\n}}"


def _matrices(match: re.Match[str]) -> str:
    count = int(match[1])
    kind = "{ " + ", ".join(["i32"] * count) + " }" if count > 1 else "i32"
    return (
        f"define internal {kind} @NAME(ptr addrspace(3) %row) {{\n"
        f"  %result = alloca {kind}\n"
        "  call void @emulator_load_matrices(ptr %result, ptr addrspace(3) %row, "
        f"i32 {count}, i32 {int(bool(match[2]))})\n"
        f"  %value = load {kind}, ptr %result\n  ret {kind} %value\n}}"
    )


def _multiply(match: re.Match[str]) -> str:
    kind = _KINDS.index(match[1])
    operand = "<2 x half>" if kind == 0 else "i32"
    total = "i32" if kind == 3 else "float"
    result = "{ " + ", ".join([total] * 4) + " }"
    parts = [("a", operand, 4), ("b", operand, 2), ("c", total, 4)]
    arguments = ", ".join(f"{t} %{n}{i}" for n, t, count in parts for i in range(count))
    lines = [f"define internal {result} @NAME({arguments}) {{"]
    lines += [f"  %{name} = alloca [4 x i32]" for name in "abcd"]
    for name, element, count in parts:
        for i in range(count):
            lines.append(f"  %{name}p{i} = getelementptr i32, ptr %{name}, i64 {i}")
            lines.append(f"  store {element} %{name}{i}, ptr %{name}p{i}")
    lines.append(
        f"  call void @emulator_multiply(ptr %d, ptr %a, ptr %b, ptr %c, i32 {kind})\n"
        f"  %value = load {result}, ptr %d\n  ret {result} %value\n}}"
    )
    return "\n".join(lines)


_WRAPPERS: list[tuple[re.Pattern[str], Callable[[re.Match[str]], str]]] = [
    (_COPY, _copy),
    (re.compile(r"llvm\.nvvm\.cp\.async\.commit\.group$"), _call("emulator_commit_copies")),
    (re.compile(r"llvm\.nvvm\.cp\.async\.wait\.group$"), _call("emulator_wait_copies", "i32 %n")),
    (_MATRICES, _matrices),
    (_MULTIPLY, _multiply),
]
"""Names of intrinsics, and what writes their functions."""
