"""`stepwell-opt`: run passes on MLIR text, as `mlir-opt` does, upstream ones and own ones mixed.

    stepwell-opt model.mlir --pass-pipeline='builtin.module(fold-constants,func.func(cse))' -o -

Diagnostics go to stderr as `file:line:col: error: sentence`. The exit code is 0, 1 when a module or
a pass fails, and 2 when the command line makes no sense.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stepwell import errors
from stepwell.mlir import ir, new_context
from stepwell.options import PRECISIONS
from stepwell.passes import base, pipeline_text
from stepwell.tools.diagnostics import Diagnostic, check_expectations, of_error, of_mlir
from stepwell.tuning_record import TuningRecord
from stepwell.weights import WeightTable, enter_resources

SPLIT_MARK = re.compile(r"^// -----.*$", re.MULTILINE)
BYTECODE_MAGIC = b"ML\xefR"
RESOURCES = "dialect_resources"

_KEEP_BYTES = "surrogateescape"
"""How text that is no UTF-8 is decoded and encoded: MLIR says where it is wrong."""


@dataclass(frozen=True)
class Chunk:
    """A part of the input between split marks; text keeps the line numbers of the whole file."""

    source: str | bytes


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser("stepwell-opt", description="Run passes on MLIR text.")
    add = parser.add_argument
    add("input", nargs="?", default="-", help="MLIR text or bytecode; - is stdin")
    add("-o", dest="output", default="-", help="where the result goes; - is stdout")
    add("--pass-pipeline", default="", metavar="TEXT", help="builtin.module(pass,func.func(pass))")
    add("--split-input-file", action="store_true", help="modules stand between // ----- lines")
    add("--verify-diagnostics", action="store_true", help="check expected-error {{...}} comments")
    add("--verify-roundtrip", action="store_true", help="check that the result reads back equal")
    add("--mlir-print-ir-before-all", action="store_true", help="print the IR before each pass")
    add("--mlir-print-ir-after-all", action="store_true", help="print the IR after each pass")
    add("--mlir-print-debuginfo", action="store_true", help="print locations")
    add("--mlir-print-op-generic", action="store_true", help="print ops in the generic form")
    add("--mlir-elide-elementsattrs-if-larger", type=int, metavar="N", help="shorten constants")
    add("--target", default=None, metavar="NAME", help="the machine passes see; default: this one")
    add("--threads", type=_positive, default=1, metavar="N", help="threads of a run; default: 1")
    add("--precision", default="default", choices=PRECISIONS, help="how exact products are")
    add("--tuning", metavar="FILE", help="a tuning record, whose choices replace cost models'")
    add("--list-passes", action="store_true", help="list the passes of this project")
    return parser.parse_args(argv)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool; returns the exit code."""
    options = arguments(argv)
    try:
        if options.list_passes:
            for name in base.pass_files():
                print(f"{name:32} {pipeline_text.describe(name)}")
            return 0
        return _run(options)
    except errors.UsageError as error:
        print(f"stepwell-opt: error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"stepwell-opt: error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2


def _run(options: argparse.Namespace) -> int:
    text, state = options.pass_pipeline, _state(options)
    steps = pipeline_text.plan(pipeline_text.parse(text)) if text.strip() else []
    _check_names(steps)
    data = sys.stdin.buffer.read() if options.input == "-" else Path(options.input).read_bytes()
    chunks = _split(data, options.split_input_file)
    results: list[str] = []
    failed = False
    for chunk in chunks:
        unit = _Unit(options, steps, state)
        result = unit.process(chunk.source)
        if options.verify_diagnostics and isinstance(chunk.source, str):
            problems = check_expectations(chunk.source, unit.diagnostics, unit.name)
            failed |= bool(problems)
        else:
            problems = unit.diagnostics
            failed |= result is None
        for problem in problems:
            print(problem, file=sys.stderr)
        if result is not None:
            results.append(result)
    _write(options.output, "// -----\n\n".join(results))
    return 1 if failed else 0


def _state(options: argparse.Namespace) -> base.State:
    """What passes are told of the machine, as far as the command line says."""
    from stepwell import targets

    target = targets.get(options.target or "host")
    tuning = TuningRecord.read(options.tuning) if options.tuning else None
    if tuning is not None:
        tuning.require(target.name, options.threads, options.precision)
    return base.State(
        target=target, threads=options.threads, precision=options.precision, tuning=tuning
    )


def _check_names(steps: Sequence[pipeline_text.Step]) -> None:
    """Reject unknown upstream names and options before any input is read."""
    upstream = [step for step in steps if isinstance(step, pipeline_text.UpstreamStep)]
    if upstream:
        with new_context():
            for step in upstream:
                step.manager()


def _split(data: bytes, split: bool) -> list[Chunk]:
    if data.startswith(BYTECODE_MAGIC):
        return [Chunk(data)]
    text = data.decode(errors=_KEEP_BYTES)
    if not split:
        return [Chunk(text)]
    chunks, start = [], 0
    for end, following in [*((m.start(), m.end()) for m in SPLIT_MARK.finditer(text)), (None, 0)]:
        chunks.append(Chunk("\n" * text.count("\n", 0, start) + text[start:end]))
        start = following
    return chunks


def _write(output: str, text: str) -> None:
    if output == "-":
        sys.stdout.write(text)
    else:
        Path(output).write_text(text)


class _Unit:
    """One module on its way through the pipeline, with the diagnostics it caused."""

    def __init__(
        self,
        options: argparse.Namespace,
        steps: Sequence[pipeline_text.Step],
        state: base.State,
    ) -> None:
        self.options = options
        self.steps = steps
        self.state = dataclasses.replace(state, weights=WeightTable(), remarks=[])
        self.name = "<stdin>" if options.input == "-" else options.input
        self.diagnostics: list[Diagnostic] = []

    def process(self, source: str | bytes) -> str | None:
        """The text after all passes, None when something failed."""
        context = new_context()
        handler = context.attach_diagnostic_handler(self._collect)
        try:
            with context, ir.Location.unknown():
                data = source if isinstance(source, bytes) else source.encode(errors=_KEEP_BYTES)
                module = ir.Module.parse(data)
                if isinstance(source, str) and RESOURCES in source:
                    enter_resources(module, data, self.state.weights)
                pipeline_text.run_steps(module, self.steps, self.state, self._around(module))
                if not module.operation.verify():
                    return None
                text = self._print(module)
                return text if not self.options.verify_roundtrip else self._roundtrip(text)
        except ir.MLIRError as error:
            self.diagnostics += [of_mlir(d, self.name) for d in error.error_diagnostics]
            if not self.diagnostics:
                self.diagnostics.append(Diagnostic(self.name, 0, 0, "error", str(error)))
        except errors.LoweringError as error:
            self.diagnostics.append(of_error(str(error), self.name))
        finally:
            handler.detach()
        return None

    def _collect(self, diagnostic: ir.Diagnostic) -> bool:
        self.diagnostics.append(of_mlir(diagnostic, self.name))
        return True

    def _print(self, module: ir.Module) -> str:
        text = module.operation.get_asm(
            large_elements_limit=self.options.mlir_elide_elementsattrs_if_larger,
            enable_debug_info=self.options.mlir_print_debuginfo,
            print_generic_op_form=self.options.mlir_print_op_generic,
        )
        return text if text.endswith("\n") else text + "\n"

    def _roundtrip(self, text: str) -> str | None:
        again = self._print(ir.Module.parse(text))
        if again == text:
            return text
        sentence = "the printed module reads back as a different one"
        self.diagnostics.append(Diagnostic(self.name, 0, 0, "error", sentence))
        return None

    def _around(
        self, module: ir.Module
    ) -> Callable[[pipeline_text.Step, Callable[[], None]], None] | None:
        before = self.options.mlir_print_ir_before_all
        after = self.options.mlir_print_ir_after_all
        if not before and not after:
            return None

        def run(step: pipeline_text.Step, body: Callable[[], None]) -> None:
            if isinstance(step, pipeline_text.UpstreamStep):
                manager = step.manager()
                manager.enable_ir_printing(before, after)
                manager.run(module.operation)
                return
            if before:
                self._dump("Before", step.title, module)
            body()
            if after:
                self._dump("After", step.title, module)

        return run

    def _dump(self, when: str, title: str, module: ir.Module) -> None:
        mark = f"// -----// IR Dump {when} {title} //----- //"
        print(f"{mark}\n{self._print(module)}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
