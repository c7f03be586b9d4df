"""`stepwell explain`: what compiling a model decides, kernel by kernel, without running it."""

from __future__ import annotations

import difflib
import itertools
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict

import click

from stepwell.errors import ModelError
from stepwell.inspection.explain import Explanation, explain
from stepwell.inspection.kernel_report import KernelReport
from stepwell.kernels.library_call import KIND as LIBRARY_CALL
from stepwell.kernels.strategy import Candidate
from stepwell.options import CompileOptions
from stepwell.tools.commands import common
from stepwell.tuning_record import ALGORITHM, STRATEGY


@click.command("explain")
@click.argument("model")
@click.option("--node", metavar="NAME", help="Show all about the kernels that compute this node.")
@common.target_option
@common.shape_option
@common.level_option
@common.precision_option
@common.tuning_option
@common.threads_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain_command(
    model: str,
    node: str | None,
    target: str,
    shapes: tuple[str, ...],
    opt_level: int,
    precision: str,
    tuning: str | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """Show what compiling MODEL decides: which operators become which kernel, how each kernel runs
    and what else was considered, which are slow and why. Nothing runs.
    """
    options = CompileOptions(opt_level=opt_level, precision=precision, tuning=tuning)
    source, sizes = common.read_model(model), common.parse_shapes(shapes)
    found = explain(source, target, threads, sizes, options)
    if node is not None:
        _show_node(found, node, as_json=as_json)
    elif as_json:
        print(json.dumps(found.to_dict(), indent=2))
    else:
        for part in found.parts or (found,):
            _show(part)


def _show_node(found: Explanation, node: str, *, as_json: bool) -> None:
    """Raises ModelError for a node that the model has not."""
    kernels = found.of_node(node)
    if not kernels and node not in found.nodes():
        near = difflib.get_close_matches(node, found.nodes(), 3)
        hint = f"; near: {', '.join(near)}" if near else ""
        raise ModelError(f"{node}: error: the model has no node of that name{hint}")
    if as_json:
        print(json.dumps([asdict(kernel) for kernel in kernels], indent=2))
        return
    if not kernels:
        print(
            f"{node}: no kernel of its own: it is folded into constants, or its data lie in place"
        )
    for kernel in kernels:
        _show_kernel(kernel)


def _show_kernel(kernel: KernelReport) -> None:
    from rich.table import Table

    console = common.console()
    facts = Table(
        title=f"kernel {kernel.number}",
        title_justify="left",
        show_header=False,
        box=None,
        padding=(0, 2, 0, 0),
    )
    for label, text in (
        ("name", kernel.name),
        ("sources", ", ".join(kernel.sources)),
        ("strategy", kernel.kind),
        ("computes", kernel.computes),
        ("layout", kernel.layout),
        ("precision", kernel.precision),
        ("parameters", _parameters(kernel.parameters)),
        *((what, _considered(listed)) for what, listed in kernel.candidates.items()),
        ("tuned", ", ".join(d.kind for d in kernel.decisions if d.tuned)),
        ("work", f"{kernel.flops / 1e6:.2f} MFLOP, {kernel.bytes / 1e6:.2f} MB"),
        ("tasks", _tasks(kernel)),
        ("remark", kernel.remark),
    ):
        if text:
            facts.add_row(label, text)
    for operand in kernel.operands:
        packed = ", packed" if operand.packed else ""
        text = f"{operand.name}: {operand.type} ({operand.place}{packed})"
        facts.add_row("buffer", text)
    console.print(facts)


def _show(part: Explanation) -> None:
    console = common.console()
    if part.problem:
        console.print(f"{part.name} {part.problem}: {_named(part, tuple(part.operators))}")
        return
    from rich.table import Table

    title = f"{part.name} on {part.target}, {part.threads} thread{'s' * (part.threads > 1)}"
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("", justify="right")
    for name in ("strategy", "sources", "computes", "considered", "parameters"):
        table.add_column(name, overflow="fold")
    for name in ("tasks", "MFLOP", "packed MB", "arena MB"):
        table.add_column(name, justify="right")
    for kernel in part.kernels:
        table.add_row(
            str(kernel.number),
            kernel.kind,
            _named(part, kernel.sources),
            _computes(kernel),
            _considered(kernel.candidates.get("algorithm", ())),
            _parameters(kernel.parameters),
            _tasks(kernel),
            f"{kernel.flops / 1e6:.2f}",
            f"{kernel.packed_bytes / 1e6:.2f}",
            f"{kernel.arena_bytes / 1e6:.2f}",
        )
    console.print(table)
    for line in _partition(part):
        console.print(line)
    if any(len(kernel.candidates.get("algorithm", ())) > 1 for kernel in part.kernels):
        console.print(
            "considered: the chosen way, and others by the time that they are estimated to take"
        )


def _partition(part: Explanation) -> Iterator[str]:
    """What became of the operators, in sentences."""
    named = {source for kernel in part.kernels for source in kernel.sources}
    yield (
        f"{len(named)} nodes are computed by {len(part.kernels)} kernels, in an arena of "
        f"{part.arena_bytes / 1e6:.2f} MB, with {part.weights_bytes / 1e6:.2f} MB of weights"
    )
    if part.without_kernel:
        nodes = _named(part, part.without_kernel)
        yield f"in no kernel of their own, since folded into constants or in place: {nodes}"
    for kernel in part.kernels:
        if kernel.remark:
            yield f"kernel {kernel.number}, {', '.join(kernel.sources)}: {kernel.remark}"
        elif kernel.kind == LIBRARY_CALL:
            yield f"kernel {kernel.number}, {', '.join(kernel.sources)}: calls {kernel.computes}"
    for kind in (ALGORITHM, STRATEGY):
        tuned = [k for k in part.kernels if any(d.tuned and d.kind == kind for d in k.decisions)]
        if tuned:
            numbers = ", ".join(str(kernel.number) for kernel in tuned)
            yield f"from the tuning record, the {kind} of kernels {numbers}"
    for text in part.on_host:
        yield f"between kernels: {text}"


def _named(part: Explanation, nodes: Sequence[str]) -> str:
    """Nodes by name, without the scope that all have, and by operator where the name does not tell
    it."""
    scope = _common_scope(part.operators)
    texts = []
    for node in nodes:
        operator = part.operators.get(node, "")
        tells = operator.lower().replace("_", "") in node.lower().replace("_", "")
        name = node.removeprefix(scope)
        texts.append(name if tells or "," in operator else f"{name} ({operator})")
    return ", ".join(texts)


def _computes(kernel: KernelReport) -> str:
    """With its precision, where that is not the usual one."""
    usual = kernel.precision in ("", "f32")
    return kernel.computes if usual else f"{kernel.computes} {kernel.precision}".strip()


def _common_scope(names: Collection[str]) -> str:
    """What all names begin with, to the last slash: "jit(f)/"."""
    first, last = (min(names), max(names)) if names else ("", "")
    alike = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return "".join("".join(a for a, _ in alike).rpartition("/")[:2])


def _considered(candidates: Sequence[Candidate]) -> str:
    """The chosen one, and how many times as long the others take."""
    if len(candidates) < 2:
        return candidates[0].name if candidates else ""
    chosen, *others = candidates
    return ", ".join(
        [chosen.name, *(f"{c.name} x{c.cost / max(chosen.cost, 1e-300):.2f}" for c in others)]
    )


def _parameters(parameters: Mapping[str, object]) -> str:
    """What is on or above 0: `box 1x6, vectors 4`."""
    texts = []
    for name, value in parameters.items():
        if isinstance(value, Mapping):
            texts.append(f"{name}: {_parameters(value)};")
        elif value is True:
            texts.append(name)
        elif isinstance(value, list):
            texts.append(f"{name} {'x'.join(map(str, value))}")
        elif value:
            texts.append(f"{name} {value}")
    return ", ".join(texts).replace(";,", ";").removesuffix(";")


def _tasks(kernel: KernelReport) -> str:
    if kernel.threads_of_block:
        return f"{kernel.tasks} x {kernel.threads_of_block}"
    return str(kernel.tasks)
