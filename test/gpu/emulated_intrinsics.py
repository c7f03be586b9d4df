"""Intrinsics that return or take several registers, as functions in LLVM IR that call the emulator.

`define_wrappers` gives each that occurs in a kernel a body: registers go to memory, and back.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from stepwell.kernels.gpu.hopper import WAIT_FOR_KERNEL

_COPY = re.compile(r"llvm\.nvvm\.cp\.async\.c[ag]\.shared\.global\.16(\.s)?$")
_MATRICES = re.compile(r"llvm\.nvvm\.ldmatrix\.sync\.aligned\.m8n8\.x([124])(\.trans)?\.b16\.p3$")
_STORED_MATRICES = re.compile(
    r"llvm\.nvvm\.stmatrix\.sync\.aligned\.m8n8\.x([124])(\.trans)?\.b16\.p3$"
)
_MULTIPLY = re.compile(
    r"llvm\.nvvm\.mma\.m16n8k(?:8|16|32)\.row\.col\.(f32\.f32|bf16|tf32|satfinite\.s8)$"
)
_MIXED = ("e4m3.e5m2", "e5m2.e4m3")
_KINDS = ("f32.f32", "bf16", "tf32", "satfinite.s8", "e4m3", "e5m2", *_MIXED)

SYMBOLS = {
    "emulator_copy_async": "void (ptr addrspace(3), ptr addrspace(1), i32)",
    "emulator_commit_copies": "void ()",
    "emulator_wait_copies": "void (i32)",
    "emulator_load_matrices": "void (ptr, ptr addrspace(3), i32, i32)",
    "emulator_store_matrices": "void (ptr, ptr addrspace(3), i32, i32)",
    "emulator_wrote": "void (ptr addrspace(3), i32)",
    "emulator_show_stores": "void ()",
    "emulator_multiply": "void (ptr, ptr, ptr, ptr, i32)",
    "emulator_barrier_init": "void (ptr addrspace(3), i32)",
    "emulator_barrier_arrive": "i64 (ptr addrspace(3))",
    "emulator_barrier_expect": "void (ptr addrspace(3), i32)",
    "emulator_barrier_try": "i32 (ptr addrspace(3), i32)",
    "emulator_bulk_copy": "void (ptr addrspace(7), ptr addrspace(3), ptr, i32, ptr, i32, i32)",
    "emulator_barrier_arrive_at": "void (ptr addrspace(3), i32)",
    "emulator_store_in_block": "void (ptr addrspace(3), i32, ptr addrspace(3), i32)",
    "emulator_barrier_cluster": "void ()",
    "emulator_bulk_store": "void (ptr addrspace(3), ptr, i32, ptr)",
    "emulator_bulk_commit": "void ()",
    "emulator_bulk_wait": "void (i32)",
    "emulator_multiply_group": "void (ptr, i64, i64, i32, i32, i32, i32)",
    "emulator_multiply_registers": "void (ptr, ptr, i64, i32, i32, i32, i32)",
    "emulator_receive_products": "void (ptr, i32)",
    "emulator_commit_products": "void ()",
    "emulator_wait_products": "void (i64)",
    "emulator_tanh": "float (float)",
    "emulator_raise_flag": "void (ptr addrspace(1))",
    "emulator_lower_flag": "void (ptr addrspace(1))",
    "emulator_flag": "i32 (ptr addrspace(1))",
}
"""Functions of the emulator that wrappers call, and their types."""


def define_wrappers(text: str) -> tuple[str, bool]:
    """`text` with bodies for what this file knows; whether threads wait for each other there."""
    text = re.sub(rf"\n[^@\n]*call void @({_WITHOUT_EFFECT})[\w.]*\(.*", "", text)
    text = re.sub(rf"\ndeclare .*@({_WITHOUT_EFFECT})[\w.]*\(.*", "", text)
    text, definitions = _define_assembly(text)
    text, writes = _record_stores(text)
    definitions += writes
    waits = any("call" in definition for definition in definitions)
    for name in sorted(set(re.findall(r"@(llvm\.nvvm\.[\w.]+)\(", text))):
        made = next((make(m) for pattern, make in _WRAPPERS if (m := pattern.match(name))), None)
        if made is None:
            continue
        waits = True
        text = re.sub(rf"\ndeclare .*@{re.escape(name)}\(.*", "", text)
        local = f"wrapped_{name.replace('.', '_')}"
        text = text.replace(f"@{name}(", f"@{local}(")
        definitions.append(made.replace("NAME", local))
    used = [symbol for symbol in SYMBOLS if any(f"@{symbol}(" in d for d in definitions)]
    declared = []
    for symbol in used:
        result, arguments = SYMBOLS[symbol].split(" ", 1)
        declared.append(f"declare {result} @{symbol}{arguments}")
    return "\n".join([text, *declared, *definitions]), waits


_ASSEMBLY = re.compile(r"call ([^\n]*?) asm (?:sideeffect )?\"([^\"]*)\", \"[^\"]*\"\(")
_GROUP = re.compile(
    r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k\d+\.[fs]32\.(f16|bf16|tf32|s8|e4m3|e5m2)\.(\w+) "
    r"\{[^}]*\}, (\$\d+|\{\$\d+, \$\d+, \$\d+, \$\d+\}), \$\d+, ([01])"
    r"(?:, 1, 1)?(?:, ([01]))?(?:, ([01]))?;"
)
_WAIT = re.compile(r"wgmma\.wait_group\.sync\.aligned (\d+);$")

_FLAGS = {
    "st.release.gpu.global.b32 [$0], 1;": "raise_flag",
    "st.relaxed.gpu.global.b32 [$0], 0;": "lower_flag",
    "ld.acquire.gpu.global.b32 $0, [$1];": "flag",
}
"""Flags by which blocks wait for each other, and the emulator's functions for them."""

