"""From the affine level to an artifact for NVIDIA GPUs: PTX, cubins, and the launch program.

Kernels are compiled in parallel, each cached under a digest of its text, as for CPUs. Every kernel
has PTX; it has a cubin too where a ptxas that is new enough is at hand.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stepwell import artifact, assembly, cache, ptx, ptxas
from stepwell.errors import Error, LoweringError
from stepwell.host_calls import HostCall, host_calls
from stepwell.inspection.gpu_lint import Kernel, lint
from stepwell.kernels.gpu.grid import CLUSTER, DYNAMIC_SHARED, RESIDENT, TENSOR_MAPS
from stepwell.kernels.library_call import KIND as LIBRARY_CALL
from stepwell.launch import (
    ARENA,
    COPY,
    INPUT,
    JUMP,
    JUMP_UNLESS,
    LAUNCH,
    LOAD,
    OUTPUT,
    WEIGHTS,
    Image,
    LaunchProgram,
)
from stepwell.mlir import ir, new_context
from stepwell.options import CompileOptions
from stepwell.passes.base import State, make_pass
from stepwell.passes.llvm._host_program import (
    Branch,
    Chain,
    Copy,
    HostProgram,
    KernelCall,
    Load,
    Loop,
    Parts,
    Place,
    Statement,
    read_host,
)
from stepwell.pipeline import KERNEL_PASSES_OF_GPUS, Progress, Walk, main_function
from stepwell.targets.nvidia import NvidiaTarget

_GRID = re.compile(r"affine\.parallel \(%\w+, %\w+\) = \(0, 0\) to \((\d+), (\d+)\)")
_DYNAMIC_SHARED = re.compile(rf"{DYNAMIC_SHARED} = (\d+) : i64")
_RESIDENT = re.compile(rf"{RESIDENT} = (\d+) : i64")
_CLUSTER = re.compile(rf"{CLUSTER} = (\d+) : i64")
_TENSOR_MAPS = re.compile(rf"{TENSOR_MAPS} = \[([^\]]*)\]")
_BASES = {"input": INPUT, "output": OUTPUT, "weights": WEIGHTS, "arena": ARENA}
_SEPARATOR = b"\0ptxas\0"


@dataclass(frozen=True)
class CompiledKernel:
    """A kernel's PTX, and its cubin with what ptxas said; both empty without a ptxas."""

    ptx: str
    cubin: bytes = b""
    log: str = ""

    def to_bytes(self) -> bytes:
        return _SEPARATOR.join([self.ptx.encode(), self.log.encode(), self.cubin])

    @staticmethod
    def from_bytes(data: bytes) -> CompiledKernel:
        text, log, cubin = data.split(_SEPARATOR, 2)
        return CompiledKernel(text.decode(), cubin, log.decode())


def write_artifact(
    walk: Walk, path: Path, options: CompileOptions, progress: Progress | None = None
) -> None:
    """Compile the kernels of a module of level affine and write the artifact to `path`."""
    target = nvidia_target(walk)
    if walk.level != "affine":
        raise LoweringError(
            f"an artifact for {target.name} is made from level affine; the module is at level "
            f"{walk.level}"
        )
    units = assembly.kernel_units(walk, options)
    called = host_calls(walk.module)
    with walk.imported.context, ir.Location.unknown():
        program = read_host(main_function(walk.module), {}, walk.state)
    program.rename_kernels(
        {name: units[name].symbol if name in units else name for name in (*units, *called)}
    )
    program.functions = list(dict.fromkeys(host.call.function for host in called.values()))
    begin = assembly.begin_step(progress, "compile-kernels")
    used = {call.kernel for call in program.calls}
    wanted = {u.symbol: u for u in units.values() if u.symbol in used}
    compiled = compile_units(list(wanted.values()), target, options)
    assembly.end_step(progress, "compile-kernels", begin)
    early = [target.overlaps_kernels and not is_heavy(unit) for unit in wanted.values()]
    parts, images = _parts(list(wanted), compiled, early)
    launches = {symbol: Launch.of(unit) for symbol, unit in wanted.items()}
    findings = tuple(
        finding
        for (symbol, launch), kernel in zip(launches.items(), compiled, strict=True)
        for finding in lint(
            Kernel(
                symbol,
                kernel.ptx,
                launch.threads,
                kernel.log,
                dynamic_shared_bytes=launch.shared_bytes,
            ),
            target,
        )
    )
    launched = launch_program(program, launches, called, images, target, findings)
    described = wanted | {name: _described(name, host) for name, host in called.items()}
    manifest = assembly.manifest_of(walk, program, described, "cuda", options, launched)
    artifact.write(path, manifest, parts, assembly.weights_of(program, walk.state))


