"""`stepwell.compile`: a model into an executable, by way of the cache and a compiler process."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from stepwell import artifact, cache, ptxas, pytorch, targets
from stepwell.artifact import Artifact
from stepwell.errors import ArtifactError, LoweringError, ModelError, OpenModelError, UsageError
from stepwell.open_shapes import NamedShapes, are_known, bounded
from stepwell.options import CompileOptions, make_options
from stepwell.partitioned import PartitionedExecutable, partitioned
from stepwell.progress import progress_lines
from stepwell.runtime.load_artifact import Loaded, load_artifact
from stepwell.runtime.threads import default_threads
from stepwell.sources import GIVEN, Model, Shapes, Source, as_source, declared_shapes
from stepwell.specialization import OpenSpec, Specialization
from stepwell.specializing import OverridableExecutable, SpecializingExecutable
from stepwell.supervisor import run_worker
from stepwell.targets.nvidia import NvidiaTarget
from stepwell.worker import ENTRY, Request, error_from_dict, error_to_dict

if TYPE_CHECKING:
    import onnx

    from stepwell.frontends.onnx.host_loop import HostLoop

Compiled: TypeAlias = Loaded | SpecializingExecutable | PartitionedExecutable
"""What runs a model: compiled, compiled when it is called, or in parts."""

_BASE_MEMORY_MB = 16 << 10
_MEMORY_PER_MODEL = 4

_log = logging.getLogger("stepwell")


def compile(
    model: Model,
    target: str | Sequence[object] = "cpu",
    threads: int | None = None,
    shapes: NamedShapes | None = None,
    options: CompileOptions | Mapping[str, object] | None = None,
    *,
    example_inputs: object = None,
    max_sizes: Mapping[str, int] | None = None,
) -> Compiled:
    """Compile `model` and load the result. A model that leaves open what only a call can tell
    (dimensions, shape operands, lengths of sequences) is compiled when it is called. Of an ONNX
    model, nodes on strings and maps run on the host.

    `model` is a path, an onnx.ModelProto, a jax.export.Exported, a jax.stages.Lowered (called with
    the flattened arguments that its function uses), StableHLO as text, bytecode or portable
    artifact, an MLIR module, a torch.export.ExportedProgram, or a torch.nn.Module: then
    `example_inputs` (which may also stand second) are a tensor, a tuple of positional or a dict of
    keyword arguments of it, and their shapes those of the compiled code. `target` names the machine
    ("cpu": this one), `threads` the threads of a run (default: the physical cores), `shapes` gives
    dynamic inputs their sizes.

    With names in `shapes`, or with `max_sizes` for names that the model has for dimensions, the
    model is compiled now, and once for any of these sizes up to those of `max_sizes`:
    `shapes={"ids": (1, "n")}, max_sizes={"n": 512}`. Sizes may be sums and multiples of names:
    `"past + n"`, `"32*h"`.

    Raises ModelError, UnsupportedError, LoweringError, UsageError, CompilerCrash.
    """

    if not isinstance(target, str):
        target, example_inputs = "cpu", target
    model = pytorch.exported(model, example_inputs)
    machine = target
    if max_sizes or not are_known(shapes):
        built = build(model, machine, threads, shapes, options, None, max_sizes)
        return load_artifact(built, threads)

    def build_for(sizes: Shapes | None, specialization: Specialization | None) -> Artifact:
        return build(model, machine, threads, sizes, options, specialization)

    def compile_part(part: onnx.ModelProto, sizes: Shapes) -> Compiled:
        return compile(part, machine, threads, sizes, options)

    def compile_body(body: onnx.ModelProto, on_host: frozenset[str]) -> Compiled:
        parts = partitioned(body, {}, compile_part, on_host) if on_host else None
        return compile_part(body, {}) if parts is None else parts

    def host_loop(name: str) -> HostLoop:
        from stepwell.frontends.onnx.host_loop import HostLoop

        return HostLoop(model, name, compile_body)

    on_gpu = isinstance(targets.get(machine), NvidiaTarget)
    try:
        built = build_for(shapes, None)
        return load_artifact(built) if on_gpu else OverridableExecutable(built, threads, build_for)
    except OpenModelError as error:
        any_size = make_options(options).any_size
        named = _with_names(error, model)
        return SpecializingExecutable(
            build_for,
            named,
            threads,
            shapes or {},
            any_size=any_size,
            on_gpu=on_gpu,
            host_loop=host_loop,
        )
    except ModelError:
        parts = None if on_gpu else partitioned(model, shapes or {}, compile_part)
        if parts is None:
            raise
        return parts


def build(
    model: Model,
    target: str = "cpu",
    threads: int | None = None,
    shapes: NamedShapes | None = None,
    options: CompileOptions | Mapping[str, object] | None = None,
    specialization: Specialization | None = None,
    max_sizes: Mapping[str, int] | None = None,
) -> Artifact:
    """Compile `model` into an artifact without loading its code, for any target.

    Arguments and errors as for `compile`; raises OpenModelError for what `shapes` and
    `specialization` leave open.
    """
    _tell_precision(target, make_options(options))
    if max_sizes or not are_known(shapes):
        return _build_bounded(model, target, threads, shapes or {}, options, max_sizes or {})
    settings = make_options(options)
    if settings.dump_phases_to is not None:
        phases = str(Path(settings.dump_phases_to).absolute())
        settings = dataclasses.replace(settings, dump_phases_to=phases)
    if threads is not None and threads < 1:
        raise UsageError(f"threads is {threads}; it must be 1 or more")
    count = threads or default_threads()
    sizes = checked_shapes(shapes)
    machine = targets.get(target)
    if settings.record is not None:
        settings.record.require(machine.name, count, settings.precision)
    with cache.work_folder() as folder:
        open_sizes = specialization.sizes if specialization else None
        source = as_source(model, folder, sizes, open_sizes)
        special = specialization.to_json() if specialization else ""
        key = cache.digest(
            cache.compiler_digest(),
            source.digest,
            repr(machine),
            json.dumps([count, sizes, settings.result_key(), ENTRY, special], sort_keys=True),
            str(ptxas.release()) if isinstance(machine, NvidiaTarget) else "",
        )
        name = f"{key}.stepwell"
        use_cache = settings.use_cache and settings.dump_phases_to is None
        if use_cache:
            _raise_cached(f"{key}.json")
            found = _cached(name)
            if found is not None:
                return found
        request = request_for(source, folder, target, count, settings, sizes, special)
        try:
            with progress_lines(settings.progress) as progress:
                run_worker(request, folder, progress)
        except OpenModelError as error:
            if use_cache:
                cache.put("open", f"{key}.json", json.dumps(error_to_dict(error)).encode())
            raise
        except ModelError as error:
            if not source.is_given or type(error) is not ModelError:
                raise
            raise ModelError(str(error).replace(str(source.path), GIVEN)) from error
        path = Path(request.artifact)
        if use_cache:
            path = cache.enter("artifacts", name, path)
        return artifact.read(path, check_host=False)


def request_for(
    source: Source,
    folder: Path,
    target: str,
    threads: int,
    options: CompileOptions,
    shapes: dict[str, list[int]] | None = None,
    specialization: str = "",
) -> Request:
    """What a worker is asked in order to compile `source` into an artifact in `folder`."""
    machine = targets.get(target)
    return Request(
        source=str(source.path),
        artifact=str(folder / "artifact.stepwell"),
        # The worker has no driver to ask for the GPU of this machine.
        target=machine.name if isinstance(machine, NvidiaTarget) else target,
        threads=threads,
        shapes=shapes,
        options=dataclasses.asdict(options),
        memory_limit_mb=options.memory_limit_mb or _memory_limit_mb(source),
        entry=ENTRY,
        specialization=specialization,
    )


def _tell_precision(target: str, options: CompileOptions) -> None:
    """Say where a precision that was asked for is not what `target` has."""
    machine = targets.get(target)
    multiplies = isinstance(machine, NvidiaTarget) or machine.bfloat_dot
    if options.precision == "bf16" and not multiplies:
        _log.warning("%s does not multiply bf16: products stay float32", machine.name)


def _build_bounded(
    model: Model,
    target: str,
    threads: int | None,
    shapes: NamedShapes,
    options: CompileOptions | Mapping[str, object] | None,
    max_sizes: Mapping[str, int],
) -> Artifact:
    """An artifact for any sizes of the dimensions that have names, up to `max_sizes`."""
    limits: Mapping[str, int] = {}
    try:
        known = build(model, target, threads, None, options).manifest.inputs
        inputs = tuple(OpenSpec(spec.name, spec.dtype, spec.shape) for spec in known)
    except OpenModelError as error:
        if not error.inputs:
            raise
        inputs, limits = _with_names(error, model).inputs, error.limits
    sizes = bounded(inputs, shapes, max_sizes, limits)
    try:
        return build(model, target, threads, None, options, Specialization(sizes=sizes))
    except (ModelError, LoweringError) as error:
        listed = ", ".join(f"{name} <= {size}" for name, size in sizes.capacities.items())
        raise ModelError(
            f"the model cannot be compiled once for any size with {listed}: {error}"
        ) from error


def _with_names(error: OpenModelError, model: Model) -> OpenModelError:
    """`error` with the names of open dimensions that `model` tells, but not its file."""
    declared = declared_shapes(model)
    if declared is None:
        return error
    inputs, outputs = (
        tuple(
            dataclasses.replace(spec, shape=shape)
            for spec, shape in zip(specs, shapes, strict=True)
        )
        if len(specs) == len(shapes)
        else specs
        for specs, shapes in zip((error.inputs, error.outputs), declared, strict=True)
    )
    return OpenModelError(
        str(error),
        inputs,
        outputs,
        error.values,
        error.sizes,
        error.defaults,
        error.limits,
        error.dropped,
        error.loops,
    )


def _cached(name: str) -> Artifact | None:
    path = cache.lookup("artifacts", name)
    if path is None:
        return None
    try:
        return artifact.read(path, check_host=False)
    except ArtifactError:  # a damaged entry is as good as none
        path.unlink(missing_ok=True)
        return None


def _raise_cached(name: str) -> None:
    """Raise the OpenModelError that a compilation is known to end with."""
    path = cache.lookup("open", name)
    if path is not None:
        error = error_from_dict(json.loads(path.read_text()))
        if error is not None:
            raise error


def checked_shapes(shapes: Shapes | None) -> dict[str, list[int]] | None:
    """`shapes` as a request has them; raises UsageError for a negative size."""
    if shapes is None:
        return None
    sizes = {name: [int(size) for size in shape] for name, shape in shapes.items()}
    for name, shape in sizes.items():
        if any(size < 0 for size in shape):
            raise UsageError(f"the shape of {name} is {tuple(shape)}; sizes must not be negative")
    return sizes


def _memory_limit_mb(source: Source) -> int:
    return _BASE_MEMORY_MB + _MEMORY_PER_MODEL * (source.bytes >> 20)