_GROUP_KINDS = ("f16", "bf16", "tf32", "s8", "e4m3", "e5m2", *_MIXED)
_SUMS = re.compile(
    r"red\.relaxed\.gpu\.global\.add(?:\.noftz)?(?:\.v(\d))?\.(f32|f16x2|bf16x2) \[\$0\], "
)
_FLOAT8 = re.compile(r"mma\.sync\.aligned\.m16n8k32\.row\.col\.f32\.(e4m3|e5m2)\.(e4m3|e5m2)\.f32 ")


def _define_assembly(text: str) -> tuple[str, list[str]]:
    """`text` with calls of functions where it has inline assembly, and those functions."""
    made: dict[str, str] = {}
    comes_late = 'asm sideeffect "wgmma.wait_group' in text

    def replace(match: re.Match[str]) -> str:
        kind, assembly = match[1], match[2]
        if "mbarrier.try_wait" in assembly:
            name = "assembly_try"
            made[name] = (
                f"define internal i32 @{name}(ptr addrspace(3) %at, i32 %parity) {{\n"
                "  %r = call i32 @emulator_barrier_try(ptr addrspace(3) %at, i32 %parity)\n"
                "  ret i32 %r\n}"
            )
        elif "mbarrier.arrive.shared::cluster" in assembly:
            name = "assembly_arrive_at"
            made[name] = (
                f"define internal void @{name}(ptr addrspace(3) %at, i32 %rank) {{\n"
                "  call void @emulator_barrier_arrive_at(ptr addrspace(3) %at, i32 %rank)\n"
                "  ret void\n}"
            )
        elif "st.async" in assembly:
            name = "assembly_store_in_block"
            made[name] = (
                f"define internal void @{name}(ptr addrspace(3) %at, i32 %rank, "
                "ptr addrspace(3) %barrier, i32 %bits) {\n"
                "  call void @emulator_store_in_block(ptr addrspace(3) %at, i32 %rank, "
                "ptr addrspace(3) %barrier, i32 %bits)\n"
                "  ret void\n}"
            )
        elif assembly == WAIT_FOR_KERNEL:
            name = "assembly_wait_for_kernel"
            made[name] = f"define internal void @{name}() {{\n  ret void\n}}"
        elif assembly in _FLAGS:
            name, symbol = f"assembly_{_FLAGS[assembly]}", f"emulator_{_FLAGS[assembly]}"
            result = SYMBOLS[symbol].split(" ", 1)[0]
            call, value = f"call {result} @{symbol}(ptr addrspace(1) %flag)", ""
            if result != "void":
                call, value = f"%r = {call}", " %r"
            made[name] = (
                f"define internal {result} @{name}(ptr addrspace(1) %flag) {{\n"
                f"  {call}\n  ret {result}{value}\n}}"
            )
        elif assembly.startswith("tanh.approx.f32 "):
            name = "assembly_tanh"
            made[name] = (
                f"define internal float @{name}(float %x) {{\n"
                "  %r = call float @emulator_tanh(float %x)\n  ret float %r\n}"
            )
        elif (sums := _SUMS.match(assembly)) is not None:
            name = f"assembly_{re.sub(r'[^a-z0-9]', '_', sums[0].split(' ')[0])}"
            count = int(sums[1] or 1)
            registers = ", ".join(f"${i + 1}" for i in range(count))
            registers = f"{{{registers}}}" if count > 1 else registers
            assert assembly == f"{sums[0]}{registers};", f"the emulator does not know {assembly}"
            made[name] = _add(name, count, sums[2])
        elif (product := _FLOAT8.match(assembly)) is not None:
            name = f"assembly_product_{product[1]}_{product[2]}"
            made[name] = _multiply_kind(_both(*product.groups())).replace("NAME", name)
        elif not assembly or _WAIT.match(assembly):
            wait = _WAIT.match(assembly)
            name, made_now = _passed(kind, wait[1] if wait else None)
            made[name] = made_now
        else:
            found = _GROUP.search(assembly)
            assert found is not None, f"the emulator does not know {assembly}"
            name, made_now = _group_product(kind, found, comes_late=comes_late)
            made[name] = made_now
        return f"call {kind} @{name}("

    return _ASSEMBLY.sub(replace, text), list(made.values())


