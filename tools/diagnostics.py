"""Diagnostics of the tools: how they print, and how `expected-error` comments are checked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from stepwell.mlir import ir

EXPECTATION = re.compile(
    r"expected-(?P<severity>error|warning|remark|note)(?P<regex>-re)?\s*"
    r"(?:@(?P<place>[+-]\d+|above|below|unknown))?\s*\{\{(?P<text>.*?)\}\}(?=\s|$|\()"
)
_FILE_PLACE = re.compile(r'^(?:loc\()?"?(?P<file>[^":\n]*)"?:(?P<line>\d+):(?P<column>\d+)\)?:?\s*')


@dataclass(frozen=True)
class Diagnostic:
    """A message at a place; line 0 means that no line is known."""

    file: str
    line: int
    column: int
    severity: str
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.severity}: {self.message}"


def of_mlir(diagnostic: ir.Diagnostic | ir.DiagnosticInfo, file: str) -> Diagnostic:
    """A diagnostic of MLIR; text parsed from memory is called `file`."""
    severity = str(diagnostic.severity).rpartition(".")[2].lower()
    # A diagnostic's location comes as the base class; by way of its attribute it gets its own.
    location = diagnostic.location
    place = _first_line(ir.Location.from_attr(location.attr, location.context))
    if place is None:
        named = str(diagnostic.location).removeprefix("loc(").removesuffix(")")
        prefix = "" if named == "unknown" else f"{named}: "
        return Diagnostic(file, 0, 0, severity, prefix + diagnostic.message)
    name = file if place.filename == "-" else place.filename
    return Diagnostic(name, place.start_line, place.start_col, severity, diagnostic.message)


def of_error(message: str, file: str) -> Diagnostic:
    """An exception's message; a leading `file:line:col` of it becomes the place."""
    message = message.removeprefix("-: ")  # How text parsed from memory is called.
    match = _FILE_PLACE.match(message)
    if match is None:
        return Diagnostic(file, 0, 0, "error", message)
    name = file if match["file"] == "-" else match["file"]
    line, column = int(match["line"]), int(match["column"])
    return Diagnostic(name, line, column, "error", message[match.end() :])


def _first_line(location: ir.Location) -> ir.FileLineColLoc | None:
    """The file position inside a location: its own, a child's, or the first of fused ones."""
    if isinstance(location, ir.FileLineColLoc):
        return location
    if isinstance(location, ir.NameLoc):
        return _first_line(location.child_loc)
    if isinstance(location, ir.CallSiteLoc):
        return _first_line(location.callee)
    if isinstance(location, ir.FusedLoc):
        found = (_first_line(child) for child in location.locations)
        return next((place for place in found if place is not None), None)
    return None


@dataclass(frozen=True)
class Expectation:
    """One `expected-...` comment; line 0 stands for an unknown place."""

    line: int
    severity: str
    text: str
    is_regex: bool

    def matches(self, diagnostic: Diagnostic) -> bool:
        """Whether `diagnostic` is the one expected: its message contains the text, and its line,
        where it has one, is the line meant (errors of own passes name ops, not always lines)."""
        if diagnostic.severity != self.severity or diagnostic.line not in (0, self.line):
            return False
        if self.is_regex:
            return re.search(self.text, diagnostic.message) is not None
        return self.text in diagnostic.message


def expectations(text: str) -> list[Expectation]:
    """All `expected-...` comments of `text`, with the lines they mean."""
    found: list[Expectation] = []
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        for match in EXPECTATION.finditer(line):
            place = _line_meant(match["place"], number, lines)
            found.append(
                Expectation(place, match["severity"], match["text"], match["regex"] is not None)
            )
    return found


def _line_meant(place: str | None, number: int, lines: Sequence[str]) -> int:
    if place == "unknown":
        return 0
    if place in ("above", "below"):
        step = 1 if place == "below" else -1
        number += step
        while 0 < number <= len(lines) and EXPECTATION.search(lines[number - 1]):
            number += step
        return number
    return number + int(place or 0)


def check_expectations(text: str, diagnostics: Sequence[Diagnostic], file: str) -> list[Diagnostic]:
    """What differs between the comments of `text` and `diagnostics`; empty when all agree.

    Notes, warnings and remarks that no comment expects are ignored; errors are not.
    """
    left = list(diagnostics)
    problems: list[Diagnostic] = []
    for expected in expectations(text):
        hit = next((d for d in left if expected.matches(d)), None)
        if hit is None:
            sentence = f'expected {expected.severity} "{expected.text}" was not produced'
            problems.append(Diagnostic(file, expected.line, 1, "error", sentence))
        else:
            left.remove(hit)
    for extra in left:
        if extra.severity == "error":
            sentence = f"unexpected {extra.severity}: {extra.message}"
            problems.append(Diagnostic(extra.file, extra.line, extra.column, "error", sentence))
    return problems
