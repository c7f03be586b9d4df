"""Pipelines as text: `builtin.module(fold-constants,func.func(cse,choose-layout{layout=nhwc}))`.

The syntax is MLIR's. Upstream passes and passes of this project stand side by side, at any nesting;
a maximal run of upstream passes goes to one pass manager, since the bindings cannot parse
Python-defined passes by name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from stepwell.errors import UsageError
from stepwell.mlir import PassManager, ir  # pyright: ignore[reportAttributeAccessIssue]
from stepwell.passes.base import Pass, State, find_pass, make_pass, pass_files

COMMON_UPSTREAM = [
    "affine-loop-fusion",
    "affine-scalrep",
    "buffer-results-to-out-params",
    "canonicalize",
    "chlo-legalize-to-stablehlo",
    "convert-affine-for-to-gpu",
    "convert-arith-to-llvm",
    "convert-cf-to-llvm",
    "convert-func-to-llvm",
    "convert-linalg-to-affine-loops",
    "convert-linalg-to-loops",
    "convert-math-to-libm",
    "convert-math-to-llvm",
    "convert-scf-to-cf",
    "convert-vector-to-llvm",
    "convert-vector-to-scf",
    "cse",
    "expand-strided-metadata",
    "finalize-memref-to-llvm",
    "inline",
    "linalg-fold-unit-extent-dims",
    "linalg-fuse-elementwise-ops",
    "linalg-generalize-named-ops",
    "loop-invariant-code-motion",
    "lower-affine",
    "one-shot-bufferize",
    "reconcile-unrealized-casts",
    "sccp",
    "stablehlo-canonicalize-dynamism",
    "stablehlo-compatibility-expander",
    "stablehlo-convert-to-signless",
    "stablehlo-legalize-to-linalg",
    "stablehlo-refine-arguments",
    "stablehlo-refine-shapes",
    "strip-debuginfo",
    "symbol-dce",
    "transform-interpreter",
]
"""Upstream passes offered when a name is misspelt; the bindings have no list of all of them."""

_NAME = re.compile(r"[A-Za-z_][\w.\-]*")


@dataclass(frozen=True)
class Element:
    """One element of a pipeline: a pass with its options, or an anchor with its children."""

    name: str
    column: int
    options: str = ""
    children: tuple[Element, ...] | None = None

    def __str__(self) -> str:
        if self.children is not None:
            return f"{self.name}({','.join(map(str, self.children))})"
        return self.name + (f"{{{self.options}}}" if self.options else "")


def parse(text: str) -> tuple[Element, ...]:
    """The elements of a pipeline, `builtin.module(...)` or the bare list inside it.

    Raises UsageError with the column of the first mistake.
    """
    parser = _Parser(text)
    elements = parser.sequence()
    parser.skip()
    if parser.at < len(text):
        raise parser.mistake(f"'{text[parser.at]}' closes nothing")
    if len(elements) == 1 and elements[0].name == "builtin.module" and elements[0].children:
        return elements[0].children
    if any(e.name == "builtin.module" for e in elements):
        raise UsageError("pass pipeline: builtin.module(...) must enclose all other passes")
    return elements


class _Parser:
    """Recursive descent over the text of a pipeline."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def mistake(self, sentence: str, at: int | None = None) -> UsageError:
        place = (self.at if at is None else at) + 1
        return UsageError(f"pass pipeline, column {place}: {sentence}")

    def skip(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def accept(self, character: str) -> bool:
        self.skip()
        if self.text.startswith(character, self.at):
            self.at += 1
            return True
        return False

    def sequence(self) -> tuple[Element, ...]:
        elements = [self.element()]
        while self.accept(","):
            elements.append(self.element())
        return tuple(elements)

    def element(self) -> Element:
        self.skip()
        start = self.at
        match = _NAME.match(self.text, start)
        if match is None:
            found = repr(self.text[start]) if start < len(self.text) else "the end"
            raise self.mistake(f"expected the name of a pass, found {found}")
        self.at = match.end()
        if self.accept("("):
            children = self.sequence()
            if not self.accept(")"):
                raise self.mistake(f"expected ',' or ')' inside '{match[0]}('")
            return Element(match[0], start, children=children)
        options = self.braced() if self.accept("{") else ""
        self.skip()
        if self.at < len(self.text) and self.text[self.at] not in ",)":
            raise self.mistake(f"expected ',' or ')' after '{match[0]}'")
        return Element(match[0], start, options)

    def braced(self) -> str:
        start, depth = self.at, 1
        while depth:
            if self.at >= len(self.text):
                raise self.mistake("this '{' is never closed", start - 1)
            depth += {"{": 1, "}": -1}.get(self.text[self.at], 0)
            self.at += 1
        return self.text[start : self.at - 1].strip()


def parse_options(text: str) -> dict[str, str]:
    """Options by name from `tile-m=6 verbose sizes=1,2`; a bare name means true."""
    pairs = (word.partition("=") for word in text.split())
    return {key: value if equals else "true" for key, equals, value in pairs}


@dataclass(frozen=True)
class UpstreamStep:
    """A run of upstream passes, as the text of one pipeline on the module."""

    elements: tuple[str, ...]
    columns: tuple[int, ...]

    @property
    def title(self) -> str:
        """The passes as written."""
        return ",".join(self.elements)

    def manager(self) -> PassManager:
        """The pass manager of this run (needs a current context); raises UsageError."""
        try:
            return PassManager.parse(f"builtin.module({self.title})")
        except ValueError as error:
            raise _explain(str(error)) from None

    def run(self, module: ir.Module, state: State) -> None:
        """Run all passes of the step."""
        del state
        self.manager().run(module.operation)


@dataclass(frozen=True)
class OwnStep:
    """One pass of this project, on the module or on every operation that `anchors` lead to."""

    implementation: Pass
    anchors: tuple[str, ...]

    @property
    def title(self) -> str:
        """The pass's name."""
        return self.implementation.name

    def run(self, module: ir.Module, state: State) -> None:
        """Run the pass on each operation it is nested in."""
        if not self.anchors:
            self.implementation.apply(module, state)
            return
        with module.context, ir.Location.unknown():
            for operation in list(_descend(module.operation, self.anchors)):
                self.implementation.run(operation, state)


Step = UpstreamStep | OwnStep


def plan(elements: Sequence[Element]) -> list[Step]:
    """The steps that run `elements` in order; raises UsageError for an unknown option."""
    steps: list[Step] = []
    for step in _flatten(elements, ()):
        if isinstance(step, UpstreamStep) and steps and isinstance(steps[-1], UpstreamStep):
            last = steps.pop()
            assert isinstance(last, UpstreamStep)
            step = UpstreamStep(last.elements + step.elements, last.columns + step.columns)
        steps.append(step)
    return steps


def run_steps(
    module: ir.Module,
    steps: Sequence[Step],
    state: State,
    around: Callable[[Step, Callable[[], None]], None] | None = None,
) -> None:
    """Run `steps` in order; `around`, if given, is called with each step and what runs it."""
    for step in steps:
        run = _bind(step, module, state)
        if around is None:
            run()
        else:
            around(step, run)


def _bind(step: Step, module: ir.Module, state: State) -> Callable[[], None]:
    return lambda: step.run(module, state)


def _is_own(element: Element) -> bool:
    return element.children is None and element.name in pass_files()


def _has_own(element: Element) -> bool:
    return _is_own(element) or any(map(_has_own, element.children or ()))


def _flatten(elements: Sequence[Element], anchors: tuple[str, ...]) -> Iterator[Step]:
    for element in elements:
        if _is_own(element):
            yield OwnStep(make_pass(element.name, parse_options(element.options)), anchors)
        elif not _has_own(element):
            text = str(element)
            for anchor in reversed(anchors):
                text = f"{anchor}({text})"
            yield UpstreamStep((text,), (element.column,))
        else:
            assert element.children is not None
            yield from _flatten(element.children, (*anchors, element.name))


def _descend(operation: ir.Operation, anchors: tuple[str, ...]) -> Iterator[ir.Operation]:
    if not anchors:
        yield operation
        return
    for region in operation.regions:
        for block in region.blocks:
            for child in block.operations:
                if anchors[0] in (child.operation.name, "any"):
                    yield from _descend(child.operation, anchors[1:])


def _explain(message: str) -> UsageError:
    """The bindings' message about a pipeline in one sentence, with the closest names."""
    unknown = re.search(r"'([^']+)' does not refer to a registered pass", message)
    if unknown is None:
        return UsageError("pass pipeline: " + " ".join(message.split()))
    name = unknown[1]
    close = difflib.get_close_matches(name, [*pass_files(), *COMMON_UPSTREAM], n=3)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    return UsageError(f"there is no pass called {name}{hint}")


def describe(name: str) -> str:
    """The first sentence of the documentation of own pass `name`."""
    kind = find_pass(name)
    text = kind.__doc__ or ""
    return " ".join(text.split("\n\n")[0].split())