def _described(name: str, host: HostCall) -> assembly.KernelUnit:
    """What tables of kernels say of a function that the host calls."""
    return assembly.KernelUnit(
        name, name, "", len(host.buffers), host.call.batch, LIBRARY_CALL, 0, host.bytes
    )


def nvidia_target(walk: Walk) -> NvidiaTarget:
    """The GPU that a module is on its way to."""
    target = walk.state.target
    if not isinstance(target, NvidiaTarget):
        raise LoweringError(f"{target.name} is no NVIDIA GPU")
    return target


def _parts(
    symbols: Sequence[str], compiled: Sequence[CompiledKernel], early: Sequence[bool]
) -> tuple[list[bytes], tuple[Image, ...]]:
    parts: list[bytes] = []
    images = []
    for symbol, kernel, begins in zip(symbols, compiled, early, strict=True):
        cubin = len(parts) + 1 if kernel.cubin else None
        images.append(Image(symbol, len(parts), cubin, begins))
        parts += [kernel.ptx.encode() + b"\0", *([kernel.cubin] if kernel.cubin else [])]
    return parts, tuple(images)


def is_heavy(unit: assembly.KernelUnit) -> bool:
    """Whether a kernel's blocks take long, several on a multiprocessor: a contraction without
    tensor cores. While another kernel ends, a GPU puts them on the first multiprocessors that
    become free: ResNet-50 in f32 took an eighth longer on an H200."""
    return unit.strategy == "contraction" and "kernel.strategy" not in unit.text


def grid(unit: assembly.KernelUnit) -> tuple[int, int]:
    """Blocks, and threads a block, of a kernel."""
    match = _GRID.search(unit.text)
    return (int(match[1]), int(match[2])) if match else (1, 1)


@dataclass(frozen=True)
class Launch:
    """What a launch of a kernel says beside its operands: blocks, threads a block, bytes of shared
    memory beside what the kernel declares, the fields of its tensor maps (the argument and the
    bytes in it where the array begins, then what stepwell.launch says), the most blocks that it
    makes a multiprocessor (0: any number), and how many run together."""

    blocks: int
    threads: int
    shared_bytes: int = 0
    maps: tuple[tuple[int, ...], ...] = ()
    resident: int = 0
    cluster: int = 1

    @staticmethod
    def of(unit: assembly.KernelUnit) -> Launch:
        """That of a kernel of level affine, read from its text."""
        shared, maps = _DYNAMIC_SHARED.search(unit.text), _TENSOR_MAPS.search(unit.text)
        resident, cluster = _RESIDENT.search(unit.text), _CLUSTER.search(unit.text)
        fields = re.findall(r"array<i64: ([^>]*)>", maps[1]) if maps else []
        return Launch(
            *grid(unit),
            int(shared[1]) if shared else 0,
            tuple(tuple(map(int, field.split(","))) for field in fields),
            int(resident[1]) if resident else 0,
            int(cluster[1]) if cluster else 1,
        )


def compile_units(
    units: list[assembly.KernelUnit], target: NvidiaTarget, options: CompileOptions
) -> list[CompiledKernel]:
    """The code of `units`, in order: from the cache, or compiled by one process a core."""
    kind = "kernels-ptxas" if ptxas.can_assemble(target) else "kernels-ptx"
    found: dict[str, CompiledKernel] = {}
    for unit in units:
        path = cache.lookup(kind, unit.symbol) if options.use_cache else None
        if path is not None:
            found[unit.symbol] = CompiledKernel.from_bytes(path.read_bytes())
    missing = [unit for unit in units if unit.symbol not in found]
    missing.sort(key=lambda unit: -len(unit.text))
    compile_one: Callable[[assembly.KernelUnit], CompiledKernel | str] = functools.partial(
        _compile_unit, target=target, opt_level=options.opt_level
    )
    for unit, result in zip(missing, assembly.in_processes(compile_one, missing), strict=True):
        if isinstance(result, str):
            raise LoweringError(f"{unit.name}: {result}")
        found[unit.symbol] = result
        if options.use_cache:
            cache.put(kind, unit.symbol, result.to_bytes())
    return [found[unit.symbol] for unit in units]


