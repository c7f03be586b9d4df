"""The way down: one list of named steps from StableHLO to machine code, a check at each border.

`STEPS` is the whole compiler, top to bottom; CPUs and GPUs share most of it. `lower_to` walks it in
this process (the lowering API and the tools); `compile_to_artifact` walks it to the affine level,
compiles the kernels in parallel, each cached by its content, and writes the artifact."""

from __future__ import annotations

import functools
import time
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stepwell.attributes import spec
from stepwell.errors import LoweringError, ModelError, UsageError
from stepwell.frontends import Imported, TensorSpec, load, open_comparison, with_vectors
from stepwell.kernels.structured import source_name
from stepwell.mlir import ir, run_upstream
from stepwell.options import CompileOptions
from stepwell.passes.base import State, make_pass
from stepwell.passes.llvm._entry_text import ENTRY
from stepwell.specialization import Specialization, told_inputs
from stepwell.targets import Target, get
from stepwell.targets.nvidia import NvidiaTarget

if typing.TYPE_CHECKING:
    from stepwell.assembly import KernelPool

LEVELS = ("stablehlo", "linalg", "affine", "llvm")
"""Levels at which a person can stop and look, of CPUs; `binary` follows."""

GPU_LEVELS = ("stablehlo", "linalg", "affine", "nvvm")
"""The same of GPUs."""

INPUTS, OUTPUTS = "stepwell.inputs", "stepwell.outputs"
"""Attributes of the host function: names, dtypes and shapes as users see them."""

HOSTS = ("main", ENTRY)

Progress = Callable[[str, float | None], None]


@dataclass(frozen=True)
class Step:
    """One named step. `passes` are own passes by name; a name with upstream's prefix is run by
    MLIR: `upstream:canonicalize,cse`. `machine` is "cpu" or "gpu" where only one of them needs
    it."""

    name: str
    level: str
    passes: tuple[str, ...]
    min_opt_level: int = 0
    machine: str | None = None


_TIDY = "upstream:canonicalize,cse"

KERNEL_PASSES_OF_GPUS = (
    "expand-math",
    "expand-remainder",
    "map-to-blocks-and-threads",
    "lower-kernels-to-nvvm",
)
"""From affine to nvvm, for one kernel or all."""

STEPS = (
    Step("legalize-open-sizes", "stablehlo", ("legalize-open-sizes",)),
    Step("legalize-small-types", "stablehlo", ("expand-dot-algorithms", "legalize-small-types")),
    Step(
        "legalize-chlo",
        "stablehlo",
        (
            "legalize-chlo",
            "legalize-suppression",
            "legalize-collectives",
            "legalize-lapack",
            "expand-complex",
            "expand-batch-normalization",
            "expand-batch-normalization-training",
            "fold-empty-tensors",
            "group-ragged-products",
        ),
    ),
    Step("block-linear-algebra", "stablehlo", ("block-linear-algebra",), machine="gpu"),
    Step("narrow-products", "stablehlo", ("narrow-products",), 1, "gpu"),
    Step("narrow-quantized-products", "stablehlo", ("narrow-quantized-products",), 1),
    Step("keep-weights-narrow", "stablehlo", ("keep-weights-narrow",), 1, "cpu"),
    Step("fold-constants", "stablehlo", ("fold-constants", "simplify-algebra", _TIDY)),
    Step("hoist-products", "stablehlo", ("hoist-products",), 1),
    Step("fold-scales", "stablehlo", ("fold-scale-into-contraction", "fold-constants"), 1),
    Step("round-products", "stablehlo", ("round-products", "fold-constants"), 1),
    Step(
        "narrow-integer-products",
        "stablehlo",
        ("narrow-integer-products", "pair-integer-products"),
        1,
    ),
    Step("widen-accumulation", "stablehlo", ("widen-accumulation",)),
    Step("keep-weights-sparse", "stablehlo", ("keep-weights-sparse",), 1, "cpu"),
    Step("keep-halves-narrow", "stablehlo", ("keep-weights-narrow",), 1, "cpu"),
    Step("decompose", "stablehlo", ("decompose-for-linalg", "expand-arg-reductions")),
    Step("split-long-sums", "stablehlo", ("split-long-sums",), 1),
    Step("choose-layout", "stablehlo", ("choose-layout", "propagate-transposes"), 1),
    Step(
        "split-long-convolutions",
        "stablehlo",
        ("fill-channels", "split-long-convolutions"),
        1,
        "gpu",
    ),
    Step("simplify", "stablehlo", ("fold-constants", "simplify-algebra", _TIDY)),
    Step("split-long-reductions", "stablehlo", ("split-long-reductions",), 1),
    Step("block-batches", "linalg", ("block-batches", "divide-loops"), 2, "cpu"),
    Step(
        "legalize-control-flow",
        "linalg",
        (
            "place-control-flow",
            "legalize-sort",
            "legalize-scatter",
            "legalize-joint-reductions",
            "legalize-scan",
            "legalize-fourier",
            "legalize-linear-algebra",
            "legalize-library-calls",
            "call-suppression",
            "legalize-control-flow",
        ),
    ),
    Step(
        "legalize-to-linalg",
        "linalg",
        ("legalize-to-linalg", "scalarize", "narrow-operands", "hoist-constants"),
    ),
    Step("mark-parameters", "linalg", ("mark-parameters",), 2, "cpu"),
    Step(
        "choose-convolution",
        "linalg",
        (
            "mark-halos",
            "choose-convolution",
            "halve-products",
            "round-convolutions",
            "read-padded",
        ),
        2,
        "cpu",
    ),
    Step("transpose-weights", "linalg", ("transpose-weights",), 1, "gpu"),
    Step("form-fusion-groups", "linalg", ("mark-exponents", "form-fusion-groups")),
    Step("concatenate-in-place", "linalg", ("concatenate-in-place",), 2, "cpu"),
    Step("mark-open-extents", "linalg", ("mark-open-extents",)),
    Step("pack-operands", "linalg", ("pack-operands",), machine="cpu"),
    Step("lower-groups-to-affine", "affine", ("lower-groups-to-affine",)),
    Step("bufferize-host", "affine", ("bufferize-host",)),
    Step("skip-unused-elements", "affine", ("skip-unused-elements", "mark-exact-arguments")),
    Step("chain-kernels", "affine", ("chain-kernels",), 2, "cpu"),
    Step("plan-arena", "affine", ("plan-arena",)),
    Step(
        "lower-kernels-to-llvm",
        "llvm",
        ("look-up-codes", "expand-math", "split-tasks", "lower-kernels-to-llvm"),
        machine="cpu",
    ),
    Step("lower-host-to-llvm", "llvm", ("lower-host-to-llvm",), machine="cpu"),
    Step(
        "lower-kernels-to-nvvm",
        "nvvm",
        KERNEL_PASSES_OF_GPUS,
        machine="gpu",
    ),
)


