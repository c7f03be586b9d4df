"""Runs kernels for NVIDIA GPUs on this machine's CPU: the very LLVM IR that becomes PTX.

Special registers become variables, barriers and shuffles calls of emulator.c, which also stands in
for the CUDA driver: a whole artifact runs through the runtime that it uses on a GPU.
"""

from __future__ import annotations

import ctypes
import itertools
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import emulated_intrinsics
import llvmlite.binding as llvm

_SOURCES = [
    Path(__file__).with_name(name)
    for name in ("emulator.c", "emulated_matrix.c", "emulated_hopper.c")
]

_REGISTERS = {"tid.x": "tid", "ctaid.x": "ctaid", "ntid.x": "ntid", "nctaid.x": "nctaid"}
_READ = re.compile(
    rf"= (?:tail )?call [^@\n]*@llvm\.nvvm\.read\.ptx\.sreg\.({'|'.join(_REGISTERS)})\(\).*"
)
_CALLS = {
    "llvm.nvvm.barrier.cta.sync.aligned.all": "void @emulator_barrier(i32)",
    "llvm.nvvm.barrier.cta.sync.aligned.count": "void @emulator_barrier_some(i32, i32)",
    "llvm.nvvm.barrier.cta.arrive.aligned.count": "void @emulator_barrier_pass(i32, i32)",
    "llvm.nvvm.vote.any.sync": "i1 @emulator_any(i32, i1)",
    "llvm.nvvm.shfl.sync.bfly.i32": "i32 @emulator_shuffle_xor(i32, i32, i32, i32)",
    "llvm.nvvm.shfl.sync.idx.i32": "i32 @emulator_shuffle_index(i32, i32, i32, i32)",
    "llvm.nvvm.shfl.sync.bfly.f32": "float @emulator_shuffle_xor_float(i32, float, i32, i32)",
    "llvm.nvvm.ex2.approx.ftz.f32": "float @emulator_power_of_two(float)",
    "llvm.nvvm.lg2.approx.f": "float @emulator_log_two(float)",
    "llvm.nvvm.rsqrt.approx.f": "float @emulator_inverse_root(float)",
    "llvm.nvvm.div.full": "float @emulator_quotient(float, float)",
}
"""Intrinsics, and the functions of emulator.c that stand in for them."""

_OF_ONE_THREAD = ("approx", "div")
"""Parts of the names of those for which a thread does not wait."""

DYNAMIC_BYTES = 227 << 10
"""The most shared memory that a launch may ask for."""

KERNEL = re.compile(r"^define ptx_kernel void @(\w+)\((.*)$", re.MULTILINE)
_SHARED = re.compile(r"^@([\w.]+) = (?:\w+ )*addrspace\(3\) global", re.MULTILINE)
_COMPILER_CALLS = {"__truncsfbf2": "emulator_round_to_bf16"}
"""What LLVM calls where this CPU has no such instruction, and the emulator's function for it."""


_DYNAMIC = re.compile(r"^@([\w.]+) = external addrspace\(3\) global \[0 x i8\]", re.MULTILINE)
_MAP = "ptr byval([128 x i8]) align 128"
"""A tensor map, by value."""


@dataclass(frozen=True)
class HostKernel:
    """The LLVM IR of a kernel for the CPU; its name, whether its threads wait for each other, the
    names of its shared memory and of what it has of it by the launch, how many parameters it has
    (pointers, then tensor maps), how many of its blocks run together, and whether blocks wait for
    each other's flags."""

    text: str
    name: str
    waits: bool
    shared: list[str]
    dynamic: str | None
    pointers: int
    maps: int
    cluster: int
    waits_for_blocks: bool


_CHANGE = re.compile(
    r"^  (?:%[\w.]+ = cmpxchg|%[\w.]+ = atomicrmw|store) (?!.*addrspace\(3\))", re.M
)
"""What changes global memory."""


