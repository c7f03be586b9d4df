"""From the affine level to an artifact: kernels compiled in parallel and cached, then linked.

A kernel's object is stored under a digest of its text, the target and the compiler, and exports a
symbol made from that digest, so that equal kernels of all models share one object.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import hashlib
import json
import multiprocessing
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm
import numpy as np

from stepwell import artifact, cache, codegen
from stepwell.errors import Error, LoweringError
from stepwell.frontends import open_sizes
from stepwell.launch import LaunchProgram
from stepwell.mlir import ir, kernel_context
from stepwell.options import CompileOptions
from stepwell.packing import derived_from_dict
from stepwell.passes.affine._moved_bytes import MOVED_BYTES
from stepwell.passes.base import State, make_pass
from stepwell.passes.buffers.plan_arena import ARENA_BYTES, element_bytes
from stepwell.passes.llvm._entry_text import ENTRY, TASK_SUFFIX, entry_text, task_text
from stepwell.passes.llvm._host_program import HostProgram, KernelCall, read_host
from stepwell.pipeline import Progress, Walk, main_function
from stepwell.targets import Target
from stepwell.targets.nvidia import NvidiaTarget

_TASKS = re.compile(r"kernel\.tasks = (\d+)")
_PARALLEL = re.compile(r"affine\.parallel \(%\w+\) = \(0\) to \((\d+)\)")


@dataclass(frozen=True)
class KernelUnit:
    """One kernel to compile: its symbol, the text of a module that holds it, its cache name."""

    name: str
    symbol: str
    text: str
    arguments: int
    tasks: int
    strategy: str
    flops: int
    bytes: int


def write_artifact(
    walk: Walk,
    path: Path,
    options: CompileOptions,
    progress: Progress | None = None,
    pool: KernelPool | None = None,
) -> None:
    """Compile a module of level affine, kernel by kernel, or llvm, as a whole, and write the
    artifact to `path`. `pool` has begun to compile some of its kernels, perhaps."""
    if isinstance(walk.state.target, NvidiaTarget):
        from stepwell import cuda_assembly

        cuda_assembly.write_artifact(walk, path, options, progress)
        return
    if walk.level == "llvm":
        _write_whole(walk, path, options)
        return
    units = kernel_units(walk, options)
    with walk.imported.context, ir.Location.unknown():
        program = read_host(
            main_function(walk.module), {u.name: u.tasks for u in units.values()}, walk.state
        )
    program.rename_kernels({name: unit.symbol for name, unit in units.items()})
    begin = begin_step(progress, "compile-kernels")
    used = {call.kernel for call in program.calls}
    wanted = {u.symbol: u for u in units.values() if u.symbol in used}
    with pool or KernelPool(walk.state.target, options) as processes:
        objects = processes.objects(list(wanted.values()))
    end_step(progress, "compile-kernels", begin)
    begin = begin_step(progress, "link")
    objects.append(host_object(program, walk.state.target, options.opt_level))
    shared = codegen.link(objects, walk.state.target)
    manifest = manifest_of(walk, program, wanted, _object_format(shared), options)
    artifact.write(
        path, manifest, shared if shared is not None else objects, weights_of(program, walk.state)
    )
    end_step(progress, "link", begin)


def _write_whole(walk: Walk, path: Path, options: CompileOptions) -> None:
    """The artifact of a module in the LLVM dialect, which may have been changed by hand."""
    state = walk.state
    program = state.host if state.host is not None else resumed_program(walk)
    optimized = codegen.optimized_llvm(
        walk.module.operation, state.target, options.opt_level, scalar=True
    )
    data = codegen.object_code(optimized, state.target, options.opt_level)
    shared = codegen.link([data], state.target)
    manifest = manifest_of(walk, program, {}, _object_format(shared), options)
    artifact.write(
        path, manifest, shared if shared is not None else [data], weights_of(program, state)
    )


def resumed_program(walk: Walk) -> HostProgram:
    """The arena and the weights' offsets, as the entry function of a resumed module says them."""
    entry = main_function(walk.module)
    program = HostProgram()
    for kind, offsets in (("weights", program.weights), ("sources", program.sources)):
        for name in ir.DictAttr(entry.attributes[f"stepwell.{kind}"]):
            offset = ir.IntegerAttr(name.attr).value
            size = walk.state.weights[name.name].nbytes
            offsets[name.name] = offset
            program.weights_bytes = max(program.weights_bytes, -(-(offset + size) // 64) * 64)
    derived = json.loads(ir.StringAttr(entry.attributes["stepwell.derived"]).value)
    program.derived = [derived_from_dict(data) for data in derived]
    functions = entry.attributes["stepwell.functions"]
    program.functions = [ir.StringAttr(name).value for name in functions]
    if ARENA_BYTES in entry.attributes:
        program.arena_bytes = ir.IntegerAttr(entry.attributes[ARENA_BYTES]).value
    return program


def begin_step(progress: Progress | None, name: str) -> float:
    """Tell `progress` that a step begins; returns the time."""
    if progress is not None:
        progress(name, None)
    return time.perf_counter()


def end_step(progress: Progress | None, name: str, begin: float) -> None:
    """Tell `progress` that the step which began at `begin` has ended."""
    if progress is not None:
        progress(name, time.perf_counter() - begin)


def weights_of(program: HostProgram, state: State) -> Iterator[tuple[int, np.ndarray]]:
    """The weights section: arrays and their offsets."""
    for name, offset in (*program.weights.items(), *program.sources.items()):
        yield offset, state.weights[name]


def kernel_units(walk: Walk, options: CompileOptions) -> dict[str, KernelUnit]:
    """The kernels of an affine-level module by function name."""
    kernels = [
        child.operation
        for child in walk.module.body.operations
        if "kernel.kind" in child.operation.attributes
    ]
    units = [kernel_unit(kernel, walk.state.target, options) for kernel in kernels]
    return {unit.name: unit for unit in units}


def kernel_unit(kernel: ir.Operation, target: Target, options: CompileOptions) -> KernelUnit:
    """A kernel function of level affine as a unit, which is the same under any name."""
    name = ir.StringAttr(kernel.attributes["sym_name"]).value
    text = kernel.get_asm(enable_debug_info=False, use_local_scope=True)
    text = text.replace(f"@{name}(", "@kernel(", 1)
    digest = hashlib.sha256(
        json.dumps([text, dataclasses.asdict(target), options.opt_level, _compiler()]).encode()
    ).hexdigest()[:24]
    kind = ir.FunctionType(ir.TypeAttr(kernel.attributes["function_type"]).value)
    match = _PARALLEL.search(text)
    return KernelUnit(
        name,
        f"kernel_{digest}",
        text,
        len(kind.inputs),
        int(match.group(1)) if match else 1,
        ir.StringAttr(kernel.attributes["kernel.kind"]).value,
        ir.IntegerAttr(kernel.attributes["kernel.flops"]).value
        if "kernel.flops" in kernel.attributes
        else 0,
        ir.IntegerAttr(kernel.attributes[MOVED_BYTES]).value
        if MOVED_BYTES in kernel.attributes
        else sum(_bytes(t) for t in kind.inputs),
    )


def _bytes(kind: ir.Type) -> int:
    if not isinstance(kind, ir.MemRefType):
        return 0
    return int(np.prod(kind.shape)) * element_bytes(kind.element_type)


_AFFINE_PASSES = ("expand_math.py", "look_up_codes.py")
"""What kernels go through behind the digest, beside the passes of llvm and nvvm."""


@functools.cache
def _compiler() -> str:
    """A digest of the code that turns kernels into objects."""
    root = Path(__file__).parent
    files = [root / name for name in ("codegen.py", "assembly.py", "ptx.py", "ptxas.py")]
    files += sorted((root / "kernels").glob("vector_math*.py"))
    files += [root / "kernels" / "gpu" / name for name in ("approximate_math.py", "hopper.py")]
    import stepwell.passes as passes

    folder = Path(next(iter(passes.__path__)))
    levels = (*folder.glob("llvm/*.py"), *folder.glob("nvvm/*.py"))
    files += sorted([*levels, *(folder / "affine" / name for name in _AFFINE_PASSES)])
    digest = hashlib.sha256(b"".join(f.read_bytes() for f in files))
    digest.update(f"{llvmlite.__version__} {llvm.llvm_version_info}".encode())
    return digest.hexdigest()


class KernelPool:
    """Processes, one a core, that compile the kernels of a model for `target`: each from when it is
    known (`begin`), so that others are lowered meanwhile. With one core, or for one kernel, there
    are none: to start them takes a fifth of the time of a small program."""

    def __init__(self, target: Target, options: CompileOptions) -> None:
        self._compile: Callable[[KernelUnit], bytes | str] = functools.partial(
            _compile_unit, target=target, opt_level=options.opt_level
        )
        self._target, self._options = target, options
        self._begun: dict[str, concurrent.futures.Future[bytes | str]] = {}
        self._workers = len(os.sched_getaffinity(0))
        self._first: KernelUnit | None = None
        self._processes: concurrent.futures.ProcessPoolExecutor | None = None

    def __enter__(self) -> KernelPool:
        return self

    def __exit__(self, *_: object) -> None:
        if self._processes is not None:
            self._processes.shutdown(cancel_futures=True)

    def begin(self, kernel: ir.Operation) -> None:
        """Begin to compile a kernel function of level affine, unless it is known."""
        unit = kernel_unit(kernel, self._target, self._options)
        if self._stored(unit) is None:
            self._submit(unit)

    def objects(self, units: list[KernelUnit]) -> list[bytes]:
        """Objects of `units`, in order: from the cache, or compiled. Raises LoweringError."""
        found = {unit.symbol: self._stored(unit) for unit in units}
        missing = [unit for unit in units if found[unit.symbol] is None]
        for unit in sorted(missing, key=lambda unit: -len(unit.text)):
            self._submit(unit)
        for unit in missing:
            result = self._result(unit)
            if isinstance(result, str):
                raise LoweringError(f"{unit.name}: {result}")
            found[unit.symbol] = result
            if self._options.use_cache:
                cache.put("kernels", unit.symbol, result)
        return [data for unit in units if (data := found[unit.symbol]) is not None]

    def _stored(self, unit: KernelUnit) -> bytes | None:
        path = cache.lookup("kernels", unit.symbol) if self._options.use_cache else None
        return None if path is None else path.read_bytes()

    def _submit(self, unit: KernelUnit) -> None:
        """Let a process compile `unit`, if there is another one to compile meanwhile."""
        first = self._first = self._first or unit
        if self._workers == 1 or unit.symbol in (first.symbol, *self._begun):
            return
        if self._processes is None:
            context = multiprocessing.get_context("fork")
            self._processes = concurrent.futures.ProcessPoolExecutor(
                self._workers, mp_context=context
            )
            self._begun[first.symbol] = self._processes.submit(self._compile, first)
        self._begun[unit.symbol] = self._processes.submit(self._compile, unit)

    def _result(self, unit: KernelUnit) -> bytes | str:
        begun = self._begun.get(unit.symbol)
        return self._compile(unit) if begun is None else begun.result()


def in_processes(function: Callable, items: list) -> list:
    """The results of `function` on `items`, in order, worked out by one process a core."""
    workers = min(len(items), len(os.sched_getaffinity(0)))
    if workers <= 1:
        return [function(item) for item in items]
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(workers, mp_context=context) as pool:
        return list(pool.map(function, items))


_COPYING = ("concatenate", "pad")
"""Strategies whose loops LLVM makes calls of memcpy and memset, which are faster."""


def _compile_unit(unit: KernelUnit, *, target: Target, opt_level: int) -> bytes | str:
    """The object of one kernel, or the sentence that says why there is none."""
    try:
        with kernel_context(), ir.Location.unknown():
            module = ir.Module.parse(unit.text.replace("@kernel(", f"@{unit.symbol}(", 1))
            state = State(target=target)
            for name in ("look-up-codes", "expand-math", "split-tasks"):
                make_pass(name).apply(module, state)
            task = ir.Module.parse(
                f"llvm.func @{unit.symbol}({'!llvm.ptr, ' * unit.arguments}i64, i64)\n"
                + task_text(unit.symbol, unit.arguments)
            )
            make_pass("lower-kernels-to-llvm").apply(module, state)
            for child in task.body.operations:
                if "sym_name" in child.operation.attributes and child.operation.attributes[
                    "sym_name"
                ].value.endswith(TASK_SUFFIX):
                    ir.InsertionPoint(module.body).insert(child.operation.clone())
            optimized = codegen.optimized_llvm(
                module.operation,
                target,
                opt_level,
                scalar=unit.strategy == "scalar",
                unroll=unit.strategy in _COPYING,
            )
            return codegen.object_code(optimized, target, opt_level)
    except (Error, ir.MLIRError) as error:
        return str(error)


def host_object(program: HostProgram, target: Target, opt_level: int) -> bytes:
    """The object of the entry point, which refers to the kernels' task functions."""
    kernels = sorted({call.kernel for call in program.calls})
    declared = "\n".join(
        f"llvm.func @{kernel}{TASK_SUFFIX}(!llvm.ptr, i64, i64)" for kernel in kernels
    )
    with kernel_context(), ir.Location.unknown():
        module = ir.Module.parse(f"{declared}\n{entry_text(program)}")
        optimized = codegen.optimized_llvm(module.operation, target, opt_level, externals=True)
        return codegen.object_code(optimized, target, opt_level, externals=True)


def manifest_of(
    walk: Walk,
    program: HostProgram,
    units: dict[str, KernelUnit],
    code_format: str,
    options: CompileOptions,
    cuda: LaunchProgram | None = None,
) -> artifact.Manifest:
    """What the artifact says about itself; `units` are its kernels by symbol."""
    from stepwell import __version__

    target = walk.state.target
    sizes = open_sizes.read(main_function(walk.module), walk.imported)
    hidden = () if sizes is None else artifact.hidden_inputs(sizes.scalars, sizes.prefixes)
    return artifact.Manifest(
        inputs=(*(_spec(spec) for spec in walk.imported.inputs), *hidden),
        outputs=tuple(_spec(spec) for spec in walk.imported.outputs),
        entry=ENTRY,
        arena_bytes=program.arena_bytes,
        weights_bytes=program.weights_bytes,
        derived=tuple(program.derived),
        functions=tuple(program.functions),
        target=target.name,
        triple=target.triple,
        features=target.features,
        code_format=code_format,
        cuda=cuda,
        kernels=tuple(_kernel_info(call, units.get(call.kernel)) for call in program.calls),
        threads=walk.state.threads,
        compiler_version=__version__,
        source_digest="",
        options=options.result_key(),
        results=walk.imported.results,
        cuts=walk.imported.cuts,
        checks=walk.imported.checks,
        defaults=tuple(_spec(spec) for spec in walk.imported.defaults),
        open_sizes=sizes,
    )


def _object_format(shared: bytes | None) -> str:
    return "objects" if shared is None else "shared-object"


def _kernel_info(call: KernelCall, unit: KernelUnit | None) -> artifact.KernelInfo:
    if unit is None:
        return artifact.KernelInfo(call.kernel, call.sources)
    return artifact.KernelInfo(call.kernel, call.sources, unit.strategy, unit.flops, unit.bytes)


def _spec(spec) -> artifact.TensorSpec:
    return artifact.TensorSpec(spec.name, np.dtype(spec.dtype).name, tuple(spec.shape))