def machine_of(target: Target) -> str:
    """Which of the steps' machines `target` is: "cpu" or "gpu"."""
    return "gpu" if isinstance(target, NvidiaTarget) else "cpu"


def levels_of(target: Target) -> tuple[str, ...]:
    """The levels on the way to `target`."""
    return GPU_LEVELS if machine_of(target) == "gpu" else LEVELS


def steps_of(target: Target) -> tuple[Step, ...]:
    """The steps on the way to `target`."""
    return tuple(step for step in STEPS if step.machine in (None, machine_of(target)))


SPECS: dict[str, tuple[str, ...]] = {
    "stablehlo": ("builtin", "func", "stablehlo", "chlo"),
    "linalg": (
        "builtin",
        "func",
        "linalg",
        "tensor",
        "arith",
        "math",
        "scf",
        "complex",
        "bufferization",
        "vector",  # in loops that are written out
        "ub",
    ),
    "affine": (
        "builtin",
        "func",
        "affine",
        "memref",
        "arith",
        "math",
        "vector",
        "ub",
        "scf",
        "complex",
        "gpu",  # barriers and shuffles
        "nvgpu",  # asynchronous copies and matrix instructions
        "nvvm",  # groups of such copies
        "llvm",  # calls of library functions
    ),
    "llvm": ("builtin", "llvm"),
    "nvvm": ("builtin", "func", "memref", "arith", "scf", "gpu", "llvm", "nvvm"),
}
"""The dialects that may stand at the end of each level."""


@dataclass
class Walk:
    """A module on its way down, and how far it has come (`done` steps)."""

    imported: Imported
    state: State
    done: int = 0

    @property
    def module(self) -> ir.Module:
        return self.imported.module

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps on the module's way."""
        return steps_of(self.state.target)

    @property
    def level(self) -> str:
        """The level reached: that of the last step done."""
        return self.steps[self.done - 1].level if self.done else "stablehlo"


def start(
    imported: Imported,
    target: Target,
    threads: int,
    options: CompileOptions | None = None,
    walk_from: str | None = None,
) -> Walk:
    """Begin the walk of an imported model; `walk_from` skips the steps up to that level's end."""
    options = options or CompileOptions()
    state = State(
        imported.weights,
        target,
        threads,
        options.precision,
        options.pack_parameters,
        tuning=options.record,
    )
    if state.tuning is not None:
        state.tuning.require(target.name, threads, options.precision)
    done = 0
    if walk_from is not None:
        done = last_step(walk_from, target) + 1
    else:
        with imported.context:
            main = main_function(imported.module)
            for name, specs in ((INPUTS, imported.inputs), (OUTPUTS, imported.outputs)):
                main.attributes[name] = ir.ArrayAttr.get(
                    [spec(s.name, s.dtype.name, s.shape) for s in specs]
                )
    return Walk(imported, state, done)


def signature(module: ir.Module) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """The inputs and outputs that the host function of a lowered module says it has."""
    main = main_function(module)
    if INPUTS not in main.attributes:
        raise ModelError(f"@main does not say its inputs and outputs ({INPUTS}, {OUTPUTS})")
    inputs, outputs = (
        tuple(
            TensorSpec(
                ir.StringAttr(entry["name"]).value,
                np.dtype(ir.StringAttr(entry["dtype"]).value),
                tuple(entry["shape"]),
            )
            for entry in map(ir.DictAttr, main.attributes[name])
        )
        for name in (INPUTS, OUTPUTS)
    )
    return inputs, outputs


