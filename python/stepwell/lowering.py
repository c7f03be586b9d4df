"""The lowering API: walk a model down by hand, look at every level, go on from where one stands.

lowered = stepwell.lower("model.onnx")
lowered.step("linalg")            # run the pipeline to the end of a level
print(lowered)                    # the module, weights by name
lowered.run("form-fusion-groups") # a pass by name, own or upstream; or transform lowered.module
exe = lowered.compile()           # the rest of the way
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from stepwell import artifact, assembly, codegen, pipeline, pytorch
from stepwell.artifact import Artifact
from stepwell.errors import LoweringError, ModelError, UsageError
from stepwell.frontends import Imported, Shapes, TensorSpec, load
from stepwell.mlir import ir, new_context, run_upstream
from stepwell.options import CompileOptions, make_options
from stepwell.passes.base import Pass, make_pass, pass_files
from stepwell.runtime.load_artifact import Loaded, load_artifact
from stepwell.runtime.threads import default_threads
from stepwell.targets import get
from stepwell.targets.nvidia import NvidiaTarget
from stepwell.weights import WeightTable

Options = CompileOptions | Mapping[str, object] | None


class Lowered:
    """A model on its way down. `module` is MLIR's module, which may be changed in place."""

    def __init__(
        self,
        walk: pipeline.Walk,
        options: CompileOptions,
        progress: pipeline.Progress | None = None,
    ) -> None:
        self._walk = walk
        self._progress = progress
        self._options = options
        folder = options.dump_phases_to
        self._dump = pipeline.phase_dumper(Path(folder)) if folder else None

    @property
    def module(self) -> ir.Module:
        """The module at the present level."""
        return self._walk.module

    @property
    def level(self) -> str:
        """The level reached: "stablehlo", "linalg", "affine", and "llvm" or "nvvm"."""
        return self._walk.level

    @property
    def weights(self) -> WeightTable:
        """The data behind the weights that the module names."""
        return self._walk.state.weights

    @property
    def remarks(self) -> list[str]:
        """What passes had to say: kernels that fell back to scalar loops, and why."""
        return list(self._walk.state.remarks)

    def step(self, level: str) -> Lowered:
        """Run the pipeline to the end of `level`; returns itself.

        Raises UsageError for an unknown level or one that lies behind, LoweringError when a step
        fails or leaves an operation that may not stand at its level.
        """
        if pipeline.last_step(level, self._walk.state.target) + 1 < self._walk.done:
            raise UsageError(f"the module is at level {self.level} already; {level} lies behind it")
        pipeline.lower_to(self._walk, level, opt_level=self._options.opt_level, dump=self._dump)
        return self

    def run(self, step: str | Pass) -> Lowered:
        """Run one pass: an own one by name or as an object, or upstream's textual pipeline."""
        if isinstance(step, str) and step not in pass_files():
            with self.module.context, ir.Location.unknown():
                run_upstream(self.module.operation, step)
            return self
        made = make_pass(step) if isinstance(step, str) else step
        made.apply(self.module, self._walk.state)
        return self

    def build(self) -> Artifact:
        """Go the rest of the way: the artifact, which need not run on this machine."""
        handle, name = tempfile.mkstemp(suffix=".stepwell")
        os.close(handle)
        try:
            self._write_artifact(Path(name))
            return artifact.read(name, check_host=False)
        finally:
            os.unlink(name)

    def compile(self) -> Loaded:
        """Go the rest of the way and load the result."""
        built = self.build()
        artifact.check_runs_here(built.manifest, "the model")
        return load_artifact(built, threads=self._walk.state.threads)

    def emit(self, kind: str) -> str | bytes:
        """The model as text of a level, or as "asm" text or "obj" bytes; for a GPU, as "ptx" or
        "sass" text."""
        target, opt_level = self._walk.state.target, self._options.opt_level
        levels = pipeline.levels_of(target)
        if kind in levels:
            return str(self.step(kind))
        kinds = ("ptx", "sass") if isinstance(target, NvidiaTarget) else ("asm", "obj")
        if kind not in kinds:
            raise UsageError(
                f"cannot emit {kind}; there are: {', '.join((*levels, *kinds))} for {target.name}"
            )
        if isinstance(target, NvidiaTarget):
            from stepwell import cuda_assembly

            self.step("nvvm")
            return cuda_assembly.emit(self.module, target, kind, opt_level)
        self.step("llvm")
        with self.module.context:
            optimized = codegen.optimized_llvm(self.module.operation, target, opt_level)
        if kind == "asm":
            return codegen.assembly(optimized, target, opt_level)
        return codegen.object_code(optimized, target, opt_level)

    def __str__(self) -> str:
        return pipeline.module_text(self.module)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the module as text, and its weights beside it as `<path>.safetensors`."""
        from safetensors.numpy import save_file

        used = {n: np.ascontiguousarray(self.weights[n]) for n in self._weight_names()}
        target = Path(path)
        target.write_text(str(self) + "\n")
        if used:
            save_file(used, f"{target}.safetensors")

    def _weight_names(self) -> list[str]:
        text = str(self)
        named = set(re.findall(r'stepwell\.weight = "([^"]+)"', text))
        named |= set(re.findall(r'dense_resource<"?([\w.]+)"?>', text))
        if self._walk.state.host is not None:
            named |= {*self._walk.state.host.weights, *self._walk.state.host.sources}
        return [name for name in self.weights.names() if name in named]

    @staticmethod
    def resume(
        text: str,
        level: str,
        *,
        weights: str | os.PathLike[str] | None = None,
        target: str = "cpu",
        threads: int | None = None,
        options: Options = None,
        progress: pipeline.Progress | None = None,
    ) -> Lowered:
        """Go on from text that `str(lowered)` gave at `level`.

        `weights` is the safetensors file that `save` wrote. Raises ModelError when the text does
        not parse or names no `@main`."""
        context = new_context()
        table = WeightTable()
        if weights is not None:
            from safetensors.numpy import load_file

            for name, array in load_file(weights).items():
                table.add(name, array)
        with context:
            try:
                module = ir.Module.parse(text)
            except ir.MLIRError as error:
                from stepwell.frontends.stablehlo import first_line

                raise ModelError(f"the text is no valid module: {first_line(error)}") from None
        inputs, outputs = pipeline.signature(module)
        imported = Imported(context, module, table, inputs, outputs, "text")
        made = make_options(options)
        walk = pipeline.start(
            imported, get(target), threads or default_threads(), made, walk_from=level
        )
        return Lowered(walk, made, progress)

    def _write_artifact(self, path: Path) -> None:
        if self.level != "llvm":
            self.step("affine")
        with self.module.context:
            assembly.write_artifact(self._walk, path, self._options, self._progress)


def lower(
    model: object,
    target: str | Sequence[object] = "cpu",
    threads: int | None = None,
    shapes: Shapes | None = None,
    options: Options = None,
    progress: pipeline.Progress | None = None,
    *,
    example_inputs: object = None,
) -> Lowered:
    """Import `model` (see `stepwell.frontends.load`) and stand at the top, level "stablehlo". Of a
    torch.nn.Module, `example_inputs` are what `stepwell.compile` takes, and may stand second, too.

    `progress` is called with a step's name and None when it begins, with its seconds when it ends.

    Works in this process: a crash of MLIR takes it along, so use `stepwell.compile` in production.
    """
    if not isinstance(target, str):
        target, example_inputs = "cpu", target
    imported = load(pytorch.exported(model, example_inputs), shapes=shapes)
    made = make_options(options)
    walk = pipeline.start(imported, get(target), threads or default_threads(), made)
    return Lowered(walk, made, progress)


__all__ = ["Imported", "Lowered", "LoweringError", "TensorSpec", "lower"]