def host_ir(text: str, *, gives_way: bool = False) -> HostKernel:
    """A kernel for the CPU. The function `emulated` takes the launch's parameters. With
    `gives_way`, other threads run before each change of global memory."""
    match = KERNEL.search(text)
    assert match is not None, "no kernel in the IR"
    name = match[1]
    maps = match[2].count("byval(")
    blocks = re.search(r'"nvvm\.cluster_dim"="(\d+)', text)
    cluster = int(blocks[1]) if blocks else 1
    count = len(re.findall(r"\bptr\b", match[2]))
    waits = False
    declared = []
    text = _READ.sub(lambda m: f"= load i32, ptr @emulator_{_REGISTERS[m[1]]}", text)
    declared += [f"@emulator_{name} = external global i32" for name in _REGISTERS.values()]
    for intrinsic, signature in _CALLS.items():
        function = re.search(r"@(\w+)", signature)
        assert function is not None
        if f"@{intrinsic}(" in text:
            waits |= not any(part in intrinsic for part in _OF_ONE_THREAD)
            text = re.sub(rf"\ndeclare .*@{re.escape(intrinsic)}\(.*", "", text)
            text = text.replace(f"@{intrinsic}(", f"@{function[1]}(")
            declared.append(f"declare {signature}")
    if gives_way:
        text = _CHANGE.sub(r"  call void @emulator_give_way()\n\g<0>", text)
        declared.append("declare void @emulator_give_way()")
    text, exchanges = emulated_intrinsics.define_wrappers(text)
    waits |= exchanges or gives_way
    text = re.sub(r"\ndeclare .*@llvm\.nvvm\.read\.ptx\.sreg\..*", "", text)
    unknown = re.search(r"@llvm\.nvvm\.[\w.]+", text)
    assert unknown is None, f"the emulator does not know {unknown}"
    dynamic = next(iter(_DYNAMIC.findall(text)), None)
    shared = [symbol for symbol in _SHARED.findall(text) if symbol != dynamic]
    text = _DYNAMIC.sub(rf"@\1 = addrspace(3) global [{DYNAMIC_BYTES} x i8] zeroinitializer", text)
    text = re.sub(r"^(@[\w.]+ = )(?:internal |private )?(?:unnamed_addr )?addrspace\(3\)",
                  r"\1addrspace(3)", text, flags=re.M)  # fmt: skip
    text = text.replace("define ptx_kernel void", "define void")
    text = re.sub(r"\ntarget .*", "", text)
    # What LLVM inferred of a GPU's intrinsics does not hold of functions that switch fibers.
    text = re.sub(r"\nattributes #(\d+) = .*", r"\nattributes #\1 = { nounwind }", text)
    loads = [f"  %s{i} = getelementptr ptr, ptr %list, i64 {i}" for i in range(count)]
    loads += [f"  %a{i} = load ptr, ptr %s{i}\n  %p{i} = load ptr, ptr %a{i}" for i in range(count)]
    arguments = ", ".join(
        f"ptr %p{i}" if i < count - maps else f"{_MAP} %a{i}" for i in range(count)
    )
    wrapper = ["define void @emulated(ptr %list) {", *loads]
    wrapper += [f"  call void @{name}({arguments})", "  ret void", "}"]
    source = "\n".join([text, *declared, *wrapper])
    flags = "@emulator_flag(" in source
    return HostKernel(source, name, waits, shared, dynamic, count - maps, maps, cluster, flags)


_Loaded = tuple[HostKernel, dict[str, int], llvm.ResourceTracker]