def main_function(module: ir.Module) -> ir.Operation:
    """The host function of a module."""
    for child in module.body.operations:
        op = child.operation
        if "sym_name" in op.attributes and ir.StringAttr(op.attributes["sym_name"]).value in HOSTS:
            return op
    raise LoweringError("the module has no function @main")


def last_step(level: str, target: Target) -> int:
    """Position of the last step of `level`; raises UsageError for one that is not on the way to
    `target`."""
    levels = levels_of(target)
    if level not in levels:
        raise UsageError(
            f"there is no level {level} on the way to {target.name}; "
            f"the levels are {', '.join(levels)}"
        )
    return max(i for i, step in enumerate(steps_of(target)) if step.level == level)


def lower_to(
    walk: Walk,
    level: str,
    *,
    opt_level: int = 3,
    progress: Progress | None = None,
    dump: Callable[[int, str, ir.Module], None] | None = None,
) -> None:
    """Run the steps up to the end of `level`, with the level's spec checked at each border."""
    steps = walk.steps
    stop = last_step(level, walk.state.target) + 1
    while walk.done < stop:
        step = steps[walk.done]
        if step.min_opt_level <= opt_level:
            _run_step(walk, step, progress)
            if dump is not None:
                dump(walk.done, step.name, walk.module)
        walk.done += 1
        if walk.done == len(steps) or steps[walk.done].level != step.level:
            check_spec(walk.module, step.level)


def _run_step(walk: Walk, step: Step, progress: Progress | None) -> None:
    if progress is not None:
        progress(step.name, None)
    begin = time.perf_counter()
    for name in step.passes:
        if name.startswith("upstream:"):
            run_upstream(walk.module.operation, name.removeprefix("upstream:"))
        else:
            make_pass(name).apply(walk.module, walk.state)
    if progress is not None:
        progress(step.name, time.perf_counter() - begin)


def check_spec(module: ir.Module, level: str) -> None:
    """Raise LoweringError naming the first operation that may not stand at `level`."""
    allowed = SPECS[level]
    found: list[str] = []

    def look(op: ir.Operation) -> ir.WalkResult:
        dialect = op.name.split(".")[0]
        if dialect not in allowed and not found:
            found.append(f"{source_name(op)}: {op.name} is left over at the end of level {level}")
        return ir.WalkResult.INTERRUPT if found else ir.WalkResult.ADVANCE

    module.operation.walk(look)
    if found:
        raise LoweringError(found[0])


def compile_to_artifact(
    source: Path | str | object,
    artifact_path: Path,
    *,
    target: str = "cpu",
    threads: int = 1,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    options: CompileOptions | None = None,
    progress: Progress | None = None,
    specialization: Specialization | None = None,
) -> None:
    """Compile the model at `source` and write its artifact."""
    from stepwell.assembly import KernelPool, write_artifact

    options = options or CompileOptions()
    if progress is not None:
        progress("import", None)
    begin = time.perf_counter()
    special = specialization or Specialization()
    sizes = special.sizes
    if sizes is not None:
        imported = open_comparison.load(sizes, functools.partial(_load_at, source, special))
    else:
        imported = load(source, shapes=shapes, specialization=specialization)
    if progress is not None:
        progress("import", time.perf_counter() - begin)
    walk = start(imported, get(target), threads, options)
    dump = phase_dumper(Path(options.dump_phases_to)) if options.dump_phases_to else None
    with KernelPool(walk.state.target, options) as pool:
        if sizes is None and machine_of(walk.state.target) == "cpu":
            # With open sizes, and for GPUs, later passes change kernels.
            walk.state.on_kernel = functools.partial(_begin_kernel, pool)
        lower_to(walk, "affine", opt_level=options.opt_level, progress=progress, dump=dump)
        write_artifact(walk, artifact_path, options, progress, pool)


def _load_at(
    source: object, special: Specialization, known: Mapping[str, tuple[int, ...]]
) -> Imported:
    """The program of `special` for inputs of shapes that are `known`."""
    imported = load(source, *special.at(known))
    names = [n for name in special.told for n in told_inputs(name, special.values[name])]
    if not names:
        return imported
    return with_vectors(imported, {name: known[name] for name in names})


def _begin_kernel(pool: KernelPool, kernel: ir.Operation) -> None:
    run_upstream(kernel, "canonicalize")  # as bufferize-host will do
    pool.begin(kernel)


def phase_dumper(folder: Path) -> Callable[[int, str, ir.Module], None]:
    """A `dump` that writes `NN-step.mlir` into `folder`, weights by name only."""
    folder.mkdir(parents=True, exist_ok=True)

    def dump(number: int, name: str, module: ir.Module) -> None:
        (folder / f"{number:02d}-{name}.mlir").write_text(module_text(module))

    return dump


def module_text(module: ir.Module) -> str:
    """The module as text without the data of its weights."""
    return module.operation.get_asm(large_elements_limit=32, large_resource_limit=64)