def _add(name: str, count: int, kind: str) -> str:
    """Sums of neighbouring floats in memory, each by itself."""
    register = "float" if kind == "f32" else "i32"
    value = {"f32": "float", "f16x2": "<2 x half>", "bf16x2": "<2 x bfloat>"}[kind]
    registers = ", ".join(f"{register} %v{i}" for i in range(count))
    lines = [f"define internal void @{name}(ptr addrspace(1) %to, {registers}) {{"]
    for i in range(count):
        lines += [
            f"  %p{i} = getelementptr i32, ptr addrspace(1) %to, i64 {i}",
            f"  %old{i} = load {value}, ptr addrspace(1) %p{i}, align 4",
            f"  %add{i} = bitcast {register} %v{i} to {value}",
            f"  %new{i} = fadd {value} %old{i}, %add{i}",
            f"  store {value} %new{i}, ptr addrspace(1) %p{i}, align 4",
        ]
    return "\n".join([*lines, "  ret void\n}"])


def _group_product(kind: str, match: re.Match[str], *, comes_late: bool) -> tuple[str, str]:
    """The product of a warpgroup as a function of its sums, where there are some already, the left
    operand's descriptor or registers, and the right one's descriptor. With `comes_late` a kernel
    reads sums that have passed through waits."""
    columns, number = int(match[1]), _GROUP_KINDS.index(_both(match[2], match[3]))
    in_registers, adds = match[4].startswith("{"), match[5] == "1"
    flags = [int(flag or 0) for flag in match.groups()[5:]]
    transposed = flags[0] << 1 if in_registers else flags[0] | flags[1] << 1
    name = f"assembly_product_{columns}_{number}_{transposed}_{match[5]}_{int(in_registers)}"
    count, element = columns // 2, "i32" if number == 3 else "float"
    parameters = [f"{element} %s{i}" for i in range(count if adds else 0)]
    parameters += [f"i32 %r{i}" for i in range(4)] if in_registers else ["i64 %left"]
    lines = [f"define internal {kind} @{name}({', '.join(parameters)}, i64 %right) {{"]
    lines.append(f"  %sums = alloca {kind}\n  store {kind} zeroinitializer, ptr %sums")
    for i in range(count if adds else 0):
        lines.append(f"  %p{i} = getelementptr {element}, ptr %sums, i64 {i}")
        lines.append(f"  store {element} %s{i}, ptr %p{i}")
    left, function = "i64 %left", "emulator_multiply_group"
    if in_registers:
        left, function = "ptr %left", "emulator_multiply_registers"
        lines.append("  %left = alloca [4 x i32]")
        for i in range(4):
            lines.append(f"  %q{i} = getelementptr i32, ptr %left, i64 {i}")
            lines.append(f"  store i32 %r{i}, ptr %q{i}")
    lines.append(
        f"  call void @{function}(ptr %sums, {left}, i64 %right, "
        f"i32 {columns}, i32 {number}, i32 {transposed}, i32 {int(comes_late)})"
    )
    lines.append(f"  %value = load {kind}, ptr %sums\n  ret {kind} %value\n}}")
    return name, "\n".join(lines)