@dataclass
class Emulator:
    """The compiled emulator.c and the kernels that were compiled for it since the last reset, by
    their LLVM IR and whether they give way."""

    path: Path
    library: ctypes.CDLL
    jit: llvm.LLJIT
    loaded: dict[tuple[str, bool], _Loaded]

    @staticmethod
    def build(folder: Path) -> Emulator:
        """Compile emulator.c with the system's C compiler."""
        compiler = shutil.which("cc") or shutil.which("gcc")
        assert compiler is not None, "the emulator needs a C compiler"
        path = folder / "libemulated_cuda.so"
        subprocess.run(
            [
                compiler,
                "-O3",
                "-march=native",
                "-ffp-contract=off",
                "-U_FORTIFY_SOURCE",
                "-shared",
                "-fPIC",
                "-o",
                path,
                *_SOURCES,
                "-lm",
            ],
            check=True,
        )
        library = ctypes.CDLL(str(path))
        library.emulator_message.restype = ctypes.c_char_p
        library.emulator_share.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
        library.emulator_share_dynamic.argtypes = library.emulator_share.argtypes
        library.emulator_register.argtypes = [
            ctypes.c_char_p, ctypes.c_void_p, *[ctypes.c_int] * 5,
        ]  # fmt: skip
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        return Emulator(path, library, llvm.create_lljit_compiler(), {})

    def configure(
        self,
        *,
        capability: tuple[int, int] = (9, 0),
        driver: int = 13000,
        devices: int = 1,
        broken: bool = False,
        backwards: bool = False,
        graphs: bool = True,
        pinned: bool = True,
        multiprocessors: int = 4,
        pairs: int | None = None,
    ) -> None:
        """Say what GPU there is; `broken` launches fail, `backwards` runs the last thread first,
        without `graphs` the driver records none, and without `pinned` no memory of the host is
        page-locked. Of its `multiprocessors`, so many `pairs` (all) run clusters of two blocks."""
        pairs = multiprocessors // 2 if pairs is None else pairs
        self.library.emulator_configure(
            *capability, driver, devices, broken, backwards, graphs, pinned, multiprocessors, pairs
        )

    def reset(self) -> None:
        """Forget all kernels."""
        self.library.emulator_reset()
        self.loaded.clear()
        self.configure()

    @property
    def message(self) -> str:
        return self.library.emulator_message().decode()

    def add(self, text: str, *, gives_way: bool = False) -> str:
        """Compile and register the kernel in LLVM IR `text`; returns its name. `host_ir` says what
        `gives_way` is."""
        if (text, gives_way) not in self.loaded:
            self.loaded[text, gives_way] = self._load(text, gives_way)
        kernel, sizes, tracker = self.loaded[text, gives_way]
        number = self.library.emulator_register(
            kernel.name.encode(),
            tracker["emulated"],
            int(kernel.waits),
            kernel.pointers,
            kernel.maps,
            kernel.cluster,
            int(kernel.waits_for_blocks),
        )
        for symbol in kernel.shared:
            self.library.emulator_share(number, tracker[symbol], sizes[symbol])
        if kernel.dynamic is not None:
            self.library.emulator_share_dynamic(number, tracker[kernel.dynamic], DYNAMIC_BYTES)
        return kernel.name

    def _load(self, text: str, gives_way: bool) -> _Loaded:
        """A kernel in this process's memory, the bytes of its shared memory, and its addresses."""
        kernel = host_ir(text, gives_way=gives_way)
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(),
            features=llvm.get_host_cpu_features().flatten(),
            # Sums of a warpgroup take long to allocate registers for, and C code to compute.
            opt=0 if "wgmma" in text else 1,
            reloc="pic",
        )
        module = llvm.parse_assembly(kernel.text)
        module.triple, module.data_layout = llvm.get_default_triple(), str(machine.target_data)
        module.verify()
        sizes = {
            variable.name: machine.target_data.get_abi_size(variable.global_value_type)
            for variable in module.global_variables
            if variable.name in kernel.shared
        }
        linking = (
            llvm.JITLibraryBuilder()
            .add_current_process()
            .add_object_img(machine.emit_object(module))
        )
        dynamic = [kernel.dynamic] if kernel.dynamic is not None else []
        for symbol in ("emulated", *kernel.shared, *dynamic):
            linking.export_symbol(symbol)
        ours = (
            *(f"emulator_{variable}" for variable in _REGISTERS.values()),
            "emulator_barrier", "emulator_barrier_some", "emulator_barrier_pass",
            "emulator_any", "emulator_shuffle_index",
            "emulator_shuffle_xor", "emulator_shuffle_xor_float",
            "emulator_power_of_two", "emulator_log_two", "emulator_inverse_root",
            "emulator_quotient",
            "emulator_give_way",
            *emulated_intrinsics.SYMBOLS,
        )  # fmt: skip
        for symbol, named in {**dict(zip(ours, ours, strict=True)), **_COMPILER_CALLS}.items():
            place = ctypes.cast(getattr(self.library, named), ctypes.c_void_p).value
            linking.import_symbol(symbol, place)
        return kernel, sizes, linking.link(self.jit, f"kernel_{next(_serial)}")


class RealGpu:
    """Stands where the emulator does in tests that run on a GPU: what says how the emulator works
    says nothing."""

    def add(self, text: str, *, gives_way: bool = False) -> None:
        """The GPU has the artifact's own code."""

    def configure(self, **options: object) -> None:
        """A GPU is as it is."""

    def reset(self) -> None:
        """Nothing is to be forgotten."""


_serial = itertools.count()
