"""`stepwell-reduce`: of a model that fails, a small program that fails in the same way.

stepwell-reduce model.onnx -o reduced.mlir
stepwell-reduce model.mlir -o reduced.mlir --test 'grep -q stablehlo.cosine'
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

import click

from stepwell.errors import UsageError
from stepwell.inspection.failures import Kind
from stepwell.inspection.reduce import RTOL, TIMEOUT, Reduction, reduce
from stepwell.options import CompileOptions
from stepwell.tools.commands import common
from stepwell.tools.stepwell import run_command

if TYPE_CHECKING:
    OnStep = Callable[[str, int, int], None]


@click.command("stepwell-reduce")
@click.argument("model")
@click.option(
    "-o", "output", default="-", help="The reduced program, StableHLO text.  [default: stdout]"
)
@click.option(
    "--failure",
    type=click.Choice(get_args(Kind)),
    help="What to look for.  [default: the failure that there is]",
)
@click.option(
    "--test",
    metavar="COMMAND",
    help="Keep what this command, given a program's path as last argument, ends with status 0 for.",
)
@common.target_option
@common.shape_option
@common.level_option
@common.precision_option
@common.tuning_option
@common.threads_option
@common.cache_option
@click.option(
    "--timeout", default=TIMEOUT, show_default=True, help="Seconds for compiling, or for a test."
)
@click.option("--rtol", default=RTOL, show_default=True, help="Relative tolerance of results.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def reduce_command(
    model: str,
    output: str,
    failure: str | None,
    test: str | None,
    target: str,
    shapes: tuple[str, ...],
    opt_level: int,
    precision: str,
    tuning: str | None,
    threads: int | None,
    no_cache: bool,
    timeout: float,
    rtol: float,
    as_json: bool,
) -> None:
    """Reduce MODEL, which fails, to a small StableHLO program that fails in the same way.

    MODEL is what `stepwell compile` takes, or the folder that a crash of the compiler names. It
    fails where compiling it crashes, ends with an error or takes too long, or where its results
    are not those of -O0; or where --test says so. Interrupted or terminated, the command writes the
    smallest program so far.
    """
    if as_json and output == "-":
        raise UsageError("--json prints to stdout, where the program would go; give -o")
    common.check_output(output)
    options = CompileOptions(
        opt_level=opt_level,
        precision=precision,
        use_cache=not no_cache,
        progress=False,
        tuning=tuning,
    )
    smallest = ""

    def keep(text: str) -> None:
        nonlocal smallest
        smallest = text

    source = model if Path(model).is_dir() else common.read_model(model)
    try:
        with _ended_by_sigterm(), _progress() as on_step:
            found = reduce(
                source,
                target,
                threads,
                common.parse_shapes(shapes),
                options,
                failure=cast("Kind | None", failure),
                test=test,
                timeout=timeout,
                rtol=rtol,
                on_smaller=keep,
                on_step=on_step,
            )
    finally:
        if smallest:
            common.write_output(output, smallest)
    if as_json:
        print(json.dumps(found.to_dict(), indent=2))
    else:
        _tell(found)


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the process as an exit does, after what is left to do."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _progress() -> Iterator[OnStep]:
    """Shows the work on stderr where that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda strategy, operations, candidates: None
        return
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    with console.status("looking for the failure") as status:
        yield lambda strategy, operations, candidates: status.update(
            f"{strategy}: {operations} operations, {candidates} candidates tried"
        )


def _tell(found: Reduction) -> None:
    """What was done, on stderr: stdout may have the program."""
    print(f"{found.kind}: {found.message}", file=sys.stderr)
    print(
        f"{found.before} operations became {found.after}, {found.candidates} candidates tried",
        file=sys.stderr,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool; returns the exit code."""
    return run_command(reduce_command, argv)


if __name__ == "__main__":
    sys.exit(main())