def _passed(kind: str, pending: str | None) -> tuple[str, str]:
    """An assembly that values pass through, as a function of them: the wait for products, or
    nothing (`pending` is None)."""
    elements = kind.strip("{ }").split(", ")
    name = f"assembly_pass_{'' if pending is None else pending}_{len(elements)}"
    parameters = ", ".join(f"{element} %s{i}" for i, element in enumerate(elements))
    lines = [f"define internal {kind} @{name}({parameters}) {{", f"  %all = alloca {kind}"]
    for i, element in enumerate(elements):
        lines.append(f"  %p{i} = getelementptr {element}, ptr %all, i64 {i}")
        lines.append(f"  store {element} %s{i}, ptr %p{i}")
    if pending is not None:
        lines.append(f"  call void @emulator_wait_products(i64 {pending})")
        lines.append(f"  call void @emulator_receive_products(ptr %all, i32 {len(elements)})")
    return name, "\n".join([*lines, f"  %r = load {kind}, ptr %all\n  ret {kind} %r\n}}"])


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


def _stored_matrices(match: re.Match[str]) -> str:
    count = int(match[1])
    registers = ", ".join(f"i32 %r{i}" for i in range(count))
    lines = [
        f"define internal void @NAME(ptr addrspace(3) %row, {registers}) {{",
        f"  %all = alloca [{count} x i32]",
    ]
    for i in range(count):
        lines.append(f"  %p{i} = getelementptr i32, ptr %all, i64 {i}")
        lines.append(f"  store i32 %r{i}, ptr %p{i}")
    lines.append(
        "  call void @emulator_store_matrices(ptr %all, ptr addrspace(3) %row, "
        f"i32 {count}, i32 {int(bool(match[2]))})\n  ret void\n}}"
    )
    return "\n".join(lines)


_STORE = re.compile(
    r"^  store (?:<(\d+) x (\w+)>|(\w+)) [^,]+, ptr addrspace\(3\) (.+?), align \d+.*$", re.M
)
_STORED_BYTES = {"float": 4, "i32": 4, "half": 2, "bfloat": 2, "i16": 2, "i8": 1}


def _record_stores(text: str) -> tuple[str, list[str]]:
    """`text` with a call after each store to shared memory from which boxes are copied, and the
    function that is called."""
    if ".bulk.tensor.s2g." not in text:
        return text, []

    def recorded(match: re.Match[str]) -> str:
        count = int(match[1] or 1) * _STORED_BYTES[match[2] or match[3]]
        return f"{match[0]}\n  call void @recorded(ptr addrspace(3) {match[4]}, i32 {count})"

    function = (
        "define internal void @recorded(ptr addrspace(3) %at, i32 %bytes) {\n"
        "  call void @emulator_wrote(ptr addrspace(3) %at, i32 %bytes)\n  ret void\n}"
    )
    return _STORE.sub(recorded, text), [function]


def _both(left: str, right: str) -> str:
    """What is multiplied, by PTX's names of both operands."""
    return left if left == right else f"{left}.{right}"


def _multiply(match: re.Match[str]) -> str:
    """The product of a warp; the first group of `match` is what is multiplied."""
    return _multiply_kind(match[1])


def _multiply_kind(name: str) -> str:
    kind = _KINDS.index(name)
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


def _elect(match: re.Match[str]) -> str:
    """The first thread of the warp."""
    return (
        "define internal { i32, i1 } @NAME(i32 %mask) {\n"
        "  %thread = load i32, ptr @emulator_tid\n  %lane = and i32 %thread, 31\n"
        "  %first = icmp eq i32 %lane, 0\n"
        "  %value = insertvalue { i32, i1 } zeroinitializer, i1 %first, 1\n"
        "  ret { i32, i1 } %value\n}"
    )


def _bulk(match: re.Match[str]) -> str:
    rank, is_image = int(match[2]), match[1] == "im2col"
    places = [f"i32 %c{i}" for i in range(rank)]
    offsets = range(rank, 2 * rank - 2) if is_image else []
    arguments = ", ".join([*places, *(f"i16 %o{i}" for i in offsets)])
    lines = [
        "define internal void @NAME(ptr addrspace(7) %to, ptr addrspace(3) %at, ptr %map, "
        f"{arguments}, i16 %mask, i64 %hint, i1 %masked, i1 %hinted, i32 %group) {{",
        *(f"  %c{i} = zext i16 %o{i} to i32" for i in offsets),
        *_places(rank + len(offsets)),
        "  %wide = zext i16 %mask to i32\n  %blocks = select i1 %masked, i32 %wide, i32 0",
        "  call void @emulator_bulk_copy(ptr addrspace(7) %to, ptr addrspace(3) %at, ptr %map, "
        f"i32 {rank}, ptr %first, i32 {int(is_image)}, i32 %blocks)\n  ret void\n}}",
    ]
    return "\n".join(lines)


