"""Programs whose results in between take more than 2 GiB at a time."""

from __future__ import annotations

from stepwell.compiler import build

_RESULTS = 14
"""Of 256 MiB each; all of them are read at the end."""

_TYPE = "tensor<8192x8192xf32>"


def program() -> str:
    lines = [f"func.func @main(%x: {_TYPE}) -> {_TYPE} {{"]
    before = "%x"
    for n in range(_RESULTS):
        lines.append(f"%s{n} = stablehlo.add {before}, %x : {_TYPE}")
        lines.append(f"%r{n} = stablehlo.transpose %s{n}, dims = [1, 0] : ({_TYPE}) -> {_TYPE}")
        before = f"%r{n}"
    for n in range(_RESULTS - 1):
        lines.append(f"%t{n} = stablehlo.add {before}, %r{n} : {_TYPE}")
        lines.append(f"%u{n} = stablehlo.transpose %t{n}, dims = [1, 0] : ({_TYPE}) -> {_TYPE}")
        before = f"%u{n}"
    return "\n".join([*lines, f"func.return {before} : {_TYPE}", "}"])


def test_offsets_beyond_32_bits() -> None:
    assert build(program(), "x86_64-v3", 1).manifest.arena_bytes > 2**31