def lower_unit(unit: assembly.KernelUnit, target: NvidiaTarget) -> ir.Operation:
    """The `gpu.module` of one kernel, in the current context."""
    module = ir.Module.parse(unit.text.replace("@kernel(", f"@{unit.symbol}(", 1))
    state = State(target=target)
    for name in KERNEL_PASSES_OF_GPUS:
        make_pass(name).apply(module, state)
    (gpu_module,) = (
        child.operation.detach_from_parent()
        for child in list(module.body.operations)
        if child.operation.name == "gpu.module"
    )
    return gpu_module.operation


def _compile_unit(
    unit: assembly.KernelUnit, *, target: NvidiaTarget, opt_level: int
) -> CompiledKernel | str:
    """The code of one kernel, or the sentence that says why there is none."""
    try:
        with new_context(), ir.Location.unknown():
            optimized = ptx.kernel_llvm(lower_unit(unit, target), target, opt_level)
            text = ptx.ptx(optimized, target, opt_level)
        if not ptxas.can_assemble(target):
            return CompiledKernel(text)
        assembled = ptxas.assemble(text, target)
        return CompiledKernel(text, assembled.cubin, assembled.log)
    except (Error, ir.MLIRError) as error:
        return str(error)


def emit(module: ir.Module, target: NvidiaTarget, kind: str, opt_level: int) -> str:
    """The kernels of a module of level nvvm as "ptx" or "sass", one after another."""
    texts = []
    with module.context, ir.Location.unknown():
        for child in module.body.operations:
            if child.operation.name == "gpu.module":
                text = ptx.ptx(
                    ptx.kernel_llvm(child.operation, target, opt_level), target, opt_level
                )
                texts.append(text)
    if kind == "sass":
        texts = [ptxas.sass(ptxas.assemble(text, target).cubin) for text in texts]
    return "\n".join(texts)


def launch_program(
    program: HostProgram,
    launches: dict[str, Launch],
    called: dict[str, HostCall],
    images: tuple[Image, ...],
    target: NvidiaTarget,
    findings: tuple[str, ...] = (),
) -> LaunchProgram:
    """The host program as instructions; `launches` has what each kernel's launches say, `called`
    the functions of `program` that the host calls."""
    numbers = {image.kernel: number for number, image in enumerate(images)}
    code: list[int] = []
    slots = 0

    def place(where: Place) -> list[int]:
        return [_BASES[where.base], where.number, where.offset]

    def write(statements: Sequence[Statement]) -> None:
        nonlocal slots
        for statement in statements:
            if isinstance(statement, KernelCall) and statement.kernel in called:
                host = called[statement.kernel]
                function = program.functions.index(host.call.function)
                code.extend(host.instruction(function, list(map(place, statement.operands))))
            elif isinstance(statement, KernelCall):
                operands = [place(where) for where in statement.operands]
                launch = launches[statement.kernel]
                kernel, counts = numbers[statement.kernel], [len(operands), len(launch.maps)]
                code.extend([LAUNCH, kernel, launch.blocks, launch.threads, launch.shared_bytes])
                code.extend([launch.resident, launch.cluster, *counts])
                code.extend(number for where in operands for number in where)
                for argument, start, *fields in launch.maps:
                    base, number, offset = operands[argument]
                    code.extend([base, number, offset + start, *fields])
            elif isinstance(statement, Copy):
                code.extend([COPY, *place(statement.source), *place(statement.target)])
                code.append(statement.bytes)
            elif isinstance(statement, Load):
                code.extend([LOAD, statement.number, *place(statement.place)])
                slots = max(slots, statement.number + 1)
            elif isinstance(statement, Branch):
                _branch(statement, code, write)
            elif isinstance(statement, Chain):
                write(statement.calls)
            else:
                loop = statement.loop if isinstance(statement, Parts) else statement
                _loop(loop, code, write)

    write(program.body)
    return LaunchProgram(
        tuple(code),
        slots,
        images,
        target.cpu,
        target.compute_capability,
        target.runs_on_one_capability,
        target.toolkit,
        findings,
        program.zeroed_bytes,
    )


def _branch(
    statement: Branch, code: list[int], write: Callable[[Sequence[Statement]], None]
) -> None:
    code.extend([JUMP_UNLESS, statement.condition, 0])
    otherwise = len(code) - 1
    write(statement.then)
    code.extend([JUMP, 0])
    end = len(code) - 1
    code[otherwise] = len(code)
    write(statement.otherwise)
    code[end] = len(code)


def _loop(statement: Loop, code: list[int], write: Callable[[Sequence[Statement]], None]) -> None:
    start = len(code)
    write(statement.before)
    code.extend([JUMP_UNLESS, statement.condition, 0])
    end = len(code) - 1
    write(statement.body)
    code.extend([JUMP, start])
    code[end] = len(code)
