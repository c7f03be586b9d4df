"""From the LLVM dialect to machine code: LLVM IR text through llvmlite, with an explicit target.

Symbols that code may leave undefined are `memcpy`, `memmove` and `memset`; anything else, an
unknown intrinsic or a routine of a compiler's library, is an error here rather than at run time."""

from __future__ import annotations

import functools
import os
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import llvmlite.binding as llvm

from stepwell.errors import LoweringError
from stepwell.mlir import ir, translate_to_llvm_ir
from stepwell.targets import Target

_ALLOWED_EXTERNALS = {"memcpy", "memmove", "memset"}
_LIBM = {"fmod", "fmodf"}
"""Remainders of floats have no expansion; the C library that loads the code has them."""


@functools.cache
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    # Kernels come in the order they should run in. LLVM's scheduler hoists the loads of an unrolled
    # step to its front, and keeps them in memory where registers are few.
    llvm.set_option("stepwell", "-enable-misched=false")


@functools.cache
def target_machine(target: Target, opt_level: int) -> llvm.TargetMachine:
    """LLVM's code generator for `target`."""
    _initialize()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu,
        features=target.feature_string(),
        opt=opt_level,
        reloc="pic",
        codemodel="small",
    )


def optimized_llvm(
    module: ir.Operation,
    target: Target,
    opt_level: int = 3,
    *,
    externals: bool = False,
    scalar: bool = False,
    unroll: bool = False,
    prepare: Callable[[str], str] = str,
) -> llvm.ModuleRef:
    """Translate a module in the LLVM dialect and optimise it for `target`.

    Emitted kernels of CPUs come as they should run, and are only tidied; `scalar` says that there
    are scalar loops for LLVM to vectorise and unroll, `unroll` that there are vectors in loops to
    unroll: both take all its passes, four times as long. `externals` allows declarations of
    kernels that other objects define; `prepare` changes the text before LLVM reads it. Raises
    LoweringError when LLVM rejects the IR or it calls a function that nothing defines."""
    machine = target_machine(target, opt_level)
    text = prepare(_older_float_literals(translate_to_llvm_ir(module)))
    try:
        parsed = llvm.parse_assembly(text)
    except RuntimeError as error:
        raise LoweringError(f"LLVM does not accept the generated IR: {error}") from None
    parsed.triple = target.triple
    parsed.data_layout = str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=opt_level)
    options.slp_vectorization = scalar
    options.loop_vectorization = scalar
    options.loop_interleaving = scalar
    options.loop_unrolling = (scalar or unroll) and opt_level > 1
    builder = llvm.create_pass_builder(machine, options)
    passes = builder.getModulePassManager() if scalar or unroll else _tidying(opt_level)
    passes.run(parsed, builder)
    if not externals:
        _check_externals(parsed)
    return parsed


def _tidying(opt_level: int) -> llvm.ModulePassManager:
    """Simpler branches and arithmetic, and loops that test at their end. What else LLVM has took
    half of the time that a kernel compiled, and made none faster: no redundant and no invariant
    computations are left (`lower-kernels-to-llvm`), and loops are cut and unrolled."""
    passes = llvm.create_new_module_pass_manager()
    if opt_level > 0:
        passes.add_simplify_cfg_pass()
        passes.add_instruction_combine_pass()
        passes.add_loop_rotate_pass()
        passes.add_simplify_cfg_pass()
    return passes


_FLOAT_LITERAL = re.compile(
    r" (f0x[0-9A-Fa-f]+|[-+]?\d+\.\d*(?:[eE][-+]?\d+)?"
    r"|[-+]inf|[-+][qs]?nan(?:\(0x[0-9A-Fa-f]+\))?)(?![\w.(])"
)
"""It stands behind its type."""

_NAN = re.compile(r"([-+])([qs]?)nan(?:\(0x([0-9A-Fa-f]+)\))?")
_FLOAT_TYPE = re.compile(r"\b(half|bfloat|float|double)\b")
_FORMATS = {"half": ("<e", "<H"), "float": ("<f", "<I"), "double": ("<d", "<Q")}
_FIELDS = {"half": (16, 10), "bfloat": (16, 7), "float": (32, 23), "double": (64, 52)}
"""Bits of a type, and of its fraction."""


def _older_float_literals(text: str) -> str:
    """MLIR's LLVM writes floats as the shortest decimal, their own bits (`f0xC2AEAC4F`), `+inf` or
    `+nan(0x1)`; llvmlite's takes the bits of a double (of the value itself for half and bfloat).
    """

    def rewrite(match: re.Match[str]) -> str:
        line = text.rfind("\n", 0, match.start()) + 1
        kinds = _FLOAT_TYPE.findall(text, line, match.start(1))
        return f" {_double_bits(match[1], kinds[-1])}" if kinds else match[0]

    return _FLOAT_LITERAL.sub(rewrite, text)