def _bulk_store(match: re.Match[str]) -> str:
    rank = int(match[1])
    places = ", ".join(f"i32 %c{i}" for i in range(rank))
    lines = [
        "define internal void @NAME(ptr addrspace(3) %from, ptr %map, "
        f"{places}, i64 %hint, i1 %hinted) {{",
        *_places(rank),
        "  call void @emulator_bulk_store(ptr addrspace(3) %from, ptr %map, "
        f"i32 {rank}, ptr %first)\n  ret void\n}}",
    ]
    return "\n".join(lines)


def _places(rank: int) -> list[str]:
    """The place of a box in memory."""
    lines = [f"  %first = alloca [{rank} x i32]"]
    for i in range(rank):
        lines.append(f"  %p{i} = getelementptr i32, ptr %first, i64 {i}")
        lines.append(f"  store i32 %c{i}, ptr %p{i}")
    return lines


def _arrive(match: re.Match[str]) -> str:
    if not match[1]:
        return (
            "define internal i64 @NAME(ptr addrspace(3) %at) {\n"
            "  %r = call i64 @emulator_barrier_arrive(ptr addrspace(3) %at)\n  ret i64 %r\n}"
        )
    return (
        "define internal i64 @NAME(ptr addrspace(3) %at, i32 %bytes) {\n"
        "  call void @emulator_barrier_expect(ptr addrspace(3) %at, i32 %bytes)\n  ret i64 0\n}"
    )


_WITHOUT_EFFECT = (
    r"llvm\.nvvm\.(?:fence\.mbarrier|wgmma\.fence|setmaxnreg|prefetch\.tensormap|"
    r"barrier\.cluster\.arrive)"
)
"""What the emulator leaves out: it orders memory, and counts no registers."""

_WRAPPERS: list[tuple[re.Pattern[str], Callable[[re.Match[str]], str]]] = [
    (_COPY, _copy),
    (re.compile(r"llvm\.nvvm\.cp\.async\.commit\.group$"), _call("emulator_commit_copies")),
    (re.compile(r"llvm\.nvvm\.cp\.async\.wait\.group$"), _call("emulator_wait_copies", "i32 %n")),
    (_MATRICES, _matrices),
    (_STORED_MATRICES, _stored_matrices),
    (_MULTIPLY, _multiply),
    (re.compile(r"llvm\.nvvm\.fence\.proxy\.async\.shared_cta$"), _call("emulator_show_stores")),
    (re.compile(r"llvm\.nvvm\.elect\.sync$"), _elect),
    (re.compile(r"llvm\.nvvm\.cp\.async\.bulk\.tensor\.g2s\.(tile|im2col)\.([1-5])d$"), _bulk),
    (re.compile(r"llvm\.nvvm\.cp\.async\.bulk\.tensor\.s2g\.tile\.([1-5])d$"), _bulk_store),
    (re.compile(r"llvm\.nvvm\.cp\.async\.bulk\.commit\.group$"), _call("emulator_bulk_commit")),
    (re.compile(r"llvm\.nvvm\.cp\.async\.bulk\.wait\.group\.read$"),
     _call("emulator_bulk_wait", "i32 %n")),
    (re.compile(r"llvm\.nvvm\.barrier\.cluster\.wait(\.aligned)?$"),
     _call("emulator_barrier_cluster")),
    (re.compile(r"llvm\.nvvm\.mbarrier\.init\.shared$"),
     _call("emulator_barrier_init", "ptr addrspace(3) %at, i32 %count")),
    (re.compile(r"llvm\.nvvm\.mbarrier\.arrive(\.expect\.tx)?[\w.]*$"), _arrive),
    (re.compile(r"llvm\.nvvm\.wgmma\.commit_group\.sync\.aligned$"),
     _call("emulator_commit_products")),
    (re.compile(r"llvm\.nvvm\.wgmma\.wait_group\.sync\.aligned$"),
     _call("emulator_wait_products", "i64 %n")),
]  # fmt: skip
"""Names of intrinsics, and what writes their functions."""
