"""Checks inside StableHLO programs, as its own test suites have them.

    check.expect_eq_const %0, dense<[1, 3]> : tensor<2xi32>
    stablehlo.custom_call @check.expect_close(%1, %2) {has_side_effect = true} : ..

What is compared becomes two hidden results of the program, which the run time compares after each
call; `@check.eq`, which gives a boolean, is computed. The dialect `check` is not in the wheel: its
operations are read in MLIR's generic form and become custom calls.

Semantics: https://github.com/openxla/stablehlo (stablehlo/tests/CheckOps.td).
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from stepwell.artifact import Check
from stepwell.dialects import stablehlo as hlo
from stepwell.errors import ModelError
from stepwell.mlir import ir, nested_operations

_DIALECT = b"check."
_CUSTOM_CALL = "stablehlo.custom_call"

_OF_TWO = re.compile(
    r"check\.(expect_eq|expect_almost_eq|expect_close)\s*(%[\w#$.-]+)\s*,\s*(%[\w#$.-]+)"
    r"((?:\s*,\s*\w+\s*=\s*[\w.+-]+)*)\s*(?:\{([^}]*)\})?\s*:\s*(tensor<[^\n,]*>)"
    r"(?:\s*,\s*tensor<[^\n]*>)?"
)
_OF_CONSTANT = re.compile(
    r"check\.(expect_eq|expect_almost_eq)_const\s*(%[\w#$.-]+)\s*,"
    r"\s*(dense<.*?>)\s*:\s*(tensor<[^\n{]*>)\s*(?:\{([^}]*)\})?",
    re.DOTALL,
)
_GENERIC_CONSTANT = re.compile(
    r'"check\.(expect_eq|expect_almost_eq)_const"\((%[\w#$.-]+)\)\s*<?\{([^{}<>]*?)\bvalue\s*='
    r"\s*(dense<.*?>)\s*:\s*(tensor<[^\n}]*>)([^}]*)\}>?\s*:\s*\(tensor<[^\n]*>\)\s*->\s*\(\)",
    re.DOTALL,
)
_SETTING = re.compile(r"(\w+)\s*=\s*([\w.+-]+)")

_ALMOST_EQ_TOLERANCE = {"check": 1e-4, _CUSTOM_CALL: 1e-3}
"""What `expect_almost_eq` allows unless it says so, as an operation and as a custom call."""

_CLOSE_ULPS = 3


def has_checks(data: bytes) -> bool:
    """Whether text or bytecode may have checks."""
    return _DIALECT in data


def without_check_syntax(text: str) -> str:
    """`text` with operations of the dialect `check` in MLIR's generic form, and constants in them
    as operations: the bindings cannot read attributes of complex numbers."""

    def of_two(match: re.Match[str]) -> str:
        name, actual, expected, inner, outer, kind = match.groups()
        settings = _settings(f"{inner} {outer or ''}")
        return f'"check.{name}"({actual}, {expected}) {settings} : ({kind}, {kind}) -> ()'

    def of_constant(match: re.Match[str]) -> str:
        name, actual, value, kind, outer = match.groups()
        return comparison(match.start(), name, actual, value, kind, outer or "")

    def generic(match: re.Match[str]) -> str:
        name, actual, before, value, kind, after = match.groups()
        return comparison(match.start(), name, actual, value, kind, before + after)

    def comparison(place: int, name: str, actual: str, value: str, kind: str, settings: str) -> str:
        expected = f"%check_{place}"
        return (
            f"{expected} = stablehlo.constant {value} : {kind}\n"
            f'"check.{name}"({actual}, {expected}) {_settings(settings)} : ({kind}, {kind}) -> ()'
        )

    text = _GENERIC_CONSTANT.sub(generic, text)
    return _OF_CONSTANT.sub(of_constant, _OF_TWO.sub(of_two, text))


def _settings(text: str) -> str:
    """An attribute dictionary of the numbers in `text`, integers of 64 bits and floats."""
    numbers = [
        f"{name} = {value} : i64" if "_ulp_" in name else f"{name} = {float(value):.17e} : f64"
        for name, value in _SETTING.findall(text)
    ]
    return f"{{{', '.join(numbers)}}}"


def make_custom_calls(module: ir.Module) -> None:
    """Turn operations of the dialect `check` into custom calls, which passes know."""
    for op in nested_operations(module.operation):
        if not op.name.startswith("check."):
            continue
        with op.location, ir.InsertionPoint(op):
            attributes: dict[str, ir.Attribute] = {
                "call_target_name": ir.StringAttr.get(op.name),
                "has_side_effect": ir.BoolAttr.get(True),
            }
            if op.name == "check.expect_almost_eq":
                attributes["tolerance"] = ir.FloatAttr.get_f64(_ALMOST_EQ_TOLERANCE["check"])
            attributes |= {key: op.attributes[key] for key in op.attributes}
            ir.Operation.create(_CUSTOM_CALL, [], list(op.operands), attributes)
        op.erase()


def take_checks(main: ir.Operation) -> tuple[Check, ...]:
    """Make what checks of `main` compare its last results; those that give a boolean are computed.

    Raises ModelError for a check inside a loop or a branch.
    """
    block = main.regions[0].blocks[0]
    end = list(block.operations)[-1].operation
    results, checks = list(end.operands), []
    for op in nested_operations(main):
        target = _target(op)
        if not target.startswith("check."):
            continue
        if target == "check.eq":
            with op.location, ir.InsertionPoint(op):
                op.results[0].replace_all_uses_with(_equal(*op.operands))
        elif target.removeprefix("check.") not in _LIMITS or len(op.operands) != 2:
            raise ModelError(f"{target} is no check that can be made when the program runs")
        elif op.parent != main:
            raise ModelError(f"{target} stands inside a loop or a branch, where it cannot be made")
        else:
            low, high = _LIMITS[target.removeprefix("check.")](op)
            count = len(results)
            checks.append(Check(target, count, count + 1, low, high))
            results += op.operands
        op.erase()
    if checks:
        with end.location, ir.InsertionPoint(end):
            ir.Operation.create("func.return", [], results)
        end.erase()
        kinds = [argument.type for argument in block.arguments], [v.type for v in results]
        main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(*kinds))
    return tuple(checks)


def _target(op: ir.Operation) -> str:
    if op.name != _CUSTOM_CALL:
        return ""
    return ir.StringAttr(op.attributes["call_target_name"]).value


def _ulps(op: ir.Operation) -> tuple[float, float]:
    least, most = (
        ir.IntegerAttr(op.attributes[key]).value if key in op.attributes else default
        for key, default in (("min_ulp_difference", 0), ("max_ulp_difference", _CLOSE_ULPS))
    )
    return least, most


def _tolerance(op: ir.Operation) -> tuple[float, float]:
    if "tolerance" in op.attributes:
        return 0, ir.FloatAttr(op.attributes["tolerance"]).value
    return 0, _ALMOST_EQ_TOLERANCE[_CUSTOM_CALL]


_LIMITS: dict[str, Callable[[ir.Operation], tuple[float, float]]] = {
    "expect_eq": lambda op: (0, 0),
    "expect_almost_eq": _tolerance,
    "expect_close": _ulps,
}
"""The least and the largest difference that a check allows."""


def _equal(actual: ir.Value, expected: ir.Value) -> ir.Value:
    """A boolean: integers are equal, floats as near as `expect_almost_eq` wants them."""
    if isinstance(hlo.element_type(actual), ir.ComplexType):
        pairs = [(hlo.unary(part, actual), hlo.unary(part, expected)) for part in ("real", "imag")]
    else:
        pairs = [(actual, expected)]
    verdicts = [
        hlo.reduce(near, hlo.full(True, (), bool), dimensions, "and")
        for near, dimensions in map(_near, *zip(*pairs, strict=True))
    ]
    return verdicts[0] if len(verdicts) == 1 else hlo.binary("and", *verdicts)


def _near(actual: ir.Value, expected: ir.Value) -> tuple[ir.Value, range]:
    """Whether each element is near, and all dimensions."""
    same = hlo.compare(actual, expected, "EQ")
    dimensions = range(len(hlo.shape(actual)))
    if hlo.dtype(actual).kind in "iub":
        return same, dimensions
    wide = np.float64 if hlo.dtype(actual) == np.float64 else np.float32
    a, b = hlo.convert(actual, wide), hlo.convert(expected, wide)
    distance = hlo.unary("abs", hlo.binary("subtract", a, b))
    limit = hlo.full_like(distance, _ALMOST_EQ_TOLERANCE["check"])
    near = hlo.compare(distance, limit, "LE")
    unordered = [hlo.compare(value, value, "NE") for value in (a, b)]
    same = hlo.binary("or", same, hlo.binary("and", *unordered))
    return hlo.binary("or", same, near), dimensions