def _double_bits(literal: str, kind: str) -> str:
    nan = _NAN.fullmatch(literal)
    if nan is not None:
        return _nan_bits(nan[1] == "-", nan[2] != "s", int(nan[3] or "0", 16), kind)
    if kind == "bfloat":
        bits = (
            int(literal[3:], 16)
            if literal.startswith("f0x")
            else struct.unpack("<I", struct.pack("<f", float(literal)))[0] >> 16
        )
        return f"0xR{bits:04X}"
    floating, integral = _FORMATS[kind]
    if literal.startswith("f0x"):
        bits = int(literal[3:], 16)
        value = struct.unpack(floating, struct.pack(integral, bits))[0]
    else:
        value = float(literal)
        bits = struct.unpack(integral, struct.pack(floating, value))[0]
    if kind == "half":
        return f"0xH{bits:04X}"
    rounded = struct.unpack(floating, struct.pack(floating, value))[0]
    return "0x" + struct.pack(">d", rounded).hex().upper()


def _nan_bits(negative: bool, quiet: bool, payload: int, kind: str) -> str:
    width, fraction = _FIELDS[kind]
    bits = (1 << (width - 1)) - (1 << fraction) | quiet << (fraction - 1) | payload
    bits |= negative << (width - 1)
    if kind in ("half", "bfloat"):
        return f"0x{'H' if kind == 'half' else 'R'}{bits:04X}"
    if kind == "float":  # as a double, with the fraction in its upper bits
        sign, exponent = bits >> 31 << 63, ((1 << 11) - 1) << 52
        bits = sign | exponent | (bits & ((1 << 23) - 1)) << 29
    return f"0x{bits:016X}"


def _check_externals(module: llvm.ModuleRef) -> None:
    for function in module.functions:
        name = function.name
        if function.is_declaration and name not in _ALLOWED_EXTERNALS:
            if name.startswith("llvm."):
                continue
            raise LoweringError(f"generated code would call {name}, which nothing defines")


def object_code(
    module: llvm.ModuleRef, target: Target, opt_level: int = 3, *, externals: bool = False
) -> bytes:
    """The object file of an optimised module. `externals` allows any undefined symbol; else raises
    LoweringError when LLVM has made calls of functions that nothing defines."""
    data = target_machine(target, opt_level).emit_object(module)
    unknown = [] if externals else sorted(undefined_symbols(data) - _ALLOWED_EXTERNALS - _LIBM)
    if unknown:
        raise LoweringError(f"generated code would call {unknown[0]}, which nothing defines")
    return data


_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMBOL_TABLE = 2


def undefined_symbols(data: bytes) -> set[str]:
    """Names that an ELF object of 64 bits leaves undefined (System V ABI, chapter 4)."""
    if data[:5] != b"\x7fELF\x02":
        return set()
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [_SECTION.unpack_from(data, table + i * size) for i in range(count)]
    names: set[str] = set()
    for section in sections:
        if section[1] != _SYMBOL_TABLE:
            continue
        start, length, strings = section[4], section[5], sections[section[6]][4]
        for offset in range(start, start + length, _SYMBOL.size):
            name, _, _, defined_in, _, _ = _SYMBOL.unpack_from(data, offset)
            if name and not defined_in:
                begin = strings + name
                names.add(data[begin : data.index(b"\0", begin)].decode())
    return names


def assembly(module: llvm.ModuleRef, target: Target, opt_level: int = 3) -> str:
    """The assembly of an optimised module."""
    return target_machine(target, opt_level).emit_assembly(module)


def linker() -> list[str] | None:
    """The command that links objects into a shared object; None when there is none."""
    for name in ("ld", "ld.lld"):
        if path := shutil.which(name):
            return [path, "-shared", "-z", "noexecstack"]
    for name in ("cc", "gcc", "clang"):  # each starts a linker, in three times the time
        if path := shutil.which(name):
            return [path, "-shared", "-nostdlib", "-Wl,-z,noexecstack"]
    return None


def link(objects: list[bytes], target: Target) -> bytes | None:
    """One shared object of `objects`; None when there is no linker for the target here."""
    command = linker()
    if command is None or not target.triple.startswith(os.uname().machine):
        return None
    with tempfile.TemporaryDirectory(prefix="stepwell-link-") as folder:
        paths = []
        for number, data in enumerate(objects):
            path = Path(folder) / f"{number}.o"
            path.write_bytes(data)
            paths.append(str(path))
        output = Path(folder) / "model.so"
        done = subprocess.run(
            [*command, "-o", str(output), *paths], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise LoweringError(f"linking failed: {done.stderr.strip()[:500]}")
        return output.read_bytes()
